//! Cost of the library for nginx: nginx by itself, with the library and no rule that applies, and with chains, in turns.
//!
//! `cargo build --release -p dcs-preload`, then
//! `cargo run --release -p dcs-preload --example overhead [SIZE,..] [CLIENTS,..] [RUNS] [CONTENDERS]`
//!
//! CPU time is that of nginx's worker with all its threads, including the library's (/proc/PID/task/*/schedstat). Ratios are to
//! nginx by itself, of paired runs; results are medians. nginx has one worker, and clients use persistent connections. Files are
//! in the page cache.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Contenders: name, and rules; `None`: without the library.
const CONTENDERS: [(&str, Option<&str>); 7] = [
    ("nginx", None),
    ("no rule", Some("")),
    ("other port", Some("[[rule]]\nport = 9\nthrough = 'md5'\n")),
    ("other path", Some("[[rule]]\npath = '/nowhere/*'\nthrough = 'md5'\n")),
    ("md5", Some("[[rule]]\nthrough = 'md5'\n")),
    ("md5, aio threads", Some("[[rule]]\nthrough = 'md5'\n")),
    ("sha256", Some("[[rule]]\nthrough = 'sha256'\n")),
];

/// Bytes of a run.
const RUN_BYTES: usize = 1 << 30;
/// Least and most requests of a run.
const REQUESTS: (usize, usize) = (64, 20_000);

struct Nginx {
    child: Child,
    worker: u32,
    port: u16,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// Starts nginx. Contenders with threads in their names call sendfile from a pool of threads.
fn start(folder: &Path, at: usize, (name, rules): (&str, Option<&str>)) -> Nginx {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let own = folder.join(at.to_string());
    std::fs::create_dir(&own).unwrap();
    let aio = if name.ends_with("aio threads") { "aio threads;" } else { "" };
    let (own_name, root) = (own.display(), folder.display());
    let config = format!(
        "daemon off; user root; worker_processes 1; pid {own_name}/pid; error_log {own_name}/error.log;
        events {{ worker_connections 1024; }}
        http {{
            {aio} sendfile on; tcp_nopush on; access_log off; keepalive_requests 1000000;
            client_body_temp_path {own_name}/t1; proxy_temp_path {own_name}/t2; fastcgi_temp_path {own_name}/t3;
            uwsgi_temp_path {own_name}/t4; scgi_temp_path {own_name}/t5;
            server {{ listen 127.0.0.1:{port}; root {root}; }}
        }}"
    );
    std::fs::write(own.join("conf"), config).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-c").arg(own.join("conf")).arg("-p").arg(&own).stderr(Stdio::null());
    if let Some(rules) = rules {
        let (log, counters) = (own.join("log"), own.join("counters"));
        std::fs::write(own.join("rules"), format!("log = {log:?}\ncounters = {counters:?}\n{rules}"))
            .unwrap();
        command.env("LD_PRELOAD", library()).env("DCS_PRELOAD_CONFIG", own.join("rules"));
    }
    let child = command.spawn().expect("nginx (Debian: nginx-light)");
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let worker = std::fs::read_to_string(children).unwrap().trim().parse().expect("one worker");
    Nginx { child, worker, port }
}

fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let library = program.parent().unwrap().join("../libdcs_preload.so");
    library.canonicalize().expect("cargo build --release -p dcs-preload")
}

/// Returns the nanoseconds that the process's threads ran.
fn cpu(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let ran = threads.map(|thread| {
        let text = std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap()
    });
    ran.sum()
}

/// Sends this many requests on each of this many connections.
fn requests(port: u16, size: usize, clients: usize, each: usize) {
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(move || {
                let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
                peer.set_nodelay(true).unwrap();
                let mut buffer = vec![0; 1 << 20];
                for _ in 0..each {
                    write!(peer, "GET /{size} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                    let mut seen = peer.read(&mut buffer).unwrap();
                    let end = buffer[..seen].windows(4).position(|window| window == b"\r\n\r\n");
                    let head = end.expect("a head in one piece") + 4;
                    while seen < head + size {
                        match peer.read(&mut buffer).unwrap() {
                            0 => panic!("the server closed"),
                            count => seen += count,
                        }
                    }
                }
            });
        }
    });
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn list(argument: Option<String>, default: &[usize]) -> Vec<usize> {
    argument.map_or(default.to_vec(), |text| text.split(',').map(|word| word.parse().unwrap()).collect())
}

