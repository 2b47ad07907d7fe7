//! `dcs scrub`: checks an object server's folder for damaged objects, while no server runs on it.

use crate::failure::{Exit, Failure};
use crate::names;
use crate::report::Report;
use crate::units;
use clap::Args;
use dcs::Engine;
use dcs_server::encryption::Keys;
use dcs_server::scrub::{Action, Checked, Scrub as Pass, ScrubError, Tally};
use dcs_server::store::{Options, Repaired, Store, StoreError};
use dcs_server::transfers::{DataPath, Settings};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Options of the scrub.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Scrub {
    /// Folder of a dcs serve that is not running
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Master key of the server; without it, only the lengths of encrypted objects can be checked
    #[arg(long, value_name = "FILE")]
    pub master_key: Option<PathBuf>,
    /// Only report: quarantine nothing, release nothing
    #[arg(long)]
    pub dry_run: bool,
    /// First remove records that can't be read, and data without a record. Their objects are already lost
    #[arg(long)]
    pub repair: bool,
    /// Objects checked at the same time
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub in_flight: u16,
    /// Most bytes read a second
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub rate: Option<u64>,
}

const HELP: &str = "\
Examples:
  dcs scrub /srv/objects
      reads every object, and keeps damaged ones from readers: they get an error, not wrong data
  dcs scrub /srv/objects --dry-run --json | jq -r 'select(.event == \"object\") | [.verdict, .bucket, .key] | @tsv'
  dcs scrub /srv/objects --master-key key --rate 100M
      also checks objects encrypted with the server's keys, and limits the load on the disk

Data are checked against the MD5 of what was put. Of objects encrypted with a customer's key only the length is
checked: there is no digest of the encrypted bytes. Parts of incomplete uploads are not read.
--repair removes damaged records: it lists their keys, which can be put again. With --dry-run it only reports.
A quarantined object that is found sound, as after its file was restored from a backup, is released.
A running server has the folder for itself: dcs serve --scrub-every 7d scrubs from within.

Exit codes: 0 all is sound, or unchecked; 2 usage; 5 something is damaged; 7 no such folder; 130 interrupted";

/// Runs the scrub.
pub fn run(options: &Scrub, report: &Report) -> Result<(), Failure> {
    let named = names::shown(&options.folder).to_string();
    if !options.folder.join("meta.redb").exists() {
        return Err(Failure::new(Exit::NotFound, format!("{named}: this is not the folder of a dcs serve")));
    }
    let keys = match &options.master_key {
        Some(path) => Keys::read(path).map_err(|error| Failure::usage(error.to_string()))?,
        None => Keys::default(),
    };
    let (store, _) =
        Store::open(&options.folder, Options::default()).map_err(|error| opening(&named, &error))?;
    // A scrub has no clients that could be slow.
    let (min_rate, patience) = (1, Duration::MAX);
    let settings =
        Settings { transfers: options.in_flight, min_rate, patience, durable: true, direct: false };
    let path = DataPath::start(Engine::builder(), settings);
    let path = Arc::new(path.map_err(|error| Failure::refused("scrub", error))?);
    let total = store.usage().map_err(|error| opening(&named, &error))?.bytes;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("the runtime", &error))?;
    if options.repair {
        let repaired = runtime.block_on(store.repair(options.dry_run));
        report_repair(&repaired.map_err(|error| opening(&named, &error))?, options.dry_run, report);
    }
    let pass = Pass {
        store,
        path,
        keys,
        in_flight: options.in_flight.into(),
        rate: options.rate,
        dry_run: options.dry_run,
    };
    let begun = Instant::now();
    let bar = report.shows_progress().then(|| bar(total));
    let tally = runtime.block_on(go(pass, report, bar.as_ref()));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    finish(report, &tally?, begun.elapsed(), options.dry_run)
}

fn opening(named: &str, error: &StoreError) -> Failure {
    let line = format!("{named}: {error}");
    match error {
        StoreError::InUse(_) => Failure::new(Exit::Failed, line)
            .advise("stop the server first, or have it scrub: dcs serve --scrub-every 7d"),
        StoreError::Damaged(_) | StoreError::Database(_) => Failure::new(Exit::Corrupt, line),
        _ => Failure::new(Exit::Failed, line),
    }
}

