//! Loops over arrays, compiled for the vector registers that every processor of the architecture has, and for AVX2 if
//! the machine has it. Both give the same result, bit by bit: no operation is fused or reordered.
//!
//! The unsafe part is the call of a function that needs a feature of the processor.
#![allow(unsafe_code)]

/// A loop. Its `run` must be `#[inline(always)]`, so that it is compiled for its caller.
pub(crate) trait Loop {
    /// Result of the loop.
    type Output;

    /// Runs the loop.
    fn run(self) -> Self::Output;
}

/// Runs a loop with the widest registers that the machine has.
#[inline]
pub(crate) fn run<L: Loop>(task: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor was found to have avx2.
        return unsafe { avx2(task) };
    }
    task.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<L: Loop>(task: L) -> L::Output {
    task.run()
}
