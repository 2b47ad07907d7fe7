//! Probes: facts that only an attempt can tell.

use crate::names::shown;
use dcs::gpu;
use dcs::{Driver, Engine, Error, Io};
use dcs_abi::operator::Operator;
use dcs_ndp::Lanes;
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Results of the probes.
#[derive(Clone, Debug)]
pub struct Probes {
    /// Engine without io_uring; if this fails there is none at all.
    pub plain: Result<(), String>,
    /// Engine with io_uring; otherwise the reason, and errno if there was one.
    pub io_uring: Result<(), (String, Option<i32>)>,
    /// sendfile(2) from the page cache to a socket.
    pub sendfile: Result<(), String>,
    /// O_DIRECT in the probed folder.
    pub direct: Result<(), String>,
    /// Folder of the probe.
    pub folder: String,
    /// Multi-lane units: operator, number of streams, and the instructions that they use.
    pub lanes: Vec<(&'static str, usize, &'static str)>,
    /// Instructions that the operators use, and whether the processor has them.
    pub features: Vec<(&'static str, bool)>,
    /// True if the process may lock as much memory as it likes.
    pub locks_freely: bool,
    /// GPUs, or the reason why there are none.
    pub gpus: Result<Vec<gpu::Properties>, gpu::GpuError>,
    /// GPUDirect Storage, if there is a GPU, or the reason why it is not available.
    pub storage: Option<Result<gpu::Storage, gpu::StorageError>>,
}

impl Probes {
    /// Probes this machine. Files are tried in `folder`.
    pub fn here(folder: &Path) -> Probes {
        Probes {
            plain: start(Io::Plain).map_err(|(error, _)| error),
            io_uring: start(Io::Uring),
            sendfile: sendfile().map_err(|error| error.to_string()),
            direct: direct(folder).map_err(|error| error.to_string()),
            folder: shown(folder).to_string(),
            lanes: [Operator::Md5, Operator::Sha256].map(lanes).to_vec(),
            features: features(),
            locks_freely: nix::unistd::geteuid().is_root(),
            gpus: gpu::find(&gpu::GpuOptions::default()),
            storage: gpu::find_storage(&gpu::GpuOptions::default()).ok(),
        }
    }
}

fn start(io: Io) -> Result<(), (String, Option<i32>)> {
    let started = Engine::builder().driver(Driver::Caller).io(io).start();
    started.map(drop).map_err(|error| match &error {
        Error::IoUring(cause) | Error::Start(cause) => (cause.to_string(), cause.raw_os_error()),
        _ => (error.to_string(), None),
    })
}

fn sendfile() -> io::Result<()> {
    let mut file = File::from(memfd_create("dcs-doctor", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(b"sent")?;
    let (here, mut there) = UnixStream::pair()?;
    let mut offset = 0;
    let sent = nix::sys::sendfile::sendfile64(&here, &file, Some(&mut offset), 4)?;
    let mut got = [0; 4];
    there.read_exact(&mut got)?;
    if sent == 4 && &got == b"sent" { Ok(()) } else { Err(io::Error::other("wrong bytes came")) }
}

/// Tries a file without a name, which is gone when it is closed.
fn direct(folder: &Path) -> io::Result<()> {
    let flags = (OFlag::O_TMPFILE | OFlag::O_DIRECT).bits();
    File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(folder).map(drop)
}

fn lanes(operator: Operator) -> (&'static str, usize, &'static str) {
    let lanes = Lanes::detect(operator);
    let by = match lanes {
        Lanes::Alone => "one stream after the other",
        Lanes::Md5Avx2 => "AVX2",
        Lanes::Md5Avx512 => "AVX-512",
        Lanes::Sha256Pair => "the SHA extensions",
    };
    (operator.name(), lanes.count(), by)
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<(&'static str, bool)> {
    vec![
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("sha", is_x86_feature_detected!("sha")),
        ("aes", is_x86_feature_detected!("aes")),
        ("pclmulqdq", is_x86_feature_detected!("pclmulqdq")),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<(&'static str, bool)> {
    Vec::new()
}
