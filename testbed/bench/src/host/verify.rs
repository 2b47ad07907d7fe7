//! Checks what a contender delivered by undoing its chain from the end: the output must lead back to the input, and each digest
//! must match the data at its place.

use super::job::Job;
use super::library::libraries;
use crate::harness::pool::difference;
use crate::operate::Operators;
use crate::units::to_hex;
use dcs::{Op, Operator};
use dcs_abi::operator::OperatorKind;
use std::io;

/// Returns the error in an object, `None` if it is right.
pub fn object(
    job: &Job,
    original: &[u8],
    delivered: &[u8],
    digests: &[String],
) -> io::Result<Option<String>> {
    let ops = job.ops().map_err(|failure| io::Error::other(failure.line))?;
    let mut data = delivered.to_vec();
    let mut digests = digests.to_vec();
    for op in ops.iter().rev() {
        let Some(operator) = Operator::from_number(op.number()) else { continue };
        if let OperatorKind::Digest { .. } = operator.kind() {
            let (claimed, real) = (digests.pop().unwrap_or_default(), digest(op, &data)?);
            if claimed != real {
                return Ok(Some(format!("its {} is {real}, not {claimed:?}", operator.name())));
            }
            continue;
        }
        data = match undo(op, &mut data) {
            Ok(data) => data,
            Err(error) => return Ok(Some(format!("its {} cannot be undone: {error}", operator.name()))),
        };
    }
    Ok(difference(&data, original))
}

/// Computes a digest, with OpenSSL if it was loaded.
fn digest(op: &Op, data: &[u8]) -> io::Result<String> {
    let mut chain = libraries().chain(std::slice::from_ref(op))?;
    chain.begin()?;
    chain.pass(&mut data.to_vec(), true, &mut |_| Ok(()))?;
    Ok(chain.digests()?.first().map(|digest| to_hex(digest)).unwrap_or_default())
}

fn undo(op: &Op, data: &mut [u8]) -> io::Result<Vec<u8>> {
    let inverse = match op.clone() {
        Op::Aes256Xts { key, unit_size, first_unit } => Op::Aes256XtsDecrypt { key, unit_size, first_unit },
        Op::Aes256XtsDecrypt { key, unit_size, first_unit } => Op::Aes256Xts { key, unit_size, first_unit },
        Op::Gzip { .. } => Op::Gunzip,
        Op::Zstd { .. } => Op::Unzstd,
        // Counter mode is its own inverse.
        other => other,
    };
    let mut output = Vec::new();
    Operators::new(&[inverse])?.pass(data, true, &mut |bytes| {
        output.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(job: &Job, original: &[u8]) -> (Vec<u8>, Vec<String>) {
        let mut operators = Operators::new(&job.ops().unwrap()).unwrap();
        let mut delivered = Vec::new();
        let mut keep = |bytes: &[u8]| {
            delivered.extend_from_slice(bytes);
            Ok(())
        };
        operators.pass(&mut original.to_vec(), true, &mut keep).unwrap();
        (delivered, operators.values().iter().map(|value| to_hex(value)).collect())
    }

    #[test]
    fn a_wrong_byte_or_digest_is_found_and_right_ones_are_not_blamed() {
        let original: Vec<u8> = (0..70_000u32).flat_map(|n| (n / 3).to_le_bytes()).collect();
        for name in [
            "file>socket",
            "file>md5>socket",
            "file>md5,aes256-ctr,sha256>socket",
            "file>crc32c,gzip,md5>socket",
            "socket>aes256-xts,zstd>file",
        ] {
            let job = Job::parse(name).unwrap();
            let (delivered, digests) = done(&job, &original);
            let verdict =
                |delivered: &[u8], digests: &[String]| object(&job, &original, delivered, digests).unwrap();
            assert_eq!(verdict(&delivered, &digests), None, "{name}");
            for at in [0, delivered.len() / 2, delivered.len() - 1] {
                let mut wrong = delivered.clone();
                wrong[at] ^= 1;
                assert!(verdict(&wrong, &digests).is_some(), "{name}, byte {at}");
            }
            assert!(verdict(&delivered[..delivered.len() - 1], &digests).is_some(), "{name}, cut");
            for at in 0..digests.len() {
                let mut wrong = digests.clone();
                let other = if wrong[at].starts_with('0') { "1" } else { "0" };
                wrong[at].replace_range(0..1, other);
                assert!(verdict(&delivered, &wrong).is_some(), "{name}, digest {at}");
                wrong.remove(at);
                assert!(verdict(&delivered, &wrong).is_some(), "{name}, without digest {at}");
            }
        }
    }
}
