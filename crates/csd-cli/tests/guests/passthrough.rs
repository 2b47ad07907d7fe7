//! The program in the guest: commands by the kernel driver's passthrough.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

/// A command as the driver takes it. [linux/nvme_ioctl.h, struct nvme_passthru_cmd64]
#[repr(C)]
#[derive(Default)]
pub struct Passthrough {
    pub opcode: u8,
    pub flags: u8,
    pub reserved: u16,
    pub nsid: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    /// Double words 4 and 5.
    pub metadata: u64,
    pub address: u64,
    pub metadata_length: u32,
    pub length: u32,
    pub cdw10: [u32; 6],
    pub timeout_ms: u32,
    pub reserved2: u32,
    pub result: u64,
}

nix::ioctl_readwrite!(io64_command, b'N', 0x48, Passthrough);
nix::ioctl_readwrite!(admin64_command, b'N', 0x47, Passthrough);

impl Passthrough {
    pub fn new(opcode: u8, nsid: u32, data: &mut [u8]) -> Passthrough {
        let (address, length) = (data.as_mut_ptr() as u64, data.len() as u32);
        Passthrough { opcode, nsid, address, length, ..Passthrough::default() }
    }

    /// The status that the command ends with; its data, if it has any, live until then.
    pub fn submit(&mut self, file: &File, is_admin: bool) -> i32 {
        // SAFETY: the structure is the driver's, and the data that it names outlive the call.
        let done = unsafe {
            match is_admin {
                true => admin64_command(file.as_raw_fd(), self),
                false => io64_command(file.as_raw_fd(), self),
            }
        };
        done.unwrap()
    }
}

#[test]
#[ignore = "the guest's side of another test"]
fn in_the_guest() {
    let space = OpenOptions::new().read(true).write(true).open("/dev/ng0n1").unwrap();
    let mut page = vec![0u8; 8192];
    let at = page.as_ptr().align_offset(4096);
    let page = &mut page[at..at + 4096];
    // Identify Controller: it says who it is.
    let mut identify = Passthrough { cdw10: [1, 0, 0, 0, 0, 0], ..Passthrough::new(0x06, 0, page) };
    assert_eq!(identify.submit(&space, true), 0);
    assert!(page[4..24].starts_with(b"d1 "), "{:?}", &page[4..24]);
    // Write 8 blocks from 16 on, flush, read them.
    page.iter_mut().zip(0..).for_each(|(byte, n)| *byte = (n * 7) as u8);
    let at_16 = [16, 0, 7, 0, 0, 0];
    assert_eq!(Passthrough { cdw10: at_16, ..Passthrough::new(0x01, 1, page) }.submit(&space, false), 0);
    assert_eq!(Passthrough::new(0x00, 1, &mut []).submit(&space, false), 0);
    page.fill(0);
    assert_eq!(Passthrough { cdw10: at_16, ..Passthrough::new(0x02, 1, page) }.submit(&space, false), 0);
    assert!(page.iter().zip(0..).all(|(byte, n)| *byte == (n * 7) as u8));
    // Beyond the end: LBA out of range. [NVM, 3.3]
    let beyond = [0xffff_fff0, 0, 7, 0, 0, 0];
    let status = Passthrough { cdw10: beyond, ..Passthrough::new(0x02, 1, page) }.submit(&space, false);
    assert_eq!(status & 0x7ff, 0x80);
    // A vendor's command that this drive does not have: invalid opcode.
    let status = Passthrough::new(0xff, 1, &mut []).submit(&space, false);
    assert_eq!(status & 0x7ff, 0x01);
    near_storage(&space, page);
    println!("@guest's end");
}

/// A read through md5 beside the disk: parameters, the read, the result page. [docs/csd.md, *Near-storage commands*]
fn near_storage(space: &File, page: &mut [u8]) {
    const MD5: u8 = 1;
    // One operator, md5, without parameters.
    let mut chain = [1, 0, 0, 0, 0, 0, 0, 0, MD5, 0, 0, 0, 0, 0, 0, 0];
    let to_parameters = 3 << 4;
    let mut load = Passthrough { cdw2: to_parameters, ..Passthrough::new(0xc1, 1, &mut chain) };
    load.cdw10 = [4, 16, 0, 0, 0, 0];
    assert_eq!(load.submit(space, false), 0);
    let handle = load.result as u32;
    assert_ne!(handle, 0);
    page.fill(0);
    let from_blocks = 1 | handle << 16;
    let mut read = Passthrough { cdw2: from_blocks, cdw3: 77, ..Passthrough::new(0xc2, 1, page) };
    read.cdw10 = [1024, 8, 16, 0, 0, 0];
    assert_eq!(read.submit(space, false), 0);
    assert_eq!(read.result, 4096, "bytes that came out");
    assert!(page.iter().zip(0..).all(|(byte, n)| *byte == (n * 7) as u8));
    std::fs::write("/tmp/page", &page).unwrap();
    let mut result = [0; 768];
    let mut results = Passthrough { cdw2: 4, cdw3: 77, ..Passthrough::new(0xc2, 1, &mut result) };
    results.cdw10 = [192, 0, 0, 0, 0, 0];
    assert_eq!(results.submit(space, false), 0);
    assert_eq!((u64::from_le_bytes(result[8..16].try_into().unwrap()), result[7]), (4096, 1));
    let told = dcs_testkit::hex(&result[80..96]);
    let output = std::process::Command::new("md5sum").arg("/tmp/page").output().unwrap();
    assert_eq!(told, String::from_utf8_lossy(&output.stdout)[..32], "by another program");
}
