//! S3's operations, implemented on the store and the engine.
//!
//! | module | contents |
//! |---|---|
//! | `body` | a body from the socket to a draft, checked |
//! | `buckets` | create, head, list, delete, location |
//! | `common` | converts between S3's types and the store's |
//! | `copy` | CopyObject and UploadPartCopy |
//! | `delete` | DeleteObject and DeleteObjects |
//! | `fields` | macros for fields that many of S3's inputs and outputs share |
//! | `framing` | aws-chunked framing, removed by an operator |
//! | `get` | GetObject and HeadObject |
//! | `list` | objects, in both versions, and uploads |
//! | `multipart` | create, put parts, list, complete, abort |
//! | `put` | PutObject |
//! | `routes` | each of S3's operations to its function |
//! | `settings` | default encryption, versioning (there is none), access lists |
//! | `tags` | tags of objects and buckets |
//! | `unsupported` | answers for features that no bucket has here |

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
