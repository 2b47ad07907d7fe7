//! How data lie at rest: whose key encrypts them, and where their counter begins.
//!
//! Each object has a key of its own: random and wrapped by the server's master key (SSE-S3), or made from the customer's key and a
//! random salt (SSE-C). Each segment counts from a place of its own, so no counter block is ever used twice with a key.

use crate::store::record::{BucketRest, Encryption, Rest};
use aes_gcm::Aes256Gcm;
use aes_gcm::aead::{Aead, KeyInit, Payload};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use md5::{Digest, Md5};
use s3s::{S3Result, s3_error};
use sha2::Sha256;
use std::path::Path;
use zeroize::Zeroizing;

/// A key of AES-256. It is wiped when it is dropped.
pub type Key = Zeroizing<[u8; 32]>;

/// The server's master key, if it has one.
#[derive(Clone, Default)]
pub struct Keys(Option<Key>);

/// Keys are not printed.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "a master key" } else { "no master key" })
    }
}

/// Why there is no master key.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// The file can't be read.
    #[error("{path}: {error}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// It doesn't hold a key.
    #[error("{path}: a master key is 32 random bytes in hexadecimal: make one by `openssl rand -hex 32`")]
    NoKey {
        /// Which file.
        path: String,
    },
}

/// What a request says about encryption.
#[derive(Default)]
pub struct Asked<'a> {
    /// x-amz-server-side-encryption.
    pub managed: Option<&'a str>,
    /// x-amz-server-side-encryption-customer-algorithm.
    pub customer_algorithm: Option<&'a str>,
    /// x-amz-server-side-encryption-customer-key.
    pub customer_key: Option<&'a str>,
    /// x-amz-server-side-encryption-customer-key-MD5.
    pub customer_key_md5: Option<&'a str>,
}

/// Said of the wrapped key: it is for nothing else.
const WRAPS: &[u8] = b"dcs object key";
/// Nonce of AES-GCM (SP 800-38D).
const NONCE: usize = 12;

impl Keys {
    /// Reads a master key: 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`MasterKeyError`].
    pub fn read(path: &Path) -> Result<Keys, MasterKeyError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text = Zeroizing::new(text.map_err(|error| MasterKeyError::Io { path: name.clone(), error })?);
        let text = text.trim().as_bytes();
        let mut key = Key::default();
        let (pairs, rest) = text.as_chunks::<2>();
        if pairs.len() != key.len() || !rest.is_empty() {
            return Err(MasterKeyError::NoKey { path: name });
        }
        for (byte, pair) in key.iter_mut().zip(pairs) {
            let digits =
                std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|c| c.is_ascii_hexdigit()));
            let value = digits.and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = value.ok_or_else(|| MasterKeyError::NoKey { path: name.clone() })?;
        }
        Ok(Keys(Some(key)))
    }

    /// Whether the server can encrypt with keys of its own.
    pub fn has_master(&self) -> bool {
        self.0.is_some()
    }

    /// How a new object is to lie, and its key.
    ///
    /// # Errors
    ///
    /// What is asked for makes no sense, or can't be had.
    pub fn for_new(&self, bucket: BucketRest, asked: &Asked<'_>) -> S3Result<(Rest, Option<Key>)> {
        let compression = bucket.compression;
        if let Some(customer) = asked.customer()? {
            let salt = random::<32>()?;
            let (key, check) = derive(&customer, &salt);
            let key_md5 = BASE64.encode(Md5::digest(*customer));
            let encryption = Encryption::Customer { salt, check, key_md5 };
            return Ok((Rest { compression, encryption }, Some(key)));
        }
        match asked.managed {
            None if !bucket.encrypted => return Ok((Rest { compression, ..Rest::default() }, None)),
            None | Some("AES256") => {}
            Some(other) => {
                return Err(s3_error!(
                    NotImplemented,
                    "server-side encryption {other}: this server has AES256"
                ));
            }
        }
        let key = Key::new(random::<32>()?);
        let nonce = random::<NONCE>()?;
        let payload = Payload { msg: key.as_slice(), aad: WRAPS };
        let wrapped = self.cipher()?.encrypt(&nonce.into(), payload);
        let wrapped = wrapped.map_err(|_| s3_error!(InternalError, "the object's key can't be wrapped"))?;
        let wrapped_key = [nonce.as_slice(), &wrapped].concat();
        Ok((Rest { compression, encryption: Encryption::Managed { wrapped_key } }, Some(key)))
    }

    /// The key of an object that is there.
    ///
    /// # Errors
    ///
    /// It is not the key's owner who asks, or the key is not to be had.
    pub fn for_old(&self, rest: &Rest, asked: &Asked<'_>) -> S3Result<Option<Key>> {
        let customer = asked.customer()?;
        match &rest.encryption {
            Encryption::None | Encryption::Managed { .. } if customer.is_some() => {
                Err(s3_error!(InvalidRequest, "the object is not encrypted with a key of yours"))
            }
            Encryption::None => Ok(None),
            Encryption::Managed { wrapped_key } => {
                let broken =
                    || s3_error!(InternalError, "the object's key can't be unwrapped: another master key?");
                let (nonce, wrapped) = wrapped_key.split_first_chunk::<NONCE>().ok_or_else(broken)?;
                let payload = Payload { msg: wrapped, aad: WRAPS };
                let key = self.cipher()?.decrypt(&(*nonce).into(), payload);
                let key = Zeroizing::new(key.map_err(|_| broken())?);
                key.as_slice().try_into().map(|key| Some(Key::new(key))).map_err(|_| broken())
            }
            Encryption::Customer { salt, check, .. } => {
                let needs =
                    || s3_error!(InvalidRequest, "the object is encrypted with a customer's key: send it");
                let (key, found) = derive(&customer.ok_or_else(needs)?, salt);
                // Both are of HMAC, and neither tells of the key: comparing them bluntly tells nothing either.
                if found != *check {
                    return Err(s3_error!(AccessDenied, "that is not the key of this object"));
                }
                Ok(Some(key))
            }
        }
    }

    fn cipher(&self) -> S3Result<Aes256Gcm> {
        let needs = || s3_error!(InvalidRequest, "the server has no master key: start it with --master-key");
        let key = self.0.as_ref().ok_or_else(needs)?;
        Aes256Gcm::new_from_slice(key.as_slice()).map_err(|_| needs())
    }
}

