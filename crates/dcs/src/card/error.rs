//! Errors of a card that cannot be used.

use dcs_abi::status::Status;
use dcs_vfio::VfioError;

/// Reason why a card cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// There is none.
    #[error("there is no dcs card in this machine (a PCI function {0:04x}:{1:04x})")]
    None(u16, u16),
    /// A function is not available over VFIO.
    #[error(transparent)]
    Vfio(#[from] VfioError),
    /// A function other than 0 was given devices.
    #[error(
        "{0} is not the card's function 0, which alone has SSDs and NICs: unset DCS_CARD_DISKS and DCS_CARD_NIC, and open the parts of SSDs that function 0 lends"
    )]
    NoDevices(String),
    /// The card is one of another version, or broken.
    #[error("the card: {0}")]
    Card(&'static str),
    /// The card refused a command.
    #[error("the card cannot {0}: {1}")]
    Refused(&'static str, Status),
    /// A disk is not there.
    #[error("{0}: {1}")]
    Disk(String, std::io::Error),
    /// A disk is not what was said.
    #[error("{0} {1}")]
    Identity(String, String),
}
