//! An operator of dcs in WebAssembly, written in Rust. `docs/wasm.md` describes the interface.
//!
//! Put this file next to yours, implement [`Operator`], and name your type:
//!
//! ```text
//! #[macro_use]
//! mod dcs_operator;
//! dcs_operator!(Mine);
//! ```
//!
//! ```text
//! rustup target add wasm32-unknown-unknown
//! rustc --edition 2024 --target wasm32-unknown-unknown -O -C panic=abort --crate-type cdylib mine.rs
//! ```

#![allow(dead_code)]

use std::cell::UnsafeCell;

/// Bytes of the input and of the output.
pub const BUFFER: usize = 64 * 1024;

/// An operator on a stream.
pub trait Operator: Sized {
    /// Begins a stream. Returns `None` if the operator does not accept the parameter.
    fn start(parameter: &[u8]) -> Option<Self>;

    /// Consumes bytes of `input`, all or some, and writes the result to `output`. Bytes that were not consumed are passed again.
    /// With `last` nothing follows `input`, and `step` is called until the stream is finished. Each call consumes or produces
    /// something, unless it finishes or fails.
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step;

    /// Returns the operator's result when it is finished, as a digest does: up to 64 bytes.
    fn value(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Result of a step.
pub struct Step {
    /// Bytes of the input that were consumed.
    pub consumed: usize,
    /// Bytes of the output that were produced.
    pub produced: usize,
    /// The state of the stream.
    pub state: State,
}

/// State of a stream after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum State {
    /// More may follow.
    GoOn = 0,
    /// All input is consumed and all output produced; only with `last`.
    Finished = 1,
    /// The operator cannot process the data.
    Corrupt = 2,
    /// The data ended too early.
    Truncated = 3,
}

/// The block that dcs reads.
#[repr(C)]
struct Block {
    version: u32,
    input: u32,
    input_size: u32,
    output: u32,
    output_size: u32,
    consumed: u32,
    produced: u32,
    value_size: u32,
    value: [u8; 64],
}

/// An operator with its buffers. A module has one, and one thread.
pub struct Host<T> {
    state: UnsafeCell<Option<T>>,
    input: UnsafeCell<[u8; BUFFER]>,
    output: UnsafeCell<[u8; BUFFER]>,
    block: UnsafeCell<Block>,
}

// SAFETY: a module has one thread, and its functions are not called inside each other.
unsafe impl<T> Sync for Host<T> {}

impl<T: Operator> Host<T> {
    /// Returns the state before any stream.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Host<T> {
        let block = Block {
            version: 1,
            input: 0,
            input_size: BUFFER as u32,
            output: 0,
            output_size: BUFFER as u32,
            consumed: 0,
            produced: 0,
            value_size: 0,
            value: [0; 64],
        };
        Host {
            state: UnsafeCell::new(None),
            input: UnsafeCell::new([0; BUFFER]),
            output: UnsafeCell::new([0; BUFFER]),
            block: UnsafeCell::new(block),
        }
    }

    /// Implements `dcs_operator`: returns the address of the block.
    pub fn operator(&self) -> u32 {
        // SAFETY: nothing else borrows the block.
        let block = unsafe { &mut *self.block.get() };
        block.input = self.input.get() as usize as u32;
        block.output = self.output.get() as usize as u32;
        self.block.get() as usize as u32
    }

    /// Implements `dcs_start`: the parameter is in the input.
    pub fn start(&self, length: u32) -> i32 {
        // SAFETY: nothing else borrows the input or the state.
        let (input, state) = unsafe { (&*self.input.get(), &mut *self.state.get()) };
        *state = input.get(..length as usize).and_then(T::start);
        i32::from(state.is_none())
    }

    /// Implements `dcs_step`.
    pub fn step(&self, length: u32, last: i32) -> i32 {
        // SAFETY: nothing else borrows them.
        let (input, output) = unsafe { (&*self.input.get(), &mut *self.output.get()) };
        // SAFETY: the same.
        let (state, block) = unsafe { (&mut *self.state.get(), &mut *self.block.get()) };
        let (Some(state), Some(input)) = (state, input.get(..length as usize)) else { return -1 };
        let step = state.step(input, output, last != 0);
        (block.consumed, block.produced) = (step.consumed as u32, step.produced as u32);
        if step.state == State::Finished {
            let value = state.value();
            block.value_size = value.len() as u32;
            let kept = value.len().min(block.value.len());
            block.value[..kept].copy_from_slice(&value[..kept]);
        }
        step.state as i32
    }
}

/// Exports an operator.
macro_rules! dcs_operator {
    ($operator:ident) => {
        #[cfg(target_arch = "wasm32")]
        mod dcs_exports {
            static HOST: super::dcs_operator::Host<super::$operator> = super::dcs_operator::Host::new();

            #[unsafe(no_mangle)]
            extern "C" fn dcs_operator() -> u32 {
                HOST.operator()
            }

            #[unsafe(no_mangle)]
            extern "C" fn dcs_start(length: u32) -> i32 {
                HOST.start(length)
            }

            #[unsafe(no_mangle)]
            extern "C" fn dcs_step(length: u32, last: i32) -> i32 {
                HOST.step(length, last)
            }
        }
    };
}
