//! The server: answers one client after the other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;

use crate::bus::VfioUserBus;
use crate::link::Link;
use crate::listen::listen;
use crate::pci::{Function, Interrupts, Region};
use crate::port::Port;
use crate::socket::{Message, Reader};
use crate::wake::Wake;
use crate::wire::{Access, DmaMap, DmaUnmap, HEADER, Header, Request, SetIrqs, Version, WireError, reply};

/// Number of PCI regions in VFIO. [linux/vfio.h]
const REGIONS: u32 = 9;
/// Number of interrupt kinds: INTx, MSI, MSI-X; not those for errors and for device requests.
const IRQS: u32 = 3;
const IRQ_MSI: u32 = 1;
const IRQ_MSIX: u32 = 2;

/// A function that clients attach to, one at a time.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    function: Function,
    shared: Arc<Shared>,
}

/// Time for the thread to end. A client's descriptor may take longer to be closed, as long as the client
/// likes.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A running server: dropping it disconnects the client and ends the thread. A thread that does not end
/// within 10 s is left behind.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Function>>,
    /// Says nothing; the other end is dropped with the thread's last words.
    ended: Receiver<()>,
}

struct Shared {
    link: Arc<Link>,
    stop: AtomicBool,
    /// Listening socket, to end the wait for a client.
    listener: UnixListener,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.listener)
    }
}

/// The answer to a request: a body and a descriptor, or an errno.
type Answer<'a> = Result<(Vec<u8>, Option<BorrowedFd<'a>>), Errno>;

impl Server {
    /// Listens at a path, and replaces a socket there that is no longer in use. Any program that may connect there can use the function:
    /// the folder's permissions decide. The bus belongs to the thread of the function's owner, which `wake` wakes.
    ///
    /// # Errors
    ///
    /// Those of bind(2); `AddrInUse` if a program listens there; those of [`Signals::get`](dcs_vfio::Signals::get).
    ///
    /// # Panics
    ///
    /// If the function has no memory of its own.
    pub fn bind(path: &Path, function: Function, wake: Wake) -> io::Result<(Server, VfioUserBus)> {
        assert!(function.state().memory.is_some(), "a function on a bus needs its own memory");
        let server = Server::listen(path, function, wake)?;
        let bus = VfioUserBus::new(server.shared.link.clone());
        Ok((server, bus))
    }

    /// Listens likewise for a function that only reaches its host's memory, and never waits for the client.
    ///
    /// # Errors
    ///
    /// As [`Server::bind`].
    pub fn bind_port(path: &Path, function: Function, wake: Wake) -> io::Result<(Server, Port)> {
        let server = Server::listen(path, function, wake)?;
        let port = Port::new(server.shared.link.clone());
        Ok((server, port))
    }

    fn listen(path: &Path, function: Function, wake: Wake) -> io::Result<Server> {
        let link = Arc::new(Link::new(function.state().clone(), function.interrupts().vectors(), wake)?);
        let listener = listen(path)?;
        let shared = Arc::new(Shared { link, stop: AtomicBool::new(false), listener: listener.try_clone()? });
        Ok(Server { listener, function, shared })
    }

    /// Returns the function, before it is served.
    pub fn function(&mut self) -> &mut Function {
        &mut self.function
    }

