//! Compression at level 1 by ISA-L, Intel's storage library, if the machine has it.
//!
//! The library is loaded when the process first compresses, as any shared library is; nothing needs it to build. The
//! declarations here are the part of `isa-l/igzip_lib.h` that is used. It is the same in all releases from 2.24 (2018)
//! on, under the name `libisal.so.2`; a unit test compares it with the header.
//!
//! It doesn't implement decompression: this library is C and assembly, and compressed streams come from strangers.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::{Call, Deflate};
use crate::OperatorError;

/// Name of the library, with the number of its binary interface.
const NAME: &CStr = c"libisal.so.2";

/// Function that releases before 2.24 lack, which have other structures under the same name.
const SINCE_2_24: &CStr = c"isal_write_gzip_header";

/// Environment variable that keeps ISA-L out if it is `zlib-rs`.
const SWITCH: &str = "DCS_GZIP";

/// `ISAL_DEF_LVL1_SMALL`: blocks of 16 Ki symbols. Larger ones take memory, are no faster, and adapt less.
const LEVEL_BUFFER: usize = (4 + 16 + 64) * 1024;

const LEVEL: u32 = 1;
const IGZIP_GZIP: u16 = 1;
const COMP_OK: c_int = 0;
const ZSTATE_END: u32 = 11;

/// `struct isal_zstream`, with `internal_state` declared as far as it is read.
#[repr(C, align(64))]
struct ZStream {
    next_in: *const u8,
    avail_in: u32,
    total_in: u32,
    next_out: *mut u8,
    avail_out: u32,
    total_out: u32,
    hufftables: *mut c_void,
    level: u32,
    level_buf_size: u32,
    level_buf: *mut u8,
    end_of_stream: u16,
    flush: u16,
    gzip_flag: u16,
    hist_bits: u16,
    positions: [u32; 5],
    state: u32,
    rest: [u8; 82_296],
}

/// Memory of one stream, about 165 KiB; small streams touch little of it.
#[repr(C)]
struct Memory {
    stream: ZStream,
    level_buffer: [u8; LEVEL_BUFFER],
}

/// Functions of the library that are used.
pub(super) struct Library {
    isal_deflate_init: unsafe extern "C" fn(*mut ZStream),
    isal_deflate: unsafe extern "C" fn(*mut ZStream) -> c_int,
}

/// Returns the library if the machine has it and it is wanted. The first call decides.
pub(super) fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let wanted = || std::env::var_os(SWITCH).is_none_or(|choice| choice != super::ZLIB_RS);
    LIBRARY.get_or_init(|| if wanted() { load() } else { None }).as_ref()
}

fn load() -> Option<Library> {
    // SAFETY: the name is a C string; the library's initialisation has no side effects. The handle is never
    // closed.
    let handle = NonNull::new(unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })?;
    // SAFETY: the handle is open, the name is a C string.
    let symbol = |name: &CStr| NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) });
    symbol(SINCE_2_24)?;
    let (init, deflate) = (symbol(c"isal_deflate_init")?, symbol(c"isal_deflate")?);
    // SAFETY: the library's name and the presence of `SINCE_2_24` identify the library, and so the types of its
    // functions.
    Some(unsafe {
        Library {
            isal_deflate_init: mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut ZStream)>(init),
            isal_deflate: mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut ZStream) -> c_int>(
                deflate,
            ),
        }
    })
}

/// A member that is being compressed.
pub(super) struct Stream {
    library: &'static Library,
    /// Memory, owned as by a box. The stream holds a pointer to the level buffer, but a box would claim to be the only
    /// way to it.
    memory: NonNull<Memory>,
}

// SAFETY: the memory has one owner, and the library keeps no other state.
unsafe impl Send for Stream {}

impl Stream {
    pub(super) fn new(library: &'static Library) -> Stream {
        Stream::within(library, Box::new_uninit())
    }

    fn within(library: &'static Library, memory: Box<MaybeUninit<Memory>>) -> Stream {
        let memory = NonNull::from(Box::leak(memory)).cast::<Memory>();
        let at = memory.as_ptr();
        // SAFETY: the memory has the layout of the library's structure. `isal_deflate_init` writes every field that is
        // read before it is written; the level buffer needs no preparation.
        unsafe {
            (library.isal_deflate_init)(&raw mut (*at).stream);
            (*at).stream.level = LEVEL;
            (*at).stream.level_buf = (&raw mut (*at).level_buffer).cast();
            (*at).stream.level_buf_size = LEVEL_BUFFER as u32;
            (*at).stream.gzip_flag = IGZIP_GZIP;
        }
        Stream { library, memory }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it came from a box of this type, and nothing uses it any more.
        drop(unsafe { Box::from_raw(self.memory.as_ptr().cast::<MaybeUninit<Memory>>()) });
    }
}

