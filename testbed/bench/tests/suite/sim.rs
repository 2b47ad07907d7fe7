//! `dcs bench sim`: the fast ones of the papers' experiments in virtual time, and the report.

use crate::run::Place;

#[test]
fn latency_is_told_by_component_beside_the_papers() {
    let place = Place::new();
    let mut lines = place.run("bench sim latency --json --svg latency.svg").ok().lines();
    assert_eq!(lines.pop().unwrap()["ok"], true);
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    for row in of("measurement") {
        let parts = row["parts_ns"].as_object().unwrap().values().map(|part| part.as_u64().unwrap());
        assert_eq!(Some(parts.sum::<u64>()), row["total_ns"].as_u64(), "{row}");
    }
    let figures = of("figure");
    assert!(figures.iter().any(|line| line["paper"] == 0.58 && line["reached"] == true));
    assert!(
        figures.iter().any(|line| line["paper"] == 0.58 && line["reached"] == false),
        "what is not reached is said"
    );
    let svg = place.read("latency.svg");
    let svg = String::from_utf8_lossy(&svg);
    for name in ["SSD -&gt; MD5 -&gt; NIC", "kernel stacks", "card control"] {
        assert!(svg.contains(name), "{name}");
    }
    // Virtual time: a second run gives the same results.
    let again = place.run("bench sim latency --json").ok().lines();
    assert!(lines.iter().all(|line| again.contains(line)));
}

#[test]
fn every_parameter_has_a_source() {
    let lines = Place::new().run("bench sim parameters --json").ok().lines();
    let rows: Vec<_> = lines.iter().filter(|line| line["event"] == "parameter").collect();
    assert!(
        rows.len() > 30 && rows.iter().all(|row| row["source"].as_str().is_some_and(|text| text.len() > 20))
    );
}

/// Fields of the output of `dcs vm demo --json`, and a name that would be markup.
const GUEST: &str = r#"{"event":"step","name":"boot"}
{"event":"measurement","job":"SSD -> md5 -> NIC","by":"<host>","guest_cpu_s_per_gib":21.6,"guest_cpu_ratio":null,"device_interrupts_per_gib":48896.0,"system_calls_per_gib":19968.0}
{"event":"measurement","experiment":"guest-contention","job":"SSD -> NIC","by":"card","design":"the card","spinners":0,"guest_cpu_s_per_gib":1.5,"guest_cpu_ratio":null,"guest_cpu_ratio_to_software":null,"process_cpu_s_per_gib":0.9,"device_interrupts_per_gib":315.0,"system_calls_per_gib":null,"transfers":12,"bytes_verified":50331648,"digests_verified":0,"asked_mib_per_s":null,"mib_per_s_in_qemu":28.9,"kept":1.0,"rounds":[1.0]}
{"event":"measurement","experiment":"guest-contention","job":"SSD -> NIC","by":"card","design":"the card","spinners":24,"guest_cpu_s_per_gib":null,"guest_cpu_ratio":null,"guest_cpu_ratio_to_software":null,"process_cpu_s_per_gib":0.9,"device_interrupts_per_gib":315.0,"system_calls_per_gib":null,"transfers":12,"bytes_verified":50331648,"digests_verified":0,"asked_mib_per_s":null,"mib_per_s_in_qemu":28.1,"kept":0.973,"rounds":[0.973]}
{"event":"measurement","experiment":"guest-scaling","job":"SSD -> NIC","by":"card","design":"the card","spinners":0,"guest_cpu_s_per_gib":1.5,"guest_cpu_ratio":null,"guest_cpu_ratio_to_software":null,"process_cpu_s_per_gib":0.9,"device_interrupts_per_gib":315.0,"system_calls_per_gib":null,"transfers":12,"bytes_verified":50331648,"digests_verified":0,"asked_mib_per_s":null,"mib_per_s_in_qemu":28.9,"kept":null,"rounds":[1.0],"sets":{"count":1,"of_one_set":1.0,"guest_cpu_share":0.05,"least":1.0,"most":1.0}}
{"event":"measurement","experiment":"guest-scaling","job":"SSD -> NIC","by":"card","design":"the card","spinners":0,"guest_cpu_s_per_gib":1.53,"guest_cpu_ratio":null,"guest_cpu_ratio_to_software":null,"process_cpu_s_per_gib":0.9,"device_interrupts_per_gib":315.0,"system_calls_per_gib":null,"transfers":12,"bytes_verified":50331648,"digests_verified":0,"asked_mib_per_s":null,"mib_per_s_in_qemu":28.9,"kept":null,"rounds":[1.021],"sets":{"count":4,"of_one_set":1.021,"guest_cpu_share":0.05,"least":0.982,"most":1.013}}
{"event":"measurement","job":"SSD -> md5 -> NIC","by":"card","guest_cpu_s_per_gib":1.96,"guest_cpu_ratio":0.0907,"device_interrupts_per_gib":1072.0,"system_calls_per_gib":24064.0}
"#;

