//! The NVMe host on the fabric's controller: the scenarios, on every kind of controller.

mod faults;
mod interposer;
mod scenarios;
mod server;

use dcs_drivers::bus::{Bus, Tag, Window};
use dcs_drivers::nvme::{CmbBar, Config, PmrBar, Request, ResetCause, SglUse, State};
use dcs_fabric::{HOST, nvme};
use scenarios::{Rig, World};
use server::{Server, server};

#[test]
fn what_was_written_is_read_back() {
    scenarios::what_was_written_is_read_back(server());
}

#[test]
fn many_commands_are_outstanding() {
    scenarios::many_commands_are_outstanding(server());
}

#[test]
fn a_reset_under_load() {
    scenarios::a_reset_under_load(server());
}

#[test]
fn shutdown_and_start() {
    scenarios::shutdown_and_start(server());
}

#[test]
fn aborted_commands_end() {
    scenarios::aborted_commands_end(server());
}

#[test]
fn random_requests_on_every_kind_of_controller() {
    type Change = fn(&mut Config);
    let kinds: [(nvme::Config, Change); 6] = [
        (nvme::Config::default(), |_| {}),
        (nvme::Config { stride: 4, mdts: 0, ..nvme::Config::default() }, |config| config.queues = 4),
        (nvme::Config { entries: 2, mdts: 1, ..nvme::Config::default() }, |config| config.queues = 40),
        (nvme::Config { sgl: nvme::Sgl::Bytes, ..nvme::Config::default() }, |config| {
            config.sgl = SglUse::Preferred
        }),
        (nvme::Config { sgl: nvme::Sgl::DoubleWords, cache: false, ..nvme::Config::default() }, |config| {
            config.depth = 5
        }),
        (
            nvme::Config {
                namespaces: vec![nvme::Namespace::new(1 << 14, 12)],
                mdts: 9,
                ..nvme::Config::default()
            },
            |config| config.namespace = Some(1),
        ),
    ];
    for (seed, (kind, change)) in kinds.into_iter().enumerate() {
        let server = Server::new(kind);
        scenarios::random_requests_against_an_array(server, seed as u64, 30, change);
    }
}

#[test]
fn submission_queues_lie_in_the_controllers_memory_where_it_has_one() {
    let server = Server::new(nvme::Config { cmb: 1 << 20, ..nvme::Config::default() });
    let window = server.fabric.bar(server.ssd, 1);
    scenarios::random_requests_against_an_array(server, 9, 10, |config| {
        config.cmb = Some(CmbBar { bar: 2, window });
    });
    let server = Server::new(nvme::Config { cmb: 1 << 20, ..nvme::Config::default() });
    let (card, ssd) = (server.card, server.ssd);
    let mut rig = Rig::ready(server, |config| config.cmb = Some(CmbBar { bar: 2, window }));
    let queue = rig.world.fabric.meter(window);
    let before = rig.world.fabric.traffic(ssd, card).bytes_read;
    for id in 0..16 {
        rig.submit(id, &Request::Read { lba: id, data: &[rig.at(id * 4096, 512)] }).unwrap();
    }
    rig.run();
    assert_eq!(rig.world.fabric.metered(queue).bytes_written, 16 * 64);
    assert_eq!(rig.world.fabric.traffic(ssd, card).bytes_read, before, "nothing is fetched from the card");
}

#[test]
fn data_lie_in_the_controllers_memory_and_go_from_there_to_others() {
    let config = nvme::Config { cmb: 1 << 20, pmr: 1 << 20, ..nvme::Config::default() };
    let namespace = config.namespaces[0].clone();
    let bytes: Vec<u8> = (0..16384u32).map(|at| (at / 3) as u8).collect();
    namespace.store(64 * 512, &bytes);
    let server = Server::new(config);
    let (card, ssd, memory) = (server.card, server.ssd, server.fabric.bar(server.ssd, 2));
    // The controller calls it otherwise than the bus does.
    let window = Window { address: 7 << 40, ..memory };
    let mut rig = Rig::ready(server, |config| config.pmr = Some(PmrBar { bar: 4, window }));
    let before = rig.world.fabric.traffic(ssd, card).bytes_written;
    let at = |offset, length| Window { address: window.address + offset, length };
    rig.one(&Request::Read { lba: 64, data: &[at(0x3000, 16384)] }).unwrap();
    // A list's worth of pages, and nothing of it crossed the bus.
    assert!(rig.world.fabric.traffic(ssd, card).bytes_written - before < 512);
    let tag = Tag::new(9, 1);
    rig.world.fabric.port(card).read(memory.address + 0x3000, 16384, tag);
    let answer = std::iter::repeat_with(|| rig.world.advance(None)).flatten().find(|done| done.tag == tag);
    assert_eq!(answer.unwrap().data.unwrap(), bytes);
    rig.one(&Request::Write { lba: 8, data: &[at(0x5000, 4096)], durable: false }).unwrap();
    let mut written = vec![0; 4096];
    namespace.load(8 * 512, &mut written);
    assert_eq!(written, bytes[0x2000..0x3000]);
    // It survives a reset, and is called the same again.
    rig.with(|nvme, bus, now| nvme.reset(bus, now));
    rig.run();
    rig.one(&Request::Write { lba: 16, data: &[at(0x3000, 4096)], durable: false }).unwrap();
    namespace.load(16 * 512, &mut written);
    assert_eq!(written, bytes[..4096]);
}

#[test]
fn a_controller_without_the_memory_that_is_wanted_is_refused() {
    for (pmr, bar, address) in [(0, 4, 1 << 40), (1 << 20, 2, 1 << 40), (1 << 20, 4, u64::MAX - 0xfff)] {
        let server = Server::new(nvme::Config { pmr, ..nvme::Config::default() });
        let window = Window { address, length: 4096 - 1 };
        let mut rig = Rig::new(server, |config| config.pmr = Some(PmrBar { bar, window }));
        rig.with(|nvme, bus, now| nvme.start(bus, now));
        rig.run();
        assert!(matches!(rig.nvme.state(), State::Failed(ResetCause::Unsupported(_))), "{pmr} {bar}");
    }
}

#[test]
fn nothing_goes_through_host_memory_and_a_batch_is_one_doorbell() {
    let mut rig = Rig::ready(server(), |_| {});
    let (before, doorbells) = (
        rig.nvme.counters(),
        Window { address: rig.world.config().registers.address + 0x1000, length: 0x1000 },
    );
    let meter = rig.world.fabric.meter(doorbells);
    let registers = rig.world.fabric.meter(Window { length: 0x1000, ..rig.world.config().registers });
    for id in 0..64 {
        rig.submit(id, &Request::Read { lba: id * 8, data: &[rig.at(id * 4096, 4096)] }).unwrap();
    }
    rig.with(|nvme, bus, _| nvme.ring(bus));
    assert_eq!(rig.nvme.counters().doorbells, before.doorbells + 1);
    rig.run();
    assert_eq!(rig.ended.len(), 64);
    assert_eq!(rig.world.fabric.host_memory_traffic().bytes(), 0);
    assert_eq!(
        rig.world.fabric.metered(registers).bytes(),
        0,
        "no register is read or written on the data path"
    );
    assert_eq!(rig.world.fabric.metered(meter).reads, 0);
    assert_eq!(rig.world.fabric.traffic(rig.world.card, HOST).bytes(), 0);
}
