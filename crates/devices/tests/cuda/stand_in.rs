//! Builds the stand-in for CUDA's driver (`driver.cpp`) and cuFile (`storage.cpp`), one library, once for all tests that use it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SOURCES: [&str; 4] = [
    include_str!("driver.cpp"),
    include_str!("storage.cpp"),
    include_str!("shim.h"),
    include_str!("../../src/gpu/kernels.cu"),
];

/// Returns the library, or prints why and returns `None` if this machine has no C++ compiler.
pub fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let built = build();
            if built.is_none() {
                println!(
                    "skipped: the stand-in of CUDA's driver needs a compiler of C++ (c++, g++ or clang++)"
                );
            }
            built
        })
        .as_deref()
}

fn build() -> Option<PathBuf> {
    let compiler = ["c++", "g++", "clang++"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    })?;
    let mut hasher = DefaultHasher::new();
    SOURCES.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("cuda-stand-in-{:016x}.so", hasher.finish()));
    if !library.exists() {
        // Several test programs may build it at once: the last to finish puts its own in place.
        let made = folder.join(format!("cuda-stand-in-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../devices/tests/cuda/driver.cpp");
        let output = Command::new(compiler)
            .args(["-std=c++17", "-O2", "-Wno-unknown-pragmas", "-shared", "-fPIC", "-pthread", "-o"])
            .args([&made, &source])
            .output()
            .expect("the compiler starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&made, &library).expect("the folder is writable");
    }
    Some(library)
}
