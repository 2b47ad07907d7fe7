//! Blowfish in counter mode, by the `blowfish` and `ctr` crates. Among a block cipher's modes it suits a stream with
//! blocks of any length: it needs no padding and no previous block, and is its own inverse. The counter is as wide as a
//! block, 64 bits.

use crate::{OperatorError, parameter};
use ctr::cipher::{InnerIvInit, StreamCipherCoreWrapper};
use ctr::cipher::{KeyInit, StreamCipher};

/// The cipher in the middle of its stream.
pub(crate) struct Blowfish(ctr::Ctr64BE<blowfish::Blowfish>);

impl Blowfish {
    pub(crate) fn new(block: &[u8]) -> Result<Blowfish, OperatorError> {
        let (key, counter) = parameter::parse_blowfish(block)?;
        let cipher = blowfish::Blowfish::new_from_slice(key).map_err(|_| OperatorError::BadParameter)?;
        let core = ctr::CtrCore::inner_iv_init(cipher, &(*counter).into());
        Ok(Blowfish(StreamCipherCoreWrapper::from_core(core)))
    }

    pub(crate) fn apply(&mut self, data: &mut [u8]) -> Result<(), OperatorError> {
        // The key stream ends after 2^64 blocks, which no stream reaches.
        self.0.try_apply_keystream(data).map_err(|_| OperatorError::InternalError)
    }
}
