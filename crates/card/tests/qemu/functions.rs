//! Tests two functions of a card, each in a guest of its own with a stock kernel: function 0's host lends parts of its SSD by the
//! library, and function 1's host opens them and runs transfers on them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dcs::card::{Access, Disk, Options};
use dcs::{Backend, Engine, Op, Session, Sink, Source, Stage, Status};
use dcs_card::card::Config;
use dcs_card::serve::serve_functions;
use dcs_testkit::hex;
use dcs_vm::tools::Flavour;
use dcs_vm::{Guest, Initramfs, Machine, Tools};

use crate::card::md5;
use crate::rig::{LIMIT, MEMORY};

/// The parts that are lent, on the disk: to read and write, and to read.
const PART: std::ops::Range<u64> = 4 << 20..10 << 20;
const OTHER: std::ops::Range<u64> = 12 << 20..14 << 20;
/// Place in the first part to which function 1 writes, and how much.
const WRITTEN: std::ops::Range<u64> = 1 << 20..3 << 20;
/// Place to which it copies what the other part has.
const COPIED: std::ops::Range<u64> = 4 << 20..6 << 20;
const EBUSY: i32 = 16;

fn contents() -> Vec<u8> {
    dcs_testkit::bytes(16 << 20, 18)
}

fn written() -> Vec<u8> {
    dcs_testkit::bytes((WRITTEN.end - WRITTEN.start) as usize, 19)
}

fn of(bytes: &[u8], range: std::ops::Range<u64>) -> &[u8] {
    &bytes[range.start as usize..range.end as usize]
}

#[test]
fn a_guest_has_the_card_read_and_write_a_part_of_another_guest_s_ssd() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = dcs_vm::turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (sockets, image) = ([path("f0"), path("f1")], path("disk"));
    let mut bytes = contents();
    std::fs::write(&image, &bytes).unwrap();
    let paths: Vec<&Path> = sockets.iter().map(PathBuf::as_path).collect();
    let config = Config { key: [5; 16], ..Config::for_functions(2) };
    let served = serve_functions(&paths, MEMORY, config).unwrap();
    let boot = |function: usize| -> Guest {
        let mut initramfs = Initramfs::new(&tools).unwrap();
        initramfs.modules(&["vfio-pci", "vfio_iommu_type1"]).unwrap();
        initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
        let disk = if function == 0 { "export DISK=$(disk)\n" } else { "" };
        let test = format!("functions::function_{function}_in_the_guest");
        let script = format!("{disk}guest-side --ignored --exact {test} --nocapture --test-threads 1");
        let mut machine = Machine::new().limit(LIMIT).iommu();
        if function == 0 {
            machine = machine.nvme(&image);
        }
        let own = path(&format!("guest{function}"));
        std::fs::create_dir(&own).unwrap();
        machine.card(&sockets[function]).start(&tools, &initramfs.finish(&script), &own).unwrap()
    };
    let (mut lender, mut user) = (boot(0), boot(1));
    assert_eq!(lender.wait_for("@lent ", LIMIT).unwrap(), "0 and 1");
    user.wait_for("@ready", LIMIT).unwrap();
    user.send("go").unwrap();
    let digest = hex(&md5(of(&bytes, PART)));
    assert_eq!(user.wait_for("@digest ", LIMIT).unwrap(), digest, "SSD -> md5");
    assert_eq!(user.wait_for("@memory ", LIMIT).unwrap(), digest, "-> memory");
    user.wait_for("@written", LIMIT).unwrap();
    // What the first guest's kernel finds on its disk, and what is in the image.
    lender.send("take it back").unwrap();
    let at = (PART.start + WRITTEN.start) as usize;
    bytes[at..at + written().len()].copy_from_slice(&written());
    let other = of(&bytes, OTHER).to_vec();
    bytes[(PART.start + COPIED.start) as usize..][..other.len()].copy_from_slice(&other);
    assert_eq!(lender.wait_for("@kernel's ", LIMIT).unwrap(), hex(&md5(of(&bytes, PART))));
    assert!(std::fs::read(&image).unwrap() == bytes, "and no other byte of the disk");
    user.send("go").unwrap();
    user.wait_for("@gone", LIMIT).unwrap();
    lender.send("end").unwrap();
    lender.wait_for("@guest's end", LIMIT).unwrap();
    user.send("go").unwrap();
    user.wait_for("@guest's end", LIMIT).unwrap();
    drop(served);
}

