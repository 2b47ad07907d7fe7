//! Operators on a GPU, by the command: on a stand-in of CUDA's driver, and the messages without a GPU.

use crate::run::{IV, KEY, Place};
use crate::stand_in;
use std::process::Command;

const MIB: usize = 1 << 20;

fn data() -> Vec<u8> {
    (0..MIB as u32 + 777).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Sets the stand-in up; false if it cannot be built.
fn with_stand_in(command: &mut Command) -> bool {
    match stand_in::library() {
        Some(library) => command.env("DCS_CUDA_LIBRARY", library),
        None => return false,
    };
    true
}

#[test]
fn a_gpu_does_what_the_cpu_does() {
    let place = Place::new();
    place.write("data", &data());
    let mut there = place.dcs(&format!(
        "copy data there --through gpu:md5,gpu:aes256-ctr,gpu:sha256,gpu:crc32,gpu:crc32c --iv {IV} --json"
    ));
    there.env("DCS_KEY", KEY);
    if !with_stand_in(&mut there) {
        return;
    }
    let there = crate::run::Done(there.output().unwrap()).ok();
    let mut here =
        place.dcs(&format!("copy data here --through md5,aes256-ctr,sha256,crc32,crc32c --iv {IV} --json"));
    let here = crate::run::Done(here.env("DCS_KEY", KEY).output().unwrap()).ok();
    assert!(place.read("there") == place.read("here"));
    let digests = |text: String| {
        let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        line["digests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|digest| digest["value"].to_string())
            .collect::<Vec<_>>()
    };
    let (there, here) = (there.stdout(), here.stdout());
    assert!(there.contains("\"stand_in\":true") && there.contains("GPU"), "{there}");
    assert_eq!(digests(there), digests(here));
}

#[test]
fn a_gpu_reads_files_itself_where_that_is_to_be_had_and_says_so() {
    let place = Place::new();
    let data = data();
    place.write("data", &data);
    let copy = |options: &str, storage: Option<&str>| {
        let mut copy = place.dcs(&format!("copy data there --through gpu:crc32c --cache off {options}"));
        let library = with_stand_in(&mut copy).then(stand_in::library).flatten()?;
        copy.env("DCS_CUFILE_LIBRARY", storage.map_or(library.as_os_str(), std::ffi::OsStr::new));
        Some(crate::run::Done(copy.output().unwrap()))
    };
    let Some(there) = copy("--json", None) else { return };
    let there = there.ok().stdout();
    assert!(there.contains("GPUDirect Storage") && there.contains("\"reads_files\":true"), "{there}");
    assert!(place.read("there") == data);
    let never = copy("--gpu-storage off", None).unwrap().ok();
    assert!(
        !never.stderr().contains("GPUDirect") && !never.stdout().contains("GPUDirect"),
        "{}",
        never.stderr()
    );
    let refused = copy("--gpu 8", None).unwrap().ok().stderr();
    assert!(refused.contains("not of this file system") && refused.contains("read by the host"), "{refused}");
    copy("", Some("/no/such/libcufile.so.0")).unwrap().ok();
    copy("--gpu-storage on", Some("/no/such/libcufile.so.0")).unwrap().fails(
        1,
        &["gpu:crc32c: GPUDirect Storage: /no/such/libcufile.so.0 cannot be loaded", "--gpu-storage on"],
    );
    copy("--gpu-storage on --gpu 6", None).unwrap().fails(1, &["the kernel module nvidia-fs is not loaded"]);
    let mut bench =
        place.dcs("bench gpu crc32c aes256-ctr --streams 2 --size 4KiB --runs 1 --file data --json");
    with_stand_in(&mut bench);
    bench.env("DCS_CUFILE_LIBRARY", stand_in::library().unwrap());
    let json = crate::run::Done(bench.output().unwrap()).ok().stdout();
    let lines = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let files: Vec<_> = lines.filter(|line| line["event"] == "file").collect();
    let positive = |line: &serde_json::Value, name: &str| line[name].as_f64().is_some_and(|rate| rate > 0.0);
    assert_eq!(files.len(), 2, "{json}");
    assert!(
        files.iter().all(|line| positive(line, "direct_gib_per_s") && positive(line, "by_host_gib_per_s"))
    );
    assert!(files.iter().all(|line| line["stand_in"] == true), "{json}");
}

#[test]
fn an_expected_value_is_that_of_the_operator_whoever_computes_it() {
    let place = Place::new();
    place.write("data", b"message digest");
    for (line, code) in [
        ("copy data out --through gpu:md5 --expect md5=f96b697d7cb7938d525a2f31aaf161d0", 0),
        ("copy data out --through gpu:md5=f96b697d7cb7938d525a2f31aaf161d0", 0),
        ("copy data out --through gpu:md5 --expect gpu:md5=f96b697d7cb7938d525a2f31aaf161d1", 5),
        ("copy data out --through gpu:md5=f96b697d7cb7938d525a2f31aaf161d1", 5),
    ] {
        let mut command = place.dcs(line);
        if with_stand_in(&mut command) {
            let done = crate::run::Done(command.output().unwrap());
            assert_eq!(done.code(), code, "{line}: {}", done.stderr());
        }
    }
}

#[test]
fn a_gpu_that_is_not_there_is_said_and_nobody_else_does_it() {
    let place = Place::new();
    place.write("data", b"data");
    let mut missing = place.dcs("copy data out --through gpu:md5");
    missing.env("DCS_CUDA_LIBRARY", "/no/such/libcuda.so.1");
    let missing = crate::run::Done(missing.output().unwrap());
    missing.fails(1, &["gpu:md5: no GPU: /no/such/libcuda.so.1 cannot be loaded", "leave out gpu:"]);
    place.run("copy data out --through gpu:gzip").fails(2, &["no GPU does gzip", "gpu:aes256-ctr"]);
    place.run("copy data out --through gpu:nothing").fails(2, &["there is no operator \"nothing\""]);
    let mut other = place.dcs("copy data out --through md5,gpu:sha256 --gpu 77");
    if with_stand_in(&mut other) {
        crate::run::Done(other.output().unwrap()).fails(1, &["gpu:sha256: there is no GPU 77", "dcs doctor"]);
    }
    assert_eq!(place.names(), ["data"], "nothing was written");
}

#[test]
fn a_gpu_that_is_lost_is_said_in_its_drivers_words() {
    let place = Place::new();
    place.write("data", &data());
    let mut command = place.dcs("copy data out --through gpu:md5 --gpu 1 --quiet");
    if !with_stand_in(&mut command) {
        return;
    }
    crate::run::Done(command.output().unwrap())
        .fails(1, &["operator 1 (gpu:md5)", "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"]);
    assert_eq!(place.names(), ["data"], "a file that is not whole is not put in place");
}

#[test]
fn the_benchmark_runs_on_the_stand_in_and_says_that_it_is_none() {
    let place = Place::new();
    let mut bench = place.dcs("bench gpu --streams 1,40 --size 4KiB --runs 2 --json");
    if !with_stand_in(&mut bench) {
        return;
    }
    let json = crate::run::Done(bench.output().unwrap()).ok().stdout();
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let measured: Vec<_> = lines.iter().filter(|line| line["event"] == "measurement").collect();
    assert_eq!(measured.len(), 10, "{json}");
    for line in measured {
        assert_eq!(line["stand_in"], true);
        let positive = |name: &str| line[name].as_f64().is_some_and(|rate| rate > 0.0);
        assert!(
            ["on_gpu_gib_per_s", "apart_gib_per_s", "overlapped_gib_per_s", "engine_gpu_gib_per_s"]
                .into_iter()
                .all(positive)
        );
        // The stand-in reports a cache with room for one stream's data, but not for forty.
        assert_eq!(positive("of_memory"), line["streams"] == 40, "{line}");
    }
    let mut plotted = place.dcs("bench gpu md5 --streams 2 --size 4KiB --runs 1 --svg plot.svg");
    with_stand_in(&mut plotted);
    crate::run::Done(plotted.output().unwrap()).fails(2, &["stand-in", "not for publishing"]);
    let mut shown = place.dcs("bench gpu gpu:crc32c --streams 2 --size 4KiB --runs 1");
    with_stand_in(&mut shown);
    let shown = crate::run::Done(shown.output().unwrap()).ok().stdout();
    assert!(shown.contains("STAND-IN, NO GPU") && shown.contains("(stand-in, no GPU)"), "{shown}");
    assert!(place.names().is_empty());
    let mut missing = place.dcs("bench gpu");
    missing.env("DCS_CUDA_LIBRARY", "/no/such/libcuda.so.1");
    crate::run::Done(missing.output().unwrap()).fails(1, &["no GPU: /no/such/libcuda.so.1"]);
    place.run("bench gpu gzip").fails(2, &["no GPU does", "aes256-ctr"]);
}

#[test]
fn the_doctor_and_the_list_of_operators_tell_of_gpus() {
    let place = Place::new();
    let mut doctor = place.dcs("doctor --json");
    doctor.env("DCS_CUDA_LIBRARY", "/no/such/libcuda.so.1");
    let missing = crate::run::Done(doctor.output().unwrap()).stdout();
    assert!(missing.contains("/no/such/libcuda.so.1"), "{missing}");
    let mut doctor = place.dcs("doctor");
    if with_stand_in(&mut doctor) {
        let found = crate::run::Done(doctor.output().unwrap()).stdout();
        assert!(found.contains("stand-in"), "{found}");
    }
    let ops = place.run("ops --no-measure").ok().stdout();
    assert!(ops.contains("gpu:md5") && !ops.contains("gpu:gzip"), "{ops}");
}
