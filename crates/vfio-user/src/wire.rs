//! The messages of vfio-user (protocol 0.0 and 0.1) as checked values. Accepts any bytes: nothing here panics on them, allocates for them
//! or acts on them.
//!
//! Integers are little-endian (the protocol says *native*; every known client runs on such a machine). A message is a [`Header`] and a
//! body. A client's message is a [`Request`]; the functions of [`reply`] make replies.

/// Size of a header in bytes.
pub const HEADER: usize = 16;
/// Most bytes of data in one message, in either direction, as stated in the version reply.
pub const MAX_TRANSFER: usize = 1 << 20;
/// Most file descriptors in one message.
pub const MAX_FDS: usize = 8;
/// Most bytes of a message that is accepted: data, and the largest structure before them.
pub const MAX_MESSAGE: usize = HEADER + 64 + MAX_TRANSFER;
/// Most writes in one `REGION_WRITE_MULTI`.
const MAX_WRITES: u64 = 200;

/// Numbers of the commands.
pub mod command {
    #![allow(missing_docs)]
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const GET_INFO: u16 = 4;
    pub const GET_REGION_INFO: u16 = 5;
    pub const GET_IRQ_INFO: u16 = 7;
    pub const SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DMA_READ: u16 = 11;
    pub const DMA_WRITE: u16 = 12;
    pub const RESET: u16 = 13;
    pub const REGION_WRITE_MULTI: u16 = 15;
}

const TYPE: u32 = 0xf;
const REPLY: u32 = 1;
const NO_REPLY: u32 = 0x10;
const ERROR: u32 = 0x20;

/// The reason why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The size is below that of a header or above [`MAX_MESSAGE`]: the stream cannot be followed any further.
    #[error("invalid message size: {0} bytes")]
    Size(u32),
    /// The message is neither a request nor a reply: the stream cannot be followed any further.
    #[error("unknown message type: flags {0:#x}")]
    Type(u32),
    /// The body is shorter than its command needs, or contradicts its length.
    #[error("command {command} has a body of {given} bytes, expected {needed}")]
    Body {
        /// Number of the command.
        command: u16,
        /// Bytes received.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// The command is not implemented.
    #[error("command {0} is not implemented")]
    Command(u16),
    /// The version's capabilities are not the expected JSON object.
    #[error("the capabilities are not the expected JSON object")]
    Capabilities,
}

/// The header of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number that matches a reply to its request. Each side numbers its own requests.
    pub id: u16,
    /// Command number; in a reply, that of the request.
    pub command: u16,
    /// Size of the message in bytes, including this header.
    pub size: u32,
    flags: u32,
    error: u32,
}

impl Header {
    /// Makes the header of a request with a body of `body` bytes. A posted one gets no reply.
    pub fn request(id: u16, command: u16, body: usize, posted: bool) -> Header {
        let flags = if posted { NO_REPLY } else { 0 };
        Header { id, command, size: (HEADER + body) as u32, flags, error: 0 }
    }

    /// Makes the header of the reply to `to` with a body of `body` bytes.
    pub fn reply(to: &Header, body: usize) -> Header {
        Header { size: (HEADER + body) as u32, flags: REPLY, error: 0, ..*to }
    }

    /// Makes the header of the reply to `to` that reports a failure.
    pub fn refusal(to: &Header, errno: u32) -> Header {
        Header { size: HEADER as u32, flags: REPLY | ERROR, error: errno, ..*to }
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// [`WireError::Size`] and [`WireError::Type`], after either of which the stream is unusable.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, WireError> {
        let mut fields = Fields(bytes);
        let (id, command) = (fields.u16(), fields.u16());
        let (size, flags, error) = (fields.u32(), fields.u32(), fields.u32());
        if (size as usize) < HEADER || size as usize > MAX_MESSAGE {
            return Err(WireError::Size(size));
        }
        if flags & TYPE > REPLY {
            return Err(WireError::Type(flags));
        }
        Ok(Header { id, command, size, flags, error })
    }

