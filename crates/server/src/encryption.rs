//! Encryption at rest: chooses the key of an object's data, and where their counter begins.
//!
//! Each object has its own key: random and wrapped by the server's master key (SSE-S3), or derived from the customer's
//! key and a random salt (SSE-C). Both are bound to the object's bucket and key. Each segment counts from its own
//! start, so no counter block is ever used twice with a key.
//!
//! Digests of data that only a customer can read are veiled in records and ETags, so that nobody without the key can
//! use them to confirm a guess about the data.

use crate::store::record::{AtRest, BucketDefaults, Checksum, Encryption, Segment};
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

/// A key of AES-256, wiped when it is dropped.
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

/// Reason why there is no master key.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// The file can't be read.
    #[error("{path}: {error}")]
    Io {
        /// Path of the file.
        path: String,
        /// Error of the system.
        error: std::io::Error,
    },
    /// Users other than its owner and group may read it.
    #[error(transparent)]
    Open(#[from] crate::secrets::OpenToOthers),
    /// The file doesn't hold a key.
    #[error("{path}: a master key is 32 random bytes in hexadecimal: make one with `openssl rand -hex 32`")]
    NoKey {
        /// Path of the file.
        path: String,
    },
}

/// A request's headers about encryption.
#[derive(Default)]
pub struct EncryptionHeaders<'a> {
    /// x-amz-server-side-encryption.
    pub managed: Option<&'a str>,
    /// x-amz-server-side-encryption-customer-algorithm.
    pub customer_algorithm: Option<&'a str>,
    /// x-amz-server-side-encryption-customer-key.
    pub customer_key: Option<&'a str>,
    /// x-amz-server-side-encryption-customer-key-MD5.
    pub customer_key_md5: Option<&'a str>,
}

/// Purpose that is bound to a wrapped key, so that it is good for nothing else.
const WRAPS: &[u8] = b"dcs object key";
/// Bytes of an AES-GCM nonce (SP 800-38D).
const NONCE: usize = 12;

