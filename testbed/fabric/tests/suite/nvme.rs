//! The NVMe model against a raw host that knows the specification.

use std::time::Duration;

use crate::host::{Cmd, DATA, Host, pattern};
use dcs_fabric::HOST;
use dcs_fabric::nvme::{Config, Media, Namespace, Nvme};

#[test]
fn it_tells_what_it_is() {
    let mut host = Host::new(Config::default(), 0, 0);
    let at = host.address(DATA);
    let done = host.admin(Cmd { opcode: 6, data: [at, 0], dwords: [1, 0, 0, 0, 0, 0], ..Cmd::default() });
    assert_eq!(done.status, 0);
    let data = host.load(DATA, 4096);
    assert_eq!(&data[4..14], b"FABRIC0001");
    assert_eq!((data[77], data[512], data[513]), (5, 0x66, 0x44));
    let done = host.admin(Cmd { opcode: 6, nsid: 1, data: [at, 0], ..Cmd::default() });
    assert_eq!(done.status, 0);
    let data = host.load(DATA, 4096);
    assert_eq!(u64::from_le_bytes(data[..8].try_into().unwrap()), 1 << 17);
    assert_eq!(data[130], 9);
}

#[test]
fn what_is_written_is_read_and_no_byte_passes_host_memory() {
    let config = Config::default();
    let namespace = config.namespaces[0].clone();
    let mut host = Host::new(config, 1, 16);
    let bytes = pattern(8192, 3);
    host.store(DATA, &bytes);
    let at = host.address(DATA);
    assert_eq!(host.run(1, Cmd::blocks(1, 100, 16, [at, at + 4096])).status, 0);
    let mut held = vec![0; 8192];
    namespace.load(100 * 512, &mut held);
    assert_eq!(held, bytes);
    let to = host.address(DATA + 0x8000);
    assert_eq!(host.run(1, Cmd::blocks(2, 100, 16, [to, to + 4096])).status, 0);
    assert_eq!(host.load(DATA + 0x8000, 8192), bytes);
    assert_eq!(host.run(1, Cmd { opcode: 0, nsid: 1, ..Cmd::default() }).status, 0);
    assert_eq!(host.fabric.host_memory_traffic().bytes(), 0);
    let to_card = host.fabric.traffic(host.ssd, host.card);
    assert!(to_card.bytes_written > 8192 && to_card.bytes_read > 8192);
    assert_eq!(host.fabric.traffic(host.ssd, HOST).bytes(), 0);
    let counts = host.fabric.device::<Nvme>(host.ssd).counts();
    assert_eq!((counts.reads, counts.writes, counts.flushes), (1, 1, 1));
}

#[test]
fn completions_wrap_with_their_phase() {
    let mut host = Host::new(Config::default(), 1, 4);
    for i in 0..50 {
        let done = host.run(1, Cmd { opcode: 0, nsid: 1, ..Cmd::default() });
        assert_eq!((done.status, done.head), (0, (i + 1) % 4));
    }
}

#[test]
fn a_reset_forgets_queues_and_commands() {
    let media = Media { read: Duration::from_secs(1), ..Media::default() };
    let mut host = Host::new(Config { media, ..Config::default() }, 1, 16);
    let at = host.address(DATA);
    host.submit(1, Cmd::blocks(2, 0, 8, [at, 0]));
    host.wait(Duration::from_millis(1));
    host.disable();
    host.wait(Duration::from_secs(2));
    assert!(host.take(1).is_none());
    host.enable();
    assert_eq!(host.fabric.device::<Nvme>(host.ssd).outstanding(), 0);
}

#[test]
fn until_it_says_that_it_is_disabled_it_moves_data() {
    let config = Config { reset: Duration::from_millis(10), ..Config::default() };
    let namespace = config.namespaces[0].clone();
    namespace.store(0, &[7; 4096]);
    let mut host = Host::new(config, 1, 16);
    let at = host.address(DATA);
    host.submit(1, Cmd::blocks(2, 0, 8, [at, 0]));
    host.wait(Duration::from_micros(10));
    host.set_register(0x14, 0);
    assert_eq!(host.register(0x1c), 1);
    // What it has not fetched it does not fetch any more.
    host.submit(1, Cmd::blocks(2, 0, 8, [at + 4096, 0]));
    host.wait(Duration::from_millis(5));
    assert_eq!((host.load(DATA, 4096), host.load(DATA + 4096, 1)), (vec![7; 4096], vec![0]));
    assert_eq!(host.register(0x1c), 1);
    // Enabled too early it gives up.
    host.set_register(0x14, 0x0046_0001);
    host.wait(Duration::from_millis(10));
    assert_eq!(host.register(0x1c), 2);
    host.set_register(0x14, 0);
    host.wait(Duration::from_millis(11));
    assert_eq!(host.register(0x1c), 0);
    host.enable();
}

#[test]
fn blocks_of_4096_bytes_work_too() {
    let namespace = Namespace::new(1000, 12);
    let mut host = Host::new(Config { namespaces: vec![namespace.clone()], ..Config::default() }, 1, 16);
    let bytes = pattern(4096, 9);
    host.store(DATA, &bytes);
    let at = host.address(DATA);
    assert_eq!(host.run(1, Cmd::blocks(1, 999, 1, [at, 0])).status, 0);
    let mut held = vec![0; 4096];
    namespace.load(999 * 4096, &mut held);
    assert_eq!(held, bytes);
    assert_eq!(host.run(1, Cmd::blocks(1, 999, 2, [at, at + 4096])).status, 0x80);
}

#[test]
fn the_medium_or_the_link_is_what_bounds_the_rate() {
    let rate = |media: u64| {
        let media = Media { rate: media, ..Media::default() };
        let mut host = Host::new(Config { media, ..Config::default() }, 1, 32);
        let (at, list) = (host.address(DATA), DATA + (4 << 20));
        for i in 1..32 {
            host.store(list + 8 * (i - 1), &(at + 4096 * i).to_le_bytes());
        }
        let list = host.address(list);
        let (start, count) = (host.fabric.now(), 400);
        let (mut submitted, mut done) = (0, 0);
        while done < count {
            while submitted < count && submitted - done < 24 {
                host.submit(1, Cmd::blocks(2, 0, 256, [at, list]));
                submitted += 1;
            }
            assert_eq!(host.next(1).unwrap().status, 0);
            done += 1;
        }
        f64::from(count) * 131_072.0 / (host.fabric.now() - start).as_secs_f64() / 1e9
    };
    // 1 GB/s of medium; the 3.94 GB/s of the link, of which 256 bytes in 280 are data.
    let (slow, fast) = (rate(1_000_000_000), rate(100_000_000_000));
    assert!((0.97..1.0).contains(&slow), "{slow}");
    assert!((3.4..3.6).contains(&fast), "{fast}");
}
