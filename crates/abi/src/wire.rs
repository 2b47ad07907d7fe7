//! Little-endian fields, and the macro that turns one definition into packet, repr and layout table.

use crate::layout::{Kind, Layout};

/// Reason why bytes are not a structure of this command set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than the structure has.
    Truncated {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// A reserved byte is not zero.
    Reserved {
        /// Its offset from the start of the structure.
        offset: usize,
    },
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            WireError::Truncated { needed, given } => write!(f, "structure of {needed} bytes cut at {given}"),
            WireError::Reserved { offset } => write!(f, "reserved byte at offset {offset} is not zero"),
        }
    }
}

impl core::error::Error for WireError {}

/// A value with a fixed place in a structure.
///
/// `get` and `put` are given exactly [`Wire::SIZE`] bytes by the code that [`wire_struct!`] makes.
pub trait Wire: Copy {
    /// Bytes on the wire.
    const SIZE: usize;
    /// Its kind, for generators.
    const KIND: Kind;
    /// All bytes zero.
    const ZERO: Self;
    /// Reads the value.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the value.
    fn put(&self, bytes: &mut [u8]);
}

macro_rules! unsigned {
    ($($ty:ty),*) => {$(
        impl Wire for $ty {
            const SIZE: usize = core::mem::size_of::<$ty>();
            const KIND: Kind = Kind::Unsigned(core::mem::size_of::<$ty>());
            const ZERO: Self = 0;
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                let mut raw = [0; core::mem::size_of::<$ty>()];
                raw.copy_from_slice(bytes);
                <$ty>::from_le_bytes(raw)
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
unsigned!(u8, u16, u32, u64);

/// A 48-bit unsigned integer; larger values are cut to [`U48::MAX`] when made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct U48(u64);

impl U48 {
    /// 2^48 - 1.
    pub const MAX: u64 = (1 << 48) - 1;

    /// The value, or the largest one where it does not fit.
    pub const fn saturating(value: u64) -> Self {
        U48(if value > Self::MAX { Self::MAX } else { value })
    }

    /// The value as a `u64`.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl Wire for U48 {
    const SIZE: usize = 6;
    const KIND: Kind = Kind::Unsigned(6);
    const ZERO: Self = U48(0);
    #[inline]
    fn get(bytes: &[u8]) -> Self {
        let mut raw = [0; 8];
        raw[..6].copy_from_slice(bytes);
        U48(u64::from_le_bytes(raw))
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.to_le_bytes()[..6]);
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    const SIZE: usize = T::SIZE * N;
    const KIND: Kind = Kind::Array(&T::KIND, N);
    const ZERO: Self = [T::ZERO; N];
    #[inline]
    fn get(bytes: &[u8]) -> Self {
        core::array::from_fn(|i| T::get(&bytes[i * T::SIZE..(i + 1) * T::SIZE]))
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        for (value, chunk) in self.iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
            value.put(chunk);
        }
    }
}

/// A mask of a structure's reserved bytes, also inside nested structures: 0xff there, 0 in fields.
pub(crate) const fn reserved_mask<const SIZE: usize>(layout: &Layout) -> [u8; SIZE] {
    let mut mask = [0xff; SIZE];
    clear_fields(layout, &mut mask, 0);
    mask
}

const fn clear_fields(layout: &Layout, mask: &mut [u8], base: usize) {
    let mut at = 0;
    while at < layout.fields.len() {
        let field = &layout.fields[at];
        clear_kind(&field.kind, mask, base + field.offset);
        at += 1;
    }
}

const fn clear_kind(kind: &Kind, mask: &mut [u8], base: usize) {
    match kind {
        Kind::Unsigned(size) => {
            let mut at = 0;
            while at < *size {
                mask[base + at] = 0;
                at += 1;
            }
        }
        Kind::Struct(layout) => clear_fields(layout, mask, base),
        Kind::Array(element, count) => {
            let mut at = 0;
            while at < *count {
                clear_kind(element, mask, base + at * element.size());
                at += 1;
            }
        }
    }
}

/// Refuses a reserved byte that is not zero.
pub(crate) fn check_reserved<const SIZE: usize>(mask: &[u8; SIZE], bytes: &[u8]) -> Result<(), WireError> {
    let bytes = &bytes[..SIZE];
    // The common case without a branch a byte; where it is depends on nothing that matters then.
    if bytes.iter().zip(mask).fold(0, |set, (byte, mask)| set | byte & mask) == 0 {
        return Ok(());
    }
    let offset = bytes.iter().zip(mask).position(|(byte, mask)| byte & mask != 0).unwrap_or(0);
    Err(WireError::Reserved { offset })
}

/// Defines a structure once: packet (checked view), repr (value), layout table.
macro_rules! wire_struct {
    (
        $(#[doc = $doc:literal])+
        $repr:ident, $packet:ident, $table:ident, $cname:literal, $size:literal {
            $( $(#[doc = $fdoc:literal])+ $field:ident : $ty:ty = $offset:literal ),* $(,)?
        }
    ) => {
        #[doc = concat!("Layout of `struct ", $cname, "`.")]
        pub const $table: $crate::layout::Layout = $crate::layout::Layout {
            name: $cname,
            size: $size,
            doc: &[$($doc),+],
            fields: &[$($crate::layout::Field {
                name: stringify!($field),
                offset: $offset,
                kind: <$ty as $crate::Wire>::KIND,
                doc: &[$($fdoc),+],
            }),*],
        };
        const _: () = assert!($table.is_sound(), concat!($cname, ": fields overlap or overrun"));

        $(#[doc = $doc])+
        #[doc = ""]
        #[doc = concat!("The value of a `struct ", $cname, "`; reserved bytes are zero.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $repr {
            $($(#[doc = $fdoc])+ pub $field: $ty,)*
        }

        impl Default for $repr {
            fn default() -> Self {
                <Self as $crate::Wire>::ZERO
            }
        }

        impl $crate::Wire for $repr {
            const SIZE: usize = $size;
            const KIND: $crate::layout::Kind = $crate::layout::Kind::Struct(&$table);
            const ZERO: Self = Self { $($field: <$ty as $crate::Wire>::ZERO,)* };
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                // One check of the length for all fields.
                let bytes = &bytes[..$size];
                Self { $($field: <$ty as $crate::Wire>::get(&bytes[$offset..$offset + <$ty as $crate::Wire>::SIZE]),)* }
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                let bytes = &mut bytes[..$size];
                $(<$ty as $crate::Wire>::put(&self.$field, &mut bytes[$offset..$offset + <$ty as $crate::Wire>::SIZE]);)*
            }
        }

        impl $repr {
            /// Bytes of the structure.
            pub const SIZE: usize = $size;

            /// Reads a value from a packet, after checking that its reserved bytes are zero.
            ///
            /// # Errors
            ///
            /// [`WireError::Reserved`](crate::WireError::Reserved).
            pub fn parse<T: AsRef<[u8]>>(packet: &$packet<T>) -> Result<Self, $crate::WireError> {
                packet.check_reserved()?;
                Ok(<Self as $crate::Wire>::get(packet.as_bytes()))
            }

            /// Writes the value; reserved bytes become zero.
            pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut $packet<T>) {
                let bytes = &mut packet.0.as_mut()[..$size];
                bytes.fill(0);
                <Self as $crate::Wire>::put(self, bytes);
            }

            /// The value as bytes.
            #[inline]
            pub fn to_bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                <Self as $crate::Wire>::put(self, &mut bytes);
                bytes
            }
        }

        #[doc = concat!("A view of bytes as a `struct ", $cname, "`. Its length was checked when it was made: no accessor panics.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $packet<T: AsRef<[u8]>>(T);

        impl From<[u8; $size]> for $packet<[u8; $size]> {
            fn from(bytes: [u8; $size]) -> Self {
                Self(bytes)
            }
        }

        impl<T: AsRef<[u8]>> $packet<T> {
            /// Takes the bytes as a view if there are enough of them.
            ///
            /// # Errors
            ///
            /// [`WireError::Truncated`](crate::WireError::Truncated).
            pub fn new_checked(bytes: T) -> Result<Self, $crate::WireError> {
                let given = bytes.as_ref().len();
                if given < $size {
                    return Err($crate::WireError::Truncated { needed: $size, given });
                }
                Ok(Self(bytes))
            }

            /// The bytes.
            #[inline]
            pub fn as_bytes(&self) -> &[u8] {
                &self.0.as_ref()[..$size]
            }

            /// Checks that the reserved bytes are zero.
            ///
            /// # Errors
            ///
            /// [`WireError::Reserved`](crate::WireError::Reserved).
            #[inline]
            pub fn check_reserved(&self) -> Result<(), $crate::WireError> {
                const MASK: [u8; $size] = $crate::wire::reserved_mask(&$table);
                $crate::wire::check_reserved(&MASK, self.as_bytes())
            }

            $($(#[doc = $fdoc])+ pub fn $field(&self) -> $ty {
                <$ty as $crate::Wire>::get(&self.0.as_ref()[$offset..$offset + <$ty as $crate::Wire>::SIZE])
            })*
        }
    };
}
pub(crate) use wire_struct;
