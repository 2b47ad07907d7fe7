//! Round trips, for every structure of the command set: bytes to value to bytes, and descriptors built and
//! parsed.

use dcs_abi::STRUCTURES;
use dcs_abi::layout::{Kind, Layout};
use dcs_abi::{CHAIN_MAX, WireError, admin, descriptor, entry, inline, result};
use descriptor::{
    Builder, DESCRIPTOR_MAX, Descriptor, DescriptorHeader, Endpoint, EndpointKind, EndpointRole, Extent,
    NoRoom,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// A structure's layout and its parse-then-emit over a buffer full of rubbish.
#[derive(Debug)]
struct Subject {
    layout: &'static Layout,
    round_trip: fn(&[u8]) -> Result<Vec<u8>, WireError>,
}

macro_rules! subjects {
    ($($module:ident: $repr:ident, $packet:ident, $layout:ident;)*) => {
        [$(Subject {
            layout: &$module::$layout,
            round_trip: |bytes| {
                let value = $module::$repr::parse(&$module::$packet::new_checked(bytes)?)?;
                let mut emitted = vec![0xee; $module::$repr::SIZE];
                value.emit(&mut $module::$packet::new_checked(&mut emitted[..])?);
                assert_eq!(value.to_bytes()[..], emitted);
                let again = $module::$repr::parse(&$module::$packet::new_checked(&emitted[..])?)?;
                assert_eq!(again, value);
                Ok(emitted)
            },
        }),*]
    };
}

static SUBJECTS: [Subject; 14] = subjects! {
    entry: SubmissionEntry, SubmissionPacket, SUBMISSION;
    inline: InlineEntry, InlinePacket, INLINE;
    entry: CompletionEntry, CompletionPacket, COMPLETION;
    descriptor: Extent, ExtentPacket, EXTENT;
    descriptor: Endpoint, EndpointPacket, ENDPOINT;
    descriptor: Parameter, ParameterPacket, PARAMETER;
    descriptor: DescriptorHeader, DescriptorPacket, DESCRIPTOR;
    result: DigestSlot, DigestSlotPacket, DIGEST_SLOT;
    result: StageTimes, StageTimesPacket, STAGE_TIMES;
    result: ResultArea, ResultPacket, RESULT;
    admin: AdminEntry, AdminPacket, ADMIN;
    admin: AdminCompletion, AdminCompletionPacket, ADMIN_COMPLETION;
    admin: SsdIdentity, SsdIdentityPacket, SSD_IDENTITY;
    admin: PacedSending, PacedSendingPacket, PACED_SENDING;
};

#[test]
fn no_structure_is_left_out() {
    assert!(
        SUBJECTS.iter().map(|subject| subject.layout.name).eq(STRUCTURES.iter().map(|layout| layout.name))
    );
}

/// True for each byte that belongs to a field, at whatever depth. Written apart from the parser's own walk.
fn covered(layout: &Layout) -> Vec<bool> {
    let mut mask = vec![false; layout.size];
    for field in layout.fields {
        let part = covered_by(&field.kind);
        mask[field.offset..field.offset + part.len()].copy_from_slice(&part);
    }
    mask
}

fn covered_by(kind: &Kind) -> Vec<bool> {
    match kind {
        Kind::Unsigned(bytes) => vec![true; *bytes],
        Kind::Struct(layout) => covered(layout),
        Kind::Array(element, count) => covered_by(element).repeat(*count),
    }
}

/// A structure and as many bytes as it has.
fn subject_and_bytes() -> impl Strategy<Value = (&'static Subject, Vec<u8>)> {
    (0..SUBJECTS.len()).prop_flat_map(|at| {
        let subject = &SUBJECTS[at];
        (Just(subject), vec(any::<u8>(), subject.layout.size))
    })
}

fn clear_reserved(layout: &Layout, bytes: &mut [u8]) -> Vec<usize> {
    let mask = covered(layout);
    let reserved: Vec<usize> = (0..bytes.len()).filter(|at| !mask[*at]).collect();
    for at in &reserved {
        bytes[*at] = 0;
    }
    reserved
}

proptest! {
    #[test]
    fn bytes_without_reserved_ones_come_back((subject, mut bytes) in subject_and_bytes()) {
        clear_reserved(subject.layout, &mut bytes);
        prop_assert_eq!((subject.round_trip)(&bytes), Ok(bytes.clone()));
        bytes.push(0xee);
        prop_assert!((subject.round_trip)(&bytes).is_ok(), "what follows the structure does not matter");
    }

    #[test]
    fn the_first_reserved_byte_that_is_set_is_named(
        (subject, mut bytes) in subject_and_bytes(),
        picks in vec((any::<prop::sample::Index>(), 1..=255u8), 1..4),
    ) {
        let reserved = clear_reserved(subject.layout, &mut bytes);
        prop_assume!(!reserved.is_empty());
        for (pick, value) in &picks {
            bytes[*pick.get(&reserved)] = *value;
        }
        let offset = picks.iter().map(|(pick, _)| *pick.get(&reserved)).min().expect("at least one");
        prop_assert_eq!((subject.round_trip)(&bytes), Err(WireError::Reserved { offset }));
    }

    #[test]
    fn too_few_bytes_are_refused((subject, bytes) in subject_and_bytes(), cut in any::<prop::sample::Index>()) {
        let (needed, given) = (bytes.len(), cut.index(bytes.len()));
        prop_assert_eq!((subject.round_trip)(&bytes[..given]), Err(WireError::Truncated { needed, given }));
    }

    #[test]
    fn descriptors_parse_to_what_was_built(plan in plan()) {
        let mut buffer = vec![0xee; DESCRIPTOR_MAX];
        let used = plan.build(&mut buffer).expect("plans are far smaller than the largest descriptor");
        let parsed = Descriptor::parse(&buffer[..used]).expect("what the builder wrote");
        for (view, (endpoint, extents)) in [parsed.prefix(), parsed.source(), parsed.destination()].iter().zip(&plan.endpoints) {
            prop_assert_eq!(view.kind as u8, endpoint.kind);
            prop_assert_eq!(view.cache as u8, endpoint.cache);
            prop_assert_eq!(view.zero_copy as u8, endpoint.zero_copy);
            prop_assert_eq!(view.handle, endpoint.handle);
            prop_assert_eq!(&view.extents().collect::<Vec<_>>(), extents);
        }
        for (at, block) in plan.parameters.iter().enumerate() {
            prop_assert_eq!(parsed.parameter(at), &block[..]);
        }
    }

    #[test]
    fn a_builder_with_too_little_room_says_so_and_writes_nothing_outside(
        plan in plan(), cut in any::<prop::sample::Index>(),
    ) {
        let mut buffer = vec![0; DESCRIPTOR_MAX];
        let used = plan.build(&mut buffer).expect("enough room");
        let room = cut.index(used);
        let mut buffer = vec![0xee; used];
        prop_assert_eq!(plan.build(&mut buffer[..room]), Err(NoRoom));
        prop_assert!(buffer[room..].iter().all(|byte| *byte == 0xee));
    }

    #[test]
    fn a_descriptor_that_lost_its_tail_is_refused(plan in plan(), cut in any::<prop::sample::Index>()) {
        let mut buffer = vec![0; DESCRIPTOR_MAX];
        let used = plan.build(&mut buffer).expect("enough room");
        let kept = cut.index(used);
        prop_assert!(Descriptor::parse(&buffer[..kept]).is_err());
        // Also where the header was made to agree: then an extent or a parameter is outside.
        if kept >= DescriptorHeader::SIZE && kept <= used - 8 {
            buffer[4..8].copy_from_slice(&(kept as u32).to_le_bytes());
            prop_assert!(Descriptor::parse(&buffer[..kept]).is_err());
        }
    }
}

/// The parts of a descriptor: prefix, source and destination with their extents, and parameters.
#[derive(Debug)]
struct Plan {
    endpoints: [(Endpoint, Vec<Extent>); 3],
    parameters: [Vec<u8>; CHAIN_MAX],
}

impl Plan {
    fn build(&self, buffer: &mut [u8]) -> Result<usize, NoRoom> {
        let mut builder = Builder::new(buffer)?;
        let roles = [EndpointRole::Prefix, EndpointRole::Source, EndpointRole::Destination];
        for (role, (endpoint, extents)) in roles.into_iter().zip(&self.endpoints) {
            builder.endpoint(role, *endpoint, extents)?;
        }
        for (at, block) in self.parameters.iter().enumerate() {
            builder.parameter(at, block)?;
        }
        Ok(builder.finish())
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let parameters = std::array::from_fn(|_| vec(any::<u8>(), 0..100));
    (prefix(), endpoint(1..=6), endpoint(1..=6), parameters).prop_map(
        |(prefix, source, destination, parameters)| Plan {
            endpoints: [prefix, source, destination],
            parameters,
        },
    )
}

fn prefix() -> impl Strategy<Value = (Endpoint, Vec<Extent>)> {
    let none = Just((Endpoint::default(), Vec::new()));
    let memory = EndpointKind::Memory as u8;
    prop_oneof![none, endpoint(memory..=memory)]
}

fn endpoint(kinds: std::ops::RangeInclusive<u8>) -> impl Strategy<Value = (Endpoint, Vec<Extent>)> {
    (kinds, 0..3u8, 0..3u8, any::<u32>(), extents()).prop_map(|(kind, cache, zero_copy, handle, extents)| {
        let positional = EndpointKind::from_number(kind).is_some_and(EndpointKind::is_positional);
        let endpoint = Endpoint { kind, cache, zero_copy, handle, ..Default::default() };
        (endpoint, if positional { extents } else { Vec::new() })
    })
}

/// Some extents, none of them empty; or the one of an empty file. The highest reaches the end of what 64 bits
/// hold.
fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (any::<u64>(), 1..=u64::MAX >> 8)
        .prop_map(|(offset, length)| Extent { offset: offset.min(u64::MAX - length), length });
    prop_oneof![1 => Just(vec![Extent::default()]), 9 => vec(extent, 1..20)]
}
