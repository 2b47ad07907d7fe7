//! The specification's rules, and a controller's answers when a host breaks them.

use std::time::Duration;

use crate::host::{Cmd, DATA, Host, pattern};
use dcs_drivers::bus::Window;
use dcs_fabric::nvme::{Config, Media, Nvme, Sgl};
use dcs_fabric::{Access, Fault, Iommu, Rule, When, nvme};

const SPECIFIC: u16 = 0x100;

fn admin(opcode: u8, dwords: [u32; 2]) -> Cmd {
    Cmd { opcode, dwords: [dwords[0], dwords[1], 0, 0, 0, 0], ..Cmd::default() }
}

fn status(host: &mut Host, command: Cmd) -> u16 {
    host.admin(command).status
}

#[test]
fn queues_are_made_and_deleted_by_the_rules() {
    let mut host = Host::new(Config { queues: 4, entries: 64, ..Config::default() }, 1, 16);
    let at = host.address(DATA);
    let on = |command: Cmd, at: u64| Cmd { data: [at, 0], ..command };
    let size = 15 << 16;
    // Completion queues: identifier, size, base, contiguity, vector.
    for (dwords, at, expected) in [
        ([size, 1], at, SPECIFIC | 1),
        ([size | 1, 1], at, SPECIFIC | 1),
        ([size | 5, 1], at, SPECIFIC | 1),
        ([2, 1], at, SPECIFIC | 2),
        ([64 << 16 | 2, 1], at, SPECIFIC | 2),
        ([size | 2, 0], at, 0x02),
        ([size | 2, 1], at + 8, 0x13),
        ([size | 2, 5 << 16 | 3], at, SPECIFIC | 8),
        ([size | 2, 1], at, 0),
    ] {
        assert_eq!(status(&mut host, on(admin(5, dwords), at)), expected, "{dwords:x?}");
    }
    // Submission queues: a completion queue that is there, that can be, that is not the admin queue's.
    for (dwords, expected) in [
        ([size | 2, 3 << 16 | 1], SPECIFIC),
        ([size | 2, 9 << 16 | 1], SPECIFIC | 1),
        ([size | 2, 1], SPECIFIC | 1),
        ([size | 1, 2 << 16 | 1], SPECIFIC | 1),
        ([size | 2, 2 << 16 | 1], 0),
    ] {
        assert_eq!(status(&mut host, on(admin(1, dwords), at)), expected, "{dwords:x?}");
    }
    // Deletion: the completion queue goes last.
    assert_eq!(status(&mut host, admin(4, [2, 0])), SPECIFIC | 0x0c);
    assert_eq!(status(&mut host, admin(4, [0, 0])), SPECIFIC | 1);
    assert_eq!(status(&mut host, admin(0, [0, 0])), SPECIFIC | 1);
    assert_eq!(status(&mut host, admin(0, [2, 0])), 0);
    assert_eq!(status(&mut host, admin(0, [2, 0])), SPECIFIC | 1);
    assert_eq!(status(&mut host, admin(4, [2, 0])), 0);
}

#[test]
fn a_deleted_queue_ends_its_commands_first() {
    let media = Media { read: Duration::from_secs(1), ..Media::default() };
    let mut host = Host::new(Config { media, ..Config::default() }, 1, 16);
    let at = host.address(DATA);
    let cids = [0, 8].map(|lba| host.submit(1, Cmd::blocks(2, lba, 8, [at, 0])));
    host.wait(Duration::from_millis(1));
    assert_eq!(status(&mut host, admin(0, [1, 0])), 0);
    for cid in cids {
        let done = host.peek(1).unwrap();
        assert_eq!((done.cid, done.status), (cid, 0x08));
    }
    host.wait(Duration::from_secs(2));
    assert!(host.peek(1).is_none());
    assert_eq!(host.load(DATA, 8), [0; 8]);
}

