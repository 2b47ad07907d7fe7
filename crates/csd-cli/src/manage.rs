//! Commands that change a running process, or report its state.

use crate::args::{Add, Load, Remove, Resize, Set, Stats, To};
use crate::control;
use crate::refused::Refused;
use dcs_console::failure::{Exit, Failure};
use dcs_console::report::Report;
use dcs_csd_cli::metrics::metrics;
use dcs_csd_cli::request::{Answer, Rates, Request};
use dcs_csd_cli::state::{Slot, State};
use serde_json::json;
use std::io::ErrorKind;

pub fn add(options: &Add, report: &Report) -> Result<(), Failure> {
    let drives = send(&options.to, &Request::Add { drive: options.drive.clone() })?;
    report_drives(drives.iter().filter(|drive| drive.name == options.drive.name), report);
    Ok(())
}

pub fn remove(options: &Remove, report: &Report) -> Result<(), Failure> {
    let target = options.target.clone();
    send(&options.to, &Request::Remove { name: target.name, nsid: target.nsid })?;
    report.object(&json!({ "event": "removed" }));
    Ok(())
}

pub fn resize(options: &Resize, report: &Report) -> Result<(), Failure> {
    let name = options.target.name.clone();
    let Some(nsid) = options.target.nsid else {
        return Err(Failure::usage(format!("{name} is a drive; only namespaces have a size"))
            .advise(format!("for example: dcs csd resize {name}/1 16G")));
    };
    let drives = send(&options.to, &Request::Resize { name: name.clone(), nsid, size: options.size })?;
    report_drives(drives.iter().filter(|drive| drive.name == name), report);
    Ok(())
}

pub fn set(options: &Set, report: &Report) -> Result<(), Failure> {
    let Rates { weight, iops, bytes_per_s } = options.rates;
    let request = Request::Set { name: options.name.clone(), weight, iops, bytes_per_s };
    let drives = send(&options.to, &request)?;
    report_drives(drives.iter().filter(|drive| drive.name == options.name), report);
    Ok(())
}

pub fn load(options: &Load, report: &Report) -> Result<(), Failure> {
    let module = options.module.canonicalize();
    let module = module.map_err(|error| Failure::io(options.module.display(), &error))?;
    send(&options.to, &Request::Load { module })?;
    report.object(&json!({ "event": "loaded" }));
    Ok(())
}

pub fn list(to: &To, report: &Report) -> Result<(), Failure> {
    report_drives(send(to, &Request::List {})?.iter(), report);
    Ok(())
}

pub fn stats(options: &Stats, report: &Report) -> Result<(), Failure> {
    let (drives, slots) = send_all(&options.to, &Request::List {})?;
    if options.prometheus {
        let text = metrics(&drives, &slots)
            .map_err(|error| Failure::new(Exit::Failed, format!("no metrics: {error}")))?;
        report.line(text.trim_end());
        return Ok(());
    }
    for drive in &drives {
        report.object(&json!(drive));
        report.text(drive.figures());
    }
    for slot in &slots {
        report.object(&json!(slot));
        report.text(slot.figures());
    }
    Ok(())
}

fn report_drives<'a>(drives: impl Iterator<Item = &'a State>, report: &Report) {
    for drive in drives {
        report.object(&json!(drive));
        report.text(drive.lines().join("\n"));
    }
}

fn send(to: &To, request: &Request) -> Result<Vec<State>, Failure> {
    send_all(to, request).map(|(drives, _)| drives)
}

/// Returns the drives, and the slots that do operators' work.
fn send_all(to: &To, request: &Request) -> Result<(Vec<State>, Vec<Slot>), Failure> {
    let name = to.sockets.join(control::NAME);
    match control::ask(&to.sockets, request) {
        Ok(Answer::Done { drives, slots }) => Ok((drives, slots)),
        Ok(Answer::Refused { error, advice }) => Err(Refused { error, advice }.into_failure("")),
        Err(error) => {
            let failure = Failure::io(name.display(), &error);
            Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    failure.advise("no process has its sockets there: dcs csd run, or --sockets DIR")
                }
                _ => failure,
            })
        }
    }
}
