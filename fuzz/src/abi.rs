//! Targets for the parsers of `dcs-abi`.

use dcs_abi::descriptor::{
    Builder, DESCRIPTOR_MAX, Descriptor, DescriptorHeader, Endpoint, EndpointKind, EndpointRole,
    EndpointView, Extent, NoRoom, OPEN_END,
};
use dcs_abi::entry::{
    COMPLETION, CompletionEntry, CompletionPacket, FLAG_INLINE, LENGTH_TO_END, OPCODE_TRANSFER, SUBMISSION,
    SubmissionEntry, SubmissionPacket,
};
use dcs_abi::inline::{self, InlineEntry};
use dcs_abi::layout::Layout;
use dcs_abi::{CHAIN_MAX, Wire, WireError};

/// Checks that an entry that parses is emitted to the same bytes, and that one that does not has the fault that the error names.
pub fn entry(data: &[u8]) {
    submission(data);
    completion(data);
    if let Some(bytes) = data.first_chunk() {
        inline(bytes);
        // Else the flag would hide what lies behind it.
        let mut flagged = *bytes;
        flagged[0] = OPCODE_TRANSFER;
        flagged[60] |= FLAG_INLINE as u8;
        inline(&flagged);
    }
}

/// Checks that an inline entry with valid ends means the same as a descriptor that parses, and is rebuilt from it.
fn inline(bytes: &[u8; 64]) {
    let Ok((entry, Some(inline))) = inline::parse(bytes) else { return };
    assert_eq!(inline.to_bytes(), *bytes);
    let Ok(plain) = inline.plain() else { return assert!(inline.ends().is_err()) };
    let mut descriptor = [0; DescriptorHeader::SIZE + 2 * Extent::SIZE];
    let used = plain.words(|at, word| descriptor[at * 8..][..8].copy_from_slice(&word.to_le_bytes()));
    let parsed = Descriptor::parse(&descriptor[..used]).expect("what an inline entry stands for is sound");
    let (source, destination) = inline.ends().expect("they were sound before");
    for (view, end) in [(parsed.source(), source), (parsed.destination(), destination)] {
        check_endpoint(&view);
        assert_eq!((view.kind, view.handle, view.immutable), (end.kind, end.handle, end.immutable));
        assert_eq!((view.cache, view.zero_copy), (end.cache, end.zero_copy));
        assert!(view.extents().eq(end.extent));
    }
    let open = source.extent.is_some_and(|extent| extent.offset + extent.length == OPEN_END);
    if (inline.nvme_flags, inline.nsid, open) == (0, 0, false) {
        assert_eq!(InlineEntry::new(&entry, &plain), Some(inline));
    }
}

fn submission(data: &[u8]) {
    match SubmissionPacket::new_checked(data).and_then(|packet| SubmissionEntry::parse(&packet)) {
        Err(error) => refused(&SUBMISSION, data, error),
        Ok(entry) => {
            let mut emitted = [0xee; 64];
            entry.emit(&mut SubmissionPacket::new_checked(&mut emitted[..]).unwrap());
            assert_eq!(emitted, data[..64]);
            assert_eq!(entry.to_bytes(), emitted);
            let (sq_id, cid) = entry.cancel_target();
            assert_eq!(SubmissionEntry::cancel(entry.cid, sq_id, cid).cancel_target(), (sq_id, cid));
        }
    }
}

fn completion(data: &[u8]) {
    match CompletionPacket::new_checked(data).and_then(|packet| CompletionEntry::parse(&packet)) {
        Err(error) => refused(&COMPLETION, data, error),
        Ok(entry) => {
            assert_eq!(entry.to_bytes(), data[..16]);
            let mut same = entry;
            same.set_status(entry.status(), entry.phase());
            assert_eq!(same, entry, "a status comes back, known or not");
            assert_eq!(CompletionEntry::if_new(data, entry.phase()), Ok(Some(entry)));
            assert_eq!(CompletionEntry::if_new(data, !entry.phase()), Ok(None));
        }
    }
}

