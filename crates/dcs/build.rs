//! Keeps the symbols of the libraries that are linked in to libdcs.so itself: a program may have its own of the same names.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rerun-if-changed=build.rs");
}