#[test]
fn a_queue_made_anew_gets_nothing_of_the_one_before_it() {
    let mut host = Host::new(Config::default(), 1, 16);
    let (at, sq) = (host.address(DATA), host.address(DATA + 0x10_0000));
    let whole = Window { address: 0, length: u64::MAX };
    // Entries of the old queue are on their way for a long time.
    let late = Fault::DelayTransaction(Duration::from_millis(5));
    host.submit(0, admin(0, [1, 0]));
    host.wait(Duration::from_nanos(900));
    host.fabric.inject(host.ssd, Rule::once(When::Read(whole), late));
    host.submit(1, Cmd::blocks(2, 0, 8, [at, 0]));
    assert_eq!(host.next(0).unwrap().status, 0);
    assert_eq!(host.fabric.faults_struck(host.ssd), 1);
    let new = Cmd { data: [sq, 0], ..admin(1, [15 << 16 | 1, 1 << 16 | 1]) };
    assert_eq!(status(&mut host, new), 0);
    host.wait(Duration::from_millis(20));
    host.store(DATA + 0x10_0000, &Cmd { opcode: 0, nsid: 1, ..Cmd::default() }.entry(0x77));
    host.doorbell(2, 1);
    let done = host.next(1).unwrap();
    assert_eq!((done.cid, done.head, done.status), (0x77, 1, 0));
}

#[test]
fn commands_that_can_not_be_are_refused() {
    let mut host = Host::new(Config::default(), 1, 16);
    let at = host.address(DATA);
    let list = [at, at + 4096];
    let blocks = 1 << 17;
    for (command, expected) in [
        (Cmd { opcode: 0x7f, nsid: 1, ..Cmd::default() }, 0x01),
        (Cmd { nsid: 2, ..Cmd::blocks(2, 0, 1, list) }, 0x0b),
        (Cmd { nsid: 0, ..Cmd::blocks(2, 0, 1, list) }, 0x0b),
        (Cmd { nsid: u32::MAX, ..Cmd::blocks(2, 0, 1, list) }, 0x0b),
        (Cmd { nsid: u32::MAX, ..Cmd::default() }, 0),
        (Cmd::blocks(2, blocks - 1, 1, list), 0),
        (Cmd::blocks(2, blocks - 1, 2, list), 0x80),
        (Cmd::blocks(1, u64::MAX, 2, list), 0x80),
        (Cmd::blocks(2, 0, 257, list), 0x02),
        (Cmd { flags: 1, ..Cmd::blocks(2, 0, 1, list) }, 0x02),
        (Cmd { flags: 0x40, ..Cmd::blocks(2, 0, 1, list) }, 0x02),
        (Cmd::blocks(2, 0, 1, [at + 2, 0]), 0x13),
        (Cmd::blocks(2, 0, 16, [at, at + 512]), 0x13),
        (Cmd::blocks(2, 0, 24, [at, at + 4]), 0x13),
        (Cmd::blocks(1, 0, 1, [1 << 61, 0]), 0x04),
        (Cmd::blocks(2, 0, 24, [at, 1 << 61]), 0x04),
    ] {
        let done = host.run(1, command);
        assert_eq!(done.status, expected, "{:x?}", command.entry(0));
    }
    let done = host.admin(Cmd { opcode: 0x7f, ..Cmd::default() });
    assert_eq!(done.status, 1);
}

