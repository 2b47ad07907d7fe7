//! OpenSSL's libcrypto through EVP, loaded at run time and used as C programs use it: one context a thread, reused for all
//! objects.
#![allow(unsafe_code)]

use dcs::Operator;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::io;
use std::ptr::null_mut;

const NAMES: [&str; 3] = ["libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"];
/// `OPENSSL_VERSION`, the argument of `OpenSSL_version`.
const VERSION: c_int = 0;
/// `EVP_MAX_MD_SIZE`.
const DIGEST_MAX: usize = 64;

type Object = *mut c_void;

/// Functions, as `openssl/evp.h` declares them. The library is never unloaded, so they stay valid.
#[derive(Clone, Copy)]
struct Functions {
    version: unsafe extern "C" fn(c_int) -> *const c_char,
    digest_new: unsafe extern "C" fn() -> Object,
    digest_free: unsafe extern "C" fn(Object),
    digest_init: unsafe extern "C" fn(Object, *const c_void, Object) -> c_int,
    digest_update: unsafe extern "C" fn(Object, *const c_void, usize) -> c_int,
    digest_final: unsafe extern "C" fn(Object, *mut c_uchar, *mut c_uint) -> c_int,
    cipher_new: unsafe extern "C" fn() -> Object,
    cipher_free: unsafe extern "C" fn(Object),
    cipher_init: unsafe extern "C" fn(Object, *const c_void, Object, *const c_uchar, *const c_uchar) -> c_int,
    cipher_update: unsafe extern "C" fn(Object, *mut c_uchar, *mut c_int, *const c_uchar, c_int) -> c_int,
    /// `EVP_MD` and `EVP_CIPHER` objects, which are constants of the library.
    md5: usize,
    sha1: usize,
    sha256: usize,
    sha512: usize,
    aes_256_ctr: usize,
}

pub struct OpenSsl(Functions);

/// An `EVP_MD_CTX`.
pub struct Digest {
    functions: Functions,
    context: Object,
    algorithm: usize,
    begun: bool,
}

/// An `EVP_CIPHER_CTX` of AES-256 in counter mode.
pub struct Cipher {
    functions: Functions,
    context: Object,
    begun: bool,
}

/// Returns true if the library has such an operator.
pub fn has(operator: Operator) -> bool {
    use Operator::{Aes256Ctr, Md5, Sha1, Sha256, Sha512};
    matches!(operator, Md5 | Sha1 | Sha256 | Sha512 | Aes256Ctr)
}

impl OpenSsl {
    pub fn load() -> Option<OpenSsl> {
        // SAFETY: libcrypto's initialisers are made for being loaded at run time.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // Never unloaded: it registers exit handlers, and the functions are copied out.
        let library: &'static Library = Box::leak(Box::new(library));
        Functions::find(library).map(OpenSsl)
    }

    /// Returns the version, such as `OpenSSL 3.0.19`.
    pub fn version(&self) -> String {
        // SAFETY: it returns a constant string of the library.
        let text = unsafe { CStr::from_ptr((self.0.version)(VERSION)) };
        text.to_string_lossy().split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    pub fn digest(&self, operator: Operator) -> io::Result<Digest> {
        let functions = self.0;
        let algorithm = match operator {
            Operator::Md5 => functions.md5,
            Operator::Sha1 => functions.sha1,
            Operator::Sha256 => functions.sha256,
            Operator::Sha512 => functions.sha512,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        // SAFETY: it takes nothing; the result is checked.
        let context = unsafe { (functions.digest_new)() };
        if context.is_null() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Digest { functions, context, algorithm, begun: false })
    }

    pub fn cipher(&self) -> io::Result<Cipher> {
        // SAFETY: it takes nothing; the result is checked.
        let context = unsafe { (self.0.cipher_new)() };
        if context.is_null() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Cipher { functions: self.0, context, begun: false })
    }
}