    /// Encodes the header.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.error.to_le_bytes());
        bytes
    }

    /// Returns the size of the body in bytes.
    pub fn body(&self) -> usize {
        (self.size as usize).saturating_sub(HEADER)
    }

    /// Returns true if this answers a request.
    pub fn is_reply(&self) -> bool {
        self.flags & TYPE == REPLY
    }

    /// Returns true if the sender of this request wants no answer.
    pub fn is_posted(&self) -> bool {
        self.flags & NO_REPLY != 0
    }

    /// Returns the errno of a reply that reports a failure.
    pub fn failure(&self) -> Option<u32> {
        (self.flags & ERROR != 0).then_some(self.error)
    }
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Protocol version of the client. The first message of a connection.
    Version(Version),
    /// Memory that the device may reach from now on; by mapping the file descriptor, if there is one.
    DmaMap(DmaMap),
    /// Memory that the device may no longer reach.
    DmaUnmap(DmaUnmap),
    /// Query of the device's kind.
    Info,
    /// Query of a region's size, and whether it may be mapped.
    RegionInfo(u32),
    /// Query of an interrupt kind's number of vectors.
    IrqInfo(u32),
    /// Setting of interrupts' targets.
    SetIrqs(SetIrqs),
    /// A trapped load.
    Read(Access),
    /// A trapped store.
    Write(Access, &'a [u8]),
    /// Several trapped stores of at most 8 bytes.
    WriteMulti(Writes<'a>),
    /// Reset of the device to its initial state.
    Reset,
}

/// The client's version and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Most bytes of data that the client takes in one message.
    pub max_transfer: usize,
}

/// A piece of memory for the device to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// Set if the device may read there.
    pub readable: bool,
    /// Set if the device may write there.
    pub writable: bool,
    /// Offset in the file that was passed along.
    pub offset: u64,
    /// Bus address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A piece of memory that the device must no longer reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// Set for all memory, whatever the range says.
    pub all: bool,
    /// Bus address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The targets of interrupts of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs {
    /// Interrupt kind: `IRQ_MSIX` and so on.
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Number of vectors.
    pub count: u32,
    /// Set to change the eventfds to signal (none passed: remove them). Otherwise the request is for something that does not concern MSI-X,
    /// except to remove all if `count` is 0.
    pub eventfds: bool,
    /// Set for the action *trigger*, which eventfds are passed with.
    pub trigger: bool,
}

/// A trapped access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Offset in the region.
    pub offset: u64,
    /// Number of the region.
    pub region: u32,
    /// Length in bytes, at most [`MAX_TRANSFER`].
    pub count: u32,
}

/// The stores of a `REGION_WRITE_MULTI`, each checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes<'a>(&'a [u8]);

impl<'a> Writes<'a> {
    /// Returns the stores in order.
    pub fn iter(self) -> impl Iterator<Item = (Access, &'a [u8])> {
        self.0.chunks_exact(24).map(|one| {
            let access = Fields(one).access();
            (access, &one[16..16 + access.count.min(8) as usize])
        })
    }
}