/// Fields of the output of `integrations/hdfs/grep.py --json` and of `dcs bench --counters --json`.
const REAL: &str = r#"{"event":"step"}
{"event":"measurement","hadoop_grep":"rare","pattern":"<ERROR>","by":"stock","gib":2.0,"matches":17,"runs":3,"seconds":30.0,"job_cpu_s":20.0,"datanode_cpu_s":2.0,"cpu_s":22.0,"datanode_sent_bytes":null}
{"event":"measurement","hadoop_grep":"rare","pattern":"<ERROR>","by":"near storage","gib":2.0,"matches":17,"runs":3,"seconds":12.0,"job_cpu_s":9.0,"datanode_cpu_s":0.5,"cpu_s":9.5,"datanode_sent_bytes":4096}
{"event":"measurement","job":"file>socket","contender":"loop","memory_hogs":1,"gib_per_s":1.5,"cpu_s_per_gib":0.7,"counters_refused":"perf_event_open: <none>"}
{"event":"measurement","job":"file>socket","contender":"engine","memory_hogs":1,"gib_per_s":9.5,"cpu_s_per_gib":0.1,"instructions_per_byte":0.123,"instructions_per_cycle":1.567,"cache_misses_per_kib":0.031}
"#;

#[test]
fn the_report_shows_what_real_programs_did() {
    let place = Place::new();
    place.write("real.json", REAL.as_bytes());
    place.run("bench sim csd-area --quick --html report.html --real real.json").ok();
    let page = String::from_utf8(place.read("report.html")).unwrap();
    for part in [
        "0.400</td>",
        "0.432</td>",
        "0.250</td>",
        "&lt;ERROR&gt;",
        "1.57</td>",
        "No counters: perf_event_open: &lt;none&gt;",
    ] {
        assert!(page.contains(part), "{part}");
    }
    place.write("real.json", b"{\"event\":\"measurement\"}");
    let run = place.run("bench sim csd-area --html report.html --real real.json");
    run.fails(2, &["something else", "grep.py --json"]);
}

#[test]
fn the_report_shows_a_guest_s_ways_to_its_disk() {
    let place = Place::new();
    let row = |design: &str, job: &str, cpu: f64| {
        serde_json::json!({
            "event": "design", "experiment": "guest-drives", "design": design, "job": job, "guest_cpu_s_per_gib": cpu,
            "of_paravirtual": 9.9, "host_cpu_s_per_gib": 0.77, "seconds_per_gib_in_qemu": 12.3,
            "delivered_share": 0.25, "bytes": 1 << 24, "rounds": [cpu],
        })
    };
    let (paravirtual, near) =
        ("paravirtual disk (virtio-blk), software in the guest", "virtual drive, near storage");
    // A run before the last one does not count.
    let rows = [
        row(near, "md5", 50.0),
        row(paravirtual, "md5", 8.0),
        row(near, "md5", 1.0),
        row(paravirtual, "grep", 4.0),
    ];
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    place.write("guest.json", lines.as_bytes());
    place.run("bench sim csd-area --quick --html report.html --guest guest.json").ok();
    let page = String::from_utf8(place.read("report.html")).unwrap();
    for part in ["guest-drives", "0.125</td>", "0.250</td>", "12.3</td>", "1.00</td>"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("50.00</td>"));
}

