//! The API section of `dcs.h`: the C functions of the library, read from its Rust sources by cbindgen.
//!
//! The sources are parsed, not compiled: `crates/capi/src/lib.rs` and its modules. The header contains their public items:
//! `#[unsafe(no_mangle)] pub unsafe extern "C" fn dcs_...`, `#[repr(C)]` structures, opaque types (without `repr(C)`, declared
//! but not defined), and their doc comments.
//!
//! `c.rs` defines the structures of the command set, never this module. A function that takes one names it as in C: `*mut
//! dcs_result`. The Rust type of that name may be defined anywhere, also in a capi file (a `repr(C)` array of bytes will do): its
//! definition is left out of this section, and every mention becomes `struct dcs_result`.

use crate::Error;
use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, Language, Style};
use dcs_abi::STRUCTURES;
use std::path::{Path, PathBuf};

const FILE: &str = "crates/capi/src/lib.rs";

/// Returns the C API's sources below the repository's root: one file, whose modules cbindgen follows. Empty if there is no C API.
pub fn sources(root: &Path) -> Vec<PathBuf> {
    Some(root.join(FILE)).filter(|file| file.is_file()).into_iter().collect()
}

/// Returns the section's text, or `None` without sources.
pub fn section(sources: &[PathBuf]) -> Result<Option<String>, Error> {
    if sources.is_empty() {
        return Ok(None);
    }
    let builder =
        sources.iter().fold(Builder::new().with_config(config()), |builder, path| builder.with_src(path));
    let bindings = builder.generate().map_err(|error| Error::Api(error.to_string()))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).map(Some).map_err(|error| Error::Api(error.to_string()))
}

fn config() -> Config {
    let names = || STRUCTURES.iter().map(|layout| layout.name.to_string());
    Config {
        language: Language::C,
        style: Style::Tag,
        cpp_compat: true,
        no_includes: true,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 100,
        tab_width: 4,
        export: ExportConfig {
            exclude: names().collect(),
            rename: names().map(|name| (name.clone(), format!("struct {name}"))).collect(),
            ..Default::default()
        },
        ..Default::default()
    }
}
