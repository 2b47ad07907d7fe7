//! lighttpd as it is: non-blocking sockets, 256 KiB a call.

use crate::place::{Place, Server, files, free_port, installed, load, whole};
use std::process::Stdio;

#[test]
fn digests_of_all_that_it_sends() {
    let Some(lighttpd) = installed("lighttpd", "lighttpd") else { return };
    let place = Place::new();
    let (plain, _) = files(&place);
    let port = free_port();
    let config = format!(
        "server.document-root = {plain:?}\nserver.port = {port}\nserver.bind = \"127.0.0.1\"\n\
         server.network-backend = \"sendfile\"\nserver.max-keep-alive-requests = 1000\n\
         mimetype.assign = (\"\" => \"application/octet-stream\")\n"
    );
    let config = place.write("lighttpd.conf", config);
    let mut command = place.command(lighttpd, "[[rule]]\nthrough = 'sha256'\n");
    let server = Server::start(command.arg("-D").arg("-f").arg(config).stderr(Stdio::null()), port);
    load(port, &plain, 8);
    server.end();
    let counted = place.counters();
    assert!(counted["engine_bytes"] > 100 << 20, "{counted:?}");
    assert_eq!((counted["fallback_calls"], counted["failed"]), (0, 0), "{counted:?}");
    let whole = whole(&place.log("object"));
    assert_eq!((whole["large"], whole["mega"]), (9, 8), "{whole:?}");
    // lighttpd reads and writes small files.
    assert!(place.check_digests(|path| path.into()) >= 8 * 6);
}
