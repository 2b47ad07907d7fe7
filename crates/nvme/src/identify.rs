//! Identify data: a controller's description of itself and its namespaces. [base 5.17.2, NVM 4.1.5]
//!
//! The structures have the fields that this project reads or writes; the rest of the data are zeros when they are written.

use crate::bytes::{array_at, put, u16_at, u32_at, u64_at};

/// Size of each data structure in bytes.
pub const SIZE: usize = 4096;

/// CNS: a namespace, by the NVM command set: [`Namespace`]. [NVM 4.1.5.1]
pub const NAMESPACE: u8 = 0x00;
/// CNS: the controller: [`Controller`]. [base 5.17.2.1]
pub const CONTROLLER: u8 = 0x01;
/// CNS: the numbers of active namespaces: [`active_namespaces`]. [base 5.17.2.2]
pub const ACTIVE_NAMESPACES: u8 = 0x02;
/// CNS: the identifiers of a namespace, as descriptors. [base 5.17.2.3]
pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
/// CNS: a namespace, by the command set that CSI names. [NVM 4.1.5.2]
pub const NAMESPACE_OF_SET: u8 = 0x05;
/// CNS: the controller, by the command set that CSI names. [NVM 4.1.5.4]
pub const CONTROLLER_OF_SET: u8 = 0x06;
/// CNS: the numbers of active namespaces of the command set that CSI names. [base 5.17.2.7]
pub const ACTIVE_NAMESPACES_OF_SET: u8 = 0x07;
/// CNS: a namespace, whatever its command set: [`AnyNamespace`]. [base 2.1 5.1.13.2.8]
pub const ANY_NAMESPACE: u8 = 0x08;
/// CNS: the numbers of allocated namespaces, as those of active ones. [base 2.1 5.1.13.2.9]
pub const ALLOCATED_NAMESPACES: u8 = 0x10;
/// CNS: an allocated namespace: [`Namespace`]. [base 2.1 5.1.13.2.10]
pub const ALLOCATED_NAMESPACE: u8 = 0x11;
/// CNS: the numbers of controllers to which a namespace is attached: [`controllers_bytes`]. [base 2.1 5.1.13.2.11]
pub const CONTROLLERS_OF_NAMESPACE: u8 = 0x12;
/// CNS: the numbers of the subsystem's controllers: [`controllers_bytes`]. [base 2.1 5.1.13.2.12]
pub const CONTROLLERS: u8 = 0x13;
/// CNS: the combinations of command sets that can be selected: [`command_sets_bytes`]. [base 2.1 5.1.13.2.19]
pub const COMMAND_SETS: u8 = 0x1c;

/// Command sets (CSI), by which identify data name them. [base 2.1 figure 311]
pub mod set {
    /// NVM: logical blocks.
    pub const NVM: u8 = 0;
    /// Subsystem local memory: [`local_memory`](crate::local_memory).
    pub const LOCAL_MEMORY: u8 = 3;
    /// Computational programs: [`programs`](crate::programs).
    pub const PROGRAMS: u8 = 4;
}

/// The sizes of queue entries that a controller supports, as powers of two. [base figure 275, SQES, CQES]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntrySizes {
    /// Size that every controller must support.
    pub least: u8,
    /// Largest size.
    pub most: u8,
}

impl EntrySizes {
    fn from_bits(bits: u8) -> EntrySizes {
        EntrySizes { least: bits & 0xf, most: bits >> 4 }
    }

    fn bits(self) -> u8 {
        self.most << 4 | self.least & 0xf
    }

    /// Returns true if entries of `1 << shift` bytes are supported.
    pub fn contains(self, shift: u8) -> bool {
        (self.least..=self.most).contains(&shift)
    }
}

/// A controller's support for scatter gather lists. [base figure 275, SGLS bits 1:0]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sgl {
    /// No support.
    #[default]
    No,
    /// Support for any address and length.
    Bytes,
    /// Support for addresses and lengths that are multiples of four.
    DoubleWords,
}

