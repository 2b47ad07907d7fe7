//! Pages for operators: health, metrics, the page in a browser.

use crate::rig::{Answer, Rig};
use dcs_testkit::bytes as data;
use std::process::Command;

const MIB: usize = 1 << 20;

/// Makes some traffic: 3 MiB in, 2 MiB out, one object that does not exist.
fn traffic(rig: &Rig) {
    let mut client = rig.client();
    let body = data(MIB, 3);
    for key in ["a", "b", "c"] {
        assert_eq!(client.ask("PUT", &format!("/bucket/{key}"), &[], &body).status, 200);
    }
    for key in ["a", "b"] {
        assert!(client.ask("GET", &format!("/bucket/{key}"), &[], b"").body == body);
    }
    assert_eq!(client.ask("GET", "/bucket/none", &[], b"").status, 404);
}

fn metrics(rig: &Rig) -> String {
    let answer = rig.client().ask("GET", "/_dcs/metrics", &[], b"");
    assert_eq!((answer.status, answer.headers["content-type"].starts_with("text/plain")), (200, true));
    answer.text()
}

/// Returns the value of a series.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {text}")).parse().unwrap()
}

#[test]
fn metrics_tell_what_happened() {
    let rig = Rig::new();
    traffic(&rig);
    // A request is counted when its answer has been sent: a client on another core may be quicker.
    let last = r#"dcs_requests_total{method="GET",operation="GetObject",status="404"} "#;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let mut text = metrics(&rig);
    while !text.contains(last) && std::time::Instant::now() < until {
        text = metrics(&rig);
    }
    let requests = |operation: &str, method: &str, status: u16| {
        let labels = format!(r#"operation="{operation}",method="{method}",status="{status}""#);
        let mut labels: Vec<_> = labels.split(',').collect();
        labels.sort_unstable_by_key(|label| label.split('=').next().unwrap().to_string());
        value(&text, &format!("dcs_requests_total{{{}}}", labels.join(",")))
    };
    assert_eq!(requests("PutObject", "PUT", 200), 3.0);
    assert_eq!(requests("GetObject", "GET", 200), 2.0);
    assert_eq!(requests("GetObject", "GET", 404), 1.0);
    assert_eq!(value(&text, r#"dcs_request_duration_seconds_count{operation="GetObject"}"#), 3.0);
    let (received, sent) = (value(&text, "dcs_received_bytes_total"), value(&text, "dcs_sent_bytes_total"));
    assert_eq!(received, 3.0 * MIB as f64);
    let blocks: u32 = rig.paths.iter().map(|path| path.statistics().blocks).sum();
    assert_eq!(value(&text, "dcs_engine_blocks"), f64::from(blocks), "of all engines");
    // Heads and the refusal are sent too.
    assert!(sent > 2.0 * MIB as f64 && sent < 2.1 * MIB as f64, "{sent}");
    assert_eq!(value(&text, r#"dcs_transfer_duration_seconds_count{direction="put"}"#), 3.0);
    for stage in ["queued", "source", "md5", "destination"] {
        let series = format!(r#"dcs_transfer_stage_seconds_count{{direction="put",stage="{stage}"}}"#);
        assert_eq!(value(&text, &series), 3.0);
    }
    let stage = |name: &str| {
        value(&text, &format!(r#"dcs_transfer_stage_seconds_sum{{direction="put",stage="{name}"}}"#))
    };
    assert!(stage("md5") > 0.0 && stage("destination") > 0.0);
    assert_eq!(value(&text, "dcs_store_objects"), 3.0);
    assert_eq!(value(&text, "dcs_store_bytes"), 3.0 * MIB as f64);
    assert_eq!(value(&text, "dcs_connections_max"), 100.0);
    assert!(value(&text, "dcs_connections_open") >= 1.0);
    assert!(value(&text, "process_cpu_seconds_total") > 0.0);
    assert!(value(&text, "process_resident_memory_bytes") > 1e6);
    assert!(value(&text, "dcs_store_free_bytes") > 1e6);
    let blocks = value(&text, "dcs_engine_blocks");
    assert!(blocks > 0.0 && value(&text, "dcs_engine_blocks_free") == blocks, "nothing is in flight");
    assert!(value(&text, "dcs_engine_operations_total") > 0.0);
    let cpu = value(&text, "process_cpu_seconds_total");
    traffic(&rig);
    let text = metrics(&rig);
    assert!(value(&text, "process_cpu_seconds_total") >= cpu);
    assert_eq!(value(&text, "dcs_received_bytes_total"), 6.0 * MIB as f64);
}

#[test]
fn a_transfer_that_fails_is_counted_as_that() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send_head("PUT", "/bucket/cut", &[], MIB);
    std::io::Write::write_all(&mut client.stream, &[7; 1000]).unwrap();
    drop(client);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let failures = |text: &str| {
        let found = text.lines().filter(|line| line.starts_with("dcs_transfer_failures_total{"));
        found.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    let mut text = metrics(&rig);
    // What the connection has read is counted after the failure.
    let is_counted = |text: &str| failures(text) > 0.0 && value(text, "dcs_received_bytes_total") > 0.0;
    while !is_counted(&text) && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
        text = metrics(&rig);
    }
    assert_eq!(failures(&text), 1.0);
    assert_eq!(value(&text, "dcs_received_bytes_total"), 1000.0);
}

#[test]
fn prometheus_s_own_path_gives_way_to_a_bucket() {
    let rig = Rig::new();
    let mut client = rig.client();
    let answer = client.ask("GET", "/metrics", &[], b"");
    assert!(answer.text().contains("dcs_requests_total"), "{}", answer.text());
    let listing = |answer: &Answer| answer.text().contains("ListBucketResult");
    assert_eq!(client.ask("GET", "/metrics?list-type=2", &[], b"").status, 404, "there is no such bucket");
    assert_eq!(client.ask("PUT", "/metrics", &[], b"").status, 200);
    assert!(listing(&client.ask("GET", "/metrics", &[], b"")));
    assert!(client.ask("GET", "/_dcs/metrics", &[], b"").text().contains("dcs_requests_total"));
}

#[test]
fn health_is_told_and_nothing_but_reading_is_allowed() {
    let mut rig = Rig::new();
    let mut client = rig.client();
    let health = client.ask("GET", "/_dcs/health", &[], b"");
    assert_eq!((health.status, health.text().as_str()), (200, "ok\n"));
    assert_eq!(client.ask("HEAD", "/_dcs/health", &[], b"").status, 200);
    let refused = client.ask("PUT", "/_dcs/health", &[], b"x");
    assert_eq!((refused.status, refused.headers["allow"].as_str()), (405, "GET, HEAD"));
    assert_eq!(client.ask("GET", "/_dcs/nothing", &[], b"").status, 404);
    assert_eq!(client.ask("GET", "/_dcs", &[], b"").headers["location"], "/_dcs/");
    // A proxy's clients are not this machine's.
    let proxied = [("X-Forwarded-For", "192.0.2.7")];
    for (path, status) in
        [("/_dcs/", 403), ("/_dcs/metrics", 403), ("/metrics", 403), ("/_dcs/status.json", 403)]
    {
        assert_eq!(client.ask("GET", path, &proxied, b"").status, status, "{path}");
    }
    assert_eq!(client.ask("GET", "/_dcs/health", &proxied, b"").status, 200);
    // A request whose head came before the stop still gets its answer.
    client.send_head("PUT", "/bucket/last", &[("Expect", "100-continue")], 5);
    assert_eq!(client.head().status, 100);
    let mut stream = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        std::io::Write::write_all(&mut stream, b"hello").unwrap();
    });
    rig.stop();
    sender.join().unwrap();
    assert_eq!(client.answer("PUT").status, 200);
}

#[test]
fn the_page_shows_the_figures_in_a_browser() {
    let rig = Rig::new();
    traffic(&rig);
    let page = rig.client().ask("GET", "/_dcs/", &[], b"");
    assert!(page.headers["content-security-policy"].starts_with("default-src 'none'"));
    assert!(!page.text().contains("http://") && !page.text().contains("https://"), "nothing from elsewhere");
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let Some(browser) = browsers.iter().find(|name| there(name)) else {
        eprintln!("skipped: no Chromium here (Debian: apt install chromium)");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let out = Command::new("timeout")
        .args(["90", browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--virtual-time-budget=3500", "--dump-dom", &format!("http://{}/_dcs/", rig.address)])
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&out.stdout);
    let log = String::from_utf8_lossy(&out.stderr);
    for (figure, value) in [
        ("objects", "3"),
        ("buckets", "1"),
        ("data", "3.0 MiB"),
        ("received", "3.0 MiB"),
        ("sent", "2.0 MiB"),
    ] {
        let wanted = format!(r#"<dd data-figure="{figure}">{value}</dd>"#);
        assert!(dom.contains(&wanted), "{wanted} in {dom}\n{log}");
    }
    assert!(dom.contains(concat!(r#"<span id="version">"#, env!("CARGO_PKG_VERSION"), "</span>")), "{dom}");
    assert!(dom.contains("PutObject 3") && dom.contains(r#"<tr data-status="404">"#), "{dom}");
    assert!(dom.contains("put: 3, ") && dom.contains(r#"<span title="md5""#), "{dom}");
    assert!(dom.contains(r#"<p id="alert" role="status" aria-live="polite"></p>"#), "{dom}");
    let line = dom.split(r#"<polyline id="line-in" stroke="var(--in)" points=""#).nth(1).unwrap();
    assert!(line.split('"').next().unwrap().contains(','), "the plot has a point: {line}");
}
