//! Unmodified nginx: non-blocking sockets, two workers that dropped their privileges, 2 MiB per call.

use crate::place::{COUNTER, KEY, Place, Server, files, free_port, installed, load, whole};
use std::path::Path;
use std::process::Stdio;

fn start(place: &Place, rules: &str, root: &Path, aio: &str) -> Option<(Server, u16)> {
    let nginx = installed("nginx", "nginx-light")?;
    let (port, folder) = (free_port(), place.0.path().display());
    let config = format!(
        "daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
        events {{ worker_connections 256; }}
        http {{
            aio {aio}; sendfile on; tcp_nopush on; access_log off; open_file_cache max=100;
            client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
            uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
            server {{ listen 127.0.0.1:{port}; root {}; }}
        }}",
        root.display()
    );
    let config = place.write("nginx.conf", config);
    let mut command = place.command(nginx, rules);
    command.arg("-c").arg(config).arg("-p").arg(place.0.path()).stderr(Stdio::null());
    let server = Server::start(&mut command, port);
    Some((server, port))
}

#[test]
fn digests_of_all_that_it_sends() {
    digests("off");
}

/// Checks the digests when nginx calls sendfile from a pool of threads.
#[test]
fn digests_of_what_its_threads_send() {
    digests("threads");
}

fn digests(aio: &str) {
    let place = Place::new();
    let (plain, _) = files(&place);
    let Some((server, port)) = start(&place, "[[rule]]\nthrough = 'md5,sha256'\n", &plain, aio) else {
        return;
    };
    load(port, &plain, 8);
    server.end();
    let counted = place.counters();
    assert!(counted["engine_calls"] > 80 && counted["engine_bytes"] > 100 << 20, "{counted:?}");
    assert_eq!(
        (counted["kernel_calls"], counted["fallback_calls"], counted["failed"]),
        (0, 0, 0),
        "{counted:?}"
    );
    let objects = place.log("object");
    let whole = whole(&objects);
    // Eight clients and the slow one, but not the one that left.
    assert_eq!((whole["mega"], whole["large"], whole["odd"]), (8, 9, 8), "{whole:?}");
    assert!(objects.iter().any(|object| object["offset"] != 0), "no ranges in the log");
    let left = |object: &serde_json::Value| object["whole"] == false && object["offset"] == 0;
    assert!(objects.iter().any(left), "nothing of the client that left");
    assert!(place.check_digests(|path| path.into()) > 2 * 8 * 8);
}

#[test]
fn files_at_rest_are_decrypted_on_the_way() {
    let place = Place::new();
    let (plain, sealed) = files(&place);
    let key = place.write("key", KEY);
    let rules = format!(
        "[[rule]]\npath = '{}/*'\nthrough = 'aes256-ctr'\nkey_file = {key:?}\ncounter = '{COUNTER}'\n",
        sealed.display()
    );
    let Some((server, port)) = start(&place, &rules, &sealed, "off") else { return };
    load(port, &plain, 4);
    server.end();
    let counted = place.counters();
    assert!(counted["engine_calls"] > 40, "{counted:?}");
    assert_eq!(
        (counted["kernel_calls"], counted["fallback_calls"], counted["failed"]),
        (0, 0, 0),
        "{counted:?}"
    );
}

#[test]
fn of_another_port_nothing_is_touched() {
    let place = Place::new();
    let (plain, _) = files(&place);
    let Some((server, port)) = start(&place, "[[rule]]\nport = 9\nthrough = 'md5'\n", &plain, "off") else {
        return;
    };
    load(port, &plain, 4);
    server.end();
    let counted = place.counters();
    assert!(counted["kernel_calls"] > 40 && counted["engine_calls"] == 0, "{counted:?}");
}
