//! `dcs d2d ssd`: the SSD, whose medium is a file that several threads read and, with `--writable`, write.

use super::args;
use super::function::{Kind, PAYLOAD, Shared, report_once, serve};
use crate::failure::{Exit, Failure};
use crate::names::shown;
use crate::report::Report;
use crate::stream::channel::random;
use dcs_d2d::ssd::{Config, MediumError};
use dcs_d2d::{Action, Ssd, Token};
use dcs_vfio_user::pci::Identity;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Number of threads of the medium.
const THREADS: usize = 4;
/// Class "other mass storage controller", to which no stock driver binds. The vendor is the card's.
const IDENTITY: Identity =
    Identity { vendor: 0xdc51, device: 0x0003, class: [0x01, 0x80, 0x00], revision: 1 };

/// An operation on the medium.
enum Operation {
    Read { token: Token, offset: u64, length: usize },
    Store { token: Token, offset: u64, data: Vec<u8> },
}

/// Opens and locks the medium's file; returns its length, too.
fn open(options: &args::Ssd) -> Result<(File, u64), Failure> {
    let failed = |error| Failure::io(shown(&options.image), &error);
    let file = File::options().read(true).write(options.writable).open(&options.image).map_err(failed)?;
    let bytes = std::io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(failed)?;
    if bytes == 0 {
        return Err(Failure::usage(format!("{}: the file is empty", shown(&options.image)))
            .advise("name a file with a video, or a disk image"));
    }
    lock(&file, bytes, options.writable).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::PermissionDenied => {
            Failure::new(Exit::Failed, format!("{}: another program has locked it", shown(&options.image)))
                .advise("stop that program; several may read one file, if none of them has --writable")
        }
        _ => failed(error),
    })?;
    Ok((file, bytes))
}

pub fn run(options: &args::Ssd, report: &Report) -> Result<(), Failure> {
    let failed = |error| Failure::io(shown(&options.image), &error);
    let (file, bytes) = open(options)?;
    let block = Config::new(1, 1).block_shift;
    if options.writable && bytes % (1 << block) != 0 {
        let line =
            format!("{}: its {bytes} bytes are not a multiple of {}", shown(&options.image), 1 << block);
        return Err(Failure::usage(line).advise("truncate --size=%4096 FILE fills up the last block"));
    }
    let config = Config {
        payload: PAYLOAD,
        tasks: 16,
        epoch: random()? as u16,
        ..Config::new(options.served.streams as u16, bytes.div_ceil(1 << block))
    };
    let machine = Ssd::new(config).map_err(|error| Failure::usage(error.to_string()))?;
    let kind = Kind {
        name: "ssd",
        identity: IDENTITY,
        registers: config.registers(),
        aperture: config.aperture(),
        keeps: None,
    };
    let serving = serve(machine, &kind, &options.served, report)?;
    let (operations, received) = channel();
    let medium = Medium {
        file,
        bytes,
        operations: Mutex::new(received),
        shared: &serving.shared,
        reported: OnceLock::new(),
        report,
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let thread = std::thread::Builder::new().name("dcs-d2d-medium".into());
            thread.spawn_scoped(scope, || medium.serve()).map_err(failed)?;
        }
        let carry = |action| match action {
            Action::Read { token, lba, blocks } => {
                let (offset, length) = (lba << block, (blocks as usize) << block);
                // The threads live as long as the process.
                let _ = operations.send(Operation::Read { token, offset, length });
            }
            Action::Store { token, lba, data } if options.writable => {
                let _ = operations.send(Operation::Store { token, offset: lba << block, data });
            }
            // The file may only be read.
            Action::Store { token, .. } => {
                serving.shared.touch(|machine, now| machine.store_done(token, Err(MediumError), now));
            }
            _ => {}
        };
        serving.run(carry, || false)
    })
}

/// Locks the file against writers, and against readers too if `writes`. The lock lasts as long as the file is open.
///
/// # Errors
///
/// EAGAIN, EACCES: another program has a lock.
fn lock(file: &File, bytes: u64, writes: bool) -> io::Result<()> {
    let kind = if writes { libc::F_WRLCK } else { libc::F_RDLCK };
    let range = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: bytes as i64,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
        // The file system has no locks.
        Ok(_) | Err(Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The file, and the operations that wait for it.
struct Medium<'a> {
    file: File,
    /// Length of the file when it was opened.
    bytes: u64,
    operations: Mutex<Receiver<Operation>>,
    shared: &'a Shared<Ssd>,
    reported: OnceLock<()>,
    report: &'a Report,
}

impl Medium<'_> {
    /// Performs operations until their sender is gone.
    fn serve(&self) {
        while let Some(operation) = next(&self.operations) {
            match operation {
                Operation::Read { token, offset, length } => {
                    let data = self.reported(read(&self.file, self.bytes, offset, length));
                    self.shared.touch(|machine, now| machine.read_done(token, data, now));
                }
                Operation::Store { token, offset, data } => {
                    let stored = self.reported(self.file.write_all_at(&data, offset));
                    self.shared.touch(|machine, now| machine.store_done(token, stored, now));
                }
            }
        }
    }

    /// Reports the first failure of the file.
    fn reported<T>(&self, done: io::Result<T>) -> Result<T, MediumError> {
        done.map_err(|error| {
            report_once(&self.reported, self.report, "the SSD's file", &error);
            MediumError
        })
    }
}

fn next(operations: &Mutex<Receiver<Operation>>) -> Option<Operation> {
    operations.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Reads blocks of a file that had `bytes` when it was opened. Bytes after the end are zeros; if the file has been cut, the read fails.
fn read(file: &File, bytes: u64, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; length];
    let there = bytes.saturating_sub(offset).min(length as u64) as usize;
    file.read_exact_at(&mut data[..there], offset)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_many_readers_or_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::write(&path, [7; 4096]).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (reader, other, writer) = (open(), open(), open());
        lock(&reader, 4096, false).unwrap();
        lock(&other, 4096, false).unwrap();
        assert_eq!(lock(&writer, 4096, true).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((reader, other));
        lock(&writer, 4096, true).unwrap();
        for writes in [true, false] {
            assert_eq!(lock(&open(), 4096, writes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_file_that_was_cut_is_an_error_and_its_last_block_is_filled_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("video");
        std::fs::write(&path, [7; 5000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let last = [vec![7; 904], vec![0; 3192]].concat();
        assert_eq!(read(&file, 5000, 4096, 4096).unwrap(), last);
        file.set_len(4999).unwrap();
        assert_eq!(read(&file, 5000, 0, 4096).unwrap(), [7; 4096]);
        assert_eq!(read(&file, 5000, 4096, 4096).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