impl Keys {
    /// Reads a master key: 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`MasterKeyError`] if the file can't be read, is open to others, or holds no key.
    pub fn read(path: &Path) -> Result<Keys, MasterKeyError> {
        crate::secrets::check(path)?;
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

    /// Returns true if the server has a master key.
    pub fn has_master(&self) -> bool {
        self.0.is_some()
    }

    /// Chooses compression, encryption and the key of a new object.
    ///
    /// # Errors
    ///
    /// Fails if the request's headers contradict each other, or need a master key that the server does not have.
    pub fn for_new(
        &self,
        place: ObjectName<'_>,
        bucket: BucketDefaults,
        headers: &EncryptionHeaders<'_>,
    ) -> S3Result<(AtRest, Option<Key>)> {
        let compression = bucket.compression;
        if let Some(customer) = headers.customer()? {
            let salt = random::<32>()?;
            let (key, check) = derive(&customer, &salt, &place.bytes());
            let key_md5 = BASE64.encode(Md5::digest(*customer));
            let encryption = Encryption::CustomerBound { salt, check, key_md5 };
            return Ok((AtRest { compression, encryption }, Some(key)));
        }
        match headers.managed {
            None if !bucket.encrypted => return Ok((AtRest { compression, ..AtRest::default() }, None)),
            None | Some("AES256") => {}
            Some(other) => {
                return Err(s3_error!(
                    NotImplemented,
                    "server-side encryption {other}: this server only has AES256"
                ));
            }
        }
        let key = Key::new(random::<32>()?);
        let nonce = random::<NONCE>()?;
        let purpose = [WRAPS, &place.bytes()].concat();
        let payload = Payload { msg: key.as_slice(), aad: &purpose };
        let wrapped = self.cipher()?.encrypt(&nonce.into(), payload);
        let wrapped = wrapped.map_err(|_| s3_error!(InternalError, "the object's key can't be wrapped"))?;
        let wrapped_key = [nonce.as_slice(), &wrapped].concat();
        Ok((AtRest { compression, encryption: Encryption::ManagedBound { wrapped_key } }, Some(key)))
    }

    /// Returns the key of a stored object.
    ///
    /// # Errors
    ///
    /// Fails if the request lacks the customer's key or gives a wrong one, or the master key is not available.
    pub fn for_old(
        &self,
        place: ObjectName<'_>,
        at_rest: &AtRest,
        headers: &EncryptionHeaders<'_>,
    ) -> S3Result<Option<Key>> {
        let customer = headers.customer()?;
        match &at_rest.encryption {
            Encryption::None | Encryption::Managed { .. } | Encryption::ManagedBound { .. }
                if customer.is_some() =>
            {
                Err(s3_error!(InvalidRequest, "the object is not encrypted with a key of yours"))
            }
            Encryption::None => Ok(None),
            Encryption::Managed { wrapped_key } => self.unwrap(wrapped_key, WRAPS).map(Some),
            Encryption::ManagedBound { wrapped_key } => {
                self.unwrap(wrapped_key, &[WRAPS, &place.bytes()].concat()).map(Some)
            }
            Encryption::Customer { salt, check, .. } => recognised(customer, salt, &[], check).map(Some),
            Encryption::CustomerBound { salt, check, .. } => {
                recognised(customer, salt, &place.bytes(), check).map(Some)
            }
        }
    }

    fn unwrap(&self, wrapped_key: &[u8], purpose: &[u8]) -> S3Result<Key> {
        let broken = || {
            s3_error!(
                InternalError,
                "the object's key can't be unwrapped: was it made with another master key?"
            )
        };
        let (nonce, wrapped) = wrapped_key.split_first_chunk::<NONCE>().ok_or_else(broken)?;
        let payload = Payload { msg: wrapped, aad: purpose };
        let key = self.cipher()?.decrypt(&(*nonce).into(), payload);
        let key = Zeroizing::new(key.map_err(|_| broken())?);
        key.as_slice().try_into().map(Key::new).map_err(|_| broken())
    }

    fn cipher(&self) -> S3Result<Aes256Gcm> {
        let needs = || s3_error!(InvalidRequest, "the server has no master key: start it with --master-key");
        let key = self.0.as_ref().ok_or_else(needs)?;
        Aes256Gcm::new_from_slice(key.as_slice()).map_err(|_| needs())
    }
}

impl EncryptionHeaders<'_> {
    /// Returns the customer's key, checked.
    fn customer(&self) -> S3Result<Option<Key>> {
        let (algorithm, key, md5) = match (self.customer_algorithm, self.customer_key, self.customer_key_md5)
        {
            (None, None, None) => return Ok(None),
            (Some(algorithm), Some(key), md5) => (algorithm, key, md5),
            _ => return Err(s3_error!(InvalidArgument, "a customer's key needs its algorithm header")),
        };
        if algorithm != "AES256" {
            return Err(s3_error!(
                InvalidEncryptionAlgorithmError,
                "the algorithm of a customer's key must be AES256"
            ));
        }
        let bytes = Zeroizing::new(BASE64.decode(key).unwrap_or_default());
        let key: [u8; 32] = (bytes.as_slice().try_into())
            .map_err(|_| s3_error!(InvalidArgument, "a customer's key must be 256 bits in base64"))?;
        if md5.is_some_and(|md5| md5 != BASE64.encode(Md5::digest(key))) {
            return Err(s3_error!(InvalidArgument, "the MD5 of the customer's key does not match"));
        }
        Ok(Some(Key::new(key)))
    }
}

/// The name of an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectName<'a> {
    /// Bucket of the object.
    pub bucket: &'a str,
    /// Key of the object.
    pub key: &'a str,
}

impl ObjectName<'_> {
    /// Returns the bytes that bind a key to the name. A bucket's name has no zero byte.
    fn bytes(&self) -> Vec<u8> {
        [&[0], self.bucket.as_bytes(), &[0], self.key.as_bytes()].concat()
    }
}