async fn go(pass: Pass, report: &Report, bar: Option<&ProgressBar>) -> Result<Tally, Failure> {
    let failed = |error: std::io::Error| Failure::io("signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut so_far = Tally::default();
    let all = pass.run(|checked| {
        so_far.add(checked);
        if let Some(bar) = bar {
            bar.set_position(so_far.bytes);
            bar.set_message(format!("{} objects, {} bad", so_far.objects, so_far.bad));
        }
        if checked.is_finding() {
            match bar {
                Some(bar) => bar.suspend(|| report_object(checked, report)),
                None => report_object(checked, report),
            }
        }
    });
    let result = tokio::select! {
        tally = all => Some(tally),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    match result {
        Some(Ok(tally)) => Ok(tally),
        Some(Err(ScrubError::Store(error @ (StoreError::Damaged(_) | StoreError::Database(_))))) => {
            Err(Failure::new(Exit::Corrupt, format!("a record is damaged: {error}")))
        }
        Some(Err(error)) => Err(Failure::new(Exit::Failed, error.to_string())),
        None => {
            let line = format!(
                "interrupted after {} objects, of which {} were bad; quarantined objects stay quarantined",
                so_far.objects, so_far.bad
            );
            Err(Failure::new(Exit::Interrupted, line))
        }
    }
}

/// Escapes a name that a client chose, so that it can't control a terminal.
fn shown(name: &str) -> std::str::EscapeDebug<'_> {
    name.escape_debug()
}

/// Prints a repair.
fn report_repair(repaired: &Repaired, dry_run: bool, report: &Report) {
    let Repaired { objects, buckets, uploads, files, extents } = repaired;
    for object in objects {
        report.text(format_args!("unreadable  {}", shown(object)));
    }
    for bucket in buckets {
        report.text(format_args!(
            "unreadable  {}: its tags and its default encryption are lost",
            shown(bucket)
        ));
    }
    let done = if dry_run { "to be removed" } else { "removed" };
    report.remark(format_args!(
        "{done}: records of {} objects, {} buckets' settings, {uploads} uploads or parts; {files} data files and {extents} small objects' data without a record",
        objects.len(),
        buckets.len()
    ));
    report.object(&json!({
        "event": "repair", "dry_run": dry_run, "objects": objects, "buckets": buckets, "uploads": uploads, "files": files,
        "extents": extents,
    }));
}

/// Prints the result for one object.
fn report_object(checked: &Checked, report: &Report) {
    let Checked { bucket, key, size, verdict, action } = checked;
    let reason = verdict.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    let reason = shown(&reason);
    report.text(format_args!("{}  {bucket}/{}{reason}{}", verdict.name(), shown(key), note(*action)));
    report.object(&json!({
        "event": "object", "bucket": bucket, "key": key, "size": size, "verdict": verdict.name(),
        "reason": verdict.reason(), "action": (*action != Action::None).then(|| action.name()),
    }));
}

fn note(action: Action) -> &'static str {
    match action {
        Action::None => "",
        Action::Quarantined => " (quarantined)",
        Action::Kept => " (quarantined before)",
        Action::Released => " (was quarantined, can be read again)",
    }
}

fn finish(report: &Report, tally: &Tally, elapsed: Duration, dry_run: bool) -> Result<(), Failure> {
    let Tally { objects, bytes, unchecked, bad, quarantined, released } = tally;
    report.remark(format_args!(
        "{objects} objects, {} in {:.3} s, {:.3} GiB/s; {bad} bad",
        units::human(*bytes),
        elapsed.as_secs_f64(),
        units::gib_per_s(*bytes, elapsed),
    ));
    if *unchecked > 0 {
        report.remark(format_args!(
            "{unchecked} have the right length, and could not be checked further: their keys are not available"
        ));
    }
    report.object(&json!({
        "event": "done", "ok": *bad == 0, "command": "scrub", "objects": objects, "bytes": bytes,
        "unchecked": unchecked, "bad": bad, "quarantined": quarantined, "released": released,
        "seconds": elapsed.as_secs_f64(), "gib_per_s": units::gib_per_s(*bytes, elapsed),
    }));
    if *bad == 0 {
        return Ok(());
    }
    let failure = Failure::new(Exit::Corrupt, format!("{bad} of {objects} objects differ from what was put"));
    Err(failure.advise(match dry_run {
        true => "without --dry-run they are kept from readers",
        false => "put them again, or bring their files back and scrub again; --repair removes records that can't be read",
    }))
}

fn bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = "scrub [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
    bar.enable_steady_tick(Duration::from_millis(100));
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
