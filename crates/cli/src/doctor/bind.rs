//! Gives an SSD or a NIC to vfio-pci, and back. Never one that is in use.

use super::pci::{self, Function, Kind};
use crate::failure::{Exit, Failure};
use crate::report::Report;
use dcs_vfio::VfioError;
use dcs_vfio::sys::Root;
use serde_json::json;
use std::io::ErrorKind;

/// Returns a function's full address.
pub fn address(text: &str) -> Result<String, Failure> {
    let text = text.strip_prefix("nvme:").or(text.strip_prefix("nic:")).unwrap_or(text);
    dcs_vfio::address(text).ok_or_else(|| {
        Failure::usage(format!("{text:?} is not the address of a PCI function")).advise("one is 0000:01:00.0")
    })
}

pub fn bind(root: &Root, text: &str, report: &Report) -> Result<(), Failure> {
    let function = find(root, text)?;
    may_be_taken(&function)?;
    if !root.exists("sys/bus/pci/drivers/vfio-pci") {
        return Err(
            Failure::new(Exit::Failed, "the driver vfio-pci is not loaded").advise("sudo modprobe vfio-pci")
        );
    }
    dcs_vfio::take(&function.address).map_err(|error| failure(&function.address, &error))?;
    report_change(report, "bound", &function.address, "vfio-pci has it now; dcs doctor --release returns it");
    Ok(())
}

pub fn release(root: &Root, text: &str, report: &Report) -> Result<(), Failure> {
    let function = find(root, text)?;
    if function.driver.as_deref() != Some("vfio-pci") {
        let driver = function.driver.as_deref().unwrap_or("no driver");
        let line = format!("{} is not bound to vfio-pci: {driver} has it", function.address);
        return Err(Failure::new(Exit::Failed, line).advise("there is nothing to return"));
    }
    dcs_vfio::unbind(&function.address).map_err(|error| failure(&function.address, &error))?;
    let driver = dcs_vfio::driver(&function.address).unwrap_or_else(|| "no driver".into());
    report_change(report, "released", &function.address, &format!("{driver} has it now"));
    Ok(())
}

fn report_change(report: &Report, event: &str, address: &str, what: &str) {
    report.text(format_args!("{address}: {what}"));
    report.object(&json!({ "event": event, "address": address, "driver": dcs_vfio::driver(address) }));
}

fn find(root: &Root, text: &str) -> Result<Function, Failure> {
    let address = address(text)?;
    let found = pci::functions(root).into_iter().find(|function| function.address == address);
    match found {
        Some(function) if function.is_driven() => Ok(function),
        Some(function) => {
            let (vendor, device) = function.id;
            let line = format!("{address} is not a NIC that dcs can drive ({vendor:04x}:{device:04x})");
            Err(Failure::usage(line).advise("dcs drives Intel's 82574 and 82576; leave others to the kernel"))
        }
        None if dcs_vfio::class(&address).is_some() && root.is_real() => {
            Err(Failure::usage(format!("{address} is neither an NVMe controller nor a NIC"))
                .advise("dcs doctor lists those of this machine"))
        }
        None => Err(Failure::new(Exit::NotFound, format!("there is no PCI function {address}"))
            .advise("dcs doctor lists the SSDs and NICs of this machine")),
    }
}

/// Refuses a function that is in use, as far as /sys and /proc tell.
pub fn may_be_taken(function: &Function) -> Result<(), Failure> {
    let address = &function.address;
    if !function.uses.is_empty() {
        let line = format!("{address} is in use: {}", function.uses.join(", "));
        let advice = match function.kind {
            Kind::Ssd => "end that first: unmount it, swapoff, stop the array",
            Kind::Nic => "end that first, if this machine can be reached another way: ip link set NAME down",
        };
        return Err(Failure::new(Exit::Failed, line).advise(advice));
    }
    if function.group.is_none() {
        return Err(Failure::new(Exit::Failed, format!("{address} has no IOMMU in front of it"))
            .advise("dcs doctor says how to switch it on"));
    }
    if let Some(rivals) = function.rivalry() {
        return Err(Failure::new(Exit::Failed, format!("{address}: {rivals}"))
            .advise("all functions of a group must be driven by one process, or by the kernel"));
    }
    Ok(())
}

fn failure(address: &str, error: &VfioError) -> Failure {
    let exit = match error {
        VfioError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => Exit::Permission,
        _ => Exit::Failed,
    };
    let advice = match error {
        _ if exit == Exit::Permission => "run it as root",
        VfioError::InUse(..) => "end that first: look with lsblk and fuser",
        _ => "look for errors in the kernel log",
    };
    Failure::new(exit, format!("{address}: {error}")).advise(advice)
}
