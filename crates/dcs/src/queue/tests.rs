//! The end of a transfer that a drive writes.

use super::*;
use crate::outcome::Ended;
use dcs_abi::entry::OPCODE_TRANSFER;

/// A transfer that a drive writes to a file ends when the drive has ended, however it ends; one of which the drive
/// has written nothing yet ends at once, and the drive writes nothing.
#[test]
fn a_cancelled_transfer_ends_when_its_drive_has_written() {
    let pair = QueuePair::new(4, Arc::default());
    let begin = || {
        let near = Arc::new(DriveOutcome::default());
        let entry = SubmissionEntry { opcode: OPCODE_TRANSFER, ..Default::default() };
        let command = Command {
            entry,
            chain: OpChain::default(),
            endpoints: Endpoints::default(),
            secret: false,
            near: Some(Arc::clone(&near)),
            plain: None,
            describe: &|_, _| Some(8),
        };
        (pair.submit(command).unwrap(), near)
    };
    let status = |cid| pair.take(cid, |finished| finished.entry.status());
    let (late, writing) = begin();
    assert!(writing.begin_to_write());
    let (early, never) = begin();
    for cid in [late, early] {
        assert!(pair.cancel(cid));
        drop(pair.cancelled(cid, false));
    }
    assert!(!pair.has(Awaited::Done(late)) && status(late).is_none(), "the drive still writes");
    assert_eq!(status(early), Some(Status::Cancelled));
    assert!(!never.begin_to_write());
    drop(pair.landed());
    assert!(!pair.has(Awaited::Done(late)));
    writing.set(Ended::default());
    drop(pair.landed());
    assert_eq!(status(late), Some(Status::Cancelled));
}
