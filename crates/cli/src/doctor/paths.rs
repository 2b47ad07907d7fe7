//! Paths that will run for each kind of transfer.

use super::pci::{Function, Kind};
use super::probe::Probes;
use super::row::{Row, State};
use dcs_vfio::sys::Root;
use dcs_vfio_user::pci::Identity;

pub fn rows(root: &Root, probes: &Probes, functions: &[Function]) -> Vec<Row> {
    let row = |name: &str, state, found: String| Row::new("paths", name, state, found);
    let waits = match probes.io_uring {
        Ok(()) => "io_uring",
        Err(_) => "a read on another thread",
    };
    let plain = match probes.sendfile {
        Ok(()) => row("file -> socket", State::Ok, "kernel backend: sendfile(2) from the page cache".into()),
        Err(_) => row(
            "file -> socket",
            State::Note,
            format!("kernel backend: page cache, {waits} for what is not cached, send"),
        ),
    };
    let through = format!("kernel backend: page cache, {waits} for what is not cached; operators; send");
    let uncached = match &probes.direct {
        Ok(()) => row("file --cache off", State::Ok, format!("kernel backend: O_DIRECT by {waits}")),
        Err(_) => row(
            "file --cache off",
            State::Missing,
            format!("refused in {}: no O_DIRECT there", probes.folder),
        ),
    };
    let mut rows = vec![plain, row("file -> operators -> socket", State::Ok, through), uncached];
    let ssds: Vec<&Function> = functions.iter().filter(|function| function.kind == Kind::Ssd).collect();
    for ssd in &ssds {
        let name = format!("nvme:{}", ssd.address);
        rows.push(match ssd.drivable(root) {
            Ok(()) => row(&name, State::Ok, "kernel backend: the SSD's queues in this process (VFIO)".into()),
            Err(why) => row(&name, State::Note, format!("refused: {why}")),
        });
    }
    for nic in functions.iter().filter(|function| function.kind == Kind::Nic && function.is_driven()) {
        rows.push(match nic.drivable(root) {
            Ok(()) => row(
                &nic.option(),
                State::Ok,
                "kernel backend: the NIC's rings and TCP in this process (VFIO)".into(),
            ),
            Err(why) => row(&nic.option(), State::Note, format!("refused: {why}")),
        });
    }
    if ssds.is_empty() {
        rows.push(row("nvme:ADDRESS", State::Note, "refused: no NVMe SSD found".into()));
    }
    rows.push(match card(root) {
        Some(address) => row("DCS_BACKEND=card", State::Ok, format!("card backend: {address}")),
        None => row("DCS_BACKEND=card", State::Note, "refused: no dcs card found".into())
            .fix("dcs vm shell boots a server that has one"),
    });
    rows.push(match drives(root) {
        names if names.is_empty() => {
            row("DCS_BACKEND=drive", State::Note, "refused: no virtual drive found".into())
                .fix("dcs csd, on the host, gives a guest one")
        }
        names => row(
            "DCS_BACKEND=drive",
            State::Ok,
            format!("operators on files of {} run next to the disk", names.join(", ")),
        ),
    });
    rows
}

/// Lists virtual drives by the kernel driver's names.
fn drives(root: &Root) -> Vec<String> {
    let folder = "sys/class/nvme";
    let is = |name: &String| {
        let model = root.text(&format!("{folder}/{name}/model"));
        model.ok().is_some_and(|model| model.trim() == "dcs virtual drive")
    };
    root.names(folder).ok().unwrap_or_default().into_iter().filter(is).collect()
}

fn card(root: &Root) -> Option<String> {
    let folder = "sys/bus/pci/devices";
    let Identity { vendor, device, .. } = Identity::ACCELERATOR;
    let is = |address: &String| {
        let number = |name: &str| root.number(&format!("{folder}/{address}/{name}")).ok();
        (number("vendor"), number("device")) == (Some(vendor.into()), Some(device.into()))
    };
    root.names(folder).ok()?.into_iter().find(is)
}