/// Derives the object's key from the customer's, and checks that it is the right one.
fn recognised(customer: Option<Key>, salt: &[u8; 32], place: &[u8], check: &[u8; 32]) -> S3Result<Key> {
    let needs = || s3_error!(InvalidRequest, "the object is encrypted with a customer's key: send it");
    let (key, found) = derive(&customer.ok_or_else(needs)?, salt, place);
    // Both are values of HMAC, so a comparison that takes varying time tells nothing of the key.
    if found != *check {
        return Err(s3_error!(AccessDenied, "the customer's key is not the key of this object"));
    }
    Ok(key)
}

/// Derives an object's key and its check value from the customer's key and the object's name.
fn derive(customer: &Key, salt: &[u8; 32], place: &[u8]) -> (Key, [u8; 32]) {
    let of = |word: &[u8]| mac(customer, &[salt, word, place]);
    (Key::new(of(b"dcs object key")), of(b"dcs key check"))
}

fn mac(key: &Key, words: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_slice()).expect("a key of any length");
    words.iter().for_each(|word| mac.update(word));
    mac.finalize().into_bytes().into()
}

/// Veils digests of an object's data, or removes the veil, by XOR with HMAC-SHA256 under the object's key. Does nothing
/// if the object's records have no veil.
pub struct Veil<'a>(Option<&'a Key>);

impl<'a> Veil<'a> {
    /// Returns the veil of an object with its key.
    ///
    /// # Errors
    ///
    /// Fails if there is a veil but no key.
    pub fn of(at_rest: &AtRest, key: Option<&'a Key>) -> S3Result<Veil<'a>> {
        match (&at_rest.encryption, key) {
            (Encryption::CustomerBound { .. }, Some(key)) => Ok(Veil(Some(key))),
            (Encryption::CustomerBound { .. }, None) => Err(s3_error!(
                InvalidRequest,
                "the object's checksums are encrypted with a customer's key: send it"
            )),
            _ => Ok(Veil(None)),
        }
    }

    /// Veils or unveils a segment's digests.
    pub fn segment(&self, segment: &Segment) -> Segment {
        let mut other = segment.clone();
        self.over(&mut other.md5, b"md5", segment.id);
        if let Some(checksum) = &mut other.checksum {
            self.over(&mut checksum.value, b"checksum", segment.id);
        }
        other
    }

    /// Veils or unveils the checksum of a whole object.
    pub fn object(&self, checksum: Option<&Checksum>) -> Option<Checksum> {
        let mut checksum = checksum?.clone();
        self.over(&mut checksum.value, b"object", 0);
        Some(checksum)
    }

    fn over(&self, bytes: &mut [u8], what: &[u8], segment: u64) {
        let Some(key) = self.0 else { return };
        let veil = mac(key, &[b"dcs veil", what, &segment.to_be_bytes()]);
        bytes.iter_mut().zip(veil).for_each(|(byte, veil)| *byte ^= veil);
    }
}

/// Returns the first counter block of a segment: its number in the upper 64 bits, zero in the lower 64 that count.
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

    const HERE: ObjectName<'_> = ObjectName { bucket: "bucket", key: "key" };
    const THERE: ObjectName<'_> = ObjectName { bucket: "bucket", key: "other" };

    #[test]
    fn a_managed_key_comes_back_with_the_same_master_key_at_the_same_place_only() {
        let headers = EncryptionHeaders { managed: Some("AES256"), ..EncryptionHeaders::default() };
        let (at_rest, key) = keys(1).for_new(HERE, BucketDefaults::default(), &headers).unwrap();
        let old = |keys: Keys, place| keys.for_old(place, &at_rest, &EncryptionHeaders::default());
        assert_eq!(old(keys(1), HERE).unwrap(), key);
        assert!(old(keys(2), HERE).is_err());
        assert!(old(keys(1), THERE).is_err());
        assert!(old(Keys::default(), HERE).is_err());
        let (_, other) = keys(1).for_new(HERE, BucketDefaults::default(), &headers).unwrap();
        assert_ne!(key, other);
    }

