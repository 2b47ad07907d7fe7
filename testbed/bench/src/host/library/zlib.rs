//! zlib's deflate, loaded at run time and used as C programs use it: one state a thread, reset for each object.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::io;
use std::ptr::{null, null_mut};

const NAMES: [&str; 2] = ["libz.so.1", "libz.so"];
const DEFLATED: c_int = 8;
/// Largest window, in gzip's format.
const WINDOW_GZIP: c_int = 15 + 16;
/// The default of `deflateInit`.
const MEMORY_LEVEL: c_int = 8;
const DEFAULT_STRATEGY: c_int = 0;
const NO_FLUSH: c_int = 0;
const FINISH: c_int = 4;
const OK: c_int = 0;
const STREAM_END: c_int = 1;
/// `Z_BUF_ERROR`: no progress was possible, which is not a failure.
const BUFFER_ERROR: c_int = -5;

/// `z_stream` of `zlib.h`.
#[repr(C)]
struct Stream {
    next_in: *const u8,
    avail_in: c_uint,
    total_in: c_ulong,
    next_out: *mut u8,
    avail_out: c_uint,
    total_out: c_ulong,
    message: *const c_char,
    state: *mut c_void,
    allocate: *const c_void,
    free: *const c_void,
    opaque: *mut c_void,
    data_type: c_int,
    adler: c_ulong,
    reserved: c_ulong,
}

type Init =
    unsafe extern "C" fn(*mut Stream, c_int, c_int, c_int, c_int, c_int, *const c_char, c_int) -> c_int;

/// Functions of the library, which is never unloaded, so they stay valid.
#[derive(Clone, Copy)]
struct Functions {
    version: unsafe extern "C" fn() -> *const c_char,
    init: Init,
    deflate: unsafe extern "C" fn(*mut Stream, c_int) -> c_int,
    reset: unsafe extern "C" fn(*mut Stream) -> c_int,
    end: unsafe extern "C" fn(*mut Stream) -> c_int,
}

pub struct Zlib(Functions);

/// A compressor. zlib keeps a pointer to its stream, so the stream is boxed.
pub struct Deflate {
    functions: Functions,
    stream: Box<Stream>,
}

/// Outcome of one call.
pub struct Step {
    pub consumed: usize,
    pub produced: usize,
    pub finished: bool,
}

impl Zlib {
    pub fn load() -> Option<Zlib> {
        // SAFETY: zlib has no initialisers.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        let library: &'static Library = Box::leak(Box::new(library));
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the type is that of the declaration in zlib.h.
                *unsafe { library.get($name) }.ok()?
            };
        }
        Some(Zlib(Functions {
            version: symbol!(b"zlibVersion"),
            init: symbol!(b"deflateInit2_"),
            deflate: symbol!(b"deflate"),
            reset: symbol!(b"deflateReset"),
            end: symbol!(b"deflateEnd"),
        }))
    }

    /// Returns the version, such as `zlib 1.2.13`.
    pub fn version(&self) -> String {
        // SAFETY: it returns a constant string of the library.
        format!("zlib {}", unsafe { CStr::from_ptr((self.0.version)()) }.to_string_lossy())
    }

    pub fn deflate(&self, level: u8) -> io::Result<Deflate> {
        let mut stream = Box::new(Stream {
            next_in: null(),
            avail_in: 0,
            total_in: 0,
            next_out: null_mut(),
            avail_out: 0,
            total_out: 0,
            message: null(),
            state: null_mut(),
            allocate: null(),
            free: null(),
            opaque: null_mut(),
            data_type: 0,
            adler: 0,
            reserved: 0,
        });
        let size = size_of::<Stream>() as c_int;
        // SAFETY: the stream is as zlib.h declares it, which it checks by version and size; no allocator is
        // its own.
        let result = unsafe {
            let version = (self.0.version)();
            let level = c_int::from(level);
            (self.0.init)(
                &mut *stream,
                level,
                DEFLATED,
                WINDOW_GZIP,
                MEMORY_LEVEL,
                DEFAULT_STRATEGY,
                version,
                size,
            )
        };
        match result {
            OK => Ok(Deflate { functions: self.0, stream }),
            code => Err(io::Error::other(format!("zlib: {code}"))),
        }
    }
}

impl Deflate {
    pub fn begin(&mut self) -> io::Result<()> {
        // SAFETY: the stream was initialised.
        match unsafe { (self.functions.reset)(&mut *self.stream) } {
            OK => Ok(()),
            code => Err(io::Error::other(format!("zlib: {code}"))),
        }
    }

    /// Consumes input and fills the output until one of them is used up.
    pub fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> io::Result<Step> {
        let length = |bytes: usize| c_uint::try_from(bytes).map_err(io::Error::other);
        let stream = &mut *self.stream;
        (stream.next_in, stream.avail_in) = (input.as_ptr(), length(input.len())?);
        (stream.next_out, stream.avail_out) = (output.as_mut_ptr(), length(output.len())?);
        // SAFETY: the stream was initialised; its pointers are valid for as many bytes as it says, and not
        // used after.
        let code = unsafe { (self.functions.deflate)(stream, if last { FINISH } else { NO_FLUSH }) };
        if !matches!(code, OK | STREAM_END | BUFFER_ERROR) {
            return Err(io::Error::other(format!("zlib: {code}")));
        }
        Ok(Step {
            consumed: input.len() - stream.avail_in as usize,
            produced: output.len() - stream.avail_out as usize,
            finished: code == STREAM_END,
        })
    }
}

impl Drop for Deflate {
    fn drop(&mut self) {
        // SAFETY: the stream was initialised, and is not used any more.
        unsafe { (self.functions.end)(&mut *self.stream) };
    }
}