/// Identify data of a controller. [base figure 275]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// PCI vendor (VID).
    pub vendor: u16,
    /// Serial number, padded with spaces (SN).
    pub serial: [u8; 20],
    /// Model, padded with spaces (MN).
    pub model: [u8; 40],
    /// Firmware revision, padded with spaces (FR).
    pub firmware: [u8; 8],
    /// Sharing of its namespaces (CMIC): bit 1, with other controllers.
    pub sharing: u8,
    /// Most data of a command, as `1 << max_transfer` of the smallest memory pages; 0: any length (MDTS).
    pub max_transfer: u8,
    /// Number of the controller in its subsystem (CNTLID).
    pub number: u16,
    /// Version, as in the register (VER).
    pub version: u32,
    /// Optional asynchronous events (OAES): bit 8, changed namespaces.
    pub events: u32,
    /// Attributes (CTRATT): bit 0, host identifiers of 16 bytes.
    pub attributes: u32,
    /// Kind (CNTRLTYPE): 1, an I/O controller.
    pub kind: u8,
    /// Optional admin commands (OACS): bit 8, doorbell buffer config.
    pub optional_admin: u16,
    /// Most Abort commands that may be outstanding, 1 to 256. ACL is one less.
    pub aborts: u16,
    /// Most asynchronous event requests that may be outstanding, 1 to 256. AERL is one less.
    pub event_requests: u16,
    /// Firmware slots (FRMW): bit 0, the first is read only; bits 3:1, their number.
    pub firmware_slots: u8,
    /// Log pages (LPA): bit 2, support for offsets and any length.
    pub log_pages: u8,
    /// Number of entries of the error log, 1 to 256. ELPE is one less.
    pub error_entries: u16,
    /// Temperature that causes a warning, in Kelvin (WCTEMP).
    pub warning_temperature: u16,
    /// Temperature that is critical, in Kelvin (CCTEMP).
    pub critical_temperature: u16,
    /// Granularity of the keep alive timer, in units of 100 ms; 0 if there is none (KAS).
    pub keep_alive: u16,
    /// Sizes of submission entries (SQES).
    pub submission_entries: EntrySizes,
    /// Sizes of completion entries (CQES).
    pub completion_entries: EntrySizes,
    /// Largest namespace number (NN).
    pub namespaces: u32,
    /// Optional commands (ONCS): bit 2, dataset management; bit 3, write zeroes; bit 6, the timestamp feature; bit 8, copy.
    pub optional_commands: u16,
    /// Forms of the sources of copies (CDFS): bit n, form n.
    pub copy_forms: u16,
    /// Set if there is a volatile write cache: without one, flush does nothing (VWC bit 0).
    pub write_cache: bool,
    /// Effect of a flush of all namespaces (VWC bits 2:1), of 2 bits: 3, it flushes them.
    pub flush_all: u8,
    /// Support for scatter gather lists (SGLS bits 1:0).
    pub sgl: Sgl,
    /// Set if bit buckets are supported (SGLS bit 16).
    pub bit_buckets: bool,
    /// Name of the subsystem, terminated by zeros (SUBNQN).
    pub subsystem: [u8; 256],
    /// Maximum power of power state 0, in hundredths of a watt (PSD0).
    pub power: u16,
}

impl Controller {
    /// Decodes identify data.
    pub fn from_bytes(data: &[u8; SIZE]) -> Controller {
        let sgls = u32_at(data, 536);
        Controller {
            vendor: u16_at(data, 0),
            serial: array_at(data, 4),
            model: array_at(data, 24),
            firmware: array_at(data, 64),
            sharing: data[76],
            max_transfer: data[77],
            number: u16_at(data, 78),
            version: u32_at(data, 80),
            events: u32_at(data, 92),
            attributes: u32_at(data, 96),
            kind: data[111],
            optional_admin: u16_at(data, 256),
            aborts: u16::from(data[258]) + 1,
            event_requests: u16::from(data[259]) + 1,
            firmware_slots: data[260],
            log_pages: data[261],
            error_entries: u16::from(data[262]) + 1,
            warning_temperature: u16_at(data, 266),
            critical_temperature: u16_at(data, 268),
            keep_alive: u16_at(data, 320),
            submission_entries: EntrySizes::from_bits(data[512]),
            completion_entries: EntrySizes::from_bits(data[513]),
            namespaces: u32_at(data, 516),
            optional_commands: u16_at(data, 520),
            copy_forms: u16_at(data, 534),
            write_cache: data[525] & 1 != 0,
            flush_all: data[525] >> 1 & 3,
            sgl: match sgls & 3 {
                1 => Sgl::Bytes,
                2 => Sgl::DoubleWords,
                _ => Sgl::No,
            },
            bit_buckets: sgls >> 16 & 1 != 0,
            subsystem: array_at(data, 768),
            power: u16_at(data, 2048),
        }
    }