fn refused(layout: &Layout, data: &[u8], error: WireError) {
    match error {
        WireError::Truncated { needed, given } => {
            assert_eq!((needed, given), (layout.size, data.len()));
            assert!(given < needed);
        }
        WireError::Reserved { offset } => {
            assert!(!layout.covers(offset) && data[offset] != 0, "byte {offset} of {}", layout.name);
        }
    }
}

/// Checks that a descriptor that parses is inside the bytes, adds up, and is the same after rebuilding.
pub fn descriptor(data: &[u8]) {
    let Ok(parsed) = Descriptor::parse(data) else { return };
    for view in endpoints(&parsed) {
        check_endpoint(&view);
    }
    assert_ne!(parsed.source().kind, EndpointKind::None);
    assert_ne!(parsed.destination().kind, EndpointKind::None);
    assert!((0..CHAIN_MAX).all(|at| parsed.parameter(at).len() <= data.len() - DescriptorHeader::SIZE));
    assert_eq!(parsed.parameter(CHAIN_MAX), b"");
    check_rebuilt(&parsed);
}

fn endpoints<'a>(parsed: &Descriptor<'a>) -> [EndpointView<'a>; 3] {
    [parsed.prefix(), parsed.source(), parsed.destination()]
}

fn check_endpoint(view: &EndpointView<'_>) {
    let total: u128 = view.extents().map(|extent| u128::from(extent.length)).sum();
    assert!(total < u128::from(LENGTH_TO_END));
    assert_eq!(view.extents().len() > 0, view.kind.is_positional());
    let endless = matches!(view.kind, EndpointKind::Flow | EndpointKind::Stream | EndpointKind::Paced);
    assert_eq!(u128::from(view.length()), if endless { u128::from(LENGTH_TO_END) } else { total });
    for extent in view.extents() {
        assert!(extent.offset.checked_add(extent.length).is_some());
        assert!(extent.length > 0 || view.extents().len() == 1);
    }
}

fn check_rebuilt(parsed: &Descriptor<'_>) {
    let mut buffer = vec![0xee; DESCRIPTOR_MAX];
    match rebuild(parsed, &mut buffer) {
        Ok(used) => {
            assert_eq!(used, rebuilt_size(parsed));
            let again = Descriptor::parse(&buffer[..used]).expect("what the builder wrote parses");
            for (one, other) in endpoints(parsed).into_iter().zip(endpoints(&again)) {
                assert_eq!(one, other);
                assert!(one.extents().eq(other.extents()));
            }
            assert!((0..CHAIN_MAX).all(|at| parsed.parameter(at) == again.parameter(at)));
        }
        // A descriptor's blocks may share bytes, the builder's may not.
        Err(NoRoom) => assert!(rebuilt_size(parsed) > DESCRIPTOR_MAX),
    }
}

fn rebuild(parsed: &Descriptor<'_>, buffer: &mut [u8]) -> Result<usize, NoRoom> {
    let mut builder = Builder::new(buffer)?;
    let roles = [EndpointRole::Prefix, EndpointRole::Source, EndpointRole::Destination];
    for (role, view) in roles.into_iter().zip(endpoints(parsed)) {
        let (kind, cache, zero_copy) = (view.kind as u8, view.cache as u8, view.zero_copy as u8);
        let endpoint = Endpoint {
            kind,
            cache,
            zero_copy,
            immutable: view.immutable.into(),
            handle: view.handle,
            rate: view.pace.rate,
            window_us: view.pace.window_us,
            pacing: view.pace.pacing as u8,
            ..Endpoint::ZERO
        };
        builder.endpoint(role, endpoint, &view.extents().collect::<Vec<_>>())?;
    }
    for at in 0..CHAIN_MAX {
        builder.parameter(at, parsed.parameter(at))?;
    }
    Ok(builder.finish())
}

fn rebuilt_size(parsed: &Descriptor<'_>) -> usize {
    let extents: usize = endpoints(parsed).iter().map(|view| view.extents().len() * Extent::SIZE).sum();
    let parameters: usize = (0..CHAIN_MAX).map(|at| parsed.parameter(at).len().next_multiple_of(8)).sum();
    DescriptorHeader::SIZE + extents + parameters
}
