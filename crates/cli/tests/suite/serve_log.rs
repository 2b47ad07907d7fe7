//! Logs of `dcs serve`.

use crate::run::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Stdio};

#[test]
fn a_log_that_is_no_terminal_has_no_colours_and_no_rust() {
    let place = Place::new();
    let mut command = place.dcs("serve store --listen 127.0.0.1:0");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("serving ")));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let done = child.wait_with_output().unwrap();
    let log = String::from_utf8(done.stderr).unwrap();
    assert!(
        done.status.success() && log.contains(" INFO dcs::serve: opened ") && !log.contains('\x1b'),
        "{log}"
    );
    assert!(log.contains(" crashed=false unfinished=0 garbage=0"), "{log}");
    assert!(!log.contains("Recovery {"), "{log}");
}

/// A server whose log comes line by line, as JSON.
pub struct Logged {
    pub child: Child,
    pub address: String,
    log: Lines<BufReader<ChildStderr>>,
}

impl Logged {
    pub fn start(place: &Place, options: &str) -> Logged {
        let line = format!("serve store --listen 127.0.0.1:0 --log json {options}");
        let mut child = place.dcs(&line).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().split_once("http://")?.1.to_string()));
        Logged { child, address: address.unwrap(), log }
    }

    /// Returns the fields of the next line with this message.
    pub fn says(&mut self, message: &str) -> Value {
        let lines = self.log.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let mut fields = lines.map(|line| line["fields"].clone());
        fields.find(|fields| fields["message"] == message).expect("it is said before the log ends")
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_request_s_line_says_who_what_and_how_much() {
    let place = Place::new();
    let mut server = Logged::start(&place, "--anonymous all");
    let mut ask = |head: &str, body: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(
            stream,
            "{head} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let id =
            answer.split("x-amz-request-id: ").nth(1).expect("an id").lines().next().unwrap().to_string();
        (id, server.says("request"))
    };
    ask("PUT /bucket", "");
    let (id, line) = ask("PUT /bucket/key", "12345");
    assert_eq!(
        (&line["id"], &line["operation"], &line["path"]),
        (&id.into(), &"PutObject".into(), &"/bucket/key".into())
    );
    assert_eq!((&line["bytes_in"], &line["bytes_out"], &line["status"]), (&5.into(), &0.into(), &200.into()));
    assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:") && line["us"].is_u64(), "{line}");
    let (_, line) = ask("GET /bucket/key", "");
    assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&0.into(), &5.into()));
    let (id, line) = ask("GET /bucket/none", "");
    assert_eq!(
        (&line["id"], &line["error"], &line["status"]),
        (&id.into(), &"NoSuchKey".into(), &404.into())
    );
}

#[test]
fn an_answer_that_is_cut_short_is_not_said_to_be_sent() {
    let place = Place::new();
    let mut server = Logged::start(&place, "--anonymous all --patience 2s");
    let mut client = TcpStream::connect(&server.address).unwrap();
    // More than the kernel keeps for a client that takes nothing.
    let body = vec![b'x'; 64 << 20];
    for (target, body) in [("/bucket", &b""[..]), ("/bucket/big", &body)] {
        write!(client, "PUT {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
        client.write_all(body).unwrap();
        assert_eq!(server.says("request")["status"], 200);
    }
    write!(client, "GET /bucket/big HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    server.says("an answer was cut short");
    assert_eq!(server.says("request")["sent"], false);
    drop(client);
}

#[test]
fn users_are_read_again_at_a_hangup() {
    let place = Place::new();
    let users = |text: &str| {
        std::fs::write(place.path("users"), text).unwrap();
        std::fs::set_permissions(place.path("users"), std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    users("alice secret-of-alice");
    let mut server = Logged::start(&place, "--users users");
    users("alice secret-of-alice reads:photos");
    server.signal(Signal::SIGHUP);
    let refused = server.says("users could not be read again: the old ones stay");
    assert!(
        refused["error"].as_str().unwrap().contains("line 1: \"reads:photos\" is not a right"),
        "{refused}"
    );
    users("alice secret-of-alice read:photos\nbob secret-of-bob\n");
    server.signal(Signal::SIGHUP);
    assert_eq!(server.says("users were read again")["users"], 2);
}

#[test]
fn files_of_users_and_keys_are_not_for_everybody() {
    let place = Place::new();
    let open = |name: &str, text: &str| {
        std::fs::write(place.path(name), text).unwrap();
        std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    };
    open("users", "alice secret-of-alice");
    open("key", &"5a".repeat(32));
    for options in ["--users users", "--master-key key"] {
        let done = place.run(&format!("serve store --listen 127.0.0.1:0 {options}"));
        let said = done.stderr();
        assert!(said.contains("others may read it") && said.contains("chmod 600"), "{said}");
    }
}
