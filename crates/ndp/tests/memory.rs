//! No context takes more memory than its operator declares: measured by the C library's allocator, which includes the
//! memory of C libraries.
#![cfg(target_env = "gnu")]

use dcs_abi::operator::Operator;
use dcs_ndp::{Context, memory, parameter};

/// Returns the bytes that this process has from the allocator.
fn allocated() -> u64 {
    // SAFETY: it only returns numbers.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Returns the most bytes that a context had at any time while this went through it.
fn most(operator: Operator, parameter: &[u8], pieces: impl Iterator<Item = Vec<u8>>) -> u64 {
    let mut out = vec![0; 64 << 10];
    let mut pieces = pieces.peekable();
    let before = allocated();
    let mut context = Context::new(operator, parameter).unwrap();
    let mut most = allocated().saturating_sub(before);
    while let Some(piece) = pieces.next() {
        let with = piece.capacity() as u64 + pieces.peek().map_or(0, |next| next.capacity() as u64);
        let (mut input, last) = (&piece[..], pieces.peek().is_none());
        loop {
            let progress = context.resize(input, &mut out, last).unwrap();
            most = most.max(allocated().saturating_sub(before + with));
            input = &input[progress.consumed..];
            if progress.finished || (input.is_empty() && !last && progress.produced < out.len()) {
                break;
            }
        }
    }
    most
}

/// Makes incompressible bytes.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

// All in one test: what other tests allocate meanwhile would count.
#[test]
fn no_context_takes_more_memory_than_is_said() {
    let mut told = Vec::new();
    let mut check = |operator: Operator, parameter: &[u8], pieces: &mut dyn Iterator<Item = Vec<u8>>| {
        let (most, said) = (most(operator, parameter, pieces), memory(operator, parameter));
        told.push(format!("{} {parameter:?}: {most} of {said}", operator.name()));
        assert!(most <= said, "{told:#?}");
        // Nor does it declare ten times as much as any context needs, if that is much.
        assert!(said < 1 << 20 || 10 * most > said, "{told:#?}");
    };
    for level in 1..=19 {
        check(Operator::Zstd, &[level], &mut (0..4).map(|at| noise(100_000, at)));
    }
    for level in 0..=9 {
        check(Operator::Gzip, &[level], &mut (0..4).map(|at| noise(100_000, at)));
    }
    let packed = |operator, parameter: Vec<u8>| {
        let whole = noise(1 << 20, 7).repeat(3);
        dcs_ndp::sequential::run(&[(operator, parameter)], &whole).unwrap().output
    };
    check(Operator::Gunzip, &[], &mut packed(Operator::Gzip, vec![]).chunks(99_999).map(<[u8]>::to_vec));
    // A frame whose header requests a window of 128 MiB, with blocks of one repeated byte.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3];
    let blocks = (1u32 << 11) + 8;
    for at in 0..blocks {
        let header = u32::from(at == blocks - 1) | 1 << 1 | (128 << 10) << 3;
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(at as u8);
    }
    check(Operator::Unzstd, &[], &mut std::iter::once(frame.clone()));
    // A smaller limit reserves less, and refuses frames that want more.
    for window in [10, 23, 27, 28] {
        let Ok(mut context) = Context::unzstd(window) else {
            assert_eq!(window, 28);
            continue;
        };
        let refused = context.resize(&frame, &mut [0; 1 << 10], true).is_err();
        assert_eq!(refused, window < 27, "a window of 2^{window}");
        assert_eq!(dcs_ndp::memory_of_unzstd(window), (1 << window) + (1 << 20));
    }
    let line = || (0..10).map(|_| vec![b'a'; 100_000]).chain([b"b\n".to_vec()]);
    for pattern in ["(a|b)*a(a|b){12}$", "^(a|aa)+$", "[^c]{60}d"] {
        let grep = parameter::Grep { pattern: pattern.into(), ..Default::default() };
        let letter = |byte: u8| if byte.is_multiple_of(64) { b'\n' } else { b'a' + byte % 2 };
        let noisy = noise(1 << 20, 3).into_iter().map(letter).collect();
        check(Operator::Grep, &grep.block(), &mut line().chain([noisy]));
    }
    let k = parameter::Knn { element: parameter::Element::U8, k: 65_536, query: vec![1] };
    check(Operator::Knn, &k.block(), &mut std::iter::once(noise(200_000, 5)));
    let bitmap = |page: u16| {
        let mut bytes = 12346u32.to_le_bytes().to_vec();
        bytes.extend_from_slice(&1u32.to_le_bytes());
        bytes.extend_from_slice(&page.to_le_bytes());
        bytes.extend_from_slice(&65_535u16.to_le_bytes());
        bytes.extend_from_slice(&16u32.to_le_bytes());
        bytes.resize(bytes.len() + 8192, 0xff);
        bytes
    };
    let or = parameter::Bitmap { operation: parameter::BitmapOperation::Or, count: false };
    check(Operator::Bitmap, &or.block(), &mut (0..4096).map(bitmap));
    println!("{told:#?}");
}
