//! Checks the body of a request in XML while it comes, so that errors are found before anything is made of it.

use super::digests::Digests;
use s3s::{S3Result, s3_error};

/// Longest body that is not an object's data, in bytes: it completes an upload of 10000 parts, or deletes 1000 objects
/// with the longest names.
pub(crate) const XML_MAX: u64 = 8 << 20;

/// Checks of a body in XML: digests that it must have, and a limit of tags.
#[derive(Debug)]
pub(crate) struct XmlBody {
    digests: Digests,
    /// Tags that may still come.
    tags_left: usize,
}

impl XmlBody {
    /// Makes the check of a body with these digests and at most this many tags.
    pub(crate) fn new(digests: Digests, tags: usize) -> XmlBody {
        XmlBody { digests, tags_left: tags }
    }

    /// Checks the body's next bytes.
    ///
    /// # Errors
    ///
    /// Fails if the body has more tags than a request of its kind can have: s3s would make a list of many times its
    /// size.
    pub(crate) fn update(&mut self, bytes: &[u8]) -> S3Result<()> {
        let tags = bytes.iter().filter(|byte| **byte == b'<').count();
        let left = self.tags_left.checked_sub(tags);
        self.tags_left =
            left.ok_or_else(|| s3_error!(MalformedXML, "the request has more elements than S3 allows"))?;
        self.digests.update(bytes);
        Ok(())
    }

    /// Compares the digests of the whole body.
    ///
    /// # Errors
    ///
    /// Fails if one differs from the given one.
    pub(crate) fn check(self) -> S3Result<()> {
        self.digests.check()
    }
}
