//! Unmodified vsftpd: a process per connection, blocking sockets, the file's own position, a changed root.

use crate::place::{FILES, Place, Server, files, free_port, installed, output, skip, whole};
use std::process::Command;

/// A script that fetches files, whole and from an offset, with Python's ftplib, by several clients at once. Arguments: port,
/// folder of the files, their encoding, and their names.
const FETCH: &str = "
import ftplib, gzip, sys, threading
port, folder, encoding, *names = sys.argv[1:]
failures = []
def fetch(which):
    try:
        ftp = ftplib.FTP()
        ftp.connect('127.0.0.1', int(port), 20)
        ftp.login()
        for name in names:
            expected = open(folder + '/' + name, 'rb').read()
            starts = [0] if encoding == 'gzip' else [0, min(len(expected), 1000 * which + 1)]
            for start in starts:
                parts = []
                ftp.retrbinary('RETR ' + name, parts.append, rest=start or None)
                data = b''.join(parts)
                data = gzip.decompress(data) if encoding == 'gzip' else data
                assert data == expected[start:], (name, start, len(data))
        ftp.quit()
    except BaseException as error:
        failures.append(repr(error))
threads = [threading.Thread(target=fetch, args=(which,)) for which in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failures, failures
";

/// Starts vsftpd, fetches the files, ends it.
fn serve(rules: &str, encoding: &str) -> Option<Place> {
    let vsftpd = installed("vsftpd", "vsftpd")?;
    let root = output(Command::new("id").arg("-u"));
    if root.trim() != "0" {
        skip("vsftpd changes its root, which needs root");
        return None;
    }
    let place = Place::new();
    let (plain, _) = files(&place);
    std::fs::create_dir(place.path("empty-root")).unwrap();
    let port = free_port();
    let config = format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanonymous_enable=YES\n\
         anon_root={}\nsecure_chroot_dir={}\nseccomp_sandbox=NO\nxferlog_enable=NO\n\
         no_anon_password=YES\n",
        plain.display(),
        place.path("empty-root").display()
    );
    let config = place.write("vsftpd.conf", config);
    let server = Server::start(place.command(vsftpd, rules).arg(config), port);
    let mut python = Command::new("python3");
    python.args(["-c", FETCH, &port.to_string()]).arg(&plain).arg(encoding);
    let names = FILES.iter().filter(|(_, size)| *size > 0).map(|(name, _)| *name);
    output(python.args(names));
    server.end();
    let counted = place.counters();
    assert_eq!(
        (counted["fallback_calls"], counted["failed"]),
        (0, 0),
        "{counted:?} {:?}",
        place.log("trouble")
    );
    Some(place)
}

#[test]
fn digests_of_all_that_it_sends() {
    let Some(place) = serve("[[rule]]\nthrough = 'md5'\n", "plain") else { return };
    let objects = place.objects(4 * 9, |_| true);
    let whole = whole(&objects);
    assert_eq!((whole["large"], whole["mega"], whole["odd"], whole["one"]), (4, 4, 4, 4), "{whole:?}");
    // Paths are those that the program sees in its changed root.
    let plain = place.path("plain");
    assert!(place.check_digests(|path| plain.join(path.trim_start_matches('/'))) >= 4 * 9);
}

/// Checks compression: FTP announces no length for clients to check, and the connection's end is the file's.
#[test]
fn files_arrive_compressed() {
    let rules = "[[rule]]\nthrough = 'md5,gzip:1'\nuntil_close = true\n";
    let Some(place) = serve(rules, "gzip") else { return };
    let whole = whole(&place.objects(4 * 5, |_| true));
    assert_eq!((whole["large"], whole["mega"], whole["one"]), (4, 4, 4), "{whole:?}");
}