impl<'a> Request<'a> {
    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// [`WireError::Body`], [`WireError::Command`] and [`WireError::Capabilities`]: an answer for the client, which may continue.
    pub fn parse(command: u16, body: &'a [u8]) -> Result<Request<'a>, WireError> {
        use self::command as is;
        let mut fields = Fields::of(command, body)?;
        Ok(match command {
            is::VERSION => Request::Version(version(fields.u16(), fields.u16(), &body[4..])?),
            is::DMA_MAP => {
                let (_argsz, flags) = (fields.u32(), fields.u32());
                let (offset, address, length) = (fields.u64(), fields.u64(), fields.u64());
                let (readable, writable) = (flags & 1 != 0, flags & 2 != 0);
                Request::DmaMap(DmaMap { readable, writable, offset, address, length })
            }
            is::DMA_UNMAP => {
                let (_argsz, flags) = (fields.u32(), fields.u32());
                Request::DmaUnmap(DmaUnmap {
                    all: flags & 2 != 0,
                    address: fields.u64(),
                    length: fields.u64(),
                })
            }
            is::GET_INFO => Request::Info,
            is::GET_REGION_INFO => Request::RegionInfo(fields.skip(8).u32()),
            is::GET_IRQ_INFO => Request::IrqInfo(fields.skip(8).u32()),
            is::SET_IRQS => {
                let (_argsz, flags) = (fields.u32(), fields.u32());
                let (index, start, count) = (fields.u32(), fields.u32(), fields.u32());
                let (eventfds, trigger) = (flags & 4 != 0, flags & 32 != 0);
                Request::SetIrqs(SetIrqs { index, start, count, eventfds, trigger })
            }
            is::REGION_READ => {
                let access = fields.access();
                check(command, 0, access.count as usize, MAX_TRANSFER)?;
                Request::Read(access)
            }
            is::REGION_WRITE => {
                let access = fields.access();
                let needed = 16 + access.count as usize;
                let data =
                    body.get(16..needed).ok_or(WireError::Body { command, given: body.len(), needed })?;
                Request::Write(access, data)
            }
            is::REGION_WRITE_MULTI => Request::WriteMulti(writes(fields.u64(), body)?),
            is::RESET => Request::Reset,
            unknown => return Err(WireError::Command(unknown)),
        })
    }
}

/// Parses a version's body: two numbers, and capabilities as JSON with a zero at the end, or nothing.
fn version(major: u16, minor: u16, json: &[u8]) -> Result<Version, WireError> {
    // The protocol's default if nothing is specified.
    let mut version = Version { major, minor, max_transfer: MAX_TRANSFER };
    let json = json.split(|byte| *byte == 0).next().unwrap_or_default();
    if !json.is_empty() {
        let value: serde_json::Value = serde_json::from_slice(json).map_err(|_| WireError::Capabilities)?;
        if let Some(most) = value.pointer("/capabilities/max_data_xfer_size") {
            let most = most.as_u64().filter(|most| *most >= 4096).ok_or(WireError::Capabilities)?;
            version.max_transfer = most.min(MAX_TRANSFER as u64) as usize;
        }
    }
    Ok(version)
}

fn writes(count: u64, body: &[u8]) -> Result<Writes<'_>, WireError> {
    let refused =
        |needed| WireError::Body { command: command::REGION_WRITE_MULTI, given: body.len(), needed };
    let needed = 8 + 24 * count.min(MAX_WRITES + 1) as usize;
    let ones = body.get(8..needed).filter(|_| count <= MAX_WRITES).ok_or(refused(needed))?;
    match ones.chunks_exact(24).find(|one| Fields(one).access().count > 8) {
        Some(_) => Err(refused(needed)),
        None => Ok(Writes(ones)),
    }
}

fn check(command: u16, least: usize, given: usize, most: usize) -> Result<(), WireError> {
    let needed = if given < least { least } else { most };
    if (least..=most).contains(&given) { Ok(()) } else { Err(WireError::Body { command, given, needed }) }
}

/// A reader of fields in sequence. Missing bytes are zeros, which no caller encounters: [`Fields::of`] checked the length.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn of(command: u16, body: &'a [u8]) -> Result<Fields<'a>, WireError> {
        use self::command as is;
        let least = match command {
            is::VERSION => 4,
            is::DMA_MAP => 32,
            is::DMA_UNMAP => 24,
            is::GET_REGION_INFO | is::GET_IRQ_INFO => 12,
            is::SET_IRQS => 20,
            is::REGION_READ | is::REGION_WRITE => 16,
            is::REGION_WRITE_MULTI => 8,
            _ => 0,
        };
        check(command, least, body.len(), MAX_MESSAGE)?;
        Ok(Fields(body))
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (mut field, at) = ([0; N], N.min(self.0.len()));
        let (taken, left) = self.0.split_at(at);
        field[..at].copy_from_slice(taken);
        self.0 = left;
        field
    }

    fn skip(&mut self, bytes: usize) -> &mut Fields<'a> {
        self.0 = self.0.get(bytes..).unwrap_or_default();
        self
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn access(&mut self) -> Access {
        Access { offset: self.u64(), region: self.u32(), count: self.u32() }
    }
}

