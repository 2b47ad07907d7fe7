//! Errors of operators, and the status of each in a completion.

use dcs_abi::status::Status;

/// Reason why an operator could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The parameter block has the wrong length or a value that is not allowed.
    #[error("the parameters have the wrong length or value")]
    BadParameter,
    /// The data are not in the operator's format, or a checksum in them does not match.
    #[error("the data are corrupt or not of the format")]
    CorruptData,
    /// The data ended inside a unit that the operator needs whole.
    #[error("the data ended too early")]
    TruncatedData,
    /// The framing around the data breaks its rules, or its lengths do not add up.
    #[error("the framing around the data is broken")]
    Framing,
    /// A signature in the data does not match the data and the key.
    #[error("a signature in the data does not match")]
    Signature,
    /// The digest is not the expected one.
    #[error("the digest is not the expected one")]
    Mismatch,
    /// No module of this name was loaded.
    #[error("no module of this name was loaded")]
    NoModule,
    /// A module stopped by a trap.
    #[error("the module stopped by a trap")]
    Trap,
    /// A module ran for longer than its data allow.
    #[error("the module ran for longer than it may for its data")]
    Fuel,
    /// A module asked for more memory than it may have.
    #[error("the module asked for more memory than it may have")]
    Memory,
    /// A module gave an answer that breaks the rules of modules.
    #[error("the module gave an answer that breaks the rules of modules")]
    Answer,
    /// The context was misused (resizing with a digest, data after the last), or its library could not get memory.
    #[error("the operator was misused or out of memory")]
    InternalError,
}

impl OperatorError {
    /// Returns the status of a command that failed for this reason.
    pub fn status(&self) -> Status {
        match self {
            OperatorError::BadParameter => Status::BadParameter,
            OperatorError::CorruptData => Status::CorruptData,
            OperatorError::TruncatedData => Status::TruncatedData,
            OperatorError::Framing => Status::FramingError,
            OperatorError::Signature => Status::SignatureMismatch,
            OperatorError::Mismatch => Status::DigestMismatch,
            OperatorError::NoModule => Status::UnknownOperator,
            OperatorError::Trap => Status::ModuleTrap,
            OperatorError::Fuel => Status::ModuleFuel,
            OperatorError::Memory => Status::ModuleMemory,
            OperatorError::Answer => Status::ModuleAnswer,
            OperatorError::InternalError => Status::InternalError,
        }
    }
}
