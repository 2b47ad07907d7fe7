//! The API section of `dcs.h`: the C functions of the library, read from its Rust sources by cbindgen.
//!
//! The sources are parsed, not compiled: `crates/dcs/src/capi.rs` and every file below `crates/dcs/src/capi/`. What
//! they make public is what the header has: `#[unsafe(no_mangle)] pub unsafe extern "C" fn dcs_...`, `#[repr(C)]`
//! structures, opaque types (without `repr(C)`, declared but not defined), and their doc comments.
//!
//! A structure of the command set is defined by `c.rs`, never here. A function that takes one names it as in C:
//! `*mut dcs_result`. The Rust type of that name may be defined anywhere, in a capi file too (a `repr(C)` array of
//! bytes will do): its definition is left out of this section and every mention becomes `struct dcs_result`.

use crate::Error;
use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, Language, Style};
use dcs_abi::layout::STRUCTURES;
use std::path::{Path, PathBuf};

const FILE: &str = "crates/dcs/src/capi.rs";
const FOLDER: &str = "crates/dcs/src/capi";

/// The C API's sources below the repository's root, in a fixed order; none where there is no C API yet.
pub fn sources(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let file = root.join(FILE);
    if file.is_file() {
        files.push(file);
    }
    let folder = root.join(FOLDER);
    if folder.is_dir() {
        collect(&folder, &mut files)?;
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| Error::Io(folder.into(), error))?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The section's text, or nothing where there are no sources.
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
