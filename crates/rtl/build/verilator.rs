//! The models, their shims in C++, and the Rust that calls them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The modules of `rtl/` that become models.
const MODULES: [(&str, Models); 5] = [
    ("engine", Models::One),
    ("processing", Models::Pools("Has")),
    ("nvme_controller", Models::One),
    ("nic_controller", Models::Both("Advanced")),
    ("nic_receive", Models::One),
];

/// The models that a module becomes.
#[derive(Clone, Copy)]
enum Models {
    One,
    /// One for each pool: by this parameter it has one of the pool's units and no other, and its model is as many times quicker.
    Pools(&'static str),
    /// One where this parameter is 0, and one where it is 1.
    Both(&'static str),
}

impl Models {
    /// Returns Verilator's option for the parameter, for each model.
    fn parameters(self, pools: usize, units: usize) -> Vec<Option<String>> {
        match self {
            Models::One => vec![None],
            Models::Pools(name) => (0..pools)
                .map(|pool| Some(format!("-G{name}={}'d{}", pools * units, 1 << (pool * units))))
                .collect(),
            Models::Both(name) => (0..2).map(|value| Some(format!("-G{name}=1'd{value}"))).collect(),
        }
    }
}

/// The lines of `tools/rtl body` that begin with a word.
struct BodyLines(String);

impl BodyLines {
    fn ask(repository: &Path) -> BodyLines {
        let mut command = Command::new(repository.join("tools/rtl"));
        command
            .arg("body")
            .args(MODULES.map(|module| module.0))
            .env("DCS_CLIENTS", "demand")
            .stderr(Stdio::inherit());
        let done = command.output().expect("tools/rtl is a program");
        assert!(done.status.success(), "tools/rtl could not install Verilator: its message is above");
        BodyLines(String::from_utf8(done.stdout).expect("it writes text"))
    }

    fn lines<'a>(&'a self, first: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
        let words = self.0.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        words.filter(move |words| words[0] == first).map(|words| words[1..].to_vec())
    }
}

/// A port of the module, as Verilator's header declares it.
struct Port {
    name: String,
    is_input: bool,
    bits: u32,
}

impl Port {
    /// Types in Rust and in C++.
    fn types(&self) -> (String, &'static str, String) {
        let words = self.bits.div_ceil(32);
        match self.bits {
            1 => ("bool".into(), "bool", String::new()),
            2..=64 => ("u64".into(), "uint64_t", String::new()),
            _ => (format!("[u32; {words}]"), "uint32_t", format!("[{words}]")),
        }
    }

    /// Copies it from one structure to the other, in C++.
    fn copy(&self, to: &str, from: &str) -> String {
        let name = &self.name;
        match self.bits {
            0..=64 => format!("    {to}{name} = {from}{name};\n"),
            bits => {
                let words = bits.div_ceil(32);
                format!("    for (int i = 0; i < {words}; i++) {to}{name}[i] = {from}{name}[i];\n")
            }
        }
    }
}

pub fn build() {
    let variable = |name| PathBuf::from(std::env::var_os(name).expect("cargo sets it"));
    let repository = variable("CARGO_MANIFEST_DIR").join("../..");
    let out = variable("OUT_DIR");
    for path in [
        "build.rs",
        "build",
        "../../tools/rtl",
        "../../rtl/tools/body.py",
        "../../rtl/tools/modules.py",
        "../../rtl/test/layouts.py",
        "../../rtl/requirements.txt",
    ] {
        println!("cargo:rerun-if-changed={path}");
    }
    let told = BodyLines::ask(&repository);
    let root = PathBuf::from(told.lines("root").next().expect("it tells where Verilator is")[0]);
    told.lines("source").for_each(|words| println!("cargo:rerun-if-changed={}", words[0]));
    let pools = told.lines("operators").next().expect("it tells them").len();
    let units = told.lines("constant").find(|words| words[0] == "Units").expect("it tells them");
    let units: usize = units[1].parse().expect("a number");
    let mut made = sizes(&told);
    let mut all = Vec::new();
    for (module, models) in MODULES {
        let each = models.parameters(pools, units).into_iter().enumerate();
        let make =
            |(at, parameter)| Model::make(module, &format!("{module}_{at}"), parameter, &told, &root, &out);
        let models: Vec<_> = each.map(make).collect();
        made += &rust(module, &models);
        all.extend(models);
    }
    compile(&root, &all);
    std::fs::write(out.join("model.rs"), made).expect("the folder is ours");
}

/// A module, as Verilator has translated it. Its name is a part of all names in C++.
struct Model {
    name: String,
    folder: PathBuf,
    ports: Vec<Port>,
}

impl Model {
    fn make(
        module: &str,
        name: &str,
        parameter: Option<String>,
        told: &BodyLines,
        root: &Path,
        out: &Path,
    ) -> Model {
        let folder = out.join(name);
        // Of an earlier version there may be files with other names.
        let _ = std::fs::remove_dir_all(&folder);
        let files = told.lines("file").filter(|words| words[0] == module).map(|words| words[1].to_string());
        let mut command = Command::new(root.join("bin/verilator_bin"));
        command.env("VERILATOR_ROOT", root);
        command.args(["--cc", "-O3", "--no-timing", "--x-assign", "fast", "--x-initial", "fast"]);
        command.args(["--top-module", module, "--prefix", &format!("V{name}")]).args(parameter);
        let status = command.arg("--Mdir").arg(&folder).args(files).status();
        assert!(status.expect("verilator_bin is a program").success(), "Verilator refuses rtl/{module}.sv");
        let header = std::fs::read_to_string(folder.join(format!("V{name}.h"))).expect("Verilator makes it");
        let ports = header.lines().filter_map(port).collect();
        let model = Model { name: name.to_string(), folder, ports };
        std::fs::write(model.folder.join("shim.cpp"), model.shim()).expect("the folder is ours");
        model
    }

