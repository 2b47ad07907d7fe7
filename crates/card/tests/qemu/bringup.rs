//! Tests that the card reaches what it should: other devices, guest memory, the guest's interrupts.

use dcs_drivers::bus::{Bus, BusError, Tag};

use crate::rig::{LIMIT, RAM, Rig};

const SCRIPT: &str = r#"
T=$(bar $CARD 4)
devmem 0x0e000000 32 0x600dcafe
devmem $T 32 0x0e000100; devmem $((T + 4)) 32 0; devmem $((T + 8)) 32 0x0badbeef; devmem $((T + 12)) 32 0
byte $CARD 83 80
post 0x20 1; done_ 1
echo "@memory $(devmem 0x0e000040 64)"
for n in 1 2 3 4 5 6 7 8 9; do [ $(devmem 0x0e000100 32) = 0x0BADBEEF ] && break; sleep 0.1; done
echo "@interrupt $(devmem 0x0e000100 32)"
echo "@card $(devmem $(($(bar $CARD 2) + 0x1000)) 64)"
byte $CARD 4 02
post 0x28 1; done_ 2
mount -t ext4 -o ro $(disk) /mnt && echo "@file $(cat /mnt/hello)"
"#;

#[test]
fn the_card_reaches_its_peers_the_guest_s_memory_and_its_processor() {
    let Some(mut rig) = Rig::boot(SCRIPT) else { return };
    let (ssd, nic) = (rig.letter(0x10), rig.letter(0x18));
    rig.letter(0x20);
    // The SSD reports its capabilities (a version, queues of some length), and a register keeps what is written.
    let capabilities = rig.read(ssd, 8);
    assert!(u16::from_le_bytes([capabilities[0], capabilities[1]]) >= 63, "{capabilities:x?}");
    assert_eq!(rig.read32(ssd + 8) >> 16, 1, "NVMe 1.x");
    rig.bus.write(ssd + 0x24, &0x001f_001fu32.to_le_bytes());
    assert_eq!(rig.read32(ssd + 0x24), 0x001f_001f);
    // The NIC has the configured address.
    let mac = [rig.read32(nic + 0x5400).to_le_bytes(), rig.read32(nic + 0x5404).to_le_bytes()].concat();
    assert_eq!(mac[..6], [0x52, 0x54, 0x00, 0xdc, 0x50, 0x01]);
    // Guest memory, in place.
    assert_eq!(rig.read32(RAM), 0x600d_cafe);
    rig.bus.write(RAM + 0x40, &0x1122_3344_5566_7788u64.to_le_bytes());
    // The guest's interrupt: a message to the address that the guest chose.
    rig.bus.interrupt(0);
    // Own memory, seen by the guest.
    rig.bus.store(0x1000, &0x0123_4567_89ab_cdefu64.to_le_bytes());
    // Nothing answers at this address.
    rig.bus.read(0x7f_0000_0000, 4, Tag(2));
    assert_eq!(rig.bus.wait_for(Tag(2), LIMIT), Err(BusError::Unsupported));
    rig.answer(1);
    assert_eq!(rig.guest.wait_for("@memory", LIMIT).unwrap(), "0x1122334455667788");
    assert_eq!(rig.guest.wait_for("@interrupt", LIMIT).unwrap(), "0x0BADBEEF");
    assert_eq!(rig.guest.wait_for("@card", LIMIT).unwrap(), "0x0123456789ABCDEF");
    // Without bus mastering, nothing.
    rig.letter(0x28);
    for address in [ssd, RAM] {
        rig.bus.read(address, 4, Tag(3));
        assert_eq!(rig.bus.wait_for(Tag(3), LIMIT), Err(BusError::Unsupported));
    }
    rig.answer(2);
    // Meanwhile the guest's kernel uses the SSD's other controller.
    assert_eq!(rig.guest.wait_for("@file", LIMIT).unwrap(), "from the disk");
    rig.guest.wait(LIMIT).unwrap();
}

#[test]
fn a_guest_outlives_a_card_that_is_pulled_out() {
    let script = "post 0x20 1; sleep 1
        echo \"@gone $(devmem $MAIL 32)\"; echo \"@command $(od -An -tx1 -j4 -N2 $CARD/config)\"";
    let Some(mut rig) = Rig::boot(script) else { return };
    let ssd = rig.letter(0x10);
    rig.letter(0x20);
    rig.pull();
    rig.bus.write(ssd + 0x24, &[0; 4]);
    rig.bus.read(ssd, 8, Tag(1));
    assert_eq!(rig.bus.wait_for(Tag(1), LIMIT), Err(BusError::Unsupported));
    rig.bus.interrupt(0);
    assert_eq!(rig.guest.wait_for("@gone", LIMIT).unwrap(), "0xFFFFFFFF");
    rig.guest.wait_for("@command", LIMIT).unwrap();
    rig.guest.wait(LIMIT).unwrap();
}