    /// Encodes it as identify data.
    pub fn bytes(&self) -> [u8; SIZE] {
        let one_less = |count: u16| [count.saturating_sub(1) as u8];
        let mut data = [0; SIZE];
        let mut put = |at, bytes: &[u8]| put(&mut data, at, bytes);
        put(0, &self.vendor.to_le_bytes());
        put(4, &self.serial);
        put(24, &self.model);
        put(64, &self.firmware);
        put(76, &[self.sharing, self.max_transfer]);
        put(78, &self.number.to_le_bytes());
        put(80, &self.version.to_le_bytes());
        put(92, &self.events.to_le_bytes());
        put(96, &self.attributes.to_le_bytes());
        put(111, &[self.kind]);
        put(256, &self.optional_admin.to_le_bytes());
        put(258, &one_less(self.aborts));
        put(259, &one_less(self.event_requests));
        put(260, &[self.firmware_slots, self.log_pages]);
        put(262, &one_less(self.error_entries));
        put(266, &self.warning_temperature.to_le_bytes());
        put(268, &self.critical_temperature.to_le_bytes());
        put(320, &self.keep_alive.to_le_bytes());
        put(512, &[self.submission_entries.bits(), self.completion_entries.bits()]);
        put(516, &self.namespaces.to_le_bytes());
        put(520, &self.optional_commands.to_le_bytes());
        put(534, &self.copy_forms.to_le_bytes());
        put(525, &[(self.flush_all & 3) << 1 | u8::from(self.write_cache)]);
        let sgls = self.sgl as u32 | u32::from(self.bit_buckets) << 16;
        put(536, &sgls.to_le_bytes());
        put(768, &self.subsystem);
        put(2048, &self.power.to_le_bytes());
        data
    }
}

/// A logical block format. [NVM figure 98]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Metadata per block, in bytes (MS).
    pub metadata: u16,
    /// Size of a block in bytes, as a power of two (LBADS).
    pub shift: u8,
}

/// Most formats of a namespace.
pub const FORMATS: usize = 64;

/// Identify data of a namespace. [NVM figure 97]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Number of logical blocks; 0 if the namespace is not active (NSZE).
    pub blocks: u64,
    /// Logical blocks that may be allocated (NCAP).
    pub capacity: u64,
    /// Logical blocks that are allocated (NUSE).
    pub used: u64,
    /// Features (NSFEAT): bit 0, thin provisioning; bit 4, there is a preferred granularity.
    pub features: u8,
    /// Index in `formats` of the current format (FLBAS).
    pub format: u8,
    /// Sharing of the namespace (NMIC): bit 0, with other controllers.
    pub sharing: u8,
    /// Deallocated blocks (DLFEAT): bits 2:0, 1 if they read as zeros; bit 3, write zeroes may deallocate.
    pub deallocated: u8,
    /// Preferred size and alignment of writes and deallocations in logical blocks, 1 to 65,536; valid if `features` say so. NPWG, NPWA,
    /// NPDG and NPDA are one less.
    pub granularity: u32,
    /// Most logical blocks of one source of a copy (MSSRL).
    pub copy_source: u16,
    /// Most logical blocks of a copy (MCL).
    pub copy_length: u32,
    /// Most sources of a copy, 1 to 256. MSRC is one less.
    pub copy_sources: u16,
    /// Attributes (NSATTR): bit 0, currently write protected.
    pub attributes: u8,
    /// Globally unique identifier; zeros if none (NGUID).
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; zeros if none (EUI64).
    pub eui64: [u8; 8],
    /// Available formats (LBAF).
    pub formats: [Format; FORMATS],
}

impl Default for Namespace {
    /// Returns a namespace that is not active: everything is zero.
    fn default() -> Namespace {
        Namespace::from_bytes(&[0; SIZE])
    }
}

impl Namespace {
    /// Decodes identify data.
    pub fn from_bytes(data: &[u8; SIZE]) -> Namespace {
        let flbas = data[26];
        Namespace {
            blocks: u64_at(data, 0),
            capacity: u64_at(data, 8),
            used: u64_at(data, 16),
            features: data[24],
            // The upper two bits of the index are in bits 5 and 6.
            format: flbas & 0xf | (flbas >> 5 & 3) << 4,
            sharing: data[30],
            deallocated: data[33],
            granularity: u32::from(u16_at(data, 64)) + 1,
            copy_source: u16_at(data, 74),
            copy_length: u32_at(data, 76),
            copy_sources: u16::from(data[80]) + 1,
            attributes: data[99],
            nguid: array_at(data, 104),
            eui64: array_at(data, 120),
            formats: core::array::from_fn(|i| {
                let bits = u32_at(data, 128 + 4 * i);
                Format { metadata: bits as u16, shift: (bits >> 16) as u8 }
            }),
        }
    }

