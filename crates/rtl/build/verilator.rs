//! The model, its shim in C++, and the Rust that calls it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The lines of `tools/rtl body` that begin with a word.
struct BodyLines(String);

impl BodyLines {
    fn ask(repository: &Path) -> BodyLines {
        let mut command = Command::new(repository.join("tools/rtl"));
        command.args(["body", "engine"]).env("DCS_CLIENTS", "demand").stderr(Stdio::inherit());
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
    let files: Vec<_> = told.lines("file").map(|words| words[0].to_string()).collect();
    told.lines("source").for_each(|words| println!("cargo:rerun-if-changed={}", words[0]));
    let model = out.join("model");
    // Of an earlier version there may be files with other names.
    let _ = std::fs::remove_dir_all(&model);
    let mut command = Command::new(root.join("bin/verilator_bin"));
    command.env("VERILATOR_ROOT", &root).args([
        "--cc",
        "-O3",
        "--no-timing",
        "--x-assign",
        "fast",
        "--x-initial",
    ]);
    command
        .args(["fast", "--top-module", "engine", "--prefix", "Vengine", "--Mdir"])
        .arg(&model)
        .args(&files);
    assert!(
        command.status().expect("verilator_bin is a program").success(),
        "Verilator refuses rtl/engine.sv"
    );
    let header = std::fs::read_to_string(model.join("Vengine.h")).expect("Verilator makes it");
    let ports: Vec<_> = header.lines().filter_map(port).collect();
    std::fs::write(model.join("shim.cpp"), shim(&ports)).expect("the folder is ours");
    compile(&root, &model);
    std::fs::write(out.join("model.rs"), rust(&told, &ports)).expect("the folder is ours");
}

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

fn is_clock(port: &&Port) -> bool {
    port.name == "clk_i"
}

fn shim(ports: &[Port]) -> String {
    let mut text = String::from(
        "#include \"Vengine.h\"\n#include \"Vengine___024root.h\"\n#include \"verilated.h\"\n\nbool Vengine___024root___eval_phase__act(Vengine___024root *);\nbool Vengine___024root___eval_phase__nba(Vengine___024root *);\n\nextern \"C\" {\n",
    );
    let mut copies = [String::new(), String::new()];
    for (name, is_input) in [("In", true), ("Out", false)] {
        text += &format!("struct dcs_rtl_{name} {{\n");
        for port in ports.iter().filter(|port| port.is_input == is_input && !is_clock(port)) {
            let (_, kind, dimension) = port.types();
            let _ = writeln!(text, "    {kind} {}{dimension};", port.name);
            copies[usize::from(!is_input)] +=
                &if is_input { port.copy("t.", "in->") } else { port.copy("out->", "t.") };
        }
        text += "};\n";
    }
    let [inputs, outputs] = copies;
    // The clock stays high: that it was low is put where Verilator keeps it, and of an evaluation only the parts behind an
    // edge are done then, since inputs have been evaluated before. That spares most of a cycle.
    text + &format!(
        "struct dcs_rtl_sim {{ VerilatedContext context; Vengine top{{&context}}; }};\n\
         void *dcs_rtl_new() {{\n    auto *s = new dcs_rtl_sim;\n    s->top.clk_i = 1;\n    s->top.eval();\n    return s;\n}}\n\
         void dcs_rtl_free(void *sim) {{\n    auto *s = (dcs_rtl_sim *)sim;\n    s->top.final();\n    delete s;\n}}\n\
         static void take(const Vengine &t, dcs_rtl_Out *out) {{\n{outputs}}}\n\
         void dcs_rtl_settle(void *sim, const dcs_rtl_In *in, dcs_rtl_Out *out) {{\n\
         \x20   auto &t = ((dcs_rtl_sim *)sim)->top;\n{inputs}    t.eval();\n    take(t, out);\n}}\n\
         void dcs_rtl_edge(void *sim, dcs_rtl_Out *out) {{\n\
         \x20   auto &t = ((dcs_rtl_sim *)sim)->top;\n    t.rootp->__Vtrigprevexpr___TOP__clk_i__0 = 0;\n\
         \x20   Vengine___024root___eval_phase__act(t.rootp);\n    Vengine___024root___eval_phase__nba(t.rootp);\n    take(t, out);\n}}\n}}\n"
    )
}

fn compile(root: &Path, model: &Path) {
    let include = root.join("include");
    let made = std::fs::read_dir(model).expect("Verilator makes it");
    let made = made.map(|entry| entry.expect("it can be read").path());
    let made = made.filter(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    // What runs once is compiled quickly.
    let is_slow = |path: &PathBuf| path.to_string_lossy().contains("__Slow");
    let (slow, fast): (Vec<_>, Vec<_>) = made.partition(is_slow);
    let fast =
        fast.into_iter().chain(["verilated.cpp", "verilated_threads.cpp"].map(|name| include.join(name)));
    compile_files(&include, model, "dcs_rtl_model", 2, fast.collect());
    compile_files(&include, model, "dcs_rtl_slow", 0, slow);
    println!("cargo:rustc-link-lib=pthread");
}

fn compile_files(include: &Path, model: &Path, library: &str, level: u32, files: Vec<PathBuf>) {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(level).debug(false).warnings(false);
    build.includes([model, include, &include.join("vltstd")]).define("VERILATOR", "1");
    for name in
        ["VM_COVERAGE", "VM_SC", "VM_TIMING", "VM_TRACE", "VM_TRACE_FST", "VM_TRACE_SAIF", "VM_TRACE_VCD"]
    {
        build.define(name, "0");
    }
    build.files(files).compile(library);
}

/// Ports, structures and sizes in Rust.
fn rust(told: &BodyLines, ports: &[Port]) -> String {
    let mut text = String::new();
    for (name, is_input) in [("In", true), ("Out", false)] {
        let _ = writeln!(
            text,
            "#[repr(C)]\n#[derive(Clone, Copy, Debug, Default, PartialEq)]\npub struct {name} {{"
        );
        for port in ports.iter().filter(|port| port.is_input == is_input && !is_clock(port)) {
            let _ = writeln!(text, "    pub {}: {},", port.name, port.types().0);
        }
        text += "}\n";
    }
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