impl Functions {
    fn find(library: &'static Library) -> Option<Functions> {
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the type is that of the declaration in openssl/evp.h and openssl/crypto.h.
                *unsafe { library.get($name) }.ok()?
            };
        }
        let algorithm = |name: &[u8]| -> Option<usize> {
            // SAFETY: EVP_md5 and its like take nothing and return a constant of the library.
            let get: unsafe extern "C" fn() -> *const c_void = *unsafe { library.get(name) }.ok()?;
            // SAFETY: as above.
            Some(unsafe { get() } as usize).filter(|address| *address != 0)
        };
        // From 3.0 on, fetching an object once saves a search by name for each new object.
        let fetched = |name: &[u8], what: &CStr, old: &[u8]| -> Option<usize> {
            type Fetch = unsafe extern "C" fn(Object, *const c_char, *const c_char) -> *const c_void;
            // SAFETY: the type is that of EVP_MD_fetch and EVP_CIPHER_fetch.
            let fetch = unsafe { library.get::<Fetch>(name) }.ok();
            let object = fetch.map_or(0, |fetch| {
                // SAFETY: no library context and no properties are the defaults; the name is a C string.
                (unsafe { fetch(null_mut(), what.as_ptr(), std::ptr::null()) }) as usize
            });
            if object != 0 { Some(object) } else { algorithm(old) }
        };
        Some(Functions {
            version: symbol!(b"OpenSSL_version"),
            digest_new: symbol!(b"EVP_MD_CTX_new"),
            digest_free: symbol!(b"EVP_MD_CTX_free"),
            digest_init: symbol!(b"EVP_DigestInit_ex"),
            digest_update: symbol!(b"EVP_DigestUpdate"),
            digest_final: symbol!(b"EVP_DigestFinal_ex"),
            cipher_new: symbol!(b"EVP_CIPHER_CTX_new"),
            cipher_free: symbol!(b"EVP_CIPHER_CTX_free"),
            cipher_init: symbol!(b"EVP_EncryptInit_ex"),
            cipher_update: symbol!(b"EVP_EncryptUpdate"),
            md5: fetched(b"EVP_MD_fetch", c"MD5", b"EVP_md5")?,
            sha1: fetched(b"EVP_MD_fetch", c"SHA1", b"EVP_sha1")?,
            sha256: fetched(b"EVP_MD_fetch", c"SHA256", b"EVP_sha256")?,
            sha512: fetched(b"EVP_MD_fetch", c"SHA512", b"EVP_sha512")?,
            aes_256_ctr: fetched(b"EVP_CIPHER_fetch", c"AES-256-CTR", b"EVP_aes_256_ctr")?,
        })
    }
}

/// Checks a result: OpenSSL's functions return 1 on success.
fn check(result: c_int) -> io::Result<()> {
    if result == 1 { Ok(()) } else { Err(io::Error::other("OpenSSL refused")) }
}

impl Digest {
    pub fn begin(&mut self) -> io::Result<()> {
        // Without an algorithm the context keeps the one it has, and starts again.
        let algorithm = if self.begun { 0 } else { self.algorithm };
        self.begun = true;
        // SAFETY: the context is ours, the algorithm a constant of the library or none, and there is no
        // engine.
        check(unsafe { (self.functions.digest_init)(self.context, algorithm as *const c_void, null_mut()) })
    }

    pub fn update(&mut self, data: &[u8]) -> io::Result<()> {
        // SAFETY: the context is ours; the pointer is valid for as many bytes.
        check(unsafe { (self.functions.digest_update)(self.context, data.as_ptr().cast(), data.len()) })
    }

    pub fn end(&mut self) -> io::Result<Vec<u8>> {
        let (mut value, mut size) = ([0; DIGEST_MAX], 0);
        // SAFETY: the context is ours; the value has room for the longest digest.
        check(unsafe { (self.functions.digest_final)(self.context, value.as_mut_ptr(), &mut size) })?;
        Ok(value[..DIGEST_MAX.min(size as usize)].to_vec())
    }
}

impl Drop for Digest {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and not used any more.
        unsafe { (self.functions.digest_free)(self.context) }
    }
}

impl Cipher {
    pub fn begin(&mut self, key: &[u8; 32], counter: &[u8; 16]) -> io::Result<()> {
        let algorithm = if self.begun { 0 } else { self.functions.aes_256_ctr };
        self.begun = true;
        let (init, context) = (self.functions.cipher_init, self.context);
        // SAFETY: the context is ours; key and counter have the lengths that AES-256 in counter mode takes.
        check(unsafe {
            init(context, algorithm as *const c_void, null_mut(), key.as_ptr(), counter.as_ptr())
        })
    }

    /// Encrypts or decrypts in place.
    pub fn apply(&mut self, data: &mut [u8]) -> io::Result<()> {
        let length = c_int::try_from(data.len()).map_err(io::Error::other)?;
        let (mut written, bytes) = (0, data.as_mut_ptr());
        // SAFETY: the context is ours. EVP works in place where input and output are the same, and counter
        // mode writes as many bytes as it reads.
        check(unsafe { (self.functions.cipher_update)(self.context, bytes, &mut written, bytes, length) })?;
        if written == length { Ok(()) } else { Err(io::Error::other("OpenSSL kept bytes back")) }
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and not used any more.
        unsafe { (self.functions.cipher_free)(self.context) }
    }
}