#[test]
fn identify_log_pages_and_features_answer_or_say_why_not() {
    let mut host = Host::new(Config { cache: false, ..Config::default() }, 0, 0);
    let at = host.address(DATA);
    let identify = |cns, nsid| Cmd { nsid, data: [at, 0], ..admin(6, [cns, 0]) };
    for (cns, nsid, expected) in [
        (0, 1, 0),
        (0, 2, 0x0b),
        (0, 0, 0x0b),
        (2, 0, 0),
        (2, u32::MAX, 0x0b),
        (3, 1, 0),
        (3, 2, 0x0b),
        (0x55, 1, 0x02),
    ] {
        assert_eq!(status(&mut host, identify(cns, nsid)), expected, "{cns:x} {nsid}");
    }
    host.admin(identify(2, 0));
    assert_eq!(host.load(DATA, 8), [1, 0, 0, 0, 0, 0, 0, 0]);
    let log = |page: u32, dwords: u32| Cmd { data: [at, 0], ..admin(2, [(dwords - 1) << 16 | page, 0]) };
    assert_eq!(status(&mut host, log(1, 16)), 0);
    // The error log's newest entry is of the last command that failed.
    let entry = host.load(DATA, 64);
    assert_eq!((entry[0], u16::from_le_bytes([entry[12], entry[13]]) >> 1 & 0x7ff), (5, 0x02));
    assert_eq!(status(&mut host, log(2, 128)), 0);
    assert_eq!(host.load(DATA + 176, 1), [5]);
    assert_eq!(status(&mut host, log(0xc0, 16)), SPECIFIC | 9);
    // Features: the number of queues; one that is not there; one that is kept; saving.
    let done = host.admin(admin(9, [7, 0x0003_0003]));
    assert_eq!((done.status, done.result), (0, 0x000f_000f));
    assert_eq!(status(&mut host, admin(9, [7, 0xffff])), 0x02);
    assert_eq!(status(&mut host, admin(10, [6, 0])), 0x02);
    assert_eq!(status(&mut host, admin(9, [0x0b, 0x1ff])), 0);
    assert_eq!(host.admin(admin(10, [0x0b, 0])).result, 0x1ff);
    assert_eq!(host.admin(admin(10, [0x10b, 0])).result, 0);
    assert_eq!(status(&mut host, admin(9, [1 << 31 | 0x0b, 0])), SPECIFIC | 0x0d);
}

#[test]
fn the_number_of_queues_is_settled_before_there_are_any() {
    let mut host = Host::new(Config::default(), 1, 16);
    assert_eq!(status(&mut host, admin(9, [7, 0x0003_0003])), 0x0c);
}

#[test]
fn an_abort_ends_what_it_finds() {
    let media = Media { read: Duration::from_secs(1), ..Media::default() };
    let mut host = Host::new(Config { media, ..Config::default() }, 1, 16);
    let at = host.address(DATA);
    let cid = host.submit(1, Cmd::blocks(2, 0, 8, [at, 0]));
    host.wait(Duration::from_millis(1));
    let done = host.admin(admin(8, [u32::from(cid) << 16 | 1, 0]));
    assert_eq!((done.status, done.result), (0, 0));
    let done = host.next(1).unwrap();
    assert_eq!((done.cid, done.status), (cid, 0x07));
    let done = host.admin(admin(8, [u32::from(cid) << 16 | 1, 0]));
    assert_eq!((done.status, done.result), (0, 1));
}

#[test]
fn doorbells_that_can_not_be_are_told_by_an_event_once() {
    let mut host = Host::new(Config::default(), 1, 16);
    let asked = [0; 4].map(|_| host.submit(0, admin(0x0c, [0, 0])));
    let refused = host.admin(admin(0x0c, [0, 0]));
    assert_eq!(refused.status, SPECIFIC | 5);
    host.doorbell(2, 16);
    let told = host.next(0).unwrap();
    assert_eq!((told.cid, told.status, told.result), (asked[0], 0, 0x0001_0100));
    // No second one until the log is read.
    host.doorbell(20, 0);
    host.wait(Duration::from_millis(1));
    assert!(host.peek(0).is_none());
    let at = host.address(DATA);
    assert_eq!(status(&mut host, Cmd { data: [at, 0], ..admin(2, [15 << 16 | 1, 0]) }), 0);
    host.doorbell(3, 5);
    let told = host.next(0).unwrap();
    assert_eq!((told.cid, told.result), (asked[1], 0x0001_0100));
    assert_eq!(host.fabric.device::<Nvme>(host.ssd).counts().bad_doorbells, 3);
    // An event request is aborted like a command.
    let done = host.submit(0, admin(8, [u32::from(asked[2]) << 16, 0]));
    let found = [host.next(0).unwrap(), host.next(0).unwrap()];
    assert_eq!((found[0].cid, found[0].status), (asked[2], 0x07));
    assert_eq!((found[1].cid, found[1].result), (done, 0));
}

