//! Programs that guests load: WebAssembly modules, and other bytes that a guest may send.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dcs_abi::operator::Operator;
use dcs_abi::status::Status as Reason;
use dcs_csd::near::{Batch, Builder, CHAIN, LOADED, LOADED_BYTES, LOADED_MIB, WEBASSEMBLY};
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Config, Waste, Workers};
use dcs_ndp::OperatorError;
use dcs_ndp::module::{Codec, Module};
use dcs_nvme::command::{Command, GetLogPage, admin, log};
use dcs_nvme::identify::{self, set};
use dcs_nvme::programs::{self, Descriptor, LoadProgram, MemoryRange, ProgramActivation};
use dcs_nvme::{Status, register};

use crate::near::{Near, TURNS, entry, module_bytes, parameters, through};
use crate::rig::{DATA, LISTS, Machine};
use crate::rules::prp;
use crate::sets::{self, LENGTH, PROGRAMS, execute, range, store};

/// The first index of programs that are loaded.
const FIRST: u16 = CHAIN + 1;

/// Bytes of a piece at most that this guest sends.
const PIECE: usize = 64 << 10;

fn builder() -> Builder {
    Arc::new(|bytes: &[u8]| {
        let module = dcs_wasm::Module::load(bytes, dcs_wasm::Limits::of_drive()).ok()?;
        Some((*module.name(), Arc::new(module) as Arc<dyn dcs_ndp::module::Module>))
    })
}

fn config() -> Config {
    Config { programs: true, memory: LENGTH, ..Config::new("loads") }
}

/// A machine with a namespace of 1 MiB, whose guest may load programs.
fn prepared(config: Config, workers: Option<Box<dyn Workers>>) -> Machine<ModelStorage> {
    let mut storage = ModelStorage::new(0);
    let volume = storage.add(1 << 20, 512);
    let mut machine = match workers {
        Some(workers) => Machine::with_workers(config, storage, workers),
        None => Machine::new(config, storage, true),
    };
    machine.controller().set_builder(builder());
    machine.attach(1, volume, 512);
    machine.enable_sets(6);
    machine.create(1);
    machine
}

fn machine() -> Machine<ModelStorage> {
    prepared(config(), None)
}

/// The command for one piece, whose bytes are put into the guest's memory.
fn piece(machine: &Machine<ModelStorage>, wanted: LoadProgram, bytes: &[u8]) -> Command {
    machine.guest.store(DATA, bytes);
    let pages: Vec<u8> = (1..32u64).flat_map(|page| (DATA + page * 4096).to_le_bytes()).collect();
    machine.guest.store(LISTS, &pages);
    let second = if bytes.len() > 8192 { LISTS } else { DATA + 4096 };
    let words = LoadProgram { bytes: bytes.len() as u32, ..wanted }.words();
    Command {
        opcode: admin::LOAD_PROGRAM,
        namespace: PROGRAMS,
        data: prp(DATA, second),
        words,
        ..Command::default()
    }
}

fn whole(index: u16, size: usize) -> LoadProgram {
    LoadProgram { program: index, kind: WEBASSEMBLY, size: size as u32, ..LoadProgram::default() }
}

/// Loads a program in pieces; returns the status of the last one, or of the first that failed.
fn load(machine: &mut Machine<ModelStorage>, index: u16, bytes: &[u8]) -> Status {
    for (place, part) in bytes.chunks(PIECE).enumerate() {
        let wanted = LoadProgram { offset: (place * PIECE) as u32, ..whole(index, bytes.len()) };
        let command = piece(machine, wanted, part);
        let status = machine.admin(command).status;
        if !status.is_success() {
            return status;
        }
    }
    Status::SUCCESS
}

fn unload(machine: &mut Machine<ModelStorage>, index: u16) -> Status {
    let words = LoadProgram { program: index, unload: true, ..LoadProgram::default() }.words();
    let command = Command { opcode: admin::LOAD_PROGRAM, namespace: PROGRAMS, words, ..Command::default() };
    machine.admin(command).status
}