/// Bodies of replies.
pub mod reply {
    use super::{Access, MAX_FDS, MAX_TRANSFER};

    /// Makes the version reply to a client with minor version `minor`.
    pub fn version(minor: u16) -> Vec<u8> {
        let mut body = vec![0, 0];
        body.extend(minor.min(1).to_le_bytes());
        let limits = format!("\"max_msg_fds\":{MAX_FDS},\"max_data_xfer_size\":{MAX_TRANSFER}");
        body.extend(format!("{{\"capabilities\":{{{limits}}}}}\0").bytes());
        body
    }

    /// Describes a PCI device that can be reset, with this many regions and interrupt kinds.
    pub fn info(regions: u32, irqs: u32) -> Vec<u8> {
        words(&[16, 1 | 2, regions, irqs])
    }

    /// Describes a region.
    pub fn region(index: u32, size: u64, mappable: bool) -> Vec<u8> {
        let flags = if size == 0 { 0 } else { 1 | 2 | u32::from(mappable) << 2 };
        let mut body = words(&[32, flags, index, 0]);
        body.extend(size.to_le_bytes());
        body.extend(0u64.to_le_bytes());
        body
    }

    /// Describes an interrupt kind. Its vectors, if any, are eventfds, all set at once.
    pub fn irq(index: u32, count: u32) -> Vec<u8> {
        words(&[16, if count == 0 { 0 } else { 1 | 8 }, index, count])
    }

