//! Kernels of the GPU: the engine's operators, on its memory.

use crate::parameters::Parameters;
use dcs_abi::operator::Operator;
use dcs_fabric::gpu::{Kernels, Launch};
use dcs_ndp::Context;
use std::collections::HashMap;
use std::time::Duration;

/// Returns the key and the counter block for all encryption, on any unit.
pub fn key() -> [u8; 48] {
    let mut key = [0x5a; 48];
    key[32..].fill(0x17);
    key
}

/// Returns the parameter block of an operator.
pub fn parameter(operator: Operator) -> Vec<u8> {
    match operator {
        Operator::Aes256Ctr => {
            let (key, counter) = (key(), [0x17; 16]);
            dcs_ndp::parameter::aes256_ctr(&key[..32].try_into().expect("32 bytes"), &counter).to_vec()
        }
        _ => Vec::new(),
    }
}

/// The operators as kernels. A kernel's number is the operator's; its argument is the stream that a launch continues.
pub struct Operators {
    parameters: Parameters,
    streams: HashMap<u64, Context>,
}

impl Operators {
    /// Returns the operators, as fast as `parameters` say.
    pub fn new(parameters: Parameters) -> Operators {
        Operators { parameters, streams: HashMap::new() }
    }
}

impl Kernels for Operators {
    fn run(&mut self, launch: &Launch, data: &mut [u8]) -> Option<(Duration, Vec<u8>)> {
        let number = u8::try_from(launch.kernel).ok()?;
        let operator = Operator::from_number(number)?;
        let context = match self.streams.entry(launch.argument) {
            std::collections::hash_map::Entry::Occupied(held) => held.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(Context::new(operator, &parameter(operator)).ok()?)
            }
        };
        if operator.digest_size() > 0 {
            context.absorb(data);
        } else {
            context.in_place(data, launch.last).ok()?;
        }
        let output = context.value().filter(|_| launch.last).map(|value| value.as_bytes().to_vec());
        if launch.last {
            self.streams.remove(&launch.argument);
        }
        let time = data.len() as u64 * self.parameters.unit_ps(operator) / 1000;
        Some((Duration::from_nanos(time), output.unwrap_or_default()))
    }
}
