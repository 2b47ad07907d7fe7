//! The checksum that a trailer carries.

use base64ct::{Base64, Encoding};
use dcs_abi::operator::Operator;

use crate::parameter::trailer_of;
use crate::{DigestValue, OperatorError};

/// An announced checksum.
pub(super) struct Checksum {
    operator: Operator,
    /// Name of its trailer.
    name: &'static [u8],
    value: Option<DigestValue>,
}

impl Checksum {
    pub fn new(operator: Operator) -> Result<Checksum, OperatorError> {
        let name = trailer_of(operator).ok_or(OperatorError::BadParameter)?;
        Ok(Checksum { operator, name, value: None })
    }

    /// Takes the value from a trailer, if it is the right one.
    pub fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), OperatorError> {
        if !name.eq_ignore_ascii_case(self.name) {
            return Ok(());
        }
        let mut room = [0; 32];
        let bytes = Base64::decode(value, &mut room).map_err(|_| OperatorError::Framing)?;
        let sound = bytes.len() == self.operator.digest_size();
        if !sound || self.value.replace(DigestValue::new(bytes)).is_some() {
            return Err(OperatorError::Framing);
        }
        Ok(())
    }

    /// Returns the value, once it was there.
    pub fn value(&self) -> Option<DigestValue> {
        self.value
    }
}
