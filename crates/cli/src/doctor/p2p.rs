//! Paths between SSDs and NICs: whether they reach each other without going through the processor. [linux,
//! Documentation/driver-api/pci/p2pdma.rst]

use super::pci::Function;
use super::row::{Row, State};
use dcs_vfio::sys::{Root, Seen};
use std::collections::BTreeMap;

const DEVICES: &str = "sys/bus/pci/devices";

/// Returns the path from the host bridge down to a function: `pci0000:00`, bridges, the function.
fn way(root: &Root, address: &str) -> Option<Vec<String>> {
    let path = root.resolved(&format!("{DEVICES}/{address}"))?;
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let bridge = parts.iter().position(|part| part.starts_with("pci") && part.contains(':'))?;
    Some(parts[bridge..].to_vec())
}

pub fn rows(root: &Root, functions: &[Function]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut below: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for function in functions {
        let Some(way) = way(root, &function.address) else {
            let found = "its place on the bus can't be read";
            rows.push(Row::new("peer-to-peer", function.address.clone(), State::Unreadable, found));
            continue;
        };
        // The first bridge below the host bridge, if there is one: everything behind it shares it.
        let port = if way.len() > 2 { way[1].clone() } else { String::new() };
        below.entry((way[0].clone(), port)).or_default().push(&function.address);
    }
    for ((host, port), members) in &below {
        if !port.is_empty() && members.len() > 1 {
            let found = format!("one bridge in common, below {host}: {}", members.join(", "));
            rows.push(Row::new("peer-to-peer", port.clone(), State::Ok, found));
        }
    }
    rows.extend(apart(&below));
    for function in functions {
        if let Seen::Is(bytes) = root.number(&format!("{DEVICES}/{}/p2pmem/size", function.address)) {
            let found = format!("{bytes} bytes of memory for other devices (p2pdma)");
            rows.push(Row::new("peer-to-peer", function.address.clone(), State::Ok, found));
        }
    }
    if !functions.is_empty() {
        rows.push(p2pdma(root));
    }
    rows
}

/// Reports functions that share a host bridge and nothing below it.
fn apart(below: &BTreeMap<(String, String), Vec<&str>>) -> Vec<Row> {
    let mut hosts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((host, port), members) in below {
        let of_host = hosts.entry(host).or_default();
        match port.is_empty() {
            true => of_host.extend(members.iter().map(|member| (*member).to_owned())),
            false => of_host.push(members.join(" and ")),
        }
    }
    let row = |(host, parts): (&str, Vec<String>)| {
        let parts = parts.join(", ");
        let found = format!(
            "{parts}: no bridge in common except the host's, which does not say whether it forwards writes between them"
        );
        Row::new("peer-to-peer", host, State::Note, found)
    };
    hosts.into_iter().filter(|(_, parts)| parts.len() > 1).map(row).collect()
}

/// Reports whether the kernel was built with p2pdma; only the file of its configuration tells.
fn p2pdma(root: &Root) -> Row {
    let row = |state, found: &str| Row::new("peer-to-peer", "p2pdma", state, found);
    let release = root.text("proc/sys/kernel/osrelease").ok().unwrap_or_default();
    match root.text(&format!("boot/config-{release}")) {
        Seen::Is(config) if config.lines().any(|line| line == "CONFIG_PCI_P2PDMA=y") => {
            row(State::Ok, "in this kernel; dcs does without, by VFIO")
        }
        Seen::Is(_) => row(State::Note, "not in this kernel; dcs does without, by VFIO"),
        _ => row(State::Unreadable, "the kernel's configuration can't be read; dcs does without, by VFIO"),
    }
}
