//! `dcs lend`: function 0 of the card lends parts of its SSDs to other functions, until a signal comes.

use crate::args::{self, Wanted};
use crate::card;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::names::{add_name, shown};
use crate::report::Report;
use crate::units::human;
use dcs::Engine;
use dcs::card::{Access, Lent, PartError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use std::fs::File;

/// Interval at which the card is checked, in milliseconds.
const CHECK: u16 = 1000;

pub fn run(options: &args::Lend, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let devices: Vec<File> =
        options.parts.iter().map(|part| open(part, options)).collect::<Result<_, _>>()?;
    let engine = card::card()?;
    let guard = interrupt::transferring();
    let mut lent = Vec::new();
    let all = options.parts.iter().zip(&devices).try_for_each(|(wanted, device)| {
        let part = lend(&engine, wanted, device, options)?;
        report_lent(wanted, &part, options.read_only, report);
        lent.push((wanted, part));
        Ok(())
    });
    let mut outcome = all.and_then(|()| wait(&lent));
    // Those that were lent before one that was refused are taken back too.
    for (wanted, part) in lent {
        let (function, number) = (part.function(), part.number());
        match part.take_back() {
            Ok(()) => report.object(
                &json!({ "event": "returned", "command": "lend", "function": function, "part": number }),
            ),
            Err(error) => outcome = outcome.and(Err(failed(wanted, &error))),
        }
    }
    drop(guard);
    outcome?;
    Err(Failure::new(Exit::Interrupted, "interrupted; all parts were taken back"))
}

fn report_lent(wanted: &Wanted, part: &Lent, read_only: bool, report: &Report) {
    let mut object = json!({ "event": "lent", "command": "lend", "function": part.function(),
        "part": part.number(), "bytes": part.bytes(), "read_only": read_only });
    add_name(&mut object, "device", &wanted.device);
    report.object(&object);
    report.remark(format_args!(
        "dcs: function {} has {} of {} as its part {}",
        part.function(),
        human(part.bytes()),
        shown(&wanted.device),
        part.number()
    ));
}

fn open(part: &Wanted, options: &args::Lend) -> Result<File, Failure> {
    let opened = File::options().read(true).write(!options.read_only).open(&part.device);
    opened.map_err(|error| Failure::io(shown(&part.device), &error))
}

fn lend(engine: &Engine, part: &Wanted, device: &File, options: &args::Lend) -> Result<Lent, Failure> {
    let access = if options.read_only { Access::Read } else { Access::Both };
    let lent = match part.range {
        None => engine.lend(part.function, device, .., access),
        Some((first, length)) => {
            engine.lend(part.function, device, first..first.saturating_add(length), access)
        }
    };
    lent.map_err(|error| failed(part, &error))
}

fn failed(part: &Wanted, error: &PartError) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {error}", shown(&part.device)))
}

/// Waits for a signal. Fails if the card, or an SSD of which a part is lent, goes before.
fn wait(lent: &[(&Wanted, Lent)]) -> Result<(), Failure> {
    while !interrupt::pressed() {
        let mut fds: Vec<PollFd> =
            interrupt::event().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).into_iter().collect();
        let _ = poll(&mut fds, PollTimeout::from(CHECK));
        if let Some((part, _)) = lent.iter().find(|(_, part)| !part.is_there()) {
            let line =
                format!("{}: the card or its SSD is gone, and what was lent of it", shown(&part.device));
            return Err(Failure::new(Exit::Failed, line));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::wanted;

    #[test]
    fn a_part_is_a_function_a_device_and_perhaps_a_range() {
        let part = |function, device: &str, range| Ok(Wanted { function, device: device.into(), range });
        assert_eq!(wanted("1=/dev/nvme0n1p2"), part(1, "/dev/nvme0n1p2", None));
        assert_eq!(wanted("12=/dev/x@4KiB+1G"), part(12, "/dev/x", Some((4096, 1 << 30))));
        assert_eq!(wanted("1=by@id=2"), part(1, "by@id=2", None));
        assert_eq!(wanted("1=by@id@0+512"), part(1, "by@id", Some((0, 512))));
        for text in ["", "1", "1=", "=/dev/x", "x=/dev/x", "65536=/dev/x", "1=@0+512"] {
            assert!(wanted(text).unwrap_err().contains("1=/dev/nvme0n1@4MiB+1GiB"), "{text}");
        }
    }
}
