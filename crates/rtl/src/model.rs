//! Verilator's models: their ports, their clock, and the core's structures, bit by bit.
#![expect(unsafe_code, reason = "the models are C++")]
#![allow(dead_code, missing_docs, clippy::unnecessary_cast)] // What is generated is whole, used or not.

use core::ffi::c_void;

include!(concat!(env!("OUT_DIR"), "/model.rs"));

/// What the shim of a model has, for a module with these inputs and outputs, but the clock.
pub struct Functions<In, Out> {
    new: unsafe extern "C" fn() -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    settle: unsafe extern "C" fn(*mut c_void, *const In, *mut Out),
    edge: unsafe extern "C" fn(*mut c_void, *mut Out),
}

/// A model, the inputs that it has, and what it puts out by them: they are evaluated where they have changed.
pub struct Model<In: 'static, Out: 'static> {
    functions: &'static Functions<In, Out>,
    sim: *mut c_void,
    input: In,
    output: Out,
}

// SAFETY: the model has no thread of its own, and nothing of it is shared with another one.
unsafe impl<In: Send, Out: Send> Send for Model<In, Out> {}

impl<In: Copy + Default + PartialEq, Out: Copy + Default> Model<In, Out> {
    pub fn new(functions: &'static Functions<In, Out>) -> Model<In, Out> {
        // SAFETY: makes a model and gives it away.
        let sim = unsafe { (functions.new)() };
        let mut model = Model { functions, sim, input: In::default(), output: Out::default() };
        model.evaluate();
        model
    }

    /// Lets these inputs have their effect; returns the outputs before the next edge of the clock.
    pub fn settle(&mut self, input: &In) -> Out {
        if self.input != *input {
            self.input = *input;
            self.evaluate();
        }
        self.output
    }

    fn evaluate(&mut self) {
        // SAFETY: the model is ours alone; both structures have the layout that the shim was made with, from the same ports.
        unsafe { (self.functions.settle)(self.sim, &self.input, &mut self.output) };
    }

    /// The clock's edge. The inputs stay what they are.
    pub fn edge(&mut self) {
        // SAFETY: as above.
        unsafe { (self.functions.edge)(self.sim, &mut self.output) };
    }
}

impl<In, Out> Drop for Model<In, Out> {
    fn drop(&mut self) {
        // SAFETY: it was made by the same model's `new` and is used no more.
        unsafe { (self.functions.free)(self.sim) };
    }
}

/// So many bits from this one on, at most 64.
fn get(words: &[u32], low: u32, width: u32) -> u64 {
    let bit = |at: u32| u64::from(words[(at / 32) as usize] >> (at % 32) & 1);
    let mut value = 0;
    let mut at = 0;
    while at < width {
        // The rest of a word at a time.
        let from = low + at;
        let count = (32 - from % 32).min(width - at);
        let mask = if count == 32 { u32::MAX } else { (1 << count) - 1 };
        value |= u64::from(words[(from / 32) as usize] >> (from % 32) & mask) << at;
        debug_assert_eq!(value >> at & 1, bit(from));
        at += count;
    }
    value
}

/// Sets so many bits from this one on.
fn put(words: &mut [u32], low: u32, width: u32, value: u64) {
    let mut at = 0;
    while at < width {
        // The rest of a word at a time.
        let from = low + at;
        let count = (32 - from % 32).min(width - at);
        let mask = if count == 32 { u32::MAX } else { (1 << count) - 1 };
        let (word, shift) = ((from / 32) as usize, from % 32);
        words[word] = words[word] & !(mask << shift) | ((value >> at) as u32 & mask) << shift;
        at += count;
    }
}

fn join(words: &[u32; 2]) -> u64 {
    u64::from(words[0]) | u64::from(words[1]) << 32
}
