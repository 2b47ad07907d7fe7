//! What loading takes of memory, whatever the module is: a drive that lets its guest load modules sets so much aside
//! (`dcs-csd`, `near::Builder`).
#![allow(unsafe_code, reason = "a global allocator")]

use dcs_wasm::{Limits, Module};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that loading may take for each byte of the module, and besides.
const PER_BYTE: usize = 64;
const BESIDES: usize = 1 << 20;

/// The system's allocator, with the bytes that are taken and the most there were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it does what the system's does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that loading takes, less those of the module that stays: its memory is the stream's, of the drive's limits.
fn most(bytes: &[u8]) -> (usize, String) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let loaded = Module::load(bytes, Limits::of_drive());
    let most = MOST.load(Ordering::Relaxed) - before;
    (most, loaded.err().map_or("loaded".into(), |error| error.to_string()))
}

/// Modules with much of one thing, of about 100 KiB.
fn modules() -> Vec<(&'static str, String)> {
    let many = |count: usize, text: &str| text.repeat(count);
    let function = |body: String| format!("(module (func (param i32 i64) (local i64 f64) {body}))");
    vec![
        ("operands", function(many(30_000, "(drop (local.get 0)) "))),
        ("additions", function(many(12_000, "(local.set 0 (i32.add (local.get 0) (local.get 0))) "))),
        ("blocks", function(many(30_000, "(block) "))),
        ("nested blocks", function(format!("{}{}", many(250, "(block "), many(250, ") ")))),
        ("loops", function(many(20_000, "(loop) "))),
        ("branches", function(format!("(block $b {} )", many(2_000, "(br_if $b (local.get 0)) ")))),
        ("a table of branches", function(format!("(br_table {} (local.get 0))", many(90_000, "0 ")))),
        ("stores", function(many(10_000, "(i64.store (local.get 0) (local.get 1)) "))),
        ("selects", function(many(9_000, "(drop (select (local.get 0) (local.get 0) (local.get 0))) "))),
        ("calls", format!("(module (func $f) (func {}))", many(40_000, "(call $f) "))),
        (
            "functions",
            format!(
                "(module {})",
                many(2_500, &format!("(func (param i64) {}) ", many(13, "(drop (local.get 0)) ")))
            ),
        ),
        (
            "types",
            format!(
                "(module {})",
                (0..900)
                    .map(|at| format!("(type (func (param {})))", many(at % 32 + 1, "i64 ")))
                    .collect::<String>()
            ),
        ),
        (
            "exports",
            format!(
                "(module (func $f) {})",
                (0..1000).map(|at| format!("(export \"{at:0>90}\" (func $f)) ")).collect::<String>()
            ),
        ),
        ("elements", format!("(module (func $f) (elem func {}))", many(65_000, "$f "))),
        ("data", format!("(module (memory 1) (data \"{}\"))", many(100_000, "x"))),
        ("segments", format!("(module (memory 1) {})", many(999, "(data \"x\") "))),
        ("globals", format!("(module {})", many(999, "(global i64 (i64.const 7)) "))),
    ]
}

/// A module whose functions have many values and call themselves often: its stack gets as high as a stack may.
fn deep() -> Vec<u8> {
    let add =
        |at: u64| format!("(local.set $x (i64.add (local.get $x) (i64.const {})))", (1u64 << 48) + at * 7);
    let additions: String = (0..2000).map(add).collect();
    let text = format!(
        r#"(module (memory (export "memory") 3)
        (data (i32.const 0) "\01\00\00\00\00\04\00\00\00\00\01\00\00\04\00\00\00\00\01\00")
        (func $f (param $d i32) (result i64) (local $x i64)
            (if (i32.eqz (local.get $d)) (then (return (i64.const 1))))
            (local.set $x (call $f (i32.sub (local.get $d) (i32.const 1)))) {additions} (local.get $x))
        (func (export "dcs_operator") (result i32) (i32.const 0))
        (func (export "dcs_start") (param i32) (result i32) (drop (call $f (i32.const 490))) (i32.const 0))
        (func (export "dcs_step") (param i32 i32) (result i32) (i32.const 1)))"#
    );
    wat::parse_str(text).expect("it is one")
}

/// Memory that a stream takes while it starts, and that is left afterwards.
fn stack_of_a_stream() {
    let bytes = deep();
    let module = Module::load(&bytes, Limits::of_drive()).expect("it is an operator");
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let stream = dcs_ndp::module::Module::start(&module, &[]);
    drop(stream);
    let (most, left) = (MOST.load(Ordering::Relaxed) - before, NOW.load(Ordering::Relaxed) - before);
    println!("a deep stack: {most} bytes at most, {left} afterwards");
    assert!(most as u64 <= dcs_ndp::module::Module::memory(&module), "{most}");
    assert!(left <= 64 << 10, "{left}");
}

/// All in one test: what others allocate meanwhile would count.
#[test]
fn loading_takes_no_more_memory_than_is_set_aside() {
    let mut told = Vec::new();
    for (what, text) in modules() {
        let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{what}: {error}"));
        let (most, how) = most(&bytes);
        told.push(format!("{what}: {most} of {} bytes, {} each: {how:.80}", bytes.len(), most / bytes.len()));
        assert!(most <= BESIDES + PER_BYTE * bytes.len(), "{told:#?}");
    }
    println!("{told:#?}");
    stack_of_a_stream();
}
