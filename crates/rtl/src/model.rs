//! Verilator's model: its ports, its clock, and the core's structures, bit by bit.
#![expect(unsafe_code, reason = "the model is C++")]
#![allow(dead_code, missing_docs, clippy::unnecessary_cast)] // What is generated is whole, used or not.

use core::ffi::c_void;

include!(concat!(env!("OUT_DIR"), "/model.rs"));

unsafe extern "C" {
    fn dcs_rtl_new() -> *mut c_void;
    fn dcs_rtl_free(sim: *mut c_void);
    fn dcs_rtl_settle(sim: *mut c_void, input: *const In, output: *mut Out);
    fn dcs_rtl_edge(sim: *mut c_void, output: *mut Out);
}

/// A model, the inputs that it has, and what it puts out by them: they are evaluated where they have changed.
pub struct Model {
    sim: *mut c_void,
    input: In,
    output: Out,
}

// SAFETY: the model has no thread of its own, and nothing of it is shared with another one.
unsafe impl Send for Model {}

impl Model {
    pub fn new() -> Model {
        // SAFETY: makes a model and gives it away.
        let sim = unsafe { dcs_rtl_new() };
        let mut model = Model { sim, input: In::default(), output: Out::default() };
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
        unsafe { dcs_rtl_settle(self.sim, &self.input, &mut self.output) };
    }

    /// The clock's edge. The inputs stay what they are.
    pub fn edge(&mut self) {
        // SAFETY: as above.
        unsafe { dcs_rtl_edge(self.sim, &mut self.output) };
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: it was made by `dcs_rtl_new` and is used no more.
        unsafe { dcs_rtl_free(self.sim) };
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
    for at in 0..width {
        let (word, bit) = (((low + at) / 32) as usize, (low + at) % 32);
        words[word] = words[word] & !(1 << bit) | ((value >> at & 1) as u32) << bit;
    }
}

fn join(words: &[u32; 2]) -> u64 {
    u64::from(words[0]) | u64::from(words[1]) << 32
}
