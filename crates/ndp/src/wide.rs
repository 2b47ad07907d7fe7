//! Loops over arrays, compiled for the vector registers that every processor of the architecture has, and for
//! AVX2 where the machine has that. Both come to the same, bit by bit: no operation is fused or reordered.
//!
//! Unsafe here is the call of a function that needs a feature of the processor.
#![allow(unsafe_code)]

/// A loop. Its `run` is to be `#[inline(always)]`, so that it is compiled for whoever calls it.
pub(crate) trait Loop {
    /// What it comes to.
    type Output;

    /// Runs it.
    fn run(self) -> Self::Output;
}

/// Runs it with the widest registers that the machine has.
#[inline]
pub(crate) fn run<L: Loop>(task: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has avx2, as was found.
        return unsafe { avx2(task) };
    }
    task.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<L: Loop>(task: L) -> L::Output {
    task.run()
}
