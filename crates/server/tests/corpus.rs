//! The fuzz targets of `fuzz/src/server.rs` on their corpora.

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
