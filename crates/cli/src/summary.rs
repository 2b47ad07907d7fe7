//! Report of a completed transfer, for people and as JSON.

use crate::chain::Counter;
use crate::deadline;
use crate::names::add_name;
use crate::report::{Report, add_completion};
use crate::transfer::Done;
use crate::units;
use dcs::Operator;
use serde_json::json;
use std::ffi::OsStr;

/// A completed transfer, with its names.
pub struct Summary<'a> {
    pub source: &'a OsStr,
    pub destination: &'a OsStr,
    /// Name of the file at the end of a digest line.
    pub file: &'a str,
    pub chain: &'a [&'static str],
    pub counters: &'a [Counter],
    pub done: &'a Done,
}

impl Summary<'_> {
    /// Prints the digests as md5sum does, the counters, and a summary.
    pub fn report(&self, report: &Report) {
        let Done { completion, elapsed } = self.done;
        for digest in &completion.digests {
            let module = Some(digest.place).filter(|_| digest.operator == Operator::Module);
            let name = module.and_then(|place| self.chain.get(place)).copied();
            report.text(format_args!("{}  {digest}  {}", name.unwrap_or(digest.operator.name()), self.file));
        }
        for counter in self.counters.iter().filter(|counter| counter.random) {
            report.text(format_args!("iv  {}  {}", counter.value, self.file));
        }
        let moved = if completion.bytes_in == completion.bytes_out {
            units::human(completion.bytes_in)
        } else {
            format!("{} -> {}", units::human(completion.bytes_in), units::human(completion.bytes_out))
        };
        report.remark(format_args!(
            "{moved} ({} bytes out) in {:.3} s, {:.3} GiB/s; by {}",
            completion.bytes_out,
            elapsed.as_secs_f64(),
            units::gib_per_s(completion.bytes_in, *elapsed),
            completion.path.names().collect::<Vec<_>>().join(", "),
        ));
        let mut object = json!({
            "event": "done", "ok": true, "command": report.command(),
            "chain": self.chain,
            "iv": self.counters, "seconds": elapsed.as_secs_f64(),
            "gib_per_s": units::gib_per_s(completion.bytes_in, *elapsed),
        });
        add_name(&mut object, "source", self.source);
        add_name(&mut object, "destination", self.destination);
        add_completion(&mut object, completion);
        report.object(&object);
        deadline::done(report.check_printed().map_or_else(|failure| failure.exit as u8, |()| 0));
    }
}
