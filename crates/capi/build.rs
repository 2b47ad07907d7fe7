//! Gives libdcs.so its soname, and `dcs_*` as its only symbols.
//!
//! The version script that rustc gives the linker exports every `#[no_mangle]` function of every crate that
//! is linked in: of crc-fast too, where another package of the same build turns its C functions on. Two
//! things keep them in: crates are archives, whose symbols the linker hides here; and where link-time
//! optimisation dissolves the archives (`make dist`), each library is built by itself. `tests/programs.rs`
//! and `tools/install-test` compare what is exported with the header.

fn main() {
    // Of 0.x versions all have this one: until 1.0 the header says what changed.
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdcs.so.{major}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rerun-if-changed=build.rs");
}
