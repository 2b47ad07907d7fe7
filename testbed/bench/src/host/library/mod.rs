//! Operators of the ordinary loops: OpenSSL's and zlib's, loaded at run time. Where these are missing, or lack an operator (the
//! CRCs), the loops use those of dcs.
//!
//! | module | contents |
//! |---|---|
//! | `openssl` | digests and AES through EVP |
//! | `zlib` | gzip |

mod openssl;
mod zlib;

use crate::operate::Operators;
use dcs::{Op, Operator};
use dcs_abi::operator::OperatorKind;
use openssl::OpenSsl;
use std::io;
use std::sync::OnceLock;
use zlib::Zlib;

/// Bytes of the buffer behind a compressor.
const OUTPUT_BUFFER: usize = 64 << 10;

/// Libraries that were found.
pub struct Libraries {
    openssl: Option<OpenSsl>,
    zlib: Option<Zlib>,
}

/// Returns the libraries, which are loaded once.
pub fn libraries() -> &'static Libraries {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    LIBRARIES.get_or_init(|| Libraries { openssl: OpenSsl::load(), zlib: Zlib::load() })
}

/// Returns no libraries: the loops use dcs's own operators.
pub fn own() -> &'static Libraries {
    static OWN: Libraries = Libraries { openssl: None, zlib: None };
    &OWN
}

/// A chain that processes objects one after the other, on one thread. Contexts are reused.
pub struct Chain {
    stages: Vec<Stage>,
    room: Vec<u8>,
}

enum Stage {
    Digest(openssl::Digest),
    Cipher([u8; 32], [u8; 16], openssl::Cipher),
    Deflate(zlib::Deflate),
    /// An operator of dcs, created anew for each object.
    Own(Op, Operators),
}

