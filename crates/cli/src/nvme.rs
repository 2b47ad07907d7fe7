//! SSDs that the engine drives itself, as users name them: `nvme:0000:01:00.0/1@LBA+LENGTH`.

use crate::chain::Gpu;
use crate::failure::{Exit, Failure};
use crate::names::shown;
use crate::report::Report;
use crate::units;
use dcs::{DriveError, Engine, Error, GpuError, Io, Mode, Namespace, Nic, Sink, Source};
use serde_json::json;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const PREFIX: &str = "nvme:";

/// Parts of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    function: String,
    namespace: Option<u32>,
    /// First logical block.
    first: Option<u64>,
    /// Bytes from there on.
    length: Option<u64>,
}

/// A range of bytes of a namespace.
#[derive(Clone, Debug)]
pub struct Range {
    namespace: Namespace,
    start: u64,
    length: u64,
}

/// Returns true if this names an SSD.
pub fn is_named(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

/// Starts the engine that drives the named SSDs, the NIC and the GPU; `None` if there are none of them.
pub fn engine(
    names: &[&OsStr],
    (nic, gpu): (Option<Nic>, Option<Gpu>),
    io: Io,
    report: &Report,
) -> Result<Option<Arc<Engine>>, Failure> {
    let mut wanted: Vec<Name> = Vec::new();
    for name in names.iter().filter(|name| is_named(name)) {
        let name = parse(&name.to_string_lossy())?;
        match wanted.iter().find(|other| other.function == name.function) {
            // Both are ranges of one namespace.
            Some(other) if other.namespace == name.namespace => {}
            _ => wanted.push(name),
        }
    }
    if wanted.is_empty() && nic.is_none() && gpu.is_none() {
        return Ok(None);
    }
    let mut builder = Engine::builder().io(io);
    for name in &wanted {
        builder = builder.nvme(name.function.as_str(), name.namespace);
    }
    if let Some(nic) = nic {
        builder = builder.nic(nic);
    }
    if let Some(gpu) = gpu {
        builder = builder.gpu(gpu.device).gpu_storage(gpu.storage);
    }
    let engine = builder.start().map_err(|error| match error {
        Error::Gpu(error) => no_gpu(gpu, &error),
        error => failure(error),
    })?;
    announce(&engine, report);
    Ok(Some(Arc::new(engine)))
}

/// Reports the devices that the engine drives.
fn announce(engine: &Engine, report: &Report) {
    crate::nic::say(engine, report);
    if let Some(gpu) = engine.gpu() {
        let (major, minor) = gpu.capability;
        report.remark(format_args!("dcs: GPU {}: {}, {}", gpu.device, gpu.name, units::human(gpu.memory)));
        let storage = engine.gpu_storage().and_then(|storage| storage.as_ref().ok());
        if let Some(storage) = storage {
            report.remark(format_args!("dcs: it reads files itself: {}", shown(&storage.library)));
        }
        report.object(&json!({
            "event": "gpu", "gpu": gpu.device, "name": gpu.name, "bytes": gpu.memory,
            "capability": format!("{major}.{minor}"), "stand_in": gpu.stand_in,
            "reads_files": storage.is_some(),
        }));
    }
    for namespace in engine.namespaces() {
        let memory = match namespace.has_huge_pages() {
            true => "huge pages",
            false => "pages of 4 KiB: no huge pages are free (dcs doctor)",
        };
        report.remark(format_args!(
            "dcs: {} namespace {}: {}, logical blocks of {} bytes; memory in {memory}",
            namespace.function(),
            namespace.number(),
            units::human(namespace.bytes()),
            namespace.block_size(),
        ));
        report.object(&json!({
            "event": "nvme", "function": namespace.function(), "namespace": namespace.number(),
            "bytes": namespace.bytes(), "block_size": namespace.block_size(),
            "huge_pages": namespace.has_huge_pages(),
        }));
    }
}

/// Returns the range that a name stands for, of a namespace that the engine drives; `None` if it does not name an SSD.
pub fn range(engine: Option<&Arc<Engine>>, text: &OsStr) -> Result<Option<Range>, Failure> {
    let (Some(engine), true) = (engine, is_named(text)) else { return Ok(None) };
    let text = &*text.to_string_lossy();
    let name = parse(text)?;
    let namespace = engine.namespaces().iter().find(|namespace| namespace.function() == name.function);
    let namespace = namespace
        .ok_or_else(|| Failure::new(Exit::Failed, format!("{text}: the engine does not drive it")))?;
    let (size, bytes) = (u64::from(namespace.block_size()), namespace.bytes());
    let blocks = bytes / size;
    let first = name.first.unwrap_or(0);
    let start = first.checked_mul(size).filter(|start| *start < bytes).ok_or_else(|| {
        Failure::usage(format!("{text}: logical block {first} is beyond the namespace, which has {blocks}"))
            .advise("the first is 0")
    })?;
    let length = name.length.unwrap_or(bytes - start);
    if !length.is_multiple_of(size) {
        let line = format!("{text}: {length} bytes are not whole logical blocks of {size} bytes");
        return Err(Failure::usage(line).advise(format!("say +{}", length.next_multiple_of(size))));
    }
    if length == 0 || length > bytes - start {
        let most = bytes - start;
        let line =
            format!("{text}: there are {most} bytes from logical block {first} on, and at least one block");
        return Err(Failure::usage(line).advise("give a range inside the namespace"));
    }
    Ok(Some(Range { namespace: namespace.clone(), start, length }))
}

/// Returns the range like [`range`], for writing, which needs an explicit place.
pub fn destination(engine: Option<&Arc<Engine>>, name: &OsStr) -> Result<Option<Range>, Failure> {
    let text = name.to_string_lossy();
    if is_named(name) && parse(&text)?.first.is_none() {
        return Err(Failure::usage(format!("{text}: the name does not say where to begin writing"))
            .advise(format!("give {text}@0 to write from the beginning")));
    }
    range(engine, name)
}

impl Range {
    pub fn source(&self, cache: Mode) -> Source {
        Source::namespace(&self.namespace, self.start..self.start + self.length).cache(cache)
    }

    pub fn sink(&self, cache: Mode) -> Sink {
        Sink::namespace(&self.namespace, self.start..self.start + self.length).cache(cache)
    }

    pub fn length(&self) -> u64 {
        self.length
    }
}

fn parse(text: &str) -> Result<Name, Failure> {
    let wrong = |what: String| {
        Failure::usage(format!("{text}: {what}")).advise(
            "an SSD is named nvme:0000:01:00.0/1@LBA+LENGTH: function, namespace, first logical block, bytes",
        )
    };
    let rest = text.strip_prefix(PREFIX).unwrap_or(text);
    let (device, place) = match rest.split_once('@') {
        Some((device, place)) => (device, Some(place)),
        None => (rest, None),
    };
    let (function, namespace) = match device.split_once('/') {
        Some((function, number)) => (function, Some(number)),
        None => (device, None),
    };
    let function = dcs_vfio::address(function)
        .ok_or_else(|| wrong(format!("{function:?} is not the address of a PCI function")))?;
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let namespace = namespace
        .map(|text| {
            let found = text.parse().ok().filter(|number: &u32| *number > 0 && *number < u32::MAX - 1);
            found.ok_or_else(|| wrong(format!("{text:?} is not the number of a namespace")))
        })
        .transpose()?;
    let (first, length) =
        match place.map(|place| place.split_once('+').map_or((place, None), |(f, l)| (f, Some(l)))) {
            Some((first, length)) => {
                let block = number(first)
                    .ok_or_else(|| wrong(format!("{first:?} is not the number of a logical block")))?;
                let length = length.map(units::size).transpose().map_err(wrong)?;
                (Some(block), length)
            }
            None => (None, None),
        };
    Ok(Name { function, namespace, first, length })
}

/// Returns the failure if a GPU's operator can't run. Nothing else runs it instead.
fn no_gpu(gpu: Option<Gpu>, error: &GpuError) -> Failure {
    let operator = gpu.map_or("gpu", |gpu| gpu.operator);
    let advice = match error {
        GpuError::NoSuchDevice(_) => "dcs doctor lists the GPUs of this machine",
        GpuError::Memory(_) => "end what else uses the GPU's memory",
        GpuError::Storage(_) => {
            "leave out --gpu-storage on to have the host read files; dcs doctor tells more"
        }
        _ => "leave out gpu: to have the CPU do it; dcs doctor lists GPUs",
    };
    Failure::new(Exit::Failed, format!("{operator}: {error}")).advise(advice)
}

/// Returns the failure if an SSD or a NIC can't be driven, with what to do about it.
pub fn failure(error: Error) -> Failure {
    let Error::Drive(error) = error else { return Failure::refused("engine", error) };
    let line = error.to_string();
    let (exit, advice) = match &error {
        DriveError::Address(_) | DriveError::Class(..) => {
            (Exit::Usage, "dcs doctor lists the SSDs of this machine".to_owned())
        }
        DriveError::NoDriver(..) => (Exit::Usage, "dcs doctor lists the NICs of this machine".to_owned()),
        DriveError::Host(..) => (Exit::Usage, "for example 10.0.2.15/24".to_owned()),
        DriveError::NoLink(_) => {
            (Exit::Peer, "check that its cable is plugged in, and what is at the other end".to_owned())
        }
        DriveError::Twice(_) => (Exit::Usage, "name one namespace of an SSD at a time".to_owned()),
        DriveError::Missing(_) => {
            (Exit::NotFound, "dcs doctor lists the SSDs and NICs of this machine".to_owned())
        }
        DriveError::Namespace(..) => {
            (Exit::NotFound, "namespaces are numbered from 1; leave the number out for the first".to_owned())
        }
        DriveError::NotBound(function, _) => {
            (Exit::Failed, format!("if nothing on it is in use: dcs doctor --bind {function}"))
        }
        DriveError::Pinned(_) => (Exit::Permission, "raise the limit: ulimit -l unlimited".to_owned()),
        DriveError::Vfio(vfio) => vfio_advice(vfio),
        _ => (Exit::Failed, "look for the device's errors in the kernel log".to_owned()),
    };
    Failure::new(exit, line).advise(advice)
}

fn vfio_advice(error: &dcs_vfio::VfioError) -> (Exit, String) {
    use dcs_vfio::VfioError;
    let doctor = "dcs doctor tells what is missing and how to fix it".to_owned();
    match error {
        VfioError::NoIommu(_) => (Exit::Failed, "switch the IOMMU on, in the firmware and by intel_iommu=on or amd_iommu=on on the kernel's command line".into()),
        VfioError::Group(function) => (Exit::Failed, format!("dcs doctor {function} names the other functions: bind each to vfio-pci, or leave it without a driver")),
        VfioError::Io { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied => (Exit::Permission, "run it as root, or give the group's file in /dev/vfio to this user".into()),
            ErrorKind::NotFound => (Exit::Failed, "load the module: modprobe vfio-pci".into()),
            ErrorKind::ResourceBusy => (Exit::Failed, "another process drives it, or a function of its group: end that".into()),
            _ => (Exit::Failed, doctor),
        },
        _ => (Exit::Failed, doctor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        parse(text).unwrap_or_else(|failure| panic!("{}", failure.line))
    }

    #[test]
    fn names_say_function_namespace_and_place() {
        let all = Name { function: "0000:01:00.0".into(), namespace: None, first: None, length: None };
        assert_eq!(name("nvme:0000:01:00.0"), all);
        assert_eq!(name("nvme:1:0.0/2"), Name { namespace: Some(2), ..all.clone() });
        assert_eq!(name("nvme:01:00.0@0x800"), Name { first: Some(2048), ..all.clone() });
        let part = Name { namespace: Some(1), first: Some(8), length: Some(64 << 20), ..all };
        assert_eq!(name("nvme:0000:01:00.0/1@8+64MiB"), part);
    }

    #[test]
    fn what_is_no_name_is_said() {
        for (text, what) in [
            ("nvme:", "is not the address"),
            ("nvme:/dev/nvme0n1", "is not the address"),
            ("nvme:01:00.0/0", "namespace"),
            ("nvme:01:00.0/x", "namespace"),
            ("nvme:01:00.0@", "logical block"),
            ("nvme:01:00.0@-1", "logical block"),
            ("nvme:01:00.0@1+", "a size"),
            ("nvme:01:00.0@1+x", "a size"),
        ] {
            let failure = parse(text).unwrap_err();
            assert!(failure.exit == Exit::Usage && failure.line.contains(what), "{text}: {}", failure.line);
        }
    }
}
