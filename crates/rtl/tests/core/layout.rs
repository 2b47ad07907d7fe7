//! The core's structures, bit by bit.

use dcs_rtl::{OperationId, Transfer};

#[test]
fn a_structure_survives_its_bits() {
    let transfer = Transfer {
        owner: 3,
        cid: 0xfedc,
        length: 0x8123_4567_89ab_cdef,
        result: u64::MAX - 5,
        chain: 0x76_5432,
        rate: 1 << 63 | 1,
        ..Transfer::default()
    };
    assert_eq!(Transfer::unpack(transfer.pack()), transfer);
    let id = OperationId { blockless: 1, serial: 0x5a, row: 17, command: 9, at: 5 };
    assert_eq!(OperationId::unpack(id.pack()), id);
    assert_eq!(id.pack() & 7, 5, "the last field has the lowest bits");
}
