//! The machine except its devices: kernel, memory, IOMMU, processor, limits.

use super::probe::Probes;
use super::row::{Row, State};
use crate::units::human;
use dcs_vfio::Signals;
use dcs_vfio::sys::{Root, Seen};

/// Bytes that an engine with its own SSDs locks by default: its blocks, queues and lists.
const LOCKED: u64 = 40 << 20;

pub fn rows(root: &Root, probes: &Probes) -> Vec<Row> {
    let mut rows =
        vec![kernel(root), io_uring(root, probes), aio(root), sendfile(probes), direct(probes), ktls(root)];
    rows.extend(processor(probes));
    rows.extend([huge_pages(root), locked(root, probes), iommu(root), vfio(root)]);
    rows
}

fn kernel(root: &Root) -> Row {
    match root.text("proc/sys/kernel/osrelease") {
        Seen::Is(release) => Row::new("kernel", "Linux", State::Ok, release),
        Seen::Absent => Row::new("kernel", "Linux", State::Unreadable, "/proc does not exist"),
        Seen::Unreadable(why) => Row::new("kernel", "Linux", State::Unreadable, why),
    }
}

fn io_uring(root: &Root, probes: &Probes) -> Row {
    let row = |state, found: String| Row::new("kernel", "io_uring", state, found);
    let (error, errno) = match &probes.io_uring {
        Ok(()) => return row(State::Ok, "a ring was made".into()),
        Err(failed) => failed,
    };
    // The kernel's own statement, and whether a filter of system calls is in force (2).
    let switch = root.number("proc/sys/kernel/io_uring_disabled");
    let filtered =
        root.text("proc/self/status").ok().is_some_and(|status| field(&status, "Seccomp:") == Some("2"));
    let refused = matches!(errno, Some(nix::libc::EPERM | nix::libc::EACCES | nix::libc::ENOSYS));
    let why = format!("{error}; transfers run by plain system calls");
    match switch {
        Seen::Is(2) => row(State::Missing, format!("switched off (kernel.io_uring_disabled = 2): {why}"))
            .fix("sudo sysctl -w kernel.io_uring_disabled=0"),
        Seen::Is(1) if refused => row(State::Missing, format!("for one group only (kernel.io_uring_disabled = 1): {why}"))
            .fix("sudo sysctl -w kernel.io_uring_disabled=0, or join the group of kernel.io_uring_group"),
        _ if refused && filtered => row(State::Missing, format!("forbidden by a seccomp filter: {why}"))
            .fix("start the container with a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register"),
        _ if *errno == Some(nix::libc::ENOSYS) => row(State::Missing, format!("this kernel has none: {why}"))
            .fix("use a kernel with CONFIG_IO_URING"),
        _ if *errno == Some(nix::libc::ENOMEM) => row(State::Missing, format!("too little memory may be locked: {why}"))
            .fix("ulimit -l unlimited"),
        _ => row(State::Missing, why),
    }
}

/// Reports the AIO requests that the limit leaves. Servers of PCI functions interrupt their guests by them.
fn aio(root: &Root) -> Row {
    let row = |state, found: String| Row::new("kernel", "Linux AIO", state, found);
    let most = "proc/sys/fs/aio-max-nr";
    match (root.number("proc/sys/fs/aio-nr"), root.number(most)) {
        (Seen::Is(used), Seen::Is(most)) => {
            let (found, wanted) = (format!("{used} of {most} requests are in use"), Signals::REQUESTS);
            match most.saturating_sub(used) {
                free if free >= wanted => row(State::Ok, found),
                _ => row(
                    State::Missing,
                    format!("{found}: dcs csd, dcs d2d and the card in QEMU take {wanted} each, to interrupt guests"),
                )
                .fix(format!("sudo sysctl -w fs.aio-max-nr={}", used.max(most) + 65_536)),
            }
        }
        (Seen::Unreadable(why), _) | (_, Seen::Unreadable(why)) => row(State::Unreadable, why),
        _ => row(State::Unreadable, format!("/{most} does not exist: the kernel may be without AIO")),
    }
}

fn sendfile(probes: &Probes) -> Row {
    let row = |state, found: String| Row::new("kernel", "sendfile(2)", state, found);
    match &probes.sendfile {
        Ok(()) => row(State::Ok, "from the page cache to a socket".into()),
        Err(error) => row(State::Missing, format!("{error}; files are sent by blocks")),
    }
}

fn direct(probes: &Probes) -> Row {
    let row = |state, found: String| Row::new("kernel", "O_DIRECT", state, found);
    match &probes.direct {
        Ok(()) => row(State::Ok, format!("in {}", probes.folder)),
        Err(error) => row(State::Note, format!("not in {}: {error}", probes.folder))
            .fix("dcs doctor --dir DIR probes another file system"),
    }
}

fn ktls(root: &Root) -> Row {
    let row = |state, found: &str| Row::new("kernel", "kernel TLS", state, found);
    let unused = "; nothing of dcs uses it";
    match root.text("proc/sys/net/ipv4/tcp_available_ulp") {
        Seen::Is(names) if names.split_whitespace().any(|name| name == "tls") => {
            row(State::Note, &format!("there{unused}"))
        }
        Seen::Is(_) => row(State::Note, &format!("not loaded{unused}")).fix("sudo modprobe tls"),
        Seen::Absent => row(State::Unreadable, "tcp_available_ulp does not exist"),
        Seen::Unreadable(why) => row(State::Unreadable, &why),
    }
}

