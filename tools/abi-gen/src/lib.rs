//! Generates files from the tables of `dcs-abi`: `include/dcs.h`, `rtl/dcs_pkg.sv`, the tables of `docs/abi.md`, the named fuzz
//! seeds.
//!
//! ```text
//! cargo run -p dcs-abi-gen              writes what has changed
//! cargo run -p dcs-abi-gen -- --check   writes nothing; lists stale files, and fails if there are any
//! ```
//!
//! # Architecture
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | input for every output language: structures without holes, groups of named numbers |
//! | [`c`] | the C header, from the model and the hand-written pieces in `src/header/` |
//! | [`sv`] | the SystemVerilog package, from the model |
//! | [`api`] | the header's function section: cbindgen over the C API's sources, and its configuration |
//! | [`markdown`] | the tables of `docs/abi.md`, placed between markers; the prose around them is hand-written |
//! | [`example`] | the worked example of `docs/abi.md`, as bytes and as a listing |
//! | [`seeds`] | `fuzz/corpus/*/*.bin`: named inputs, one for each case that a parser distinguishes |
//!
//! Another language needs another module over [`model`] and another line in [`outputs`].
//!
//! # What it doesn't implement
//!
//! * No layout of its own: offsets, values and texts come from `dcs-abi`.
//! * No deletion: a seed whose name no longer exists stays until someone removes it.
#![forbid(unsafe_code)]

pub mod api;
pub mod c;
pub mod example;
pub mod markdown;
pub mod model;
pub mod seeds;
pub mod sv;

use std::path::{Path, PathBuf};

/// Command that updates every generated file.
pub const COMMAND: &str = "cargo run -p dcs-abi-gen";

const HEADER: &str = "include/dcs.h";
const PACKAGE: &str = "rtl/dcs_pkg.sv";
const DOCUMENT: &str = "docs/abi.md";

/// Errors of generating a file.
#[derive(Debug)]
pub enum Error {
    /// A file or folder could not be read or written.
    Io(PathBuf, std::io::Error),
    /// cbindgen could not parse the C API's sources.
    Api(String),
    /// A marker of a document has no table, or has no end.
    Marker(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Error::Api(error) => write!(f, "C API: {error}"),
            Error::Marker(error) => write!(f, "{DOCUMENT}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Path from the repository's root.
    pub path: String,
    /// Contents that it must have.
    pub content: Vec<u8>,
}

impl Output {
    /// Returns true if the file in the repository differs, or does not exist.
    pub fn is_stale(&self, root: &Path) -> bool {
        std::fs::read(root.join(&self.path)).ok().as_ref() != Some(&self.content)
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn write(&self, root: &Path) -> Result<(), Error> {
        let path = root.join(&self.path);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, &self.content))
            .map_err(|error| Error::Io(path, error))
    }
}

/// Returns every generated file, made in memory from the tables and the hand-written parts below `root`.
///
/// # Errors
///
/// [`Error`] if a hand-written part is missing or not understood.
pub fn outputs(root: &Path) -> Result<Vec<Output>, Error> {
    let api = api::section(&api::sources(root))?;
    let document = root.join(DOCUMENT);
    let document = std::fs::read_to_string(&document).map_err(|error| Error::Io(document, error))?;
    let mut outputs = vec![
        Output { path: HEADER.into(), content: c::header(api.as_deref()).into_bytes() },
        Output { path: PACKAGE.into(), content: sv::package().into_bytes() },
        Output { path: DOCUMENT.into(), content: markdown::fill(&document)?.into_bytes() },
    ];
    outputs.extend(seeds::all().into_iter().map(|seed| Output { path: seed.path(), content: seed.bytes }));
    Ok(outputs)
}

/// Returns the repository's root: the nearest parent folder that contains the command set's crate.
pub fn root() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|folder| folder.join("crates/abi/src/lib.rs").is_file()).map(Path::to_path_buf)
}
