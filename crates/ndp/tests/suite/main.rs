//! Operators against published vectors, independent implementations and each other, however a stream is cut.
//! `memory` is a test of its own, since it measures the whole process; so is `corpus`, which the fuzz targets share.

mod aws_chunked;
mod bitmap;
mod common;
mod grep;
mod independent;
mod knn;
mod lanes;
mod oracle;
mod properties;
mod rows;
mod table;
mod vectors;
mod zstd;