fn activate(machine: &mut Machine<ModelStorage>, program: u16, select: u8) -> Status {
    let words = ProgramActivation { program, select }.words();
    let opcode = admin::PROGRAM_ACTIVATION;
    machine.admin(Command { opcode, namespace: PROGRAMS, words, ..Command::default() }).status
}

/// The programs that are loaded, their bytes, and the memory that operators have.
fn held(machine: &Machine<ModelStorage>) -> ((usize, u64), u64) {
    let controller = machine.controller();
    (controller.loaded(), controller.operator_memory())
}

fn vendor(reason: Reason) -> Status {
    Status(reason.code())
}

/// The block of chains that name a module of these bytes.
fn named(bytes: &[u8]) -> Vec<(Operator, Vec<u8>)> {
    let module = dcs_wasm::Module::load(bytes, dcs_wasm::Limits::of_drive()).unwrap();
    vec![(Operator::Module, dcs_ndp::module::parameter(module.name(), b""))]
}

/// Ranges for an execution: source and target.
fn ranges(length: u32) -> [MemoryRange; 2] {
    [range(0, length), range(512 << 10, 400_000)]
}

/// A module of about so many bytes, most of which are data.
fn large(bytes: usize) -> Vec<u8> {
    let body = format!("(drop (i32.const 7)) {TURNS}");
    let module = module_bytes(&body);
    // A custom section: a name, and zeros.
    let padding = bytes - module.len() - 8;
    let mut size = (padding + 2) as u32;
    let mut section = vec![0];
    for _ in 0..4 {
        section.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    section.push(size as u8);
    section.extend_from_slice(b"\x01x");
    section.resize(section.len() + padding, 0);
    [module, section].concat()
}

#[test]
fn a_guest_s_program_is_loaded_activated_and_executed() {
    let mut machine = machine();
    let (status, data) = machine.identify_of(identify::NAMESPACE_OF_SET, 0, set::PROGRAMS, PROGRAMS);
    assert_eq!((status, programs::Namespace::from_bytes(&data).program_bytes), (Status::SUCCESS, LOADED_MIB));
    let turns = large(150_000);
    assert_eq!(load(&mut machine, FIRST, &turns), Status::SUCCESS);
    assert_eq!(machine.controller().loaded(), (1, turns.len() as u64));
    let source = sets::text(200_000);
    store(&mut machine, 0, &source);
    let (all, two) = (source.len() as u32, ranges(source.len() as u32));
    assert!(execute(&mut machine, FIRST, 0, &two, b"").status.is(Status::PROGRAM_NOT_ACTIVATED));
    assert_eq!(activate(&mut machine, FIRST, 1), Status::SUCCESS);
    let done = execute(&mut machine, FIRST, 0, &two, b"");
    assert_eq!((done.status, done.result), (Status::SUCCESS, all));
    let turned: Vec<u8> = source.iter().map(|byte| !byte).collect();
    assert!(sets::load(&mut machine, 512 << 10, source.len()) == turned);
    // In a chain of the programs' own, and as an operator of the vendor's commands.
    let chain = [named(&turns), named(&turns)].concat();
    let done = execute(&mut machine, CHAIN, 0, &two, &parameters(&chain, 0));
    assert_eq!((done.status, done.result), (Status::SUCCESS, all));
    assert!(sets::load(&mut machine, 512 << 10, source.len()) == source);
    assert_eq!(through(&mut machine, &named(&turns), 512), Ok(vec![255; 512]));
    // The log tells of it, and of no other.
    let words =
        GetLogPage { page: log::PROGRAMS, retain_event: false, bytes: 64, offset: 64 * u64::from(FIRST + 1) };
    let page = Command {
        opcode: admin::GET_LOG_PAGE,
        namespace: PROGRAMS,
        data: prp(DATA, 0),
        words: words.words(),
        ..Command::default()
    };
    assert_eq!(machine.admin(page).status, Status::SUCCESS);
    let expected = Descriptor { occupied: 1, activated: true, kind: WEBASSEMBLY, identifier: None };
    assert_eq!(Descriptor::from_bytes(&machine.guest.bytes(DATA, 64)), expected);
    // It is removed when it is not used.
    assert!(unload(&mut machine, FIRST).is(Status::PROGRAM_IN_USE), "it is activated");
    assert_eq!(activate(&mut machine, FIRST, 0), Status::SUCCESS);
    assert!(unload(&mut machine, FIRST).is(Status::PROGRAM_IN_USE), "a stream has it");
    assert!(load(&mut machine, FIRST, &turns).is(Status::PROGRAM_IN_USE));
    machine.write32(register::CC, 0);
    machine.work();
    assert_eq!(held(&machine), ((0, 0), 0));
    machine.enable_sets(6);
    machine.create(1);
    assert!(unload(&mut machine, FIRST).is(Status::NO_PROGRAM));
    assert_eq!(load(&mut machine, FIRST, &turns), Status::SUCCESS);
    assert_eq!(unload(&mut machine, FIRST), Status::SUCCESS);
    assert_eq!(held(&machine), ((0, 0), 0));
    assert!(execute(&mut machine, FIRST, 0, &two, b"").status.is(Status::NO_PROGRAM));
    assert_eq!(through(&mut machine, &named(&turns), 512), Err(vendor(Reason::UnknownOperator)));
}

#[test]
fn what_one_guest_has_loaded_no_other_one_has() {
    let (mut one, mut other) = (machine(), machine());
    let turns = module_bytes(&format!("(drop (i32.const 11)) {TURNS}"));
    assert_eq!(load(&mut one, FIRST, &turns), Status::SUCCESS);
    assert!(through(&mut one, &named(&turns), 512).is_ok());
    assert_eq!(through(&mut other, &named(&turns), 512), Err(vendor(Reason::UnknownOperator)));
    assert!(unload(&mut other, FIRST).is(Status::NO_PROGRAM));
}

#[test]
fn what_is_no_program_is_refused_as_the_standard_says() {
    let mut machine = machine();
    let good = module_bytes(TURNS);
    let size = good.len();
    let wanted = whole(FIRST, size);
    let table = [
        (
            LoadProgram { program: Operator::Md5 as u16, ..wanted },
            &good[..],
            Status::PROGRAM_INDEX_NOT_DOWNLOADABLE,
        ),
        (LoadProgram { program: CHAIN, ..wanted }, &good, Status::PROGRAM_INDEX_NOT_DOWNLOADABLE),
        (LoadProgram { program: FIRST + LOADED, ..wanted }, &good, Status::INVALID_PROGRAM_INDEX),
        (LoadProgram { kind: 1, ..wanted }, &good, Status::INVALID_PROGRAM_TYPE),
        (LoadProgram { identifier_kind: 2, ..wanted }, &good, Status::INVALID_FIELD),
        (wanted, &[], Status::INVALID_FIELD),
        (LoadProgram { size: LOADED_BYTES + 1, ..wanted }, &good, Status::PROGRAM_TOO_BIG),
        (LoadProgram { size: size as u32 - 1, ..wanted }, &good, Status::PROGRAM_TOO_BIG),
        (LoadProgram { offset: u32::MAX, ..wanted }, &good, Status::PROGRAM_TOO_BIG),
        (LoadProgram { offset: 4, ..wanted }, &good[4..], Status::INVALID_PROGRAM_DATA),
        // Bytes that are not a module, and modules that are not operators.
        (LoadProgram { size: 4, ..wanted }, b"\0asm", Status::INVALID_PROGRAM_DATA),
        (LoadProgram { size: 8, ..wanted }, b"\0asm\x01\0\0\0", Status::INVALID_PROGRAM_DATA),
        (LoadProgram { size: size as u32 - 1, ..wanted }, &good[..size - 1], Status::INVALID_PROGRAM_DATA),
    ];
    for (place, (wanted, bytes, expected)) in table.into_iter().enumerate() {
        let command = piece(&machine, wanted, bytes);
        let status = machine.admin(command).status;
        assert!(status.is(expected), "{place}: {status} instead of {expected}");
        assert!(status.do_not_retry(), "{place}");
    }
    let too_many = LoadProgram { bytes: 2 << 20, ..wanted }.words();
    let command = Command { words: too_many, ..piece(&machine, wanted, &good) };
    assert!(machine.admin(command).status.is(Status::INVALID_FIELD));
    // Memory that the guest does not have, and a piece that comes again after it.
    let command = Command { data: prp(1 << 40, 0), ..piece(&machine, wanted, &good) };
    assert!(machine.admin(command).status.is(Status::DATA_TRANSFER_ERROR));
    let half = size / 2;
    let command = piece(&machine, wanted, &good[..half]);
    assert_eq!(machine.admin(command).status, Status::SUCCESS);
    for (offset, size) in [(half as u32 + 4, size), (0x7000, size), (half as u32, size + 1)] {
        let command = piece(&machine, LoadProgram { offset, ..whole(FIRST, size.max(0x8000)) }, &good[..4]);
        assert!(machine.admin(command).status.is(Status::INVALID_PROGRAM_DATA));
    }
    assert_eq!(machine.controller().loaded(), (0, size as u64));
    assert!(activate(&mut machine, FIRST, 1).is(Status::NO_PROGRAM));
    let command = piece(&machine, LoadProgram { offset: half as u32, ..wanted }, &good[half..]);
    assert_eq!(machine.admin(command).status, Status::SUCCESS);
    assert_eq!(machine.controller().loaded(), (1, size as u64));
    // One that was begun is forgotten when it begins anew, or is unloaded.
    for _ in 0..3 {
        let command = piece(&machine, whole(FIRST + 1, size), &good[..half]);
        assert_eq!(machine.admin(command).status, Status::SUCCESS);
        assert_eq!(machine.controller().loaded(), (1, 2 * size as u64));
    }
    assert_eq!(unload(&mut machine, FIRST + 1), Status::SUCCESS);
    assert_eq!(machine.controller().loaded(), (1, size as u64));
}

/// Without `set_builder` nothing can be loaded, and nothing says that it could: `programs_that_cannot_be_are_refused`.
#[test]
fn programs_have_limits() {
    let mut machine = machine();
    let small = module_bytes(TURNS);
    for index in FIRST..FIRST + LOADED {
        assert_eq!(load(&mut machine, index, &small), Status::SUCCESS);
        assert_eq!(activate(&mut machine, index, 1), Status::SUCCESS);
    }
    assert!(load(&mut machine, FIRST + LOADED, &small).is(Status::INVALID_PROGRAM_INDEX));
    machine.write32(register::CC, 0);
    machine.work();
    machine.enable_sets(6);
    // Bytes of all: those on their way count, too.
    let megabyte = large(LOADED_BYTES as usize);
    for index in FIRST..FIRST + 3 {
        assert_eq!(load(&mut machine, index, &megabyte), Status::SUCCESS);
    }
    let begun = piece(&machine, whole(FIRST + 3, megabyte.len()), &megabyte[..PIECE]);
    assert_eq!(machine.admin(begun).status, Status::SUCCESS);
    assert!(load(&mut machine, FIRST + 4, &small).is(Status::TOO_MANY_PROGRAM_BYTES));
    assert_eq!(unload(&mut machine, FIRST + 3), Status::SUCCESS);
    assert_eq!(load(&mut machine, FIRST + 4, &small), Status::SUCCESS);
    // Their part of the operators' memory stays reserved while they are loaded.
    let held = machine.controller().operator_memory();
    assert!(held > 3 * u64::from(LOADED_BYTES), "{held}");
    let mut poor = prepared(Config { operator_memory: 32 << 20, ..config() }, None);
    assert!(load(&mut poor, FIRST, &megabyte).is(Status::INSUFFICIENT_PROGRAM_RESOURCES));
    assert_eq!(poor.controller().loaded(), (0, 0));
    let mut loaded = 0;
    let refused =
        (FIRST..FIRST + LOADED).map(|index| load(&mut poor, index, &large(100_000))).find(|status| {
            loaded += 1;
            !status.is_success()
        });
    assert_eq!((refused, loaded), (Some(Status::INTERRUPTED), 5));
    assert_eq!(unload(&mut poor, FIRST), Status::SUCCESS);
    assert_eq!(load(&mut poor, FIRST, &large(100_000)), Status::SUCCESS);
}

#[test]
fn a_hostile_program_fails_its_own_command() {
    let mut machine = machine();
    let bodies = [
        ("(loop $again (br $again)) (unreachable)", Reason::ModuleFuel),
        ("(unreachable)", Reason::ModuleTrap),
        ("(i32.load (i32.const -1))", Reason::ModuleTrap),
        ("(loop $again (drop (memory.grow (i32.const 1))) (br $again)) (unreachable)", Reason::ModuleMemory),
        ("(i32.store (i32.const 20) (i32.const -1)) (i32.const 0)", Reason::ModuleAnswer),
        ("(i32.const 9)", Reason::ModuleAnswer),
    ];
    let good = module_bytes(TURNS);
    assert_eq!(load(&mut machine, FIRST, &good), Status::SUCCESS);
    assert_eq!(activate(&mut machine, FIRST, 1), Status::SUCCESS);
    let source = sets::text(4096);
    store(&mut machine, 0, &source);
    for (body, reason) in bodies {
        assert_eq!(load(&mut machine, FIRST + 1, &module_bytes(body)), Status::SUCCESS, "{body}");
        assert_eq!(activate(&mut machine, FIRST + 1, 1), Status::SUCCESS);
        let done = execute(&mut machine, FIRST + 1, 0, &ranges(4096), b"");
        assert!(done.status.is(vendor(reason)), "{body}: {}", done.status);
        let done = execute(&mut machine, FIRST, 0, &ranges(4096), b"");
        assert_eq!((done.status, done.result), (Status::SUCCESS, 4096));
        assert_eq!(activate(&mut machine, FIRST + 1, 0), Status::SUCCESS);
        assert_eq!(unload(&mut machine, FIRST + 1), Status::SUCCESS);
    }
    // A module that loops when it is tried, and a megabyte of random bytes.
    let start = r#"(module (memory (export "memory") 1) (func $s (loop $again (br $again))) (start $s))"#;
    let start = wat::parse_str(start).unwrap();
    let junk = dcs_testkit::Random(7).bytes(LOADED_BYTES as usize);
    let mut named = junk.clone();
    named[..8].copy_from_slice(b"\0asm\x01\0\0\0");
    for bytes in [&start, &junk, &named] {
        assert!(load(&mut machine, FIRST + 1, bytes).is(Status::INVALID_PROGRAM_DATA));
    }
    assert_eq!(machine.controller().loaded(), (1, good.len() as u64));
    assert_eq!(execute(&mut machine, FIRST, 0, &ranges(4096), b"").result, 4096);
}

/// One slot, which works when it is allowed to.
struct Slot(Option<Batch>, Arc<AtomicBool>);

impl Workers for Slot {
    fn count(&self) -> usize {
        1
    }

    fn run(&mut self, _: u16, batch: Batch) {
        self.0 = Some(batch);
    }

    fn done(&mut self) -> Option<(u16, Batch)> {
        let mut batch = self.0.take_if(|_| self.1.load(Ordering::Relaxed))?;
        // As a thread does it.
        let whole = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| batch.run(&mut || 0)));
        if whole.is_err() {
            batch.fail();
        }
        Some((0, batch))
    }
}

