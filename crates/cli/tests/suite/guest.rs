//! A QEMU guest that runs `dcs` step by step, and the data that its tests compare with.

use crate::run::{Place, python};
use dcs_vm::tools::Flavour;
use dcs_vm::{Guest, Initramfs, Machine, Tools};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

pub const LIMIT: Duration = Duration::from_secs(240);

/// Functions of the guest's shell for each step: each command is reported with its exit code and its whole output.
const SHELL: &str = r#"
step() { name=$1; shift; "$@" >/tmp/out 2>/tmp/err; code=$?; sed 's/^/@out /' /tmp/out; sed 's/^/@err /' /tmp/err; echo "@end $name $code"; }
ssd() { for n in /sys/class/nvme/nvme*; do case "$(cat $n/serial)" in $1*) cat $n/address;; esac; done; }
"#;

/// A step that ran in the guest.
pub struct Step {
    pub code: i32,
    pub out: Vec<String>,
    pub err: String,
}

impl Step {
    #[track_caller]
    pub fn ok(self) -> Step {
        assert_eq!(self.code, 0, "{:?} {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{:?} {}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {:?}", self.err);
        }
    }

    /// Returns its output with --json.
    pub fn lines(&self) -> Vec<Value> {
        self.out.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    #[track_caller]
    pub fn done(self) -> Value {
        let step = self.ok();
        let lines = step.lines();
        lines.into_iter().find(|line| line["event"] == "done").expect("it says that it is done")
    }
}

pub struct Rig {
    pub guest: Guest,
    pub place: Place,
}

impl Rig {
    /// Returns the next step of the script.
    pub fn step(&mut self, name: &str) -> Step {
        let (mut out, mut err) = (Vec::new(), String::new());
        loop {
            let line = self.guest.line(LIMIT).unwrap();
            let line = line.unwrap_or_else(|| panic!("{name} does not end"));
            if let Some((_, text)) = line.split_once("@out ") {
                out.push(text.to_owned());
            } else if let Some((_, text)) = line.split_once("@err ") {
                err.push_str(text);
                err.push('\n');
            } else if let Some((_, rest)) = line.split_once("@end ") {
                let (said, code) = rest.rsplit_once(' ').unwrap();
                assert_eq!(said, name, "steps come in their order");
                return Step { code: code.trim().parse().unwrap(), out, err };
            }
        }
    }

    /// Boots a machine with that kernel and its modules, to run the script. Returns `None`, with the reason printed, if
    /// that is not possible.
    pub fn boot(
        place: Place,
        machine: Machine,
        (flavour, modules): (Flavour, &[&str]),
        script: &str,
    ) -> Option<Rig> {
        let tools = Tools::find_or_skip(flavour)?;
        let mut initramfs = Initramfs::new(&tools).unwrap();
        initramfs.modules(modules).unwrap();
        initramfs.program("bin/dcs", Path::new(env!("CARGO_BIN_EXE_dcs"))).unwrap();
        let initramfs = initramfs.finish(&format!("{SHELL}{script}"));
        let guest = machine.start(&tools, &initramfs, &place.path("")).unwrap();
        Some(Rig { guest, place })
    }
}

/// Computes a digest with hashlib.
pub fn md5(path: &Path) -> String {
    python("import hashlib, sys; print(hashlib.md5(open(sys.argv[1], 'rb').read()).hexdigest())", path)
}

pub fn digest(done: &Value) -> &str {
    done["digests"][0]["value"].as_str().unwrap()
}

pub fn path_has(done: &Value, name: &str) -> bool {
    done["path"].as_array().unwrap().iter().any(|path| path == name)
}

/// Adds an SSD on a drive of its own.
pub fn ssd(machine: Machine, name: &str, drive: &str, device: &str) -> Machine {
    machine.arguments([
        "-drive",
        &format!("{drive},if=none,id={name},cache=unsafe"),
        "-device",
        &format!("nvme,serial={name},drive={name}{device}"),
    ])
}

pub fn raw(path: &Path) -> String {
    format!("file={},format=raw", path.display())
}

pub fn function(step: &Step, address: &str) -> Value {
    let lines = step.lines();
    let is = |line: &Value| line["event"] == "function" && line["address"] == address;
    lines.into_iter().find(is).unwrap_or_else(|| panic!("no {address}: {:?}", step.out))
}