    /// Makes the beginning of the reply to a trapped access; a load's data follow.
    pub fn access(access: &Access) -> Vec<u8> {
        let mut body = access.offset.to_le_bytes().to_vec();
        body.extend(words(&[access.region, access.count]));
        body
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// The position of the payload in a DMA message, counted from the message's first byte.
///
/// The protocol has a 64-bit count followed by the payload. Some clients put it 4 bytes earlier (a 32-bit count), in messages of the same
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// After a 64-bit count, as in the specification.
    At32,
    /// After a 32-bit count.
    At28,
}

impl Payload {
    fn offset(self) -> usize {
        match self {
            Payload::At32 => 16,
            Payload::At28 => 12,
        }
    }
}

/// Makes the message that reads `count` bytes at `address`.
pub fn dma_read(id: u16, address: u64, count: usize) -> Vec<u8> {
    let mut message = Header::request(id, command::DMA_READ, 16, false).to_bytes().to_vec();
    message.extend(address.to_le_bytes());
    message.extend((count as u64).to_le_bytes());
    message
}

/// Makes the message that writes `data` at `address`. A posted one gets no reply.
pub fn dma_write(id: u16, address: u64, data: &[u8], payload: Payload, posted: bool) -> Vec<u8> {
    let body = 16 + data.len();
    let mut message = Vec::with_capacity(HEADER + body);
    message.extend(Header::request(id, command::DMA_WRITE, body, posted).to_bytes());
    message.extend(address.to_le_bytes());
    message.extend((data.len() as u64).to_le_bytes());
    message.truncate(HEADER + payload.offset());
    message.extend(data);
    message.resize(HEADER + body, 0);
    message
}

/// Returns the `count` bytes in a reply to [`dma_read`], if it is one.
pub fn dma_data(body: &[u8], count: usize, payload: Payload) -> Option<&[u8]> {
    let start = payload.offset();
    body.get(start..start.checked_add(count)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_it_was_made_of() {
        let header = Header::request(7, command::DMA_READ, 16, false);
        assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        let reply = Header::parse(&Header::refusal(&header, 22).to_bytes()).unwrap();
        assert!(reply.is_reply() && reply.failure() == Some(22) && reply.body() == 0 && reply.id == 7);
        assert!(Header::request(1, command::DMA_WRITE, 20, true).is_posted());
    }

    #[test]
    fn a_stream_that_cannot_be_followed_is_seen() {
        let mut bytes = Header::request(1, 1, 0, false).to_bytes();
        bytes[4] = 15;
        assert_eq!(Header::parse(&bytes), Err(WireError::Size(15)));
        bytes[4..8].copy_from_slice(&(MAX_MESSAGE as u32 + 1).to_le_bytes());
        assert!(matches!(Header::parse(&bytes), Err(WireError::Size(_))));
        bytes[4..9].copy_from_slice(&[16, 0, 0, 0, 2]);
        assert_eq!(Header::parse(&bytes), Err(WireError::Type(2)));
    }

    #[test]
    fn a_version_says_how_much_fits() {
        let parsed = |json: &str| {
            let body = [&[0, 0, 1, 0], json.as_bytes()].concat();
            Request::parse(command::VERSION, &body).map(|request| match request {
                Request::Version(version) => (version.minor, version.max_transfer),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(parsed(""), Ok((1, MAX_TRANSFER)));
        assert_eq!(parsed("{\"capabilities\":{\"max_data_xfer_size\":8192}}\0"), Ok((1, 8192)));
        assert_eq!(parsed("{\"capabilities\":{\"max_data_xfer_size\":1e9}}"), Err(WireError::Capabilities));
        assert_eq!(parsed("{\"capabilities\":{\"max_data_xfer_size\":1}}"), Err(WireError::Capabilities));
        assert_eq!(parsed("{"), Err(WireError::Capabilities));
    }

    #[test]
    fn a_store_has_the_bytes_that_it_speaks_of() {
        let mut body = reply::access(&Access { offset: 8, region: 0, count: 4 });
        assert!(Request::parse(command::REGION_WRITE, &body).is_err());
        body.extend([1, 2, 3, 4]);
        let access = Access { offset: 8, region: 0, count: 4 };
        assert_eq!(Request::parse(command::REGION_WRITE, &body), Ok(Request::Write(access, &[1, 2, 3, 4])));
        body[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Request::parse(command::REGION_WRITE, &body).is_err());
        assert!(Request::parse(command::REGION_READ, &body).is_err(), "more than fits into a reply");
    }

    #[test]
    fn several_stores_are_read_one_by_one() {
        let one = |offset, count, data: u64| {
            [reply::access(&Access { offset, region: 2, count }), data.to_le_bytes().to_vec()].concat()
        };
        let body = [2u64.to_le_bytes().to_vec(), one(4, 4, 0x0403_0201), one(16, 8, u64::MAX)].concat();
        let Ok(Request::WriteMulti(writes)) = Request::parse(command::REGION_WRITE_MULTI, &body) else {
            panic!()
        };
        let seen: Vec<_> = writes.iter().map(|(access, data)| (access.offset, data.to_vec())).collect();
        assert_eq!(seen, [(4, vec![1, 2, 3, 4]), (16, vec![0xff; 8])]);
        for broken in
            [vec![9; 8], u64::MAX.to_le_bytes().to_vec(), [vec![1; 1], vec![0; 7], one(0, 9, 0)].concat()]
        {
            assert!(Request::parse(command::REGION_WRITE_MULTI, &broken).is_err());
        }
    }

    #[test]
    fn dma_messages_are_of_one_length_whatever_the_payload_s_place() {
        for payload in [Payload::At32, Payload::At28] {
            let message = dma_write(3, 0x1000, b"abcd", payload, true);
            assert_eq!(message.len(), 36);
            let header = Header::parse(message[..16].try_into().unwrap()).unwrap();
            assert_eq!(header.size, 36);
            assert_eq!(dma_data(&message[16..], 4, payload), Some(&b"abcd"[..]));
        }
        assert_eq!(dma_data(&[0; 19], 4, Payload::At32), None);
        assert_eq!(dma_data(&[0; 19], usize::MAX, Payload::At32), None);
    }
}
