//! S3's operations, implemented on the store and the engine.

pub(crate) mod body;
mod buckets;
pub(crate) mod common;
mod copy;
mod delete;
mod fields;
mod framing;
mod get;
mod list;
mod multipart;
mod put;
mod routes;
mod settings;
mod tags;
mod unsupported;

use crate::access::Access;
use crate::encryption::Keys;
use crate::store::Store;
use crate::transfers::DataPath;
use std::sync::Arc;

/// State that the operations work on.
pub struct Api {
    pub(crate) access: Access,
    pub(crate) store: Arc<Store>,
    pub(crate) path: Arc<DataPath>,
    pub(crate) keys: Keys,
    pub(crate) verify: bool,
}