impl Deflate for Stream {
    fn call(&mut self, input: &[u8], output: &mut [u8], finish: bool) -> Result<Call, OperatorError> {
        let too_much = |_| OperatorError::InternalError;
        let avail_in = u32::try_from(input.len()).map_err(too_much)?;
        let avail_out = u32::try_from(output.len()).map_err(too_much)?;
        // SAFETY: the stream is initialised and owned by this call. The library reads `avail_in` bytes at `next_in`,
        // which it does not keep, and writes up to `avail_out` bytes at `next_out`. It changes the level buffer, whose
        // size the stream states.
        unsafe {
            let stream = &raw mut (*self.memory.as_ptr()).stream;
            ((*stream).next_in, (*stream).avail_in) = (input.as_ptr(), avail_in);
            ((*stream).next_out, (*stream).avail_out) = (output.as_mut_ptr(), avail_out);
            (*stream).end_of_stream = finish.into();
            if (self.library.isal_deflate)(stream) != COMP_OK {
                return Err(OperatorError::InternalError);
            }
            Ok(Call {
                consumed: (avail_in - (*stream).avail_in) as usize,
                produced: (avail_out - (*stream).avail_out) as usize,
                ended: (*stream).state == ZSTATE_END,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};
    use std::path::Path;
    use std::process::Command;

    /// Prints the numbers above, as the header defines them.
    const PROGRAM: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include <isa-l/igzip_lib.h>
#define FIELD(name) offsetof(struct isal_zstream, name)
int main(void) {
    printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu ", sizeof(struct isal_zstream), FIELD(next_in), FIELD(avail_in),
           FIELD(next_out), FIELD(avail_out), FIELD(level), FIELD(level_buf_size), FIELD(level_buf),
           FIELD(end_of_stream), FIELD(gzip_flag), FIELD(internal_state.state));
    printf("%d %d %d %d", (int)(ISAL_DEF_LVL1_SMALL), IGZIP_GZIP, COMP_OK, ZSTATE_END);
}
"#;

    /// The level buffer is not prepared, so its former content must not matter.
    #[test]
    fn what_the_memory_held_before_changes_nothing() {
        let Some(library) = library() else { return eprintln!("not tested: ISA-L is not installed") };
        let words =
            ["error ", "GET /index.html ", "200 ", "a", "\n", "2026-11-22T04:24:00Z ", "user=", "17 "];
        let mut random = dcs_testkit::Random(7);
        let data: Vec<u8> =
            std::iter::repeat_with(|| random.pick(&words).bytes()).take(60_000).flatten().collect();
        for length in [1000, 40_000, data.len()] {
            for piece in [7000, 65_536, 1 << 20] {
                let packed = [0u8, 0x55, 0xff, 0x01, 0x80].map(|fill| {
                    let mut memory: Box<MaybeUninit<Memory>> = Box::new_uninit();
                    // SAFETY: all of it is written, and it is of plain bytes and pointers that are set before
                    // they are used.
                    unsafe { memory.as_mut_ptr().cast::<u8>().write_bytes(fill, mem::size_of::<Memory>()) };
                    let mut stream = Stream::within(library, memory);
                    let (mut out, mut room) = (Vec::new(), vec![0; 1 << 20]);
                    let pieces = data[..length].chunks(piece);
                    let last = pieces.len() - 1;
                    for (at, mut piece) in pieces.enumerate() {
                        loop {
                            let call = stream.call(piece, &mut room, at == last).unwrap();
                            out.extend_from_slice(&room[..call.produced]);
                            piece = &piece[call.consumed..];
                            if piece.is_empty() && (at < last || call.ended) {
                                break;
                            }
                        }
                    }
                    out
                });
                assert!(packed.iter().all(|one| *one == packed[0]), "{length} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn the_declarations_are_those_of_the_header() {
        if !Path::new("/usr/include/isa-l/igzip_lib.h").exists() {
            eprintln!("not compared: the header of ISA-L is not installed (Debian: libisal-dev)");
            return;
        }
        let folder = std::env::temp_dir().join(format!("dcs-isal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("layout.c"), folder.join("layout"));
        std::fs::write(&source, PROGRAM).unwrap();
        assert!(Command::new("cc").arg(&source).arg("-o").arg(&program).status().unwrap().success());
        let printed = Command::new(&program).output().unwrap().stdout;
        std::fs::remove_dir_all(&folder).unwrap();
        macro_rules! offsets {
            ($($field:ident)*) => { [$(offset_of!(ZStream, $field)),*] };
        }
        let mut ours = vec![size_of::<ZStream>().next_multiple_of(64)];
        ours.extend(offsets!(next_in avail_in next_out avail_out level level_buf_size level_buf end_of_stream gzip_flag state));
        ours.extend([LEVEL_BUFFER, IGZIP_GZIP.into(), COMP_OK as usize, ZSTATE_END as usize]);
        let mut theirs: Vec<usize> =
            String::from_utf8(printed).unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        theirs[0] = theirs[0].next_multiple_of(64); // ours is aligned to a line of cache
        assert_eq!(ours, theirs);
    }
}
