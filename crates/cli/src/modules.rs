//! Users' own operators: modules kept in a folder, each under the name by which `--through` finds it.

use crate::failure::{Exit, Failure};
use dcs::Operator;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Environment variable with the folder of modules. Its default is in the user's data folder.
const FOLDER: &str = "DCS_OPERATORS";
const SUFFIX: &str = ".wasm";
/// Most bytes of a name.
const NAME_MAX: usize = 64;

/// A kept module.
pub struct Kept {
    pub name: String,
    pub path: PathBuf,
}

/// Returns the folder of modules; `None` if neither the variable nor a home is set.
fn folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = || variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    variable(FOLDER).or_else(|| Some(data()?.join("dcs/operators")))
}

/// Returns true for a valid name of a module: letters, digits, `-` and `_`, and not an operator's.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let (first, length) = (name.as_bytes().first(), name.len());
    let begins = first.is_some_and(u8::is_ascii_alphanumeric);
    begins && length <= NAME_MAX && name.bytes().all(allowed) && Operator::from_name(name).is_none()
}

/// Returns the module of that name, or in that file if the name is a file's: `./mine.wasm`.
pub fn find(name: &str) -> Option<PathBuf> {
    if name.ends_with(SUFFIX) {
        return Some(PathBuf::from(name));
    }
    let path = folder()?.join(format!("{name}{SUFFIX}"));
    (is_name(name) && path.exists()).then_some(path)
}

/// Lists all kept modules, by name.
pub fn kept() -> Vec<Kept> {
    let entries = folder().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let module = |entry: fs::DirEntry| {
        let name = entry.file_name().to_str()?.strip_suffix(SUFFIX)?.to_string();
        is_name(&name).then(|| Kept { name, path: entry.path() })
    };
    let mut kept: Vec<_> = entries.filter_map(module).collect();
    kept.sort_by(|a, b| a.name.cmp(&b.name));
    kept
}

/// Keeps a module under its file's name. Returns that name.
pub fn keep(file: &Path) -> Result<String, Failure> {
    let refused = |line: String| Failure::usage(format!("--load {}: {line}", file.display()));
    let name = file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(SUFFIX));
    let name = name.filter(|name| is_name(name)).ok_or_else(|| {
        refused("the file's name can't be an operator's name".to_string()).advise(
            "call it NAME.wasm; NAME may have letters, digits, - and _, and must not be an operator of dcs",
        )
    })?;
    let bytes = read(file)?;
    engine::load(file, &bytes)?;
    let folder = folder().ok_or_else(|| {
        refused("no folder for modules is known".to_string()).advise("name one: DCS_OPERATORS=DIR")
    })?;
    let written = write(&folder, name, &bytes);
    written.map_err(|error| Failure::io(format!("folder {}", folder.display()), &error))?;
    Ok(name.to_string())
}

/// Writes a module, complete or not at all.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(folder.join(format!("{name}{SUFFIX}")))?;
    Ok(())
}

/// Removes a module.
pub fn forget(name: &str) -> Result<(), Failure> {
    let unknown = || {
        Failure::new(Exit::NotFound, format!("--unload {name}: no module has this name"))
            .advise("dcs ops --no-measure lists them at the end")
    };
    let path = Some(name).filter(|name| is_name(name)).and_then(find).ok_or_else(unknown)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(unknown()),
        removed => removed.map_err(|error| Failure::io(path.display(), &error)),
    }
}

/// Loads a module into this process, so that chains may name it. Returns its name in chains.
pub fn load(path: &Path, parameter: &[u8]) -> Result<[u8; 32], Failure> {
    let module = engine::load(path, &read(path)?)?;
    engine::install(path, module, parameter)
}

/// Reads a module. Of a file that is too long, reads just enough to refuse it.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(engine::READ).read_to_end(&mut bytes));
    read.map_err(|error| Failure::io(format!("module {}", path.display()), &error))?;
    Ok(bytes)
}

#[cfg(feature = "wasm")]
mod engine {
    use crate::failure::{Exit, Failure};
    use dcs_ndp::module::Module as _;
    use dcs_wasm::{Limits, MODULE_MAX, Module};
    use std::path::Path;

    pub const READ: u64 = MODULE_MAX as u64 + 1;

    pub fn load(path: &Path, bytes: &[u8]) -> Result<Module, Failure> {
        Module::load(bytes, Limits::default()).map_err(|error| {
            Failure::new(Exit::Usage, format!("module {}: {error}", path.display()))
                .advise("docs/wasm.md says what an operator must provide")
        })
    }

    /// Lets chains name the module, if it takes the parameter.
    pub fn install(path: &Path, module: Module, parameter: &[u8]) -> Result<[u8; 32], Failure> {
        let name = *module.name();
        module.start(parameter).map(drop).map_err(|error| {
            let parameter = String::from_utf8_lossy(parameter).into_owned();
            Failure::usage(format!("--through: module {}: parameter {parameter:?}: {error}", path.display()))
        })?;
        match module.install() {
            true => Ok(name),
            false => Err(Failure::usage("--through: too many modules")),
        }
    }
}

/// Stand-in for the engine of modules, which ordinary builds leave out.
#[cfg(not(feature = "wasm"))]
mod engine {
    use crate::failure::Failure;
    use std::path::Path;

    pub const READ: u64 = 0;

    /// Nothing: no module can be loaded.
    pub type Module = [u8; 0];

    pub fn load(path: &Path, _: &[u8]) -> Result<Module, Failure> {
        let line = format!("module {}: this dcs was built without WebAssembly", path.display());
        Err(Failure::usage(line).advise("build it with: make build WASM=yes (packages have it)"))
    }

    pub fn install(_: &Path, _: Module, _: &[u8]) -> Result<[u8; 32], Failure> {
        Ok([0; 32])
    }
}