    #[test]
    fn keys_of_records_of_the_first_format_come_back() {
        // Made by the program that wrote format 1, with a master key of 32 bytes 1: AES-256-GCM, nonce of 12 bytes 2,
        // payload of 32 bytes 3.
        let cipher = keys(1).cipher().unwrap();
        let payload = Payload { msg: &[3; 32], aad: b"dcs object key" };
        let wrapped_key = [vec![2; 12], cipher.encrypt(&[2; 12].into(), payload).unwrap()].concat();
        let at_rest = AtRest { encryption: Encryption::Managed { wrapped_key }, ..AtRest::default() };
        let key = keys(1).for_old(HERE, &at_rest, &EncryptionHeaders::default()).unwrap().unwrap();
        assert_eq!(*key, [3; 32]);
        let customer = Key::new([7; 32]);
        let (made, check) = derive(&customer, &[9; 32], &[]);
        let encryption = Encryption::Customer { salt: [9; 32], check, key_md5: String::new() };
        let text = BASE64.encode([7; 32]);
        let headers = EncryptionHeaders {
            customer_algorithm: Some("AES256"),
            customer_key: Some(&text),
            ..EncryptionHeaders::default()
        };
        let at_rest = AtRest { encryption, ..AtRest::default() };
        let key = Keys::default().for_old(HERE, &at_rest, &headers).unwrap().unwrap();
        assert_eq!(key, made);
        assert!(Veil::of(&at_rest, Some(&key)).unwrap().0.is_none(), "its digests lie open");
    }

    #[test]
    fn a_customer_s_key_is_asked_for_and_recognised() {
        let key = BASE64.encode([7; 32]);
        let headers = |key| EncryptionHeaders {
            customer_algorithm: Some("AES256"),
            customer_key: Some(key),
            ..EncryptionHeaders::default()
        };
        let new = |headers: &EncryptionHeaders<'_>| {
            Keys::default().for_new(HERE, BucketDefaults::default(), headers)
        };
        let (at_rest, made) = new(&headers(&key)).unwrap();
        let old = |place, headers: &EncryptionHeaders<'_>| Keys::default().for_old(place, &at_rest, headers);
        assert_eq!(old(HERE, &headers(&key)).unwrap(), made);
        assert!(old(THERE, &headers(&key)).is_err());
        assert!(old(HERE, &EncryptionHeaders::default()).is_err());
        let other = BASE64.encode([8; 32]);
        assert!(old(HERE, &headers(&other)).is_err());
        let wrong_md5 = EncryptionHeaders { customer_key_md5: Some("AAAA"), ..headers(&key) };
        assert!(new(&wrong_md5).is_err());
        assert!(new(&headers("c2hvcnQ=")).is_err());
    }

    #[test]
    fn a_veil_hides_digests_and_comes_off() {
        let key = BASE64.encode([7; 32]);
        let headers = EncryptionHeaders {
            customer_algorithm: Some("AES256"),
            customer_key: Some(&key),
            ..EncryptionHeaders::default()
        };
        let (at_rest, key) = Keys::default().for_new(HERE, BucketDefaults::default(), &headers).unwrap();
        let checksum =
            Checksum { algorithm: crate::store::record::Algorithm::Sha256, value: vec![6; 32], parts: None };
        let segment = |id| Segment { id, size: 1, stored: 1, md5: [5; 16], checksum: Some(checksum.clone()) };
        let veil = Veil::of(&at_rest, key.as_ref()).unwrap();
        let (one, two) = (veil.segment(&segment(1)), veil.segment(&segment(2)));
        assert!(one.md5 != [5; 16] && one.md5 != two.md5 && one.checksum != two.checksum);
        assert!(one.checksum.as_ref().unwrap().value.iter().filter(|byte| **byte == 6).count() < 8);
        assert_eq!(veil.segment(&one), segment(1));
        assert_eq!(veil.object(veil.object(Some(&checksum)).as_ref()), Some(checksum.clone()));
        assert!(Veil::of(&at_rest, None).is_err());
        assert_eq!(Veil::of(&AtRest::default(), None).unwrap().segment(&segment(1)), segment(1));
    }

    #[test]
    fn plain_data_need_no_key() {
        let (at_rest, key) =
            Keys::default().for_new(HERE, BucketDefaults::default(), &EncryptionHeaders::default()).unwrap();
        assert!(key.is_none() && at_rest == AtRest::default());
    }
}