impl Asked<'_> {
    /// The customer's key, checked.
    fn customer(&self) -> S3Result<Option<Key>> {
        let (algorithm, key, md5) = match (self.customer_algorithm, self.customer_key, self.customer_key_md5)
        {
            (None, None, None) => return Ok(None),
            (Some(algorithm), Some(key), md5) => (algorithm, key, md5),
            _ => return Err(s3_error!(InvalidArgument, "a customer's key comes with its algorithm")),
        };
        if algorithm != "AES256" {
            return Err(s3_error!(InvalidEncryptionAlgorithmError, "a customer's key is of AES256"));
        }
        let bytes = Zeroizing::new(BASE64.decode(key).unwrap_or_default());
        let key: [u8; 32] = (bytes.as_slice().try_into())
            .map_err(|_| s3_error!(InvalidArgument, "a customer's key has 256 bits, in base64"))?;
        if md5.is_some_and(|md5| md5 != BASE64.encode(Md5::digest(key))) {
            return Err(s3_error!(InvalidArgument, "the MD5 of the customer's key is another"));
        }
        Ok(Some(Key::new(key)))
    }
}

/// An object's key and what recognises it, from the customer's key.
fn derive(customer: &Key, salt: &[u8; 32]) -> (Key, [u8; 32]) {
    let of = |word: &[u8]| -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(customer.as_slice()).expect("a key of any length");
        mac.update(salt);
        mac.update(word);
        mac.finalize().into_bytes().into()
    };
    (Key::new(of(b"dcs object key")), of(b"dcs key check"))
}

/// The first counter block of a segment: its number above, and 64 bits to count in.
pub fn counter(segment: u64) -> [u8; 16] {
    (u128::from(segment) << 64).to_be_bytes()
}

fn random<const N: usize>() -> S3Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| s3_error!(InternalError, "no random bytes: {error}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> Keys {
        Keys(Some(Key::new([byte; 32])))
    }

    #[test]
    fn a_managed_key_comes_back_with_the_same_master_key_only() {
        let asked = Asked { managed: Some("AES256"), ..Asked::default() };
        let (rest, key) = keys(1).for_new(BucketRest::default(), &asked).unwrap();
        assert_eq!(keys(1).for_old(&rest, &Asked::default()).unwrap(), key);
        assert!(keys(2).for_old(&rest, &Asked::default()).is_err());
        assert!(Keys::default().for_old(&rest, &Asked::default()).is_err());
        let (_, other) = keys(1).for_new(BucketRest::default(), &asked).unwrap();
        assert_ne!(key, other);
    }

    #[test]
    fn a_customer_s_key_is_asked_for_and_recognised() {
        let key = BASE64.encode([7; 32]);
        let asked =
            |key| Asked { customer_algorithm: Some("AES256"), customer_key: Some(key), ..Asked::default() };
        let (rest, made) = Keys::default().for_new(BucketRest::default(), &asked(&key)).unwrap();
        assert_eq!(Keys::default().for_old(&rest, &asked(&key)).unwrap(), made);
        assert!(Keys::default().for_old(&rest, &Asked::default()).is_err());
        let other = BASE64.encode([8; 32]);
        assert!(Keys::default().for_old(&rest, &asked(&other)).is_err());
        let wrong_md5 = Asked { customer_key_md5: Some("AAAA"), ..asked(&key) };
        assert!(Keys::default().for_new(BucketRest::default(), &wrong_md5).is_err());
        assert!(Keys::default().for_new(BucketRest::default(), &asked("c2hvcnQ=")).is_err());
    }

    #[test]
    fn plain_data_need_no_key() {
        let (rest, key) = Keys::default().for_new(BucketRest::default(), &Asked::default()).unwrap();
        assert!(key.is_none() && rest == Rest::default());
    }
}