fn wait_for_line() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
#[ignore = "runs in the guest of a_guest_has_the_card_read_and_write_a_part_of_another_guest_s_ssd"]
fn function_0_in_the_guest() {
    let name = PathBuf::from(std::env::var_os("DISK").expect("the script says"));
    let function = dcs_vfio::functions(None, None, Some(0x01_0802)).last().expect("there is one").clone();
    let disks = vec![Disk { function, device: Some(name.clone()) }];
    let options = Options { card: None, disks, nics: Vec::new() };
    let engine = Engine::builder().backend(Backend::Card).card(options).start().unwrap();
    let device = File::options().read(true).write(true).open(&name).unwrap();
    let refused = |function: u16, device: &File, range: std::ops::Range<u64>, text: &str| {
        let error = engine.lend(function, device, range, Access::Both).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(0, &device, PART, "functions from 1 on");
    refused(2, &device, PART, "has no function 2");
    refused(1, &device, 100..4096, "whole logical blocks of 512 bytes");
    refused(1, &device, 0..17 << 20, "the device has 16777216 bytes");
    refused(1, &File::open(&name).unwrap(), PART, "not open for writing");
    refused(1, &File::open("/init").unwrap(), PART, "by its block device");
    let lent = engine.lend(1, &device, PART, Access::Both).unwrap();
    let other = engine.lend(1, &device, OTHER, Access::Read).unwrap();
    assert_eq!((lent.function(), lent.bytes()), (1, PART.end - PART.start));
    // It is nobody else's meanwhile.
    let session = engine.session().unwrap();
    let own = session.transfer(Source::file(&device, ..4096), [], Sink::memory(4096)).unwrap().wait();
    let error = own.unwrap_err();
    assert_eq!((error.status, error.errno), (Status::PathUnavailable, EBUSY), "{error}");
    println!("@lent {} and {}", lent.number(), other.number());
    wait_for_line();
    lent.take_back().unwrap();
    let mut bytes = vec![0; (PART.end - PART.start) as usize];
    device.read_exact_at(&mut bytes, PART.start).unwrap();
    println!("@kernel's {}", hex(&md5(&bytes)));
    wait_for_line();
    drop(other);
    drop((session, engine));
    println!("@guest's end");
}

#[test]
#[ignore = "runs in the guest of a_guest_has_the_card_read_and_write_a_part_of_another_guest_s_ssd"]
fn function_1_in_the_guest() {
    let own = dcs_vfio::functions(Some(0xdc51), None, None);
    let disk = Disk { function: own[0].clone(), device: None };
    let with_disk = Options { card: Some(own[0].clone()), disks: vec![disk], nics: Vec::new() };
    let start = |options| Engine::builder().backend(Backend::Card).card(options).start();
    let error = start(with_disk).unwrap_err().to_string();
    assert!(error.contains("function 0") && error.contains("DCS_CARD_DISKS"), "{error}");
    let engine = start(Options::default()).unwrap();
    let session = engine.session().unwrap();
    println!("@ready");
    wait_for_line();
    let error = engine.open_part(7).unwrap_err().to_string();
    assert!(error.contains("no part 7") && error.contains("lend it there first"), "{error}");
    let error = engine.lend(1, &File::open("/dev/null").unwrap(), .., Access::Read).unwrap_err().to_string();
    assert!(error.contains("by its block device"), "{error}");
    assert!(engine.listen(80).is_err(), "it has no NIC");
    let (part, other) = (engine.open_part(0).unwrap(), engine.open_part(1).unwrap());
    assert_eq!((part.bytes(), part.block_size()), (PART.end - PART.start, 512));
    let sink = Sink::memory(part.bytes() as usize);
    let done = session.transfer(Source::part(&part, ..), [Op::Md5], sink).unwrap().wait().unwrap();
    println!("@digest {}", done.digests[0]);
    println!("@memory {}", hex(&md5(&done.memory.unwrap())));
    // Bytes that are no whole logical blocks are read, but not beyond the part.
    let done = transfer(&session, Source::part(&part, 1001..5555), Sink::memory(5000)).unwrap();
    assert!(done == of(&contents(), PART.start + 1001..PART.start + 5555));
    let (end, before) = (part.bytes() + 512, part.bytes() - 512);
    let error = transfer(&session, Source::part(&part, before..end), Sink::memory(1024)).unwrap_err();
    assert_eq!(error, (Status::OutOfRange, Stage::Source));
    // Written as far as that is allowed.
    transfer(&session, Source::memory(written()), Sink::part(&part, WRITTEN)).unwrap();
    transfer(&session, Source::part(&other, ..), Sink::part(&part, COPIED)).unwrap();
    let error = transfer(&session, Source::memory(vec![1; 512]), Sink::part(&other, ..512)).unwrap_err();
    assert_eq!(error, (Status::UnsupportedEndpoint, Stage::Destination), "it may only be read");
    println!("@written");
    wait_for_line();
    let error = transfer(&session, Source::part(&part, ..512), Sink::memory(512)).unwrap_err();
    assert_eq!(error, (Status::DeviceReset, Stage::Source), "it was taken back");
    let error = engine.open_part(0).unwrap_err().to_string();
    assert!(error.contains("part 0 was taken back"), "{error}");
    transfer(&session, Source::part(&other, ..), Sink::memory(2 << 20)).unwrap();
    println!("@gone");
    wait_for_line();
    // Function 0's engine has ended, and its devices with it.
    let error = transfer(&session, Source::part(&other, ..512), Sink::memory(512)).unwrap_err();
    assert_eq!(error, (Status::DeviceReset, Stage::Source));
    drop((part, other, session, engine));
    println!("@guest's end");
}

/// Runs a transfer, and returns the bytes of a memory sink, or what its failure was.
fn transfer(session: &Session, source: Source, sink: Sink) -> Result<Vec<u8>, (Status, Stage)> {
    let done = session.transfer(source, [], sink).unwrap().wait();
    done.map(|done| done.memory.unwrap_or_default()).map_err(|error| (error.status, error.stage))
}