    /// Answers clients on a separate thread.
    ///
    /// # Errors
    ///
    /// If no thread is available.
    pub fn start(mut self) -> io::Result<Running> {
        let shared = self.shared.clone();
        let (alive, ended) = channel();
        let thread = std::thread::Builder::new().name("dcs-vfio-user".into()).spawn(move || {
            let _alive: Sender<()> = alive;
            while !self.shared.stop.load(Ordering::Acquire) {
                match self.listener.accept() {
                    Ok((socket, _)) => self.serve(socket),
                    // Out of descriptors, say, which may or may not pass.
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
            self.function
        })?;
        Ok(Running { shared, thread: Some(thread), ended })
    }

    /// Answers one client, on a socket that is connected already, until it hangs up or is disconnected.
    pub fn serve(&mut self, socket: UnixStream) {
        let link = self.shared.link.clone();
        let Ok(socket) = link.connect(socket) else { return };
        let mut session = Session { function: &mut self.function, link: &link, spoken: false };
        let mut reader = Reader::new();
        // A client that breaks the protocol is disconnected like one that left. One that came when the server
        // was told to stop may not have been hung up, and is not waited for.
        while !self.shared.stop.load(Ordering::Acquire)
            && let Ok(Some(message)) = reader.receive(socket.as_fd())
            && session.take(message).is_ok()
        {}
        // In this order: first stop all writes to the client's memory, then forget everything.
        self.function.unplug();
        // Uses that take longer keep their memory, whose client is gone.
        let _ = link.drain();
        link.disconnect();
    }
}

impl Running {
    /// Disconnects the client and ends the thread; returns false if it has not ended in time.
    fn end(&mut self, limit: Duration) -> bool {
        self.shared.stop.store(true, Ordering::Release);
        // Ends the wait in accept(2): a listening socket that is shut down accepts nothing.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        self.shared.link.hang_up();
        let has_ended = self.ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        if has_ended && let Some(thread) = self.thread.take() {
            // A panic on that thread was reported already.
            let _ = thread.join();
        }
        has_ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(END_TIMEOUT);
    }
}

struct Session<'a> {
    function: &'a mut Function,
    link: &'a Link,
    /// Set once the version was agreed on.
    spoken: bool,
}

impl Session<'_> {
    /// Handles one message. An error ends the connection.
    fn take(&mut self, message: Message) -> io::Result<()> {
        let Message { header, body, fds } = message;
        if header.is_reply() {
            self.link.answered(header.id, header.failure().map_or(Ok(&body), Err));
            return Ok(());
        }
        let link = self.link;
        let answer = match Request::parse(header.command, &body) {
            Ok(Request::Version(version)) => self.version(&version),
            Ok(_) if !self.spoken => Err(Errno::PROTO),
            Ok(Request::SetIrqs(set)) => self.set_irqs(&set, fds),
            Ok(Request::DmaMap(map)) => self.map(&map, fds.first().map(|fd| fd.as_fd())),
            Ok(Request::DmaUnmap(unmap)) => self.unmap(&unmap, &body),
            Ok(request) => self.access(request),
            Err(WireError::Command(_)) => Err(Errno::OPNOTSUPP),
            Err(_) => Err(Errno::INVAL),
        };
        if header.is_posted() {
            return Ok(());
        }
        match answer {
            Ok((body, fd)) => {
                let mut message = Vec::with_capacity(HEADER + body.len());
                message.extend(Header::reply(&header, body.len()).to_bytes());
                message.extend(body);
                link.send(&message, fd)
            }
            Err(errno) => {
                let refusal = Header::refusal(&header, errno.raw_os_error().unsigned_abs());
                link.send(&refusal.to_bytes(), None)
            }
        }
    }