fn huge_pages(root: &Root) -> Row {
    let row = |state, found: String| Row::new("memory", "huge pages", state, found);
    let folder = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let (all, free) =
        (root.number(&format!("{folder}/nr_hugepages")), root.number(&format!("{folder}/free_hugepages")));
    let wanted = LOCKED / (2 << 20);
    let fix = format!("sudo sysctl -w vm.nr_hugepages={}", wanted * 2);
    match (all, free) {
        (Seen::Is(all), Seen::Is(free)) if free >= wanted => row(State::Ok, format!("{free} of {all} of 2 MiB are free")),
        (Seen::Is(all), Seen::Is(free)) => {
            row(State::Note, format!("{free} of {all} of 2 MiB are free; an engine with SSDs of its own takes {wanted}, else pages of 4 KiB"))
                .fix(fix)
        }
        (Seen::Unreadable(why), _) | (_, Seen::Unreadable(why)) => row(State::Unreadable, why),
        _ => row(State::Unreadable, format!("/{folder} does not exist")),
    }
}

fn locked(root: &Root, probes: &Probes) -> Row {
    let row = |state, found: String| Row::new("memory", "locked memory", state, found);
    if probes.locks_freely {
        return row(State::Ok, "root may lock any".into());
    }
    let limits = match root.text("proc/self/limits") {
        Seen::Is(limits) => limits,
        Seen::Absent => return row(State::Unreadable, "/proc/self/limits does not exist".into()),
        Seen::Unreadable(why) => return row(State::Unreadable, why),
    };
    let soft = field(&limits, "Max locked memory").map(str::to_owned);
    match soft.as_deref().map(|soft| (soft, soft.parse::<u64>())) {
        Some(("unlimited", _)) => row(State::Ok, "no limit".into()),
        Some((_, Ok(bytes))) if bytes >= LOCKED => row(State::Ok, format!("up to {}", human(bytes))),
        Some((_, Ok(bytes))) => {
            let needed = human(LOCKED);
            row(
                State::Missing,
                format!("up to {}: an engine with SSDs of its own locks {needed}", human(bytes)),
            )
            .fix("ulimit -l unlimited, where limits.conf allows it (memlock)")
        }
        _ => row(State::Unreadable, "/proc/self/limits does not say".into()),
    }
}

/// Returns the word after a name at the beginning of a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
}

fn iommu(root: &Root) -> Row {
    let row = |state, found: String| Row::new("devices", "IOMMU", state, found);
    let fix = "switch it on in the firmware (VT-d, AMD-Vi), and by intel_iommu=on or amd_iommu=on on the kernel's command line";
    match (root.names("sys/class/iommu"), root.names("sys/kernel/iommu_groups")) {
        (Seen::Is(units), Seen::Is(groups)) if !groups.is_empty() => {
            row(State::Ok, format!("{}; {} groups", units.join(", "), groups.len()))
        }
        (Seen::Unreadable(why), _) | (_, Seen::Unreadable(why)) => row(State::Unreadable, why),
        (Seen::Absent, Seen::Absent) if !root.exists("sys/kernel") => {
            row(State::Unreadable, "/sys does not exist".into())
        }
        _ => row(State::Missing, "none is on: no device can be driven by a process".into()).fix(fix),
    }
}

fn vfio(root: &Root) -> Row {
    let row = |state, found: &str| Row::new("devices", "vfio-pci", state, found);
    let fix = "sudo modprobe vfio-pci";
    if !root.exists("sys/bus/pci/drivers") {
        return row(State::Unreadable, "the list of PCI drivers is not visible here");
    }
    match (root.exists("sys/bus/pci/drivers/vfio-pci"), root.exists("dev/vfio/vfio")) {
        (true, true) => row(State::Ok, "loaded"),
        (true, false) => row(State::Missing, "loaded, but /dev/vfio/vfio does not exist")
            .fix("in a container: pass /dev/vfio into it"),
        (false, _) => row(State::Missing, "not loaded").fix(fix),
    }
}

fn processor(probes: &Probes) -> Vec<Row> {
    let mut rows = Vec::new();
    for (operator, streams, by) in &probes.lanes {
        rows.push(match streams {
            1 => Row::new("processor", *operator, State::Note, *by),
            _ => Row::new(
                "processor",
                *operator,
                State::Ok,
                format!("{streams} streams side by side, by {by}"),
            ),
        });
    }
    if !probes.features.is_empty() {
        let named = |there: bool| {
            let names = probes.features.iter().filter(|(_, has)| *has == there).map(|(name, _)| *name);
            names.collect::<Vec<_>>().join(" ")
        };
        let (has, lacks) = (named(true), named(false));
        let (state, lacking) = match lacks.is_empty() {
            true => (State::Ok, String::new()),
            false if has.is_empty() => (State::Note, format!("without {lacks}")),
            false => (State::Note, format!("; without {lacks}")),
        };
        rows.push(Row::new("processor", "instructions", state, format!("{has}{lacking}")));
    }
    rows
}