    fn ports(&self, is_input: bool) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(move |port| port.is_input == is_input && port.name != "clk_i")
    }

    fn shim(&self) -> String {
        let name = &self.name;
        let mut structures = String::new();
        let mut copies = [String::new(), String::new()];
        for (kind, is_input) in [("In", true), ("Out", false)] {
            structures += &format!("struct dcs_{name}_{kind} {{\n");
            for port in self.ports(is_input) {
                let (_, kind, dimension) = port.types();
                let _ = writeln!(structures, "    {kind} {}{dimension};", port.name);
                copies[usize::from(!is_input)] +=
                    &if is_input { port.copy("t.", "in->") } else { port.copy("out->", "t.") };
            }
            structures += "};\n";
        }
        let [inputs, outputs] = copies;
        // The clock stays high: that it was low is put where Verilator keeps it, and of an evaluation only the parts behind an
        // edge are done then, since inputs have been evaluated before. That spares most of a cycle.
        SHIM.replace("STRUCTURES", &structures)
            .replace("INPUTS", &inputs)
            .replace("OUTPUTS", &outputs)
            .replace("NAME", name)
    }
}

/// Ports of a module, and functions of its models, in Rust.
fn rust(module: &str, models: &[Model]) -> String {
    let mut text = format!("pub mod {module} {{\n");
    for (name, is_input) in [("In", true), ("Out", false)] {
        text += "#[repr(C)]\n#[derive(Clone, Copy, Debug, Default, PartialEq)]\n";
        let _ = writeln!(text, "pub struct {name} {{");
        models[0]
            .ports(is_input)
            .for_each(|port| _ = writeln!(text, "    pub {}: {},", port.name, port.types().0));
        text += "}\n";
    }
    let named = |template: &str| -> String {
        models.iter().map(|model| template.replace("NAME", &model.name)).collect()
    };
    text + "unsafe extern \"C\" {\n"
        + &named(DECLARATIONS)
        + "}\n"
        + &format!("pub const MODELS: [super::Functions<In, Out>; {}] = [\n", models.len())
        + &named(FUNCTIONS)
        + "];\n}\n"
}

/// The shim of every model, in C++: NAME, INPUTS, OUTPUTS and STRUCTURES are a model's own.
const SHIM: &str = r#"#include "VNAME.h"
#include "VNAME___024root.h"
#include "verilated.h"

bool VNAME___024root___eval_phase__act(VNAME___024root *);
bool VNAME___024root___eval_phase__nba(VNAME___024root *);

extern "C" {
STRUCTURES
struct dcs_NAME_sim { VerilatedContext context; VNAME top{&context}; };
void *dcs_NAME_new() {
    auto *s = new dcs_NAME_sim;
    s->top.clk_i = 1;
    s->top.eval();
    return s;
}
void dcs_NAME_free(void *sim) {
    auto *s = (dcs_NAME_sim *)sim;
    s->top.final();
    delete s;
}
static void take(const VNAME &t, dcs_NAME_Out *out) {
OUTPUTS}
void dcs_NAME_settle(void *sim, const dcs_NAME_In *in, dcs_NAME_Out *out) {
    auto &t = ((dcs_NAME_sim *)sim)->top;
INPUTS    t.eval();
    take(t, out);
}
void dcs_NAME_edge(void *sim, dcs_NAME_Out *out) {
    auto &t = ((dcs_NAME_sim *)sim)->top;
    t.rootp->__Vtrigprevexpr___TOP__clk_i__0 = 0;
    VNAME___024root___eval_phase__act(t.rootp);
    VNAME___024root___eval_phase__nba(t.rootp);
    take(t, out);
}
}
"#;