    /// Encodes it as identify data.
    pub fn bytes(&self) -> [u8; SIZE] {
        let mut data = [0; SIZE];
        let mut put = |at, bytes: &[u8]| put(&mut data, at, bytes);
        put(0, &self.blocks.to_le_bytes());
        put(8, &self.capacity.to_le_bytes());
        put(16, &self.used.to_le_bytes());
        put(24, &[self.features]);
        put(26, &[self.format & 0xf | (self.format >> 4 & 3) << 5]);
        put(30, &[self.sharing]);
        put(33, &[self.deallocated]);
        let granularity = (self.granularity.saturating_sub(1) as u16).to_le_bytes();
        [64, 66, 68, 70].iter().for_each(|at| put(*at, &granularity));
        put(74, &self.copy_source.to_le_bytes());
        put(76, &self.copy_length.to_le_bytes());
        put(80, &[self.copy_sources.saturating_sub(1) as u8]);
        put(99, &[self.attributes]);
        put(104, &self.nguid);
        put(120, &self.eui64);
        for (i, format) in self.formats.iter().enumerate() {
            let bits = u32::from(format.shift) << 16 | u32::from(format.metadata);
            put(128 + 4 * i, &bits.to_le_bytes());
        }
        data
    }

    /// Returns the current format.
    pub fn current_format(&self) -> Format {
        self.formats[usize::from(self.format) % FORMATS]
    }
}

/// Identify data of a namespace, whatever its command set. [base 2.2 figure 320]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnyNamespace {
    /// Sharing of the namespace (NMIC): bit 0, with other controllers.
    pub sharing: u8,
    /// Attributes (NSATTR): bit 0, currently write protected.
    pub attributes: u8,
    /// Set if the namespace is ready (NSTAT bit 0).
    pub ready: bool,
}

impl AnyNamespace {
    /// Decodes identify data.
    pub fn from_bytes(data: &[u8; SIZE]) -> AnyNamespace {
        AnyNamespace { sharing: data[1], attributes: data[8], ready: data[14] & 1 != 0 }
    }

    /// Encodes it as identify data.
    pub fn bytes(&self) -> [u8; SIZE] {
        let mut data = [0; SIZE];
        (data[1], data[8], data[14]) = (self.sharing, self.attributes, self.ready.into());
        data
    }
}

/// Encodes these combinations of command sets, each a bit vector (bit 0 is NVM), as far as they fit. [base 2.1 figures 327, 328]
pub fn command_sets_bytes(combinations: &[u64]) -> [u8; SIZE] {
    let mut data = [0; SIZE];
    for (place, sets) in data.chunks_exact_mut(8).zip(combinations) {
        place.copy_from_slice(&sets.to_le_bytes());
    }
    data
}

/// Encodes the numbers of these controllers, ascending, as far as they fit. [base 2.1 4.6.1]
pub fn controllers_bytes(numbers: &[u16]) -> [u8; SIZE] {
    let mut data = [0; SIZE];
    let count = numbers.len().min(SIZE / 2 - 1);
    put(&mut data, 0, &(count as u16).to_le_bytes());
    for (place, number) in data[2..].chunks_exact_mut(2).zip(&numbers[..count]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    data
}

/// An identifier of a namespace, as a descriptor. [base 5.17.2.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identifier {
    /// IEEE extended unique identifier (type 1).
    Eui64([u8; 8]),
    /// Globally unique identifier (type 2).
    Nguid([u8; 16]),
    /// Command set (type 4), of [`set`].
    CommandSet(u8),
}

/// Encodes these descriptors, as far as they fit.
pub fn identifiers_bytes(identifiers: &[Identifier]) -> [u8; SIZE] {
    let mut data = [0; SIZE];
    let mut at = 0;
    for identifier in identifiers {
        let (kind, value): (u8, &[u8]) = match identifier {
            Identifier::Eui64(value) => (1, value),
            Identifier::Nguid(value) => (2, value),
            Identifier::CommandSet(value) => (4, core::slice::from_ref(value)),
        };
        let end = at + 4 + value.len();
        if end > SIZE {
            break;
        }
        put(&mut data, at, &[kind, value.len() as u8]);
        put(&mut data, at + 4, value);
        at = end;
    }
    data
}

/// Returns the numbers of active namespaces, ascending, as in the data: at most 1,024, up to the first that is 0. [base 5.17.2.2]
pub fn active_namespaces(data: &[u8; SIZE]) -> impl Iterator<Item = u32> {
    (0..SIZE / 4).map(|i| u32_at(data, 4 * i)).take_while(|number| *number != 0)
}

/// Encodes the numbers of these namespaces, as far as they fit.
pub fn active_namespaces_bytes(numbers: impl IntoIterator<Item = u32>) -> [u8; SIZE] {
    let mut data = [0; SIZE];
    for (place, number) in data.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    data
}