#[test]
fn completions_wait_where_their_queue_is_full() {
    let mut host = Host::new(Config::default(), 1, 8);
    let flush = Cmd { opcode: 0, nsid: 1, ..Cmd::default() };
    for _ in 0..7 {
        host.put(1, flush);
    }
    host.ring(1);
    host.wait(Duration::from_millis(5));
    // All seven slots are taken, none is given back, and four more are submitted.
    let first: Vec<u16> = (0..7).map(|_| host.peek(1).unwrap().cid).collect();
    for _ in 0..4 {
        host.put(1, flush);
    }
    host.ring(1);
    host.wait(Duration::from_millis(5));
    assert!(host.peek(1).is_none());
    assert_eq!(host.fabric.device::<Nvme>(host.ssd).counts().flushes, 11);
    host.doorbell(3, 7);
    let mut rest: Vec<u16> = (0..4).map(|_| host.next(1).unwrap().cid).collect();
    rest.extend(first);
    rest.sort_unstable();
    rest.dedup();
    assert_eq!(rest.len(), 11);
}

#[test]
fn an_admin_queue_that_can_not_be_is_a_fatal_status() {
    let mut host = Host::cold(Config::default());
    host.set_register(0x14, 0x0046_0001);
    assert_eq!(host.register(0x1c), 2);
    host.set_register(0x14, 0);
    host.wait(Duration::from_millis(1));
    assert_eq!(host.register(0x1c), 0);
    host.enable();
    // So is a queue that can't be read: the IOMMU lets nothing pass.
    host.fabric.set_iommu(host.ssd, Some(Iommu::new()));
    host.submit(0, admin(8, [0, 0]));
    host.wait(Duration::from_millis(1));
    assert_eq!(host.register(0x1c) & 3, 3);
    assert_eq!(host.fabric.take_refused(host.ssd).len(), 1);
    host.disable();
    let window = host.fabric.bar(host.card, 1);
    let mut iommu = Iommu::new();
    iommu.map(Window { address: window.address, length: 0x2000 }, window.address, Access::ReadWrite);
    host.fabric.set_iommu(host.ssd, Some(iommu));
    host.enable();
    // Data that may not be reached fail their command alone.
    let at = host.address(DATA);
    assert_eq!(status(&mut host, Cmd { data: [at, 0], ..admin(6, [1, 0]) }), 0);
    assert_eq!(host.fabric.take_refused(host.ssd)[0].address, at);
}

#[test]
fn a_shutdown_is_told_when_it_is_done() {
    let mut host = Host::new(Config::default(), 0, 0);
    host.set_register(0x14, 0x0046_4001);
    assert_eq!(host.register(0x1c), 1 | 1 << 2);
    host.wait(Duration::from_millis(2));
    assert_eq!(host.register(0x1c), 1 | 2 << 2);
}

#[test]
fn doorbells_lie_apart_as_the_stride_says() {
    let mut host = Host::new(Config { stride: 2, ..Config::default() }, 2, 16);
    assert_eq!(host.register(4) & 15, 2);
    for queue in [1, 2] {
        assert_eq!(host.run(queue, Cmd { opcode: 0, nsid: 1, ..Cmd::default() }).status, 0);
    }
}

