//! The library in unmodified programs: their transcripts and every byte that they send are compared with a run without it, and
//! digests in its log with Python's hashlib.
//! Programs that are not installed are skipped, with a line on standard error; `make preload` installs all of them. With
//! `DCS_CLIENTS=demand` a test that cannot run fails.

mod awkward;
mod changing;
mod java;
mod lighttpd;
mod nginx;
mod place;
mod python;
mod semantics;
mod stalls;
mod vsftpd;
