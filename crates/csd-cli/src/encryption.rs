//! Encrypted namespaces: the chain that their data pass, with the key from a file.

use crate::refused::Refused;
use dcs_csd::Chain;
use dcs_csd_cli::spec::Namespace;
use std::sync::Arc;

/// Returns the chain of each of these namespaces, `None` for a plain one. It reads the keys, for which it may
/// wait.
pub fn chains(namespaces: &[Namespace]) -> Result<Vec<Option<Arc<Chain>>>, Refused> {
    namespaces.iter().map(chain).collect()
}

/// Returns the chain that a namespace's data pass, with its key.
fn chain(wanted: &Namespace) -> Result<Option<Arc<Chain>>, Refused> {
    let Some(operator) = &wanted.through else {
        return match wanted.key_file {
            Some(_) => {
                Err(Refused::new("a key without an operator").advise("name the operator: through=aes256-xts"))
            }
            None => Ok(None),
        };
    };
    if operator != "aes256-xts" {
        return Err(Refused::new(format!("a namespace cannot have {operator}")).advise("use aes256-xts"));
    }
    let path = wanted.key_file.as_deref().ok_or_else(|| {
        Refused::new(format!("no key for {operator}")).advise("name a file with it: key-file=FILE")
    })?;
    let mut key: [u8; 64] = dcs_console::keys::from_file(path, operator)?;
    let chain = Chain::aes256_xts(&key);
    key.fill(0);
    std::hint::black_box(&key);
    Ok(Some(Arc::new(chain?)))
}
