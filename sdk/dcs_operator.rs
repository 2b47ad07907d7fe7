//! An operator of dcs in WebAssembly, written in Rust. `docs/wasm.md` describes the interface.
//!
//! Put this file beside yours, implement [`Operator`], and name your type:
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
    /// The stream begins. `None`: the parameter is not one that the operator takes.
    fn start(parameter: &[u8]) -> Option<Self>;

    /// Takes in bytes of `input`, all or some, and puts what comes of them into `output`: what was not consumed
    /// comes again. `last`: nothing follows `input`; it is then called until it is finished. Consumes or
    /// produces something each time, unless it is finished or fails.
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step;

    /// What the operator tells when it is finished, as a digest does: up to 64 bytes.
    fn value(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// What a step has done.
pub struct Step {
    /// Bytes of the input that it is done with.
    pub consumed: usize,
    /// Bytes of the output that it has filled.
    pub produced: usize,
    /// The state of the stream.
    pub state: State,
}

/// The state of a stream behind a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum State {
    /// More may follow.
    GoOn = 0,
    /// All is consumed and all is out; only with `last`.
    Finished = 1,
    /// The data are not what this operator takes.
    Corrupt = 2,
    /// The data ended too early.
    Truncated = 3,
}

/// What dcs reads.
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

/// The operator with its buffers. A module has one, and one thread.
pub struct Host<T> {
    state: UnsafeCell<Option<T>>,
    input: UnsafeCell<[u8; BUFFER]>,
    output: UnsafeCell<[u8; BUFFER]>,
    block: UnsafeCell<Block>,
}

// SAFETY: a module has one thread, and its functions are not called inside each other.
unsafe impl<T> Sync for Host<T> {}

impl<T: Operator> Host<T> {
    /// Before any stream.
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

    /// `dcs_operator`: where everything lies.
    pub fn operator(&self) -> u32 {
        // SAFETY: nothing else borrows the block.
        let block = unsafe { &mut *self.block.get() };
        block.input = self.input.get() as usize as u32;
        block.output = self.output.get() as usize as u32;
        self.block.get() as usize as u32
    }

    /// `dcs_start`: the parameter is in the input.
    pub fn start(&self, length: u32) -> i32 {
        // SAFETY: nothing else borrows the input or the state.
        let (input, state) = unsafe { (&*self.input.get(), &mut *self.state.get()) };
        *state = input.get(..length as usize).and_then(T::start);
        i32::from(state.is_none())
    }

    /// `dcs_step`.
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