/// Measures the cost of a call without a chain (`call.c`): the least of several runs, in turns.
fn calls(folder: &Path) {
    let (program, file) = (folder.join("call"), folder.join("16k"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/call.c");
    let built = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).status();
    assert!(built.is_ok_and(|status| status.success()), "cc");
    std::fs::write(&file, vec![7; 1 << 14]).unwrap();
    let contenders = &CONTENDERS[..4];
    let mut least = vec![f64::MAX; contenders.len()];
    for _ in 0..7 {
        for (at, (_, rules)) in contenders.iter().enumerate() {
            let mut command = Command::new(&program);
            if let Some(rules) = rules {
                let log = folder.join("call.log");
                command.env("LD_PRELOAD", library());
                command.env("DCS_PRELOAD_RULES", format!("log = {log:?}\n{rules}"));
            }
            let said = command.arg(&file).output().unwrap();
            assert!(said.status.success(), "{said:?}");
            least[at] = least[at].min(String::from_utf8_lossy(&said.stdout).trim().parse().unwrap());
        }
    }
    println!("| | CPU ns a call of 16 KiB, with its receive | more |\n|---|---|---|");
    for ((name, _), took) in contenders.iter().zip(&least) {
        println!("| {} | {took:.0} | {:.0} |", name.replace("nginx", "without the library"), took - least[0]);
    }
    println!();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let sizes = list(arguments.next(), &[4096, 65_536, 1 << 20, 16 << 20]);
    let clients = list(arguments.next(), &[1, 16]);
    let runs = list(arguments.next(), &[7])[0];
    // The first contenders, this many.
    let contenders = &CONTENDERS[..list(arguments.next(), &[CONTENDERS.len()])[0]];
    let folder = tempfile::tempdir().unwrap();
    for size in &sizes {
        std::fs::write(folder.path().join(size.to_string()), vec![7; *size]).unwrap();
    }
    calls(folder.path());
    let servers: Vec<_> =
        contenders.iter().enumerate().map(|(at, contender)| start(folder.path(), at, *contender)).collect();
    println!(
        "| file | clients | contender | CPU us a request | to nginx | GiB/s | CPU s/GiB |\n|---|---|---|---|---|---|---|"
    );
    for size in sizes {
        for clients in &clients {
            let total = (RUN_BYTES / size).clamp(REQUESTS.0, REQUESTS.1);
            let each = total.div_ceil(*clients);
            let mut costs = vec![Vec::new(); servers.len()];
            let mut rates = costs.clone();
            for run in 0..=runs {
                for turn in 0..servers.len() {
                    let at = (turn + run) % servers.len();
                    let server = &servers[at];
                    let (before, begun) = (cpu(server.worker), Instant::now());
                    requests(server.port, size, *clients, each);
                    let (cost, time) = (cpu(server.worker) - before, begun.elapsed().as_secs_f64());
                    // The first run warms up.
                    if run > 0 {
                        costs[at].push(cost / 1e3 / (each * clients) as f64);
                        rates[at].push((each * clients * size) as f64 / time / (1_u64 << 30) as f64);
                    }
                }
            }
            for (at, (name, _)) in contenders.iter().enumerate() {
                let ratios = costs[at].iter().zip(&costs[0]).map(|(own, nginx)| own / nginx).collect();
                let cost = median(costs[at].clone());
                println!(
                    "| {size} | {clients} | {name} | {cost:.1} | {:.3} | {:.2} | {:.3} |",
                    median(ratios),
                    median(rates[at].clone()),
                    cost * 1e-6 * (1_u64 << 30) as f64 / size as f64,
                );
            }
        }
    }
}
