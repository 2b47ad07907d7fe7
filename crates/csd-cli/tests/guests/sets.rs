//! The standard's command sets by the stock driver's passthrough: its generic devices of namespaces that it
//! has no block device for.

use crate::common::{Serving, disk};
use crate::passthrough::Passthrough;
use crate::{MB, boot, turn};
use dcs_vm::Tools;
use dcs_vm::tools::Flavour;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// It takes 25 s, of which most is the guest's start.
const PATIENCE: Duration = Duration::from_secs(240);

#[test]
fn a_stock_driver_carries_the_standard_s_command_sets() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let drive = format!("d1:size=8M,backing={},programs,load-programs", path.display());
    let serving = Serving::start(folder.path(), &["--slots", "1", "--drive", &drive]).unwrap();
    // The block device works as with any drive. Linux looks at a controller's namespaces all at once, and
    // numbers them as it comes to know them: it may be any of the three.
    let script = "while set -- /dev/nvme0n[1-3]; ! [ -b $1 ]; do sleep 0.2; done\n\
        seq 1 20000 | dd of=$1 bs=4k conv=fsync 2>/dev/null\n\
        for n in $(seq 60); do [ -c /dev/ng0n3 ] || sleep 1; done\n\
        [ -c /dev/ng0n3 ] || poweroff -f\n\
        guest-side --ignored --exact sets::in_the_guest --nocapture --test-threads 1";
    let mut guest = boot(&tools, folder.path(), "guest", &[&serving.socket("d1")], script);
    guest.wait_for("@guest's end", PATIENCE).unwrap();
}

nix::ioctl_none!(namespace_id, b'N', 0x40);

/// The generic device of this namespace. The driver numbers them as it comes across them.
fn device(namespace: u32) -> File {
    let open = |n| OpenOptions::new().read(true).write(true).open(format!("/dev/ng0n{n}")).unwrap();
    let mut devices = (1..=3).map(open);
    // SAFETY: this command takes and gives no memory.
    let is = |device: &File| unsafe { namespace_id(device.as_raw_fd()) }.unwrap() as u32 == namespace;
    devices.find(is).unwrap()
}

#[test]
#[ignore = "the guest's side of another test"]
fn in_the_guest() {
    const MEMORY: u32 = 17;
    const PROGRAMS: u32 = 18;
    /// The first index of those that can be loaded, and the type of a WebAssembly module, in its place.
    const LOADED: u32 = 0x101;
    const TYPE: u32 = 0xc0 << 16;
    let (memory, programs) = (device(MEMORY), device(PROGRAMS));
    // From the namespace of blocks into local memory, which md5 reads; its value is read back.
    let mut source = [0; 32];
    source[0] = 1;
    source[16] = 7;
    let mut copy = Passthrough { cdw2: 4096, ..Passthrough::new(0x01, MEMORY, &mut source) };
    copy.cdw10 = [0, 0, 2 << 8, 0, 0, 0];
    assert_eq!(copy.submit(&memory, false), 0, "Memory Copy");
    let range = |first: u32, length: u32| [MEMORY, length, first, 0, 0, 0, 0, 0];
    let mut ranges: Vec<u8> =
        [range(0, 4096), range(8192, 64)].concat().iter().flat_map(|word| word.to_le_bytes()).collect();
    // It passes no length of data on (double word 4): the ranges are those of a set that is made before.
    let mut create = Passthrough::new(0x89, PROGRAMS, &mut ranges);
    create.cdw10 = [0, 2, 0, 0, 0, 0];
    assert_eq!(create.submit(&programs, true), 0, "Memory Range Set Management");
    let set = create.result as u32;
    let mut execute = Passthrough { cdw2: 1 | set << 16, ..Passthrough::new(0x01, PROGRAMS, &mut []) };
    assert_eq!(execute.submit(&programs, false), 0, "Execute Program");
    assert_eq!(execute.result, 16, "bytes of an md5");
    let mut value = [0; 16];
    let mut read = Passthrough::new(0x02, MEMORY, &mut value);
    read.cdw10 = [8192, 0, 16, 0, 0, 0];
    assert_eq!(read.submit(&memory, false), 0, "Memory Read");
    let told = dcs_testkit::hex(&value);
    let text: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    std::fs::write("/tmp/begin", &text[..4096]).unwrap();
    let output = std::process::Command::new("md5sum").arg("/tmp/begin").output().unwrap();
    assert_eq!(told, String::from_utf8_lossy(&output.stdout)[..32], "by another program");
    // A program of the controller's own cannot be replaced: program index not downloadable.
    let mut load = Passthrough::new(0x85, PROGRAMS, &mut source);
    load.cdw10 = [1 | TYPE, 32, 0, 0, 32, 0];
    assert_eq!(load.submit(&programs, true) & 0x7ff, 0x19a, "Load Program");
    // One that is none is refused (invalid program data), one of the guest's own is taken, in two pieces.
    let mut load = Passthrough::new(0x85, PROGRAMS, &mut source);
    load.cdw10 = [LOADED | TYPE, 32, 0, 0, 32, 0];
    assert_eq!(load.submit(&programs, true) & 0x7ff, 0x18e, "Load Program");
    let mut upper = wat::parse_str(include_str!("../../../../sdk/examples/upper.wat")).unwrap();
    let (size, half) = (upper.len() as u32, upper.len() / 8 * 4);
    let (first, second) = upper.split_at_mut(half);
    for (offset, piece) in [(0, first), (half as u32, second)] {
        let length = piece.len() as u32;
        let mut load = Passthrough::new(0x85, PROGRAMS, piece);
        load.cdw10 = [LOADED | TYPE, size, 0, 0, length, offset];
        assert_eq!(load.submit(&programs, true), 0, "Load Program");
    }
    let mut activate = Passthrough::new(0x88, PROGRAMS, &mut []);
    activate.cdw10 = [LOADED | 1 << 16, 0, 0, 0, 0, 0];
    assert_eq!(activate.submit(&programs, true), 0, "Program Activation Management");
    let mut small = *b"what lies here now\n.";
    let mut write = Passthrough::new(0x05, MEMORY, &mut small);
    write.cdw10 = [0, 0, 20, 0, 0, 0];
    assert_eq!(write.submit(&memory, false), 0, "Memory Write");
    let mut execute = Passthrough { cdw2: LOADED | set << 16, ..Passthrough::new(0x01, PROGRAMS, &mut []) };
    execute.cdw10 = [20, 0, 0, 0, 0, 0];
    assert_eq!((execute.submit(&programs, false), execute.result), (0, 20), "Execute Program");
    let mut read = Passthrough::new(0x02, MEMORY, &mut small);
    read.cdw10 = [8192, 0, 20, 0, 0, 0];
    assert_eq!((read.submit(&memory, false), &small), (0, b"WHAT LIES HERE NOW\n."));
    println!("@guest's end");
}
