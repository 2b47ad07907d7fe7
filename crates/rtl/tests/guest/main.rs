//! The card's driver in a guest, with the core in SystemVerilog: SSD -> md5 -> memory, SSD -> aes256-ctr -> SSD, SSD -> md5 -> NIC,
//! NIC -> md5 and NIC -> crc32c -> SSD, byte for byte. Skipped, with the reason, if no virtual server is available.

#[path = "../../../card/tests/qemu/card.rs"]
mod card;
#[path = "../fabric/core.rs"]
#[allow(dead_code, reason = "only the settings are needed here")]
mod core;
#[path = "../../../card/tests/qemu/rig.rs"]
#[allow(dead_code, reason = "the card's own tests have a mailbox, too")]
mod rig;