    fn version(&mut self, version: &Version) -> Answer<'static> {
        if version.major != 0 || self.spoken {
            return Err(Errno::INVAL);
        }
        self.spoken = true;
        self.link.limit_transfers(version.max_transfer);
        Ok((reply::version(version.minor), None))
    }

    fn map(&mut self, map: &DmaMap, file: Option<BorrowedFd<'_>>) -> Answer<'static> {
        self.forget_unused();
        let mut maps = self.link.maps_mut();
        let memory = match file {
            None => None,
            Some(file) => match maps.file(file, map.writable) {
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return Err(Errno::NOMEM),
                mapped => mapped.map_err(|_| Errno::INVAL)?,
            },
        };
        maps.add(map, memory).map_err(|_| Errno::INVAL)?;
        Ok((Vec::new(), None))
    }

    fn unmap(&mut self, unmap: &DmaUnmap, body: &[u8]) -> Answer<'static> {
        // The lock waits for copies in progress: after the answer nothing is accessed any more.
        let mut maps = self.link.maps_mut();
        let removed = maps.remove(unmap).map_err(|_| Errno::INVAL)?;
        drop(maps);
        drop(removed);
        let drained = self.drain();
        self.forget_unused();
        drained?;
        Ok((body.get(..24).unwrap_or_default().to_vec(), None))
    }

    /// Gives back the client's memory that is not used any more. Copies to and from the rest go on meanwhile.
    fn forget_unused(&self) {
        let unused = self.link.maps_mut().unused();
        drop(unused);
    }

    fn set_irqs(&mut self, set: &SetIrqs, fds: Vec<std::os::fd::OwnedFd>) -> Answer<'static> {
        let done = Ok((Vec::new(), None));
        let vectors = self.link.vectors();
        let (start, count) = (set.start as usize, set.count as usize);
        if set.index >= IRQS || start.checked_add(count).is_none_or(|end| end > vectors) || !set.trigger {
            return Err(Errno::INVAL);
        }
        if set.index != self.irq() {
            return if count == 0 { done } else { Err(Errno::INVAL) };
        }
        match set.eventfds {
            true if fds.is_empty() => (start..start + count).for_each(|at| self.forget(at)),
            true if fds.len() == count => {
                for (vector, event) in (start..).zip(fds) {
                    self.link.set_vector(vector, Some(event)).ok_or(Errno::INVAL)?;
                }
            }
            false if count == 0 => (0..vectors).for_each(|at| self.forget(at)),
            _ => return Err(Errno::INVAL),
        }
        done
    }

    /// Waits until no memory from before is in use any more.
    fn drain(&self) -> Result<(), Errno> {
        if self.link.drain() { Ok(()) } else { Err(Errno::BUSY) }
    }

    /// Returns the kind of interrupts that the function has.
    fn irq(&self) -> u32 {
        match self.function.interrupts() {
            Interrupts::MsiX(_) => IRQ_MSIX,
            Interrupts::Msi(_) => IRQ_MSI,
        }
    }

    fn forget(&self, vector: usize) {
        // The vector exists: the range was checked.
        let _ = self.link.set_vector(vector, None);
    }

    fn access(&mut self, request: Request<'_>) -> Answer<'_> {
        Ok(match request {
            Request::Info => (reply::info(REGIONS, IRQS), None),
            Request::RegionInfo(index) if index < REGIONS => self.region_info(index),
            Request::IrqInfo(index) if index < IRQS => {
                let count = if index == self.irq() { self.function.interrupts().vectors().into() } else { 0 };
                (reply::irq(index, count), None)
            }
            Request::Read(access) => {
                let mut body = reply::access(&access);
                body.resize(body.len() + access.count as usize, 0);
                let region = region(access.region).ok_or(Errno::INVAL)?;
                self.function.read(region, access.offset, &mut body[16..]).ok_or(Errno::INVAL)?;
                (body, None)
            }
            Request::Write(access, data) => {
                self.store(&access, data)?;
                (reply::access(&access), None)
            }
            Request::WriteMulti(writes) => {
                let mut count = 0u64;
                for (access, data) in writes.iter() {
                    self.store(&access, data)?;
                    count += 1;
                }
                (count.to_le_bytes().to_vec(), None)
            }
            Request::Reset => {
                self.function.reset();
                self.drain()?;
                (Vec::new(), None)
            }
            _ => return Err(Errno::INVAL),
        })
    }

    fn store(&mut self, access: &Access, data: &[u8]) -> Result<(), Errno> {
        let region = region(access.region).ok_or(Errno::INVAL)?;
        let before = self.link.state.master.load(Ordering::Acquire);
        self.function.write(region, access.offset, data).ok_or(Errno::INVAL)?;
        let after = self.link.state.master.load(Ordering::Acquire);
        if before != after {
            self.link.wake.notify();
        }
        // Bus mastering ended, by its bit or a reset.
        if before && !after { self.drain() } else { Ok(()) }
    }

    fn region_info(&self, index: u32) -> (Vec<u8>, Option<BorrowedFd<'_>>) {
        let Some(region) = region(index) else { return (reply::region(index, 0, false), None) };
        let file = self.function.file(region);
        (reply::region(index, self.function.size(region), file.is_some()), file)
    }
}