#[test]
fn long_transfers_follow_their_lists_and_sgls() {
    let config = Config { mdts: 9, sgl: Sgl::Bytes, ..Config::default() };
    let namespace = config.namespaces[0].clone();
    let mut host = Host::new(config, 1, 16);
    let length = 2 << 20;
    let bytes = pattern(length, 77);
    namespace.store(0, &bytes);
    // 512 pages backwards, by a list that starts at the end of a page and goes on in two others.
    let (base, lists) = (host.address(DATA), DATA + (8 << 20));
    let page = |i: u64| base + (511 - i) * 4096;
    let at = host.address(lists);
    for i in 1..512u64 {
        let slot = if i < 3 { lists + 4096 - 24 + 8 * (i - 1) } else { lists + 4096 + 8 * (i - 3) };
        host.store(slot, &page(i).to_le_bytes());
    }
    host.store(lists + 4096 - 8, &(at + 4096).to_le_bytes());
    assert_eq!(host.run(1, Cmd::blocks(2, 0, 4096, [page(0), at + 4096 - 24])).status, 0);
    for i in 0..512 {
        let offset = DATA + (511 - i) * 4096;
        assert_eq!(host.load(offset, 4096), bytes[i as usize * 4096..][..4096], "page {i}");
    }
    // 4 KiB of the same into two odd places, the middle dropped.
    let segment = [(base + 3, 1001u32, 0u8), (0, 95, 1), (base + 5001, 3000, 0)];
    let descriptor = |(address, length, kind): (u64, u32, u8)| {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend([0, 0, 0, kind << 4]);
        bytes
    };
    host.store(lists, &segment.map(descriptor).concat());
    let last = u64::from_le_bytes([48, 0, 0, 0, 0, 0, 0, 0x30]);
    let command = Cmd { flags: 0x40, ..Cmd::blocks(2, 0, 8, [at, last]) };
    assert_eq!(host.run(1, command).status, 0);
    assert_eq!(host.load(DATA + 3, 1001), bytes[..1001]);
    assert_eq!(host.load(DATA + 5001, 3000), bytes[1096..4096]);
    let short = Cmd { flags: 0x40, ..Cmd::blocks(2, 0, 9, [at, last]) };
    assert_eq!(host.run(1, short).status, 0x0f);
}

#[test]
fn commands_overtake_each_other_and_many_queues_work_at_once() {
    let media = Media { jitter: Duration::from_micros(200), ..Media::default() };
    let mut host = Host::new(Config { media, outstanding: 20, ..Config::default() }, 3, 32);
    let at = host.address(DATA);
    let mut order = Vec::new();
    for round in 0..4 {
        for queue in 1..=3 {
            for i in 0..30 {
                host.put(queue, Cmd::blocks(2, round * 30 + i, 1, [at + i * 512, 0]));
            }
            host.ring(queue);
        }
        for queue in 1..=3 {
            order.extend((0..30).map(|_| host.next(queue).unwrap()).map(|done| (done.queue, done.cid)));
        }
    }
    assert!(order.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[0].1 > pair[1].1));
    order.sort_unstable();
    order.dedup();
    assert_eq!(order.len(), 360);
}

#[test]
fn interrupts_name_the_vector_and_follow_the_completion() {
    let mut host = Host::new(Config::default(), 2, 16);
    host.wait(Duration::from_millis(1));
    host.submit(2, Cmd { opcode: 0, nsid: 1, ..Cmd::default() });
    let until = host.fabric.now() + Duration::from_millis(1);
    assert_eq!(host.interrupts(until), [2]);
    assert!(host.take(2).is_some());
}

