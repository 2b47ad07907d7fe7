//! Keys on the stack: calls that moved or used one may have left copies there.

/// More than the calls below [`stack`]'s caller ever use of the stack.
const DEPTH: usize = 32 * 1024;

/// Overwrites what calls have left on the calling thread's stack, below the caller's own frame.
#[inline(never)]
pub(super) fn stack() {
    let mut left = [0u8; DEPTH];
    // The compiler may not leave the zeros out.
    std::hint::black_box(&mut left);
}