fn region(index: u32) -> Option<Region> {
    Some(match index {
        0 => Region::Bar0,
        2 => Region::Bar2,
        4 => Region::Bar4,
        7 => Region::Config,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::{Identity, NoRegisters, Setup};
    use crate::socket;
    use crate::wire::command;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};

    const LIMIT: Duration = Duration::from_secs(20);

    fn server() -> (Server, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let interrupts = Interrupts::MsiX(1);
        let setup = Setup { identity: Identity::NVME, registers: 4096, memory: 0, aperture: 0, interrupts };
        let function = Function::new(setup, Box::new(NoRegisters)).unwrap();
        let (server, _) =
            Server::bind_port(&folder.path().join("f"), function, Wake::new().unwrap()).unwrap();
        (server, folder)
    }

    /// The server is told to stop between the client's connection and its being noted, and the client says
    /// nothing.
    #[test]
    fn a_client_that_comes_with_the_end_is_not_waited_for() {
        let (mut server, _folder) = server();
        server.shared.stop.store(true, Ordering::Release);
        let (client, there) = UnixStream::pair().unwrap();
        let (sender, served) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _sender = sender;
                server.serve(there);
            });
            assert_eq!(served.recv_timeout(LIMIT), Err(Disconnected));
            drop(client);
        });
    }

    /// A descriptor that takes as long to be closed as its owner likes: of a connection whose peer takes
    /// nothing.
    fn lingering() -> (TcpStream, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        while io::Write::write(&mut &stream, &[0; 1 << 16]).is_ok() {}
        stream.set_nonblocking(false).unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(3600))).unwrap();
        (stream, listener)
    }

    #[test]
    fn a_descriptor_that_is_not_closed_does_not_keep_the_server() {
        let (server, folder) = server();
        let mut running = server.start().unwrap();
        let client = UnixStream::connect(folder.path().join("f")).unwrap();
        let (stream, listener) = lingering();
        // The descriptor comes with the first bytes; the rest, when it is the server's alone. It is closed
        // behind the answer.
        let reset = Header::request(1, command::RESET, 0, false).to_bytes();
        socket::send(client.as_fd(), &reset[..1], Some(stream.as_fd())).unwrap();
        drop(stream);
        socket::send(client.as_fd(), &reset[1..], None).unwrap();
        io::Read::read_exact(&mut &client, &mut [0; HEADER]).unwrap();
        assert!(!running.end(Duration::from_millis(500)), "its thread closes the descriptor");
        // The peer resets the connection.
        drop(listener);
        assert!(running.end(LIMIT));
    }

    /// A client that takes nothing holds up its own thread alone: others may ask about its connection, and
    /// end it.
    #[test]
    fn a_client_that_takes_no_answer_is_hung_up_on_at_once() {
        let (server, _folder) = server();
        let (client, there) = UnixStream::pair().unwrap();
        let link = server.shared.link.clone();
        let socket = link.connect(there).unwrap();
        socket.set_write_timeout(None).unwrap();
        let (sender, ended) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| _ = sender.send(link.send(&[0; 16 << 20], None).map_err(|error| error.kind())));
            let peek = rustix::net::RecvFlags::PEEK;
            assert_eq!(rustix::net::recv(&client, &mut [0], peek).unwrap().1, 1);
            assert_eq!(ended.recv_timeout(Duration::ZERO), Err(Timeout));
            let asked = link.clone();
            let (asks, answered) = channel();
            std::thread::spawn(move || {
                let _ = asks.send(asked.is_connected());
                asked.hang_up();
            });
            let answer = answered.recv_timeout(LIMIT);
            let sent = ended.recv_timeout(LIMIT);
            // Ends the thread in any case.
            client.shutdown(std::net::Shutdown::Both).unwrap();
            assert_eq!((answer, sent), (Ok(true), Ok(Err(io::ErrorKind::BrokenPipe))));
        });
    }
}