#[test]
fn the_report_is_one_page_that_a_browser_shows() {
    let place = Place::new();
    place.write("guest.json", GUEST.as_bytes());
    let lines =
        place.run("bench sim latency --quick --json --html report.html --guest guest.json").ok().lines();
    let page = String::from_utf8(place.read("report.html")).unwrap();
    for outside in ["src=", "<link", "url(", "<script", "@import"] {
        assert!(!page.contains(outside), "nothing from elsewhere, and no script: {outside}");
    }
    let figures: Vec<_> = lines.iter().filter(|line| line["event"] == "figure").collect();
    for dom in [Some(page), in_a_browser(&place.path("report.html"))].into_iter().flatten() {
        assert_eq!(dom.matches("<svg").count(), 3);
        assert_eq!(
            dom.matches("</table>").count(),
            9,
            "reached, measurements, figures, the guest's demo, its measurements and figures twice, parameters"
        );
        // An experiment of the guest's is in the first table too.
        assert_eq!(dom.matches("beside 24 spinning guest processes, card").count(), 2 + 1);
        assert_eq!(dom.matches("0.973</td>").count(), 2 + 1);
        assert_eq!(dom.matches("guest CPU seconds a GiB, all sets / one, card").count(), 2 + 1);
        assert_eq!((dom.matches("1.021</td>").count(), dom.matches("0.982</td>").count()), (2 + 1, 2 + 1));
        for figure in &figures {
            assert!(dom.contains(&format!("{:.3}</td>", figure["ours"].as_f64().unwrap())), "{figure}");
        }
        assert!(dom.contains("not reached") && dom.contains("A quick run"), "what falls short is said");
        assert!(
            dom.contains("&lt;host&gt;</td>") && dom.contains("1.96</td>") && dom.contains("0.09</td>"),
            "{dom}"
        );
        assert!(dom.contains("Arrakis (OSDI 2014), table 1"), "parameters have their sources");
        // The data are the lines that were printed.
        let data = dom.split("<pre id=\"lines\">").nth(1).unwrap().split("</pre>").next().unwrap();
        let data =
            data.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let data: Vec<serde_json::Value> =
            data.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(figures.iter().all(|figure| data.contains(figure)));
        assert!(data.iter().any(|line| line["by"] == "card" && line["guest_cpu_s_per_gib"] == 1.96));
    }
}

