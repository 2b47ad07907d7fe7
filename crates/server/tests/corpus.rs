//! The fuzz targets of `fuzz/src/connection.rs` and `fuzz/src/server.rs` on their corpora.

#[path = "../../../fuzz/src/connection.rs"]
mod connection;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/server.rs"]
mod targets;

#[test]
fn head_corpus() {
    replay::replay("head", 50_000, targets::head);
}

#[test]
fn chunks_corpus() {
    replay::replay("chunks", 50_000, targets::chunks);
}

#[test]
fn users_corpus() {
    replay::replay("users", 20_000, targets::users);
}

#[test]
fn connection_corpus() {
    replay::replay("connection", 2_000, connection::connection);
}
