//! Sockets at paths: one that no program listens at any more is replaced; no other file is.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Most connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Listens at a path, and replaces a socket there that is no longer in use.
///
/// # Errors
///
/// Those of bind(2): `AddrInUse` if a program listens there, or a file is there that is no socket.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    listen_with_mode(path, 0o777)
}

/// The same, with a socket that has this mode from the beginning, less the bits of the process's umask:
/// nobody else gets in meanwhile.
///
/// # Errors
///
/// As [`listen`].
pub fn listen_with_mode(path: &Path, mode: u32) -> io::Result<UnixListener> {
    // A connection to a file of another kind is refused too.
    let is_refused =
        UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_refused && std::fs::symlink_metadata(path)?.file_type().is_socket() {
        std::fs::remove_file(path)?;
    }
    let address = SocketAddrUnix::new(path)?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file of the socket gets the mode that the socket has. [unix_bind of Linux]
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A mode that any umask leaves.
    #[test]
    fn a_socket_has_its_mode_from_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listens = listen_with_mode(&path, 0o400).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o400);
    }

    #[test]
    fn a_socket_without_a_program_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listens = listen(&path).unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listens);
        drop(listen(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "an image").unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"an image");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(listen(&link).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists() && link.exists());
    }
}