/// Returns the page as a browser parses it, if there is a browser.
fn in_a_browser(page: &std::path::Path) -> Option<String> {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let there = |name: &&str| std::process::Command::new(name).arg("--version").output().is_ok();
    let Some(browser) = browsers.iter().find(|name| there(name)) else {
        eprintln!("skipped: no Chromium here (Debian: apt install chromium)");
        return None;
    };
    let profile = tempfile::tempdir().unwrap();
    let out = std::process::Command::new("timeout")
        .args(["90", browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--dump-dom", &format!("file://{}", page.display())])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8(out.stdout).unwrap())
}

#[test]
fn what_is_no_guest_s_measurement_is_refused_before_anything_is_measured() {
    let place = Place::new();
    for (text, said) in [
        ("no JSON", "expected"),
        ("{\"event\":\"done\"}", "no measurement"),
        ("{\"event\":\"measurement\"}", "guest_cpu_s_per_gib"),
        ("{\"event\":\"measurement\",\"experiment\":\"guest-object\"}", "missing field"),
        ("{\"event\":\"design\",\"experiment\":\"guest-drives\"}", "a row of drives"),
    ] {
        place.write("guest.json", text.as_bytes());
        let run = place.run("bench sim latency --html report.html --guest guest.json");
        run.fails(2, &[said, "dcs vm demo --json"]);
        assert!(!place.path("report.html").exists());
    }
}

#[test]
fn a_fault_strikes_and_what_fails_is_told() {
    let place = Place::new();
    let command = "bench sim faults --transfers 6 --size 256KiB --fault ssd:read:3:status=0x281 --fault ssd:flush:1:drop";
    let lines = place.run(&format!("{command} --json")).ok().lines();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let rows = of("measurement");
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(
            (&row["right"], &row["failed"], &row["wrong"]),
            (&5.into(), &1.into(), &0.into()),
            "{row}"
        );
    }
    let failed = of("failed");
    assert!(failed.iter().all(|line| line["job"] == "SSD -> MD5 -> NIC"));
    assert!(failed.iter().any(|line| line["design"] == "card" && line["why"].to_string().contains("source")));
    let faults = of("fault");
    let (read, flush): (Vec<_>, Vec<_>) =
        faults.into_iter().partition(|line| line["fault"] == "ssd:read:3:status=0x281");
    assert!(read.len() == 4 && read.iter().all(|line| line["struck"] == 1 && line["never"].is_null()));
    assert!(flush.len() == 4 && flush.iter().all(|line| line["struck"] == 0 && line["never"].is_string()));
    // The same in the output for people.
    let text = place.run(command).ok().stdout();
    assert!(text.contains("ssd:flush:1:drop never struck: no device had such an operation"), "{text}");
    assert!(text.contains("card: ssd:read:3:status=0x281 struck once"), "{text}");
}

#[test]
fn an_ssd_that_lies_is_told_and_is_no_defect_of_the_designs() {
    let lines = Place::new()
        .run("bench sim faults --transfers 2 --size 64KiB --fault ssd:read:1:corrupt --json")
        .ok()
        .lines();
    assert_eq!(lines.iter().filter(|line| line["event"] == "wrong").count(), 4);
}

#[test]
fn a_fault_that_cannot_be_had_is_refused_with_what_to_write() {
    let place = Place::new();
    for (line, said) in [
        ("bench sim faults --fault ssd:read:0:drop", "counted from 1"),
        ("bench sim faults --fault ssd:read:3", "such as ssd:read:3:late=20ms"),
        ("bench sim faults --fault ssd1:read:3:drop", "there is no such device"),
        ("bench sim faults --fault ssd:read:3:drop --size 1GiB", "1 to 64MiB"),
        ("bench sim faults --fault ssd:read:3:drop --svg x.svg", "faults draws no plot"),
        ("vm demo --fault nic:transmit:3:drop", "its plans are for an ssd"),
        ("vm demo --fault ssd:read:3:hang=hard", "write hang"),
        ("vm shell --fault ssd:write:3:short=512", "write ssd:read"),
    ] {
        let done = place.run(line);
        assert_eq!(done.code(), 2, "{line}");
        assert!(done.stderr().contains(said), "{line}: {}", done.stderr());
    }
}

/// Checks that each of FlexCSV's figures, and the engine in SystemVerilog, has measurements, figures compared with the paper's, and a plot.
#[test]
fn virtual_drives_and_hardware_have_tables_figures_and_plots() {
    let place = Place::new();
    for (name, drawn) in [
        ("csd-area", "thousand LUTs (table 3)"),
        ("csd-breakdown", "figure 5"),
        ("csd-speedup", "knn, read alone"),
        ("csd-native", "SSD, 32 at once"),
        ("csd-ssds", "GB/s (figure 17)"),
        ("csd-qos", "mean latency, ms, 4 guests (figure 8)"),
        ("csd-steps", "loading, ms (figure 14)"),
        ("rtl", "Mb/s a LUT: aes256-ctr"),
    ] {
        let lines = place.run(&format!("bench sim {name} --quick --json --svg {name}.svg")).ok().lines();
        let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
        assert!(of("measurement").iter().all(|line| line["experiment"] == name), "{name}");
        assert!(of("measurement").len() >= 7 && of("figure").len() >= 3, "{name}");
        assert!(of("figure").iter().all(|line| line["ours"].as_f64().is_some_and(f64::is_finite)), "{name}");
        assert!(String::from_utf8_lossy(&place.read(&format!("{name}.svg"))).contains(drawn), "{name}");
    }
}

#[test]
fn a_parameter_can_be_set_and_changes_what_is_measured() {
    let place = Place::new();
    let total = |line: &str| {
        let lines = place.run(line).ok().lines();
        let first = lines.iter().find(|line| line["event"] == "measurement").unwrap();
        first["total_ns"].as_u64().unwrap()
    };
    let (usual, slow) = (
        total("bench sim csd-breakdown --json"),
        total("bench sim csd-breakdown --set exit=9000 --set wake=2400 --json"),
    );
    // A paravirtual request exits twice: for the SSD and for the FPGA.
    assert_eq!(slow - usual, 2 * 8000);
    for (line, said) in [
        ("bench sim csd-qos --set nobody=3", "no parameter has this name"),
        ("bench sim csd-qos --set exit", "not NAME=NUMBER"),
    ] {
        let done = place.run(line);
        assert_eq!(done.code(), 2, "{line}");
        assert!(done.stderr().contains(said), "{line}: {}", done.stderr());
    }
}
