//! `dcs lend`, in a guest that has both functions of a card that `dcs card` serves. Skipped, with the reason, if no virtual server is
//! available. What the other function does with its parts: `crates/card/tests/qemu/functions.rs`.

use crate::guest::{LIMIT, Rig};
use crate::run::Place;
use dcs_vm::Machine;
use dcs_vm::tools::Flavour;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

const SCRIPT: &str = r#"
DISK=$(disk)
of() { for d in /sys/bus/pci/devices/*; do case "$(cat $d/$1)" in $2) basename $d;; esac; done; }
set -- $(of vendor 0xdc51)
export DCS_CARD=$1 DCS_CARD_DISKS=$(of class 0x010802 | tail -n 1)=$DISK
lent() { until [ "$(grep -c '"lent"' /tmp/lend)" = $1 ]; do sleep 0.1; done; }
step function dcs lend 2=$DISK
step range dcs lend 1=$DISK@100+4096
step file dcs lend 1=/init
step other env DCS_CARD=$2 dcs lend 1=$DISK
step half dcs lend 1=$DISK@4MiB+1MiB 2=$DISK@8MiB+512 --json
step bare env DCS_CARD=$2 DCS_CARD_DISKS= dcs lend 1=$DISK
dcs lend 1=$DISK@4MiB+1MiB 1=$DISK@8MiB+512 --json >/tmp/lend 2>/tmp/said & LEND=$!
lent 2
step busy dcs lend 1=$DISK
kill -TERM $LEND; wait $LEND
step returned sh -c "cat /tmp/lend; cat /tmp/said >&2; exit $?"
dcs lend 1=$DISK --read-only --json >/tmp/lend 2>/tmp/said & LEND=$!
lent 1
echo "@end lending 0"
wait $LEND
step gone sh -c "cat /tmp/lend; cat /tmp/said >&2; exit $?"
"#;

/// A process that ends with the test.
struct Card(Child);

impl Drop for Card {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn parts_are_lent_until_a_signal_comes_or_the_card_goes() {
    let place = Place::new();
    place.write("disk", &vec![0; 16 << 20]);
    let mut card = Card(place.dcs("card f0 f1 --json").stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(card.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.take(2).filter(|line| line.as_ref().unwrap().contains("listening")).count(), 2);
    let machine = Machine::new().limit(LIMIT).iommu().nvme(&place.path("disk"));
    let machine = machine.card(&place.path("f0")).card(&place.path("f1"));
    let kernel = (Flavour::Cloud, &["vfio-pci", "vfio_iommu_type1"][..]);
    let Some(mut rig) = Rig::boot(place, machine, kernel, SCRIPT) else { return };
    rig.step("function").fails(1, &["has no function 2"]);
    rig.step("range").fails(1, &["whole logical blocks of 512 bytes", "16777216"]);
    rig.step("file").fails(1, &["by its block device"]);
    rig.step("other").fails(1, &["not the card's function 0", "unset DCS_CARD_DISKS"]);
    let half = rig.step("half");
    let told = |of: &str| half.lines().iter().filter(|line| line["event"] == of).count();
    assert_eq!((told("lent"), told("returned")), (1, 1));
    half.fails(1, &["has no function 2"]);
    rig.step("bare").fails(1, &["on no disk that the card drives"]);
    rig.step("busy").fails(1, &["another process"]);
    let returned = rig.step("returned");
    let events = |of: &str| -> Vec<Value> {
        let lines = returned.lines().into_iter().filter(|line| line["event"] == of);
        lines.map(|line| json!([line["function"], line["part"], line["bytes"]])).collect()
    };
    assert_eq!(events("lent"), [json!([1, 0, 1 << 20]), json!([1, 1, 512])]);
    assert_eq!(events("returned"), [json!([1, 0, null]), json!([1, 1, null])]);
    returned.fails(130, &["all parts were taken back"]);
    rig.step("lending");
    drop(card);
    rig.step("gone").fails(1, &["the card or its SSD is gone"]);
}