impl Libraries {
    /// Names the libraries that a chain's operators are from.
    pub fn names(&self, ops: &[Op]) -> String {
        let mut names: Vec<String> = Vec::new();
        for op in ops {
            let name = match Operator::from_number(op.number()) {
                Some(operator) if openssl::has(operator) => self.openssl.as_ref().map(OpenSsl::version),
                Some(Operator::Gzip) => self.zlib.as_ref().map(Zlib::version),
                _ => None,
            };
            let name = name.unwrap_or_else(|| "dcs-ndp".into());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    pub fn chain(&'static self, ops: &[Op]) -> io::Result<Chain> {
        let stages = ops.iter().map(|op| self.stage(op)).collect::<io::Result<Vec<_>>>()?;
        Ok(Chain { stages, room: vec![0; OUTPUT_BUFFER] })
    }

    fn stage(&'static self, op: &Op) -> io::Result<Stage> {
        let operator = Operator::from_number(op.number()).ok_or(io::ErrorKind::Unsupported)?;
        match (op, &self.openssl, &self.zlib) {
            (Op::Aes256Ctr { key, counter }, Some(openssl), _) => {
                Ok(Stage::Cipher(*key, *counter, openssl.cipher()?))
            }
            (Op::Gzip { level }, _, Some(zlib)) => Ok(Stage::Deflate(zlib.deflate(*level)?)),
            (_, Some(openssl), _) if openssl::has(operator) => Ok(Stage::Digest(openssl.digest(operator)?)),
            _ => Ok(Stage::Own(op.clone(), Operators::new(std::slice::from_ref(op))?)),
        }
    }
}

impl Chain {
    /// Begins a new object.
    pub fn begin(&mut self) -> io::Result<()> {
        for stage in &mut self.stages {
            match stage {
                Stage::Digest(digest) => digest.begin()?,
                Stage::Cipher(key, counter, cipher) => cipher.begin(key, counter)?,
                Stage::Deflate(deflate) => deflate.begin()?,
                Stage::Own(op, operators) => *operators = Operators::new(std::slice::from_ref(op))?,
            }
        }
        Ok(())
    }

    /// Passes the next bytes through the chain, and hands out the result. `last` is true if nothing follows.
    pub fn pass(
        &mut self,
        data: &mut [u8],
        last: bool,
        out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        pass(&mut self.stages, &mut self.room, data, last, out)
    }

    /// Returns the digests of the object, in the order of the chain.
    pub fn digests(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut digests = Vec::new();
        for stage in &mut self.stages {
            match stage {
                Stage::Digest(digest) => digests.push(digest.end()?),
                Stage::Own(_, operators) => digests.extend(operators.values()),
                _ => {}
            }
        }
        Ok(digests)
    }
}

fn resizes(op: &Op) -> bool {
    Operator::from_number(op.number()).is_some_and(|operator| operator.kind() == OperatorKind::Resize)
}

fn pass(
    stages: &mut [Stage],
    room: &mut Vec<u8>,
    data: &mut [u8],
    last: bool,
    out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let Some((stage, stages)) = stages.split_first_mut() else {
        return if data.is_empty() { Ok(()) } else { out(data) };
    };
    match stage {
        Stage::Digest(digest) => digest.update(data)?,
        Stage::Cipher(_, _, cipher) => cipher.apply(data)?,
        Stage::Deflate(deflate) => {
            // The rest of the chain needs a buffer of its own, if it has another compressor.
            let mut mine = std::mem::take(room);
            mine.resize(OUTPUT_BUFFER, 0);
            let mut at = 0;
            loop {
                let step = deflate.step(&data[at..], &mut mine, last)?;
                at += step.consumed;
                if step.produced > 0 || step.finished {
                    pass(stages, room, &mut mine[..step.produced], step.finished, out)?;
                }
                if step.finished || (!last && at == data.len() && step.produced < OUTPUT_BUFFER) {
                    *room = mine;
                    return Ok(());
                }
            }
        }
        Stage::Own(op, operators) if resizes(op) => {
            let mut output = Vec::new();
            operators.pass(data, last, &mut |bytes| {
                output.extend_from_slice(bytes);
                Ok(())
            })?;
            return pass(stages, room, &mut output, last, out);
        }
        Stage::Own(_, operators) => operators.pass(data, last, &mut |_| Ok(()))?,
    }
    pass(stages, room, data, last, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the libraries with the operators of dcs, for all ways to split the data.
    #[test]
    fn the_libraries_do_what_dcs_does() {
        let digest = |operator: Operator| Op::Raw { number: operator as u8, parameter: Vec::new() };
        let cipher = Op::Aes256Ctr { key: [7; 32], counter: [9; 16] };
        let chains = [
            vec![Op::Md5, cipher, digest(Operator::Sha256)],
            vec![digest(Operator::Sha1), digest(Operator::Sha512), digest(Operator::Crc32c)],
            vec![],
        ];
        let data: Vec<u8> = (0..100_003u32).flat_map(|n| (n / 5).to_le_bytes()).collect();
        for ops in &chains {
            let mut chain = libraries().chain(ops).unwrap();
            let mut own = Operators::new(ops).unwrap();
            let mut expected = Vec::new();
            let mut keep = |bytes: &[u8]| {
                expected.extend_from_slice(bytes);
                Ok(())
            };
            own.pass(&mut data.clone(), true, &mut keep).unwrap();
            for cut in [1000, 65_536, 1 << 20] {
                let output = whole(&mut chain, &data, cut);
                assert!(output == expected);
                assert_eq!(chain.digests().unwrap(), own.values());
            }
        }
    }

    #[test]
    fn gzip_opens_again() {
        let data: Vec<u8> = (0..300_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut chain = libraries().chain(&[Op::Md5, Op::Gzip { level: 1 }, Op::Md5]).unwrap();
        for cut in [1000, 1 << 20] {
            let mut packed = whole(&mut chain, &data, cut);
            let digests = chain.digests().unwrap();
            let mut after = Operators::new(&[Op::Md5, Op::Gunzip, Op::Md5]).unwrap();
            let mut opened = Vec::new();
            let mut keep = |bytes: &[u8]| {
                opened.extend_from_slice(bytes);
                Ok(())
            };
            after.pass(&mut packed, true, &mut keep).unwrap();
            assert!(packed.len() < data.len() && opened == data);
            assert_eq!(after.values(), [digests[1].clone(), digests[0].clone()]);
        }
    }

    fn whole(chain: &mut Chain, data: &[u8], cut: usize) -> Vec<u8> {
        let mut output = Vec::new();
        let mut data = data.to_vec();
        chain.begin().unwrap();
        let pieces = data.len().div_ceil(cut);
        for (at, piece) in data.chunks_mut(cut).enumerate() {
            let mut keep = |bytes: &[u8]| {
                output.extend_from_slice(bytes);
                Ok(())
            };
            chain.pass(piece, at + 1 == pieces, &mut keep).unwrap();
        }
        output
    }
}
