//! The body of a request in XML, looked at while it comes: what is wrong with it is found before anything is
//! made of it.

use super::digests::Digests;
use s3s::{S3Result, s3_error};

/// Longest body in bytes that is no object's data: it completes an upload of 10000 parts, or deletes 1000
/// objects of the longest names.
pub(crate) const XML_MAX: u64 = 8 << 20;

/// Digests that a body in XML must have, and its digests so far.
#[derive(Debug)]
pub(crate) struct XmlBody {
    digests: Digests,
    /// Tags that may still come.
    tags_left: usize,
}

impl XmlBody {
    /// Makes the check of a body with these digests, and with this many tags at most.
    pub(crate) fn new(digests: Digests, tags: usize) -> XmlBody {
        XmlBody { digests, tags_left: tags }
    }

    /// Takes in what follows of the body.
    ///
    /// # Errors
    ///
    /// It has more tags than a request of its kind can have: the list that s3s makes of it would take many
    /// times its size.
    pub(crate) fn update(&mut self, bytes: &[u8]) -> S3Result<()> {
        let tags = bytes.iter().filter(|byte| **byte == b'<').count();
        let left = self.tags_left.checked_sub(tags);
        self.tags_left =
            left.ok_or_else(|| s3_error!(MalformedXML, "the request has more elements than S3 allows"))?;
        self.digests.update(bytes);
        Ok(())
    }

    /// Compares the digests of all that was taken in.
    ///
    /// # Errors
    ///
    /// One differs from the one that was given.
    pub(crate) fn check(self) -> S3Result<()> {
        self.digests.check()
    }
}
