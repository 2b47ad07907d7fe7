//! Checks what must be true of a completed command, however it ended.

use super::Rig;
use super::device::Device;
use super::host::{Chain, Completed, Submitted, Transfer};
use super::short::Core;
use super::work::slot;
use dcs_abi::entry::FLAG_DURABLE;
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::result::DigestSlot;
use dcs_abi::status::{Stage, Status};
use dcs_ndp::sequential;

impl<E: Core> Rig<E> {
    /// The end of a command.
    pub fn done(&self, ticket: usize) -> &Completed {
        let command = &self.submitted[ticket];
        command.done.as_ref().unwrap_or_else(|| panic!("not completed: {command:?}"))
    }

    /// The end of a command, if it has come.
    pub fn done_yet(&self, ticket: usize) -> Option<&Completed> {
        self.submitted[ticket].done.as_ref()
    }

    /// The end of a command: its status, the stage that failed and the operator's place.
    pub fn end(&self, ticket: usize) -> (Status, Stage, u8) {
        let entry = &self.done(ticket).entry;
        (entry.status(), entry.stage(), entry.stage_index)
    }

    /// Checks a transfer that has its destination to itself against the plain sequential program; tells its
    /// status.
    pub fn verify(&self, ticket: usize) -> Status {
        let (command, done) = (&self.submitted[ticket], self.done(ticket));
        let transfer = command.transfer.as_ref().expect("only transfers are verified");
        let result = done.result.as_ref().expect("a result was asked for");
        let written = self.written(command, transfer, result.bytes_out);
        assert_eq!(done.entry.delivered.value(), result.bytes_out);
        let status = done.entry.status();
        assert!(!matches!(status, Status::Unknown(_)), "{status:?} is not defined");
        if status.is_success() {
            self.verify_success(command, transfer, done, &written);
        } else {
            self.verify_failure(command, transfer, done, &written);
        }
        status
    }

    /// The first bytes that a command put at its destination; of a stream, all that it put there, and it says
    /// so.
    fn written(&self, command: &Submitted, transfer: &Transfer, delivered: u64) -> Vec<u8> {
        let Some(device) = self.devices.get(transfer.destination.handle as usize) else { return Vec::new() };
        if !transfer.destination.kind.is_positional() {
            let written = device.bytes()[command.already..].to_vec();
            assert_eq!(written.len() as u64, delivered, "what is delivered is what a stream took");
            return written;
        }
        let mut written = Vec::new();
        for extent in &transfer.destination.extents {
            let from = (extent.offset as usize).min(device.bytes().len());
            let to = from + (device.bytes().len() - from).min(extent.length as usize);
            written.extend_from_slice(&device.bytes()[from..to]);
        }
        assert!(written.len() as u64 >= delivered, "delivered is never more than what is there");
        written.truncate(delivered as usize);
        written
    }

    fn verify_success(&self, command: &Submitted, transfer: &Transfer, done: &Completed, written: &[u8]) {
        let plain = sequential::run(&transfer.chain, &command.input);
        let plain = plain.expect("the plain program succeeds where the engine does");
        assert!(written == plain.output, "other bytes than the plain program's");
        let result = done.result.as_ref().expect("verify looked");
        assert_eq!(result.bytes_in, command.input.len() as u64);
        assert_eq!((result.stage, result.stage_index, result.errno), (0, 0, 0));
        for (at, digest) in result.digests.iter().enumerate() {
            let expected =
                plain.digests.get(at).copied().flatten().map_or_else(DigestSlot::default, |value| {
                    // What an operator found in the data covers those that came out of it.
                    let found = transfer.chain[at].0.kind() == OperatorKind::Resize;
                    let before = &transfer.chain[..at + usize::from(found)];
                    slot(transfer.chain[at].0 as u8, &value, covered(before, &command.input))
                });
            assert_eq!(*digest, expected, "digest {at}");
        }
        if transfer.flags & FLAG_DURABLE != 0
            && let Device::File { flushes, .. } = &self.devices[transfer.destination.handle as usize]
        {
            assert!(*flushes > 0, "durable means flushed");
        }
    }

