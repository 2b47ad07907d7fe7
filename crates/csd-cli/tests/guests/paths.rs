//! Two processes that show the same namespace, as two paths of one guest (native multipath).

use super::hard::qmp;
use super::*;
use std::time::Instant;

/// Functions of the guest's script.
const PATHS: &str = r#"
paths() { cat /sys/class/nvme/nvme*/state 2>/dev/null | grep -c live; }
have() { while [ $(paths) != $1 ]; do sleep 0.2; done; }
load() {
  N=0
  while [ ! -e /tmp/stop ]; do
    F=$((N % 40)); seq ${N}00000 ${N}10000 >/tmp/text; sum /tmp/text >/tmp/sum.$F
    dd if=/tmp/text of=/mnt/$F bs=64k conv=fsync 2>/dev/null || { dmesg | tail -40; echo "@wrong write"; }
    N=$((N + 1)); echo $N >/tmp/last.new; mv /tmp/last.new /tmp/last
  done
}
# The path that has written most, by the number of its controller.
active() {
  M=0; for P in /sys/block/nvme*c*n1; do
    C=${P##*c}; set -- $(cat $P/stat); [ $5 -le $M ] || { M=$5; A=$(cat /sys/class/nvme/nvme${C%n1}/cntlid); }
  done; echo $A
}
# More files, flushed.
goes_on() { END=$(($(cat /tmp/last) + 4)); while [ $(cat /tmp/last) -lt $END ]; do sleep 0.2; done; }
"#;

fn attach(name: &str, socket: &Path) -> String {
    format!(
        "{{\"driver\":\"vfio-user-pci\",\"id\":\"{name}\",\"bus\":\"port-{name}\",\"rombar\":0,\"socket\":{{\"type\":\"unix\",\"path\":\"{}\"}}}}",
        socket.display()
    )
}

/// Takes a device out of the machine, whose process is gone, and puts it back in.
fn plug_again(monitor: &Path, name: &str, device: &str) {
    let out = format!("{{\"execute\":\"device_del\",\"arguments\":{{\"id\":\"{name}\"}}}}");
    let said = qmp(monitor, &out);
    assert!(!said.contains("\"error\""), "{said}");
    let back = format!("{{\"execute\":\"device_add\",\"arguments\":{device}}}");
    let end = Instant::now() + LIMIT;
    loop {
        let said = qmp(monitor, &back);
        if !said.contains("\"error\"") {
            return;
        }
        assert!(Instant::now() < end, "{said}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// QEMU (11.1) aborts by itself, now and then, when a socket is gone on which it has just written: that is an
/// error in its report of an error, and nothing of the guest's. It does not where the guest stands still when
/// the process is killed; but then less is under way, so that comes last.
const OWN_END: &str = "error_setv: Assertion";

/// One process is killed under load, and started again; then the other one is. The guest goes on without an
/// error, and all that it flushed is there.
#[test]
fn a_guest_with_two_paths_goes_on_when_a_process_is_killed() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    for stands_still in [false, false, false, false, true, true, true] {
        let Err(why) = std::panic::catch_unwind(|| two_paths(&tools, stands_still)) else { return };
        let text = why.downcast_ref::<String>().map_or("", String::as_str);
        if !text.contains(OWN_END) {
            std::panic::resume_unwind(why);
        }
        eprintln!("QEMU has aborted by itself: once more");
    }
    panic!("QEMU aborts by itself again and again");
}

fn two_paths(tools: &Tools, stands_still: bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), "disk", 64 * MB);
    let sockets = [1, 2].map(|number| folder.path().join(format!("process{number}")));
    sockets.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let start = |number: usize| {
        let drive = format!("d:size=48M,backing={},subsystem=vm,path={number},msi", path.display());
        Serving::start(&sockets[number - 1], &["--drive", &drive]).unwrap()
    };
    let mut processes = [1, 2].map(|number| Some(start(number)));
    let devices = [1, 2].map(|number| attach(&format!("p{number}"), &sockets[number - 1].join("d.sock")));
    let monitor = folder.path().join("qmp");
    let qmp_socket = format!("unix:{},server=on,wait=off", monitor.display());
    let mut machine = Machine::new().memory(512).limit(LIMIT);
    for (number, device) in devices.iter().enumerate() {
        let port = format!("pcie-root-port,id=port-p{},chassis={}", number + 1, number + 1);
        machine = machine.arguments(["-device", &port, "-device", device]);
    }
    // A dead path is given up after this time, instead of 30 s.
    let machine = machine.append("nvme_core.io_timeout=5").append("nvme_core.admin_timeout=5");
    let machine = machine.arguments(["-qmp", &qmp_socket]);
    let mut initramfs = Initramfs::new(tools).unwrap();
    initramfs.program("sbin/mkfs.ext4", Path::new(tools.mkfs_ext4().get_program())).unwrap();
    initramfs.modules(&["pciehp"]).ok();
    let script = r#"
have 2; while ! ls /sys/block | grep -qE '^nvme[0-9]+c[0-9]+n1$'; do sleep 0.2; done
D=/dev/$(ls /sys/block | grep -E '^nvme[0-9]+n1$'); await $D
mkfs.ext4 -q -F $D && mount -t ext4 $D /mnt || echo '@wrong ext4'
echo 0 >/tmp/last; load & LOAD=$!
goes_on; echo @load $(active)
have 1; goes_on; echo @one
have 2; goes_on; echo @both $(active)
have 1; goes_on; echo @other
touch /tmp/stop; wait $LOAD
umount /mnt && echo 3 >/proc/sys/vm/drop_caches && mount -t ext4 $D /mnt || echo '@wrong mount'
for F in /tmp/sum.*; do same "$(sum /mnt/${F##*.})" "$(cat $F)" "file ${F##*.}"; done
dmesg | grep -i "i/o error\|ext4.*error\|remount" && echo "@wrong errors"
echo @well $(cat /tmp/last)
"#;
    let script = format!("{SHELL}{PATHS}{script}");
    let mut guest = machine.start(tools, &initramfs.finish(&script), folder.path()).unwrap();
    // The path in use is killed, kill -9, under load; then the other one, when the first is there again.
    let mut active: usize = wait(&mut guest, "load").parse().unwrap();
    for said in ["one", "other"] {
        if stands_still {
            assert!(!qmp(&monitor, "{\"execute\":\"stop\"}").contains("\"error\""));
        }
        processes[active - 1] = None;
        if stands_still {
            // QEMU sees that the socket is gone.
            std::thread::sleep(Duration::from_millis(500));
            assert!(!qmp(&monitor, "{\"execute\":\"cont\"}").contains("\"error\""));
        }
        wait(&mut guest, said);
        if said == "one" {
            processes[active - 1] = Some(start(active));
            plug_again(&monitor, &format!("p{active}"), &devices[active - 1]);
            let other: usize = wait(&mut guest, "both").parse().unwrap();
            assert_ne!(other, active);
            active = other;
        }
    }
    println!("{} files", wait(&mut guest, "well"));
}
