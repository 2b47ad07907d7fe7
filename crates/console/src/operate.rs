//! Runs a chain of operators without an engine, as an ordinary program would: over its own buffers, in place if
//! possible. `dcs ops` measures with it, and the demo's host-centric loops are built on it.

use dcs::{Digest, Op, Operator};
use dcs_abi::operator::OperatorKind;
use dcs_ndp::Context;
use std::io;

/// Bytes of the buffer after each operator that changes the length.
const OUTPUT_BUFFER: usize = 64 * 1024;

/// Operators with their state, over one stream. If a chain has `aes256-xts`, data must come in whole data units.
pub struct Operators {
    contexts: Vec<Context>,
    /// Output buffers of the operators that change the length.
    rooms: Vec<Vec<u8>>,
}

impl Operators {
    /// Makes the operators at the beginning of a stream.
    ///
    /// # Errors
    ///
    /// Fails if there is no such operator, or its parameter is wrong.
    pub fn new(ops: &[Op]) -> io::Result<Operators> {
        let context = |op: &Op| {
            let operator = Operator::from_number(op.number()).ok_or(io::ErrorKind::Unsupported)?;
            Context::new(operator, &op.parameter()).map_err(io::Error::other)
        };
        let contexts = ops.iter().map(context).collect::<io::Result<Vec<_>>>()?;
        let room = |context: &Context| match context.operator().kind() {
            OperatorKind::Resize => vec![0; OUTPUT_BUFFER],
            _ => Vec::new(),
        };
        Ok(Operators { rooms: contexts.iter().map(room).collect(), contexts })
    }

    /// Passes the next bytes through the chain, and hands the result to `out`. `last`: nothing follows.
    ///
    /// # Errors
    ///
    /// Fails if an operator refuses the data, or `out` fails.
    pub fn pass(
        &mut self,
        data: &mut [u8],
        last: bool,
        out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        pass(&mut self.contexts, &mut self.rooms, data, last, out)
    }

    /// Returns the name and value of each digest.
    pub fn digests(&self) -> Vec<(String, String)> {
        let digest = |context: &Context| {
            let value = crate::units::to_hex(context.value()?.as_bytes());
            Some((context.operator().name().to_string(), value))
        };
        self.contexts.iter().filter_map(digest).collect()
    }

    /// Returns the value of each digest.
    pub fn values(&self) -> Vec<Vec<u8>> {
        self.contexts.iter().filter_map(|context| Some(context.value()?.as_bytes().to_vec())).collect()
    }
}

/// Returns the name and value of each digest of a transfer.
pub fn digests_of(digests: &[Digest]) -> Vec<(String, String)> {
    digests.iter().map(|digest| (digest.operator.name().to_string(), digest.to_string())).collect()
}

fn pass(
    contexts: &mut [Context],
    rooms: &mut [Vec<u8>],
    data: &mut [u8],
    last: bool,
    out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (Some((context, contexts)), Some((room, rooms))) =
        (contexts.split_first_mut(), rooms.split_first_mut())
    else {
        return if data.is_empty() { Ok(()) } else { out(data) };
    };
    match context.operator().kind() {
        OperatorKind::Digest { .. } => {
            context.absorb(data);
            if last {
                context.check().map_err(io::Error::other)?;
            }
        }
        OperatorKind::InPlace { .. } => context.in_place(data, last).map_err(io::Error::other)?,
        OperatorKind::Resize => {
            return resize(context, room, data, last, &mut |piece, last| {
                pass(contexts, rooms, piece, last, out)
            });
        }
    }
    pass(contexts, rooms, data, last, out)
}

fn resize(
    context: &mut Context,
    room: &mut [u8],
    data: &[u8],
    last: bool,
    out: &mut dyn FnMut(&mut [u8], bool) -> io::Result<()>,
) -> io::Result<()> {
    let mut at = 0;
    loop {
        let progress = context.resize(&data[at..], room, last).map_err(io::Error::other)?;
        at += progress.consumed;
        if progress.produced > 0 || progress.finished {
            out(&mut room[..progress.produced], progress.finished)?;
        }
        let is_through = !last && at == data.len() && progress.produced < room.len();
        if progress.finished || is_through {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_and_its_inverse_give_the_data_back_whatever_the_cuts() {
        let data: Vec<u8> = (0..300_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let cipher = Op::Aes256Ctr { key: [7; 32], counter: [9; 16] };
        let there = [Op::Md5, Op::Gzip { level: 1 }, cipher.clone()];
        let back = [cipher, Op::Gunzip, Op::Md5];
        for cut in [1000, 65536, 1 << 20] {
            let (sent, first) = run(&there, &data, cut);
            let (received, second) = run(&back, &sent, cut / 3);
            assert!(sent.len() < data.len() && received == data);
            assert_eq!(first, second);
        }
    }

    fn run(ops: &[Op], data: &[u8], cut: usize) -> (Vec<u8>, Vec<(String, String)>) {
        let mut operators = Operators::new(ops).unwrap();
        let mut output = Vec::new();
        let mut data = data.to_vec();
        let pieces = data.len().div_ceil(cut);
        for (at, piece) in data.chunks_mut(cut).enumerate() {
            let mut out = |bytes: &[u8]| {
                output.extend_from_slice(bytes);
                Ok(())
            };
            operators.pass(piece, at + 1 == pieces, &mut out).unwrap();
        }
        (output, operators.digests())
    }
}