#[test]
fn queues_and_data_may_lie_in_the_controllers_memory() {
    let config = Config { cmb: 1 << 16, ..Config::default() };
    let namespace = config.namespaces[0].clone();
    let mut host = Host::new(config, 0, 0);
    assert_eq!((host.register(0x38), host.register(0x3c)), (0, 0));
    let base = host.fabric.bar(host.ssd, 1).address;
    host.set_register(0x54, (base >> 32) as u32);
    host.set_register(0x50, base as u32 | 3);
    assert_eq!(host.register(0x38) & 7, 2);
    assert_eq!(host.register(0x3c), 16 << 12 | 0x1f);
    let cq = host.address(DATA);
    let made = host.admin(Cmd { data: [cq, 0], ..admin(5, [15 << 16 | 1, 1]) });
    assert_eq!(made.status, 0);
    assert_eq!(host.admin(Cmd { data: [base, 0], ..admin(1, [15 << 16 | 1, 1 << 16 | 1]) }).status, 0);
    // A write whose entry and data are both there: the controller reads nothing over the bus.
    let before = host.fabric.traffic(host.ssd, host.card).bytes_read;
    let bytes = pattern(4096, 5);
    let command = Cmd::blocks(1, 40, 8, [base + 0x2000, 0]).entry(77);
    use dcs_drivers::bus::Bus;
    host.fabric.port(host.card).write(base + 0x2000, &bytes);
    host.fabric.port(host.card).write(base, &command);
    host.doorbell(2, 1);
    host.wait(Duration::from_millis(1));
    assert_eq!(host.fabric.traffic(host.ssd, host.card).bytes_read, before);
    assert_eq!(host.load(DATA + 12, 4), [77, 0, 1, 0]);
    let mut held = vec![0; 4096];
    namespace.load(40 * 512, &mut held);
    assert_eq!(held, bytes);
}

#[test]
fn two_controllers_share_a_namespace() {
    let config = Config::default();
    let second = nvme::Nvme::new(Config { serial: "SECOND".into(), ..config.clone() });
    let namespace = config.namespaces[0].clone();
    let mut host = Host::new(config, 1, 16);
    let other = host.fabric.add_device("second", dcs_fabric::Rate::GEN3_X4, second);
    assert!(host.fabric.bar(other, 0).address > host.fabric.bar(host.ssd, 0).address);
    let at = host.address(DATA);
    host.store(DATA, &[9; 512]);
    assert_eq!(host.run(1, Cmd::blocks(1, 7, 1, [at, 0])).status, 0);
    assert_eq!(host.run(1, Cmd { opcode: 8, ..Cmd::blocks(2, 8, 1, [0, 0]) }).status, 0);
    let mut held = [0; 512];
    namespace.load(7 * 512, &mut held);
    assert_eq!(held, [9; 512]);
    assert_eq!(host.run(1, Cmd { opcode: 8, ..Cmd::blocks(2, 0, 100, [0, 0]) }).status, 0);
    namespace.load(7 * 512, &mut held);
    assert_eq!(held, [0; 512]);
}

#[test]
fn what_was_not_flushed_is_lost_with_the_power() {
    let config = Config::default();
    let namespace = config.namespaces[0].clone();
    let mut host = Host::new(config, 1, 16);
    let at = host.address(DATA);
    let first = |namespace: &nvme::Namespace, block: u64| {
        let mut byte = [0];
        namespace.load(block * 512, &mut byte);
        byte[0]
    };
    let write = |host: &mut Host, block: u64, byte: u8, flags: u32| {
        host.store(DATA, &[byte; 512]);
        let mut command = Cmd::blocks(1, block, 1, [at, 0]);
        command.dwords[2] |= flags;
        assert_eq!(host.run(1, command).status, 0);
    };
    write(&mut host, 1, 1, 0);
    assert_eq!(host.run(1, Cmd { opcode: 0, nsid: 1, ..Cmd::default() }).status, 0);
    write(&mut host, 1, 2, 0);
    write(&mut host, 3, 3, 0);
    // FUA, in a page that holds what is not flushed.
    write(&mut host, 2, 4, 1 << 30);
    assert_eq!([1, 2, 3].map(|block| first(&namespace, block)), [2, 4, 3]);
    namespace.lose_power();
    assert_eq!([1, 2, 3].map(|block| first(&namespace, block)), [1, 4, 0]);
    // Without a cache nothing is lost, nor after a shutdown.
    assert_eq!(status(&mut host, admin(9, [6, 0])), 0);
    write(&mut host, 5, 5, 0);
    assert_eq!(status(&mut host, admin(9, [6, 1])), 0);
    write(&mut host, 6, 6, 0);
    host.set_register(0x14, 0x0046_4001);
    host.wait(Duration::from_millis(2));
    namespace.lose_power();
    assert_eq!([5, 6].map(|block| first(&namespace, block)), [5, 6]);
}
