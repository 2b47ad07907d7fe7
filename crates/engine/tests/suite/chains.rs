//! Chains and sizes that tests share.

use crate::rig::host::Chain;
use dcs_abi::operator::{OPERATORS, Operator};
use dcs_engine::Config;
use dcs_ndp::parameter;

/// A parameter that the operator takes.
pub fn parameter_of(operator: Operator) -> Vec<u8> {
    match operator {
        Operator::Aes256Ctr => parameter::aes256_ctr(&[7; 32], &[0xff; 16]).to_vec(),
        Operator::Aes256Xts | Operator::Aes256XtsDecrypt => {
            let key = core::array::from_fn(|at| at as u8);
            parameter::aes256_xts(&key, 512, 3).to_vec()
        }
        // 5000 bytes, signed by nobody.
        Operator::AwsChunked => {
            let (decoded_length, checksum) = (5000, Some(Operator::Crc32c));
            parameter::AwsChunked { decoded_length, trailers: true, checksum, signature: None }.block()
        }
        Operator::BlowfishCtr => parameter::blowfish_ctr(&[7; 16], &[0xff; 8]),
        Operator::Knn => {
            parameter::Knn { element: parameter::Element::U8, k: 9, query: (0..10).collect() }.block()
        }
        Operator::Slice => parameter::slice(100, 3000).to_vec(),
        Operator::Filter => b"-n:#2!=x".to_vec(),
        Operator::Aggregate => b"count".to_vec(),
        Operator::Grep => parameter::Grep { pattern: "[a-m]x?$".into(), ..Default::default() }.block(),
        _ => Vec::new(),
    }
}

/// A chain of these operators.
pub fn chain(operators: &[Operator]) -> Chain {
    operators.iter().map(|operator| (*operator, parameter_of(*operator))).collect()
}

/// Small blocks, so that small data take many.
pub fn small() -> Config {
    Config {
        block_size: 4096,
        blocks: 36,
        window: 3,
        cached_blocks: 20,
        commands: 32,
        queues: 4,
        ..Config::default()
    }
}

/// As few of everything as an engine can have.
pub fn tiny() -> Config {
    let units = OPERATORS.iter().map(|info| (info.operator, 1)).collect();
    Config { block_size: 4096, blocks: 18, window: 1, commands: 4, queues: 1, units, ..Config::default() }
}
