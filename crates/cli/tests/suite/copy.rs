//! `dcs copy`, pipes, and `dcs ops`.

use crate::run::{Place, data, feed, python};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;

const SIZE: usize = 1_300_007;

#[test]
fn digests_are_those_of_pythons_hashlib() {
    let place = Place::new();
    let a = place.write("a", &data(SIZE));
    let done = place.run("copy a b --through md5,sha1,sha256,sha512,crc32 --json").ok();
    let script = "import hashlib,sys,zlib; d=open(sys.argv[1],'rb').read(); \
                  print(*[hashlib.new(n,d).hexdigest() for n in ('md5','sha1','sha256','sha512')], '%08x'%zlib.crc32(d))";
    assert_eq!(done.digests().join(" "), python(script, &a));
    assert!(place.read("b") == data(SIZE));
    let json = done.json();
    assert_eq!(json["bytes_in"], SIZE);
    assert_eq!(json["bytes_out"], SIZE);
    assert_eq!(json["digests"][4]["place"], 4);
    assert!(json["path"].as_array().is_some_and(|path| !path.is_empty()));
    assert!(json["breakdown"]["stages"].as_array().is_some_and(|stages| stages.len() == 7));
}

#[test]
fn crcs_are_those_of_their_published_check_values() {
    let place = Place::new();
    place.write("check", b"123456789");
    let done = place.run("copy check b --through crc32,crc32c,crc64-nvme --json").ok();
    assert_eq!(done.digests(), ["cbf43926", "e3069283", "ae8b14860a799888"]);
}

#[test]
fn digests_are_printed_as_md5sum_does() {
    let place = Place::new();
    place.write("empty", b"");
    let done = place.run("copy empty b --through md5").ok();
    assert_eq!(done.stdout(), "md5  d41d8cd98f00b204e9800998ecf8427e  empty\n");
    assert!(done.stderr().contains("0 bytes"));
    assert_eq!(place.run("copy empty b --through md5 --quiet").ok().stderr(), "");
    assert_eq!(place.read("b"), b"");
}

#[test]
fn python_opens_what_gzip_wrote_and_the_other_way_round() {
    let place = Place::new();
    place.write("a", &data(SIZE));
    for level in ["gzip", "gzip:9", "gzip=0"] {
        place.run(&format!("copy a a.gz --through {level}")).ok();
        let script =
            "import gzip,sys; d=gzip.open(sys.argv[1]).read(); open(sys.argv[1]+'.opened','wb').write(d)";
        python(script, &place.path("a.gz"));
        assert!(place.read("a.gz.opened") == data(SIZE), "{level}");
    }
    let script = "import gzip,sys; gzip.open(sys.argv[1]+'.py.gz','wb').write(open(sys.argv[1],'rb').read())";
    python(script, &place.path("a"));
    place.run("copy a.py.gz back --through gunzip").ok();
    assert!(place.read("back") == data(SIZE));
}

#[test]
fn ways_of_the_engine_give_the_same_file() {
    let place = Place::new();
    place.write("a", &data(SIZE));
    for way in ["", "--io plain", "--cache on", "--durable", "--through crc32", "--through zstd:5,unzstd"] {
        place.run(&format!("copy a b {way}")).ok();
        assert!(place.read("b") == data(SIZE), "{way}");
    }
}

#[test]
fn standard_input_and_output_are_files_too() {
    let place = Place::new();
    let done = feed(place.dcs("copy - - --through sha256"), &data(SIZE)).ok();
    assert!(done.0.stdout == data(SIZE));
    let digest = python(
        "import hashlib,sys; print(hashlib.sha256(open(sys.argv[1],'rb').read()).hexdigest())",
        &place.write("a", &data(SIZE)),
    );
    assert!(done.stderr().contains(&format!("sha256  {digest}  -")), "{}", done.stderr());
    assert_eq!(feed(place.dcs("send - - --through md5 --json"), b"abc").ok().stdout(), "abc");
}

#[test]
fn redirected_files_are_read_and_written_from_where_they_stand() {
    let place = Place::new();
    let mut input = File::open(place.write("a", b"0123456789")).unwrap();
    input.seek(SeekFrom::Start(3)).unwrap();
    let output = File::create(place.path("out")).unwrap();
    for _ in 0..2 {
        let mut command = place.dcs("copy - -");
        command.stdin(input.try_clone().unwrap()).stdout(output.try_clone().unwrap());
        assert!(command.status().unwrap().success());
        place.write("b", b"and more");
        let status = place.dcs("copy b -").stdout(output.try_clone().unwrap()).status().unwrap();
        assert!(status.success());
    }
    let mut rest = String::new();
    input.read_to_string(&mut rest).unwrap();
    assert_eq!((place.read("out").as_slice(), rest.as_str()), (b"3456789and moreand more".as_slice(), ""));
}

#[test]
fn copies_as_cp_does() {
    let place = Place::new();
    let a = place.write("a", b"new");
    std::fs::set_permissions(&a, PermissionsExt::from_mode(0o640)).unwrap();
    std::fs::create_dir(place.path("folder")).unwrap();
    place.run("copy a folder").ok();
    assert_eq!(place.read("folder/a"), b"new");
    assert_eq!(std::fs::metadata(place.path("folder/a")).unwrap().permissions().mode() & 0o777, 0o640);
    let b = place.write("b", b"older and longer");
    std::fs::set_permissions(&b, PermissionsExt::from_mode(0o604)).unwrap();
    std::os::unix::fs::symlink("b", place.path("link")).unwrap();
    place.run("copy a b --no-clobber").fails(1, &["b", "exists"]);
    assert_eq!(place.read("b"), b"older and longer");
    place.run("copy a link").ok();
    assert!(std::fs::symlink_metadata(place.path("link")).unwrap().is_symlink());
    assert_eq!(place.read("b"), b"new");
    assert_eq!(std::fs::metadata(&b).unwrap().permissions().mode() & 0o777, 0o604, "it keeps its mode");
    place.write("b", b"older and longer");
    place.run("copy a b --in-place").ok();
    assert_eq!(place.read("b"), b"new");
    assert_eq!(place.names(), ["a", "b", "folder", "link"], "and nothing else is left");
}

#[test]
fn every_operator_is_listed_and_measured() {
    let place = Place::new();
    let listed = place.run("ops --no-measure --json").ok().lines();
    let names: Vec<_> = listed.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, dcs_abi::operator::OPERATORS.iter().map(|info| info.name).collect::<Vec<_>>());
    assert!(listed.iter().all(|row| row["gib_per_s"].is_null()));
    let measured = place.run("ops --json").ok().lines();
    assert_eq!(measured.len(), names.len());
    assert!(measured.iter().all(|row| row["gib_per_s"].as_f64().unwrap() > 0.0));
    let table = place.run("ops --no-measure").ok().stdout();
    assert_eq!(table.lines().count(), names.len() + 1);
}
