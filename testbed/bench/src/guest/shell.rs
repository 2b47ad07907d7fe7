//! `dcs vm shell`: the server, with a shell of its guest on this terminal.

use super::machine::{Contents, Parts, Wanted, failure};
use super::task::OBJECT;
use crate::args;
use crate::command;
use crate::failure::{Exit, Failure};
use crate::harness::faults::report_strikes;
use crate::interrupt;
use crate::report::Report;
use std::process::Child;
use std::time::Duration;

/// Objects on the SSD.
const OBJECTS: usize = 16;

const SCRIPT: &str = r#"
export PS1='server:\w# '
cat <<'END'

A stock Linux with ext4 on the SSD at /mnt, and the dcs card. QEMU's router leads to the outer machine: 10.0.2.2.
The card's own address is 10.0.2.15, the kernel's 10.0.2.16. DCS_CARD, DCS_CARD_DISKS and DCS_CARD_NIC say which devices are the card's.

  outside:  dcs recv 127.0.0.1:9000 copy --through md5
  here:     DCS_BACKEND=card dcs send /mnt/send/0 10.0.2.2:9000 --through md5

Leave by exit, or Ctrl-A x.
END
cd /mnt
setsid cttyhack sh
"#;

pub fn run(options: &args::VmShell, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let contents = Contents { send: vec![OBJECT; OBJECTS], receive: vec![OBJECT; OBJECTS] };
    let limit = Duration::from_secs(7 * 24 * 3600);
    let dcs = command::find()?;
    let nic = options.nic;
    let (faults, engine) = (&options.faults, options.engine);
    let wanted =
        Wanted { contents: &contents, sets: 1, nic, dcs: Some(&dcs), script: SCRIPT, limit, faults, engine };
    let mut parts = Parts::new(&wanted, report)?;
    let start = || parts.machine.start_on_terminal(&parts.tools, parts.initramfs(), parts.folder.path());
    let (mut qemu, _child) = interrupt::child_of(start, Child::id).map_err(failure)?;
    let status = qemu.wait().map_err(|error| Failure::io("QEMU", &error))?;
    report_strikes(None, &parts.struck()?, report);
    match status.success() {
        true => Ok(()),
        false => {
            let log = std::fs::read_to_string(parts.folder.path().join("qemu.log")).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it gave no reason");
            Err(Failure::new(Exit::Failed, format!("QEMU ended: {status}: {last}")))
        }
    }
}