/// A model's functions in Rust.
const DECLARATIONS: &str = "    fn dcs_NAME_new() -> *mut core::ffi::c_void;
    fn dcs_NAME_free(sim: *mut core::ffi::c_void);
    fn dcs_NAME_settle(sim: *mut core::ffi::c_void, input: *const In, output: *mut Out);
    fn dcs_NAME_edge(sim: *mut core::ffi::c_void, output: *mut Out);
";
const FUNCTIONS: &str = "    super::Functions {
        new: dcs_NAME_new,
        free: dcs_NAME_free,
        settle: dcs_NAME_settle,
        edge: dcs_NAME_edge,
    },
";

/// A line like `VL_INW(&outcome_i,67,0,3);`.
fn port(line: &str) -> Option<Port> {
    let line = line.trim();
    let is_input = line.starts_with("VL_IN");
    if !is_input && !line.starts_with("VL_OUT") {
        return None;
    }
    let inside = line.get(line.find('(')? + 1..line.find(')')?)?;
    let mut words = inside.split(',');
    let name = words.next()?.trim_start_matches('&').to_string();
    let (high, low): (u32, u32) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Port { name, is_input, bits: high - low + 1 })
}

fn compile(root: &Path, models: &[Model]) {
    let include = root.join("include");
    let made = models.iter().flat_map(|model| std::fs::read_dir(&model.folder).expect("Verilator makes it"));
    let made = made.map(|entry| entry.expect("it can be read").path());
    let made = made.filter(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    // What runs once is compiled quickly.
    let is_slow = |path: &PathBuf| path.to_string_lossy().contains("__Slow");
    let (slow, fast): (Vec<_>, Vec<_>) = made.partition(is_slow);
    let fast =
        fast.into_iter().chain(["verilated.cpp", "verilated_threads.cpp"].map(|name| include.join(name)));
    let folders: Vec<_> = models.iter().map(|model| &*model.folder).chain([&*include]).collect();
    compile_files(&folders, "dcs_rtl_model", 2, fast.collect());
    compile_files(&folders, "dcs_rtl_slow", 0, slow);
    println!("cargo:rustc-link-lib=pthread");
}

fn compile_files(include: &[&Path], library: &str, level: u32, files: Vec<PathBuf>) {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(level).debug(false).warnings(false);
    build.includes(include).define("VERILATOR", "1");
    for name in
        ["VM_COVERAGE", "VM_SC", "VM_TIMING", "VM_TRACE", "VM_TRACE_FST", "VM_TRACE_SAIF", "VM_TRACE_VCD"]
    {
        build.define(name, "0");
    }
    build.files(files).compile(library);
}

/// Structures and sizes of the core in Rust.
fn sizes(told: &BodyLines) -> String {
    let mut text = String::new();
    for words in told.lines("constant") {
        let name = words[0].chars().fold(String::new(), |name, letter| {
            let gap = if letter.is_uppercase() && !name.is_empty() { "_" } else { "" };
            name + gap + &letter.to_ascii_uppercase().to_string()
        });
        let _ = writeln!(text, "pub const {name}: u64 = {};", words[1]);
    }
    let operators = told.lines("operators").next().expect("it tells them");
    let _ = writeln!(text, "pub const OPERATORS: [u8; {}] = [{}];", operators.len(), operators.join(", "));
    for words in told.lines("struct") {
        text += &structure(words[0], &words[1..]);
    }
    text
}

/// A packed structure: the first field has the highest bits.
fn structure(name: &str, fields: &[&str]) -> String {
    let name: String =
        name.trim_end_matches("_t").split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect();
    let fields: Vec<(&str, u32)> = fields
        .iter()
        .map(|field| field.split_once(':').expect("a name and a width"))
        .map(|(name, width)| (name, width.parse().expect("a width")))
        .collect();
    let bits: u32 = fields.iter().map(|field| field.1).sum();
    let (mut members, mut gets, mut puts, mut low) = (String::new(), String::new(), String::new(), bits);
    for (field, width) in fields {
        low -= width;
        let _ = writeln!(members, "    pub {field}: u64,");
        let _ = writeln!(gets, "            {field}: get(&words, {low}, {width}),");
        let _ = writeln!(puts, "        put(&mut words, {low}, {width}, self.{field});");
    }
    let words = bits.div_ceil(32);
    let (kind, from, to) = match bits {
        0..=64 => ("u64".to_string(), "let words = [bits as u32, (bits >> 32) as u32];", "join(&words)"),
        _ => (format!("[u32; {words}]"), "let words = bits;", "words"),
    };
    let room = words.max(2);
    format!(
        "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]\npub struct {name} {{\n{members}}}\n\
         impl {name} {{\n    pub fn unpack(bits: {kind}) -> {name} {{\n        {from}\n        {name} {{\n{gets}        }}\n    }}\n\
         \x20   pub fn pack(&self) -> {kind} {{\n        let mut words = [0; {room}];\n{puts}        {to}\n    }}\n}}\n"
    )
}