/// A module that counts when it is dropped.
struct Tells(dcs_wasm::Module, Arc<AtomicUsize>);

impl Module for Tells {
    fn start(&self, parameter: &[u8]) -> Result<Box<dyn Codec>, OperatorError> {
        self.0.start(parameter)
    }

    fn memory(&self) -> u64 {
        self.0.memory()
    }
}

impl Drop for Tells {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// A machine with one slot, which works while `goes` is true; the modules that are gone, and what is to be given back.
struct Observed {
    machine: Machine<ModelStorage>,
    goes: Arc<AtomicBool>,
    gone: Arc<AtomicUsize>,
    handed: Arc<Mutex<Vec<Waste>>>,
}

impl Observed {
    fn new(config: Config) -> Observed {
        let goes = Arc::new(AtomicBool::new(true));
        let mut machine = prepared(config, Some(Box::new(Slot(None, goes.clone()))));
        let (gone, handed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (told, to) = (gone.clone(), handed.clone());
        machine.controller().set_builder(Arc::new(move |bytes: &[u8]| {
            let module = dcs_wasm::Module::load(bytes, dcs_wasm::Limits::of_drive()).ok()?;
            Some((*module.name(), Arc::new(Tells(module, told.clone())) as Arc<dyn Module>))
        }));
        machine.drives.set_disposal(move |waste| to.lock().unwrap().push(waste));
        Observed { machine, goes, gone, handed }
    }

    /// Works on while the slot does nothing.
    fn wait(&mut self) {
        self.goes.store(false, Ordering::Relaxed);
        self.machine.work();
    }

    /// The slot works again.
    fn go(&mut self) {
        self.goes.store(true, Ordering::Relaxed);
        self.machine.work();
    }

    /// Frees what was handed over so far.
    fn give_back(&mut self) {
        let now = std::mem::take(&mut *self.handed.lock().unwrap());
        drop(now);
        self.machine.work();
    }

    fn gone(&self) -> usize {
        self.gone.load(Ordering::Relaxed)
    }
}

/// A reset ends when the modules of streams, commands, parameters and slots have been freed, in whatever
/// order, and not before.
#[test]
fn a_reset_ends_when_modules_are_gone_that_were_in_use() {
    let turns = module_bytes(TURNS);
    for used in ["stream", "command", "parameters", "slot"] {
        let mut all = Observed::new(config());
        let reset = |all: &mut Observed| {
            all.machine.write32(register::CC, 0);
            all.machine.work();
        };
        if used != "slot" {
            assert_eq!(load(&mut all.machine, FIRST, &turns), Status::SUCCESS);
        }
        match used {
            "stream" => {
                let opened = crate::near::open(&mut all.machine, 1, &named(&turns), &[(0, 4096)]);
                assert_eq!(opened.status, Status::SUCCESS);
                reset(&mut all);
            }
            "command" => {
                let handle = crate::near::load(&mut all.machine, &named(&turns)).result.into();
                all.wait();
                let digest = Near::digest(handle, 8);
                all.machine.submit_bytes(1, entry(digest));
                all.machine.work();
                reset(&mut all);
                assert_eq!(all.machine.read32(register::CSTS), 1, "the slot is at it");
                all.go();
            }
            "parameters" => {
                assert_eq!(crate::near::load(&mut all.machine, &named(&turns)).status, Status::SUCCESS);
                reset(&mut all);
            }
            _ => {
                let command = piece(&all.machine, whole(FIRST, turns.len()), &turns);
                all.machine.submit(0, command);
                all.wait();
                reset(&mut all);
                all.give_back();
                all.go();
                assert_eq!(held(&all.machine).0, (0, turns.len() as u64), "it counts until it is gone");
                assert!(held(&all.machine).1 > 1 << 20);
            }
        }
        let mut rounds = 0;
        while all.gone() == 0 {
            assert_eq!(all.machine.read32(register::CSTS), 1, "{used}: the module is not back yet");
            all.give_back();
            rounds += 1;
            assert!(rounds < 5, "{used}");
        }
        assert_eq!((all.gone(), all.machine.read32(register::CSTS)), (1, 0), "{used}");
        assert_eq!(held(&all.machine), ((0, 0), 0));
    }
}

/// Two programs being loaded for one index: the module of the second is discarded, and counts until it is
/// freed.
#[test]
fn a_module_for_nothing_counts_until_it_is_given_back() {
    let mut all = Observed::new(config());
    all.wait();
    let modules = [1, 2].map(|at| module_bytes(&format!("(drop (i32.const {at})) {TURNS}")));
    let bytes = modules[0].len() as u64;
    for module in &modules {
        let command = piece(&all.machine, whole(FIRST, module.len()), module);
        all.machine.submit(0, command);
        all.machine.work();
    }
    all.go();
    let ends = [(); 2].map(|()| all.machine.reap(0).expect("a completion").status);
    assert!(ends[0].is_success() && ends[1].is(Status::PROGRAM_IN_USE), "{ends:?}");
    let ((count, counted), memory) = held(&all.machine);
    assert_eq!((count, counted, all.gone()), (1, 2 * bytes, 0));
    all.give_back();
    assert_eq!((held(&all.machine), all.gone()), (((1, bytes), memory / 2), 1));
}

/// Programs that a guest has unloaded count until they are freed: a load without room may be tried again, or
/// waits. No stream is closed for it.
#[test]
fn programs_find_the_room_that_others_are_leaving() {
    let mut all = Observed::new(config());
    let (megabyte, small) = (large(LOADED_BYTES as usize), module_bytes(TURNS));
    for index in FIRST..FIRST + 4 {
        assert_eq!(load(&mut all.machine, index, &megabyte), Status::SUCCESS);
    }
    assert_eq!(load(&mut all.machine, FIRST + 4, &small), Status::TOO_MANY_PROGRAM_BYTES.with_do_not_retry());
    assert_eq!(unload(&mut all.machine, FIRST), Status::SUCCESS);
    assert_eq!(load(&mut all.machine, FIRST, &megabyte), Status::INTERRUPTED);
    all.give_back();
    assert_eq!(load(&mut all.machine, FIRST, &megabyte), Status::SUCCESS);
    // Memory: four programs and a stream have nearly all.
    let mut all = Observed::new(Config { operator_memory: 32 << 20, ..config() });
    let program = large(100_000);
    for index in FIRST..FIRST + 4 {
        assert_eq!(load(&mut all.machine, index, &program), Status::SUCCESS);
    }
    let chain = [(Operator::Md5, vec![])];
    let stream = crate::near::open(&mut all.machine, 1, &chain, &[(0, 4096)]);
    assert_eq!(stream.status, Status::SUCCESS);
    assert_eq!(unload(&mut all.machine, FIRST), Status::SUCCESS);
    all.machine.guest.clock.fetch_add(60_000_000_000, Ordering::Relaxed);
    let (before, last) = program.split_at(PIECE);
    let command = piece(&all.machine, whole(FIRST, program.len()), before);
    assert_eq!(all.machine.admin(command).status, Status::SUCCESS);
    let wanted = LoadProgram { offset: PIECE as u32, ..whole(FIRST, program.len()) };
    let command = piece(&all.machine, wanted, last);
    all.machine.submit(0, command);
    all.machine.work();
    assert_eq!(all.machine.reap(0), None, "it waits for memory");
    all.give_back();
    assert_eq!(all.machine.reap(0).map(|done| done.status), Some(Status::SUCCESS));
    let (status, data, _) = crate::near::take(&mut all.machine, stream.result.into(), 4096, 0);
    assert_eq!((status, data.len()), (Status::SUCCESS, 4096));
}

/// The loop never frees modules: neither unloaded ones, nor those that are loaded, used or being made at a
/// reset; and a reset ends when they are freed.
#[test]
fn modules_are_given_back_beside_the_loop() {
    let Observed { mut machine, goes, gone, handed } = Observed::new(config());
    let turns = module_bytes(TURNS);
    assert_eq!(load(&mut machine, FIRST, &turns), Status::SUCCESS);
    let held_before = held(&machine);
    assert_eq!(unload(&mut machine, FIRST), Status::SUCCESS);
    machine.work();
    assert_eq!((gone.load(Ordering::Relaxed), handed.lock().unwrap().len()), (0, 1));
    assert_eq!(machine.controller().loaded(), (0, held_before.0.1), "its bytes count until then");
    handed.lock().unwrap().clear();
    assert_eq!((gone.load(Ordering::Relaxed), held(&machine)), (1, ((0, 0), 0)));
    // One without a user, one that parameters name, one that is being received, and one that is being made.
    for (at, index) in (FIRST..FIRST + 2).enumerate() {
        let body = format!("(drop (i32.const {at})) {TURNS}");
        assert_eq!(load(&mut machine, index, &module_bytes(&body)), Status::SUCCESS);
    }
    let named = named(&module_bytes(&format!("(drop (i32.const 1)) {TURNS}")));
    assert_eq!(crate::near::load(&mut machine, &named).status, Status::SUCCESS);
    let begun = piece(&machine, whole(FIRST + 2, turns.len()), &turns[..8]);
    assert_eq!(machine.admin(begun).status, Status::SUCCESS);
    goes.store(false, Ordering::Relaxed);
    let command = piece(&machine, whole(FIRST + 3, turns.len()), &turns);
    machine.submit(0, command);
    machine.work();
    handed.lock().unwrap().clear();
    machine.write32(register::CC, 0);
    machine.work();
    goes.store(true, Ordering::Relaxed);
    machine.work();
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    assert_eq!(machine.read32(register::CSTS), 1, "the modules are not back yet");
    // Freed memory may have been the last user of another one.
    for _ in 0..3 {
        let now = std::mem::take(&mut *handed.lock().unwrap());
        drop(now);
        machine.work();
    }
    assert_eq!((gone.load(Ordering::Relaxed), machine.read32(register::CSTS)), (4, 0));
    assert_eq!(held(&machine), ((0, 0), 0));
}

#[test]
fn programs_are_made_in_slots() {
    let goes = Arc::new(AtomicBool::new(false));
    let mut machine = prepared(config(), Some(Box::new(Slot(None, goes.clone()))));
    let turns = module_bytes(TURNS);
    let command = piece(&machine, whole(FIRST, turns.len()), &turns);
    let cid = machine.submit(0, command);
    machine.work();
    assert!(machine.reap(0).is_none(), "it is being made");
    assert_eq!(machine.drives.slots().next().unwrap().operators().collect::<Vec<_>>(), ["module"]);
    // All else goes on.
    assert!(machine.identify(identify::CONTROLLER, 0).0.is_success());
    let done = machine.run(1, Command { opcode: 2, namespace: 1, data: prp(DATA, 0), ..Command::default() });
    assert!(done.status.is_success());
    goes.store(true, Ordering::Relaxed);
    machine.work();
    let done = machine.reap(0).unwrap();
    assert_eq!((done.cid, done.status), (cid, Status::SUCCESS));
    assert_eq!(machine.controller().loaded().0, 1);
    // A reset waits for what is being made, and nothing is left of it.
    goes.store(false, Ordering::Relaxed);
    machine.submit(0, Command { words: whole(FIRST + 1, turns.len()).words(), ..command });
    let command = piece(&machine, whole(FIRST + 1, turns.len()), &turns);
    machine.submit(0, command);
    machine.work();
    machine.write32(register::CC, 0);
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 1, "the slot is at it");
    goes.store(true, Ordering::Relaxed);
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 0);
    assert_eq!(held(&machine), ((0, 0), 0));
    // The builder may panic.
    machine.enable_sets(6);
    let panics = Arc::new(|_: &[u8]| panic!("a fault of the engine's"));
    machine.controller().set_builder(panics);
    assert_eq!(load(&mut machine, FIRST, &turns), Status::INTERNAL_ERROR);
    machine.controller().set_builder(builder());
    assert_eq!(load(&mut machine, FIRST, &turns), Status::SUCCESS);
}
