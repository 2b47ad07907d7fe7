//! Lists of channels, which may change while they run.

use super::args::Rate;
use super::channel::Settings;
use crate::failure::Failure;
use crate::names::shown;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A channel's table in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    to: String,
    files: Vec<PathBuf>,
    #[serde(default)]
    r#loop: bool,
    rate: Option<String>,
    ttl: Option<u8>,
    interface: Option<String>,
    #[serde(default)]
    through: Vec<String>,
    sdp: Option<PathBuf>,
}

impl Entry {
    fn settings(self, name: String, folder: &Path, window: Duration) -> Result<Settings, String> {
        let rate = self.rate.as_deref().map_or(Ok(Rate::Pcr), str::parse)?;
        if self.files.is_empty() {
            return Err("files is empty".to_string());
        }
        Ok(Settings {
            name,
            to: self.to.parse()?,
            // Relative to the list's folder.
            files: self.files.iter().map(|file| folder.join(file)).collect(),
            alone: false,
            times: if self.r#loop { None } else { Some(1) },
            rate,
            window,
            ttl: self.ttl.unwrap_or(1),
            interface: self.interface.as_deref().map(str::parse).transpose()?,
            through: self.through,
            sdp: self.sdp.map(|sdp| folder.join(sdp).into()),
        })
    }
}

/// The configuration of all channels.
#[derive(Debug, Default)]
pub struct Configuration {
    pub channels: Vec<Settings>,
    /// Names of invalid channels, and the reasons.
    pub invalid: Vec<(String, String)>,
}

/// Parses a list. An invalid channel does not affect the others.
pub fn parse(text: &str, folder: &Path, window: Duration) -> Result<Configuration, String> {
    let tables: BTreeMap<String, toml::Value> = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut configuration = Configuration::default();
    for (name, table) in tables {
        let entry = table.try_into::<Entry>().map_err(|error| error.message().to_string());
        match entry.and_then(|entry| entry.settings(name.clone(), folder, window)) {
            Ok(settings) => configuration.channels.push(settings),
            Err(why) => configuration.invalid.push((name, why)),
        }
    }
    Ok(configuration)
}

/// The file of a list.
pub struct List {
    path: PathBuf,
    window: Duration,
    read: Option<(SystemTime, u64)>,
    /// Set while the file is not there, or not accessible.
    missing: bool,
}

impl List {
    pub fn new(path: &Path, window: Duration) -> List {
        List { path: path.to_path_buf(), window, read: None, missing: false }
    }

    /// Returns the channels if the list is new or has changed since the last call. What is wrong with it is returned once.
    pub fn changed(&mut self) -> Result<Option<Configuration>, Failure> {
        let name = shown(&self.path).to_string();
        let failed = |error| Failure::io(&name, &error);
        let state = std::fs::metadata(&self.path).and_then(|file| Ok((file.modified()?, file.len())));
        let was_missing = std::mem::replace(&mut self.missing, state.is_err());
        let state = match state {
            Ok(state) if self.read == Some(state) => return Ok(None),
            Ok(state) => state,
            Err(_) if was_missing => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        self.read = Some(state);
        let text = std::fs::read_to_string(&self.path).map_err(failed)?;
        let folder = self.path.parent().unwrap_or(Path::new(""));
        parse(&text, folder, self.window).map(Some).map_err(|why| {
            Failure::usage(format!("{name}: {}", why.trim_end())).advise("dcs help stream shows an example")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_list_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let mut list = List::new(&path, Duration::from_millis(1));
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("[a]\nto='udp://h:1'\nfiles=['x']\n");
        assert_eq!(list.changed().ok().flatten().unwrap().channels.len(), 1);
        for _ in 0..2 {
            std::fs::rename(&path, folder.path().join("away")).unwrap();
            assert!(list.changed().unwrap_err().line.contains("list"));
            assert!(list.changed().unwrap().is_none() && list.changed().unwrap().is_none());
            // It is back as it was.
            std::fs::rename(folder.path().join("away"), &path).unwrap();
            assert!(list.changed().unwrap().is_none());
        }
        write("[a");
        assert!(list.changed().is_err() && list.changed().unwrap().is_none());
        write("");
        assert!(list.changed().unwrap().unwrap().channels.is_empty());
    }

    #[test]
    fn a_list_is_read_and_what_is_wrong_is_named() {
        let text = "[b]\nto='udp://h:1'\nfiles=['x.ts']\n[a]\nto='rtp://h:2'\nfiles=['/y','z']\nloop=true\nrate='8M'\n";
        let window = Duration::from_millis(1);
        let list = parse(text, Path::new("/folder"), window).unwrap().channels;
        assert_eq!([&list[0].name, &list[1].name], ["a", "b"]);
        assert_eq!(list[0].files, [Path::new("/y"), Path::new("/folder/z")]);
        assert_eq!((list[0].rate, list[0].times, list[1].times), (Rate::Bits(8_000_000), None, Some(1)));
        for (text, expected) in [
            ("[a]\nto='udp://h'\nfiles=['x']", "[a]"),
            ("[a]\nto='udp://h:1'\nfiles=[]", "empty"),
            ("[a]\nto='udp://h:1'\nfiles=['x']\nrate='0'", "rate"),
            ("[a]\nto='udp://h:1'\nfiles=['x']\nspeed=1", "speed"),
            ("[a]\nfiles=['x']", "to"),
            ("[a", "TOML"),
        ] {
            let good = "[good]\nto='udp://h:1'\nfiles=['x']\n";
            let why = match parse(&format!("{good}{text}"), Path::new(""), window) {
                Ok(configuration) => {
                    assert_eq!(configuration.channels.len(), 1, "the other one is there");
                    format!("[{}]: {}", configuration.invalid[0].0, configuration.invalid[0].1)
                }
                Err(why) => why,
            };
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