    fn verify_failure(&self, command: &Submitted, transfer: &Transfer, done: &Completed, written: &[u8]) {
        let (stage, index) = (done.entry.stage(), done.entry.stage_index as usize);
        assert_ne!(stage, Stage::None, "every failure names its stage");
        assert!(if stage == Stage::Operator { index < transfer.chain.len() } else { index == 0 });
        let result = done.result.as_ref().expect("verify looked");
        // A source that was cut off on the way makes another stream of some operators; what was delivered is
        // a prefix of that one.
        let inputs = [&command.input[..], self.input_now(transfer, &command.input)];
        let outputs: Vec<_> = inputs.iter().filter_map(|input| output_of(&transfer.chain, input)).collect();
        let right = outputs.iter().any(|output| output.starts_with(written));
        assert!(right || outputs.is_empty(), "what was delivered is a right prefix");
        for (at, digest) in result.digests.iter().enumerate() {
            verify_partial(&transfer.chain, at, &command.input, digest);
        }
    }

    /// The part of the input before the first byte that a file no longer holds.
    fn input_now<'a>(&self, transfer: &Transfer, input: &'a [u8]) -> &'a [u8] {
        if !transfer.source.kind.is_positional() {
            return input;
        }
        let held = self.devices.get(transfer.source.handle as usize).map_or(0, |device| device.bytes().len());
        let mut length: u64 = transfer.prefix.iter().flat_map(|end| &end.extents).map(|at| at.length).sum();
        for extent in &transfer.source.extents {
            let there = extent.length.min((held as u64).saturating_sub(extent.offset));
            length += there;
            if there < extent.length {
                break;
            }
        }
        &input[..input.len().min(length as usize)]
    }
}

/// The output of a chain for an input; where the data end inside a data unit, for what comes before that
/// unit. Nothing where an operator cannot take them at all.
fn output_of(chain: &[(Operator, Vec<u8>)], input: &[u8]) -> Option<Vec<u8>> {
    let chain = &without_expectations(chain)[..];
    let (at, _) = match sequential::run(chain, input) {
        Ok(plain) => return Some(plain.output),
        Err(error) => error,
    };
    let before = sequential::run(&chain[..at], input).ok()?.output;
    let whole = before.len() / 512 * 512;
    Some(sequential::run(&chain[at..], &before[..whole]).ok()?.output)
}

/// The chain whose digests may have any value.
fn without_expectations(chain: &[(Operator, Vec<u8>)]) -> Chain {
    let any = |(operator, parameter): &(Operator, Vec<u8>)| match operator.kind() {
        OperatorKind::Digest { .. } => (*operator, Vec::new()),
        _ => (*operator, parameter.clone()),
    };
    chain.iter().map(any).collect()
}

/// Bytes that reach the operator after `chain`.
fn covered(chain: &[(Operator, Vec<u8>)], input: &[u8]) -> u64 {
    sequential::run(chain, input).map_or(0, |plain| plain.output.len() as u64)
}

/// A digest that a failed command tells is that of the bytes it says it covers.
fn verify_partial(chain: &Chain, at: usize, input: &[u8], digest: &DigestSlot) {
    if digest.operator == 0 {
        return;
    }
    assert_eq!(digest.operator, chain[at].0 as u8);
    let resizes = chain[..at].iter().any(|(operator, _)| operator.kind() == OperatorKind::Resize);
    let covered = digest.covered as usize;
    if resizes || covered > input.len() {
        return;
    }
    if let Ok(plain) = sequential::run(&without_expectations(&chain[..=at]), &input[..covered])
        && let Some(value) = plain.digests[at]
    {
        assert_eq!(*digest, slot(digest.operator, &value, digest.covered), "digest {at} of a failed command");
    }
}
