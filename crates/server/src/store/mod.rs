//! Buckets, objects and uploads: records in a database, data in files.

pub mod record;
