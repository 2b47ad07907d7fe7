//! Keeps the symbols of the libraries that are linked in to itself: a program may have its own libdcs.so.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rerun-if-changed=build.rs");
}
