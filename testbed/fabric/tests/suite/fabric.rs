//! The fabric itself: order, routing, IOMMU, counters, faults of transactions, time.

use std::time::Duration;

use dcs_drivers::bus::{Bus, BusError, Tag, Window};
use dcs_fabric::{
    Absent, Access, Event, Fabric, Fault, FunctionId, HOST, Iommu, Rate, Rule, Timing, When, Wire, nvme,
};

struct Rig {
    fabric: Fabric,
    one: FunctionId,
    two: FunctionId,
}

fn rig() -> Rig {
    let mut fabric = Fabric::new(Timing::default(), 1 << 20, 7);
    let one = fabric.add_endpoint("one", Rate::GEN3_X4, &[4096, 1 << 20]);
    let two = fabric.add_endpoint("two", Rate::GEN2_X4, &[1 << 16]);
    fabric.set_bus_master(one, true);
    fabric.set_bus_master(two, true);
    Rig { fabric, one, two }
}

impl Rig {
    fn own(&mut self, function: FunctionId) -> u64 {
        self.fabric.port(function).window().address
    }

    fn write(&mut self, by: FunctionId, address: u64, bytes: &[u8]) {
        self.fabric.port(by).write(address, bytes);
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.fabric.step(None)).collect()
    }
}

#[test]
fn peers_and_host_memory_are_reached_alike_and_counted_apart() {
    let mut rig = rig();
    let (two, at) = (rig.two, rig.own(rig.two));
    rig.write(rig.one, at + 5000, b"peer");
    rig.write(rig.one, 0x800, b"host!");
    let events = rig.events();
    let written = |function, bar, offset, bytes: &[u8]| Event::Written {
        function,
        bar,
        offset,
        bytes: bytes.to_vec(),
        by: rig.one,
    };
    assert_eq!(events, [written(two, 0, 5000, b"peer"), written(HOST, 0, 0x800, b"host!")]);
    assert_eq!(rig.fabric.read(HOST, at + 5000, 4), Ok(b"peer".to_vec()));
    assert_eq!(rig.fabric.traffic(rig.one, two).bytes_written, 4);
    assert_eq!(rig.fabric.host_memory_traffic().bytes_written, 5);
    assert_eq!(rig.fabric.traffic(HOST, two).bytes_read, 4);
}

#[test]
fn writes_arrive_in_order_whoever_they_go_to_and_reads_after_them() {
    let mut rig = rig();
    let at = rig.own(rig.two);
    // A long write over the slower link, then a short one elsewhere.
    rig.write(rig.one, at, &[1; 30_000]);
    rig.write(rig.one, 0, &[2; 4]);
    rig.fabric.port(rig.one).read(at, 4, Tag(9));
    let order: Vec<FunctionId> = rig
        .events()
        .into_iter()
        .map(|event| match event {
            Event::Written { function, .. } => function,
            Event::Read { function, done } => {
                assert_eq!(done.data, Ok(vec![1; 4]));
                function
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order.len(), 8 + 2);
    assert!(order[..8].iter().all(|function| *function == rig.two));
    assert_eq!(order[8..], [HOST, rig.one]);
}

#[test]
fn an_answer_pushes_the_writes_of_its_target() {
    let mut rig = rig();
    let (one, two) = (rig.own(rig.one), rig.own(rig.two));
    rig.fabric.inject(
        rig.two,
        Rule::once(
            When::Write(Window { address: one, length: 4 }),
            Fault::DelayTransaction(Duration::from_millis(1)),
        ),
    );
    rig.write(rig.two, one, &[3; 4]);
    rig.fabric.port(rig.one).read(two, 4, Tag(1));
    assert!(matches!(rig.events()[..], [Event::Written { .. }, Event::Read { .. }]));
}

#[test]
fn what_may_not_be_reached_is_unsupported() {
    let mut rig = rig();
    let at = rig.own(rig.two);
    assert_eq!(rig.fabric.read(rig.one, 1 << 60, 8), Err(BusError::Unsupported));
    assert_eq!(rig.fabric.read(rig.one, at + (1 << 16) - 4, 8), Err(BusError::Unsupported));
    rig.fabric.set_memory_space(rig.two, false);
    assert_eq!(rig.fabric.read(rig.one, at, 8), Err(BusError::Unsupported));
    rig.fabric.set_memory_space(rig.two, true);
    rig.fabric.set_bus_master(rig.one, false);
    assert_eq!(rig.fabric.read(rig.one, at, 8), Err(BusError::Unsupported));
    rig.write(rig.one, at, b"lost");
    rig.fabric.port(rig.one).interrupt(0);
    assert_eq!(rig.events(), []);
    assert_eq!(rig.fabric.interrupts(rig.one, 0), 0);
    rig.fabric.set_bus_master(rig.one, true);
    rig.fabric.remove(rig.two);
    assert_eq!(rig.fabric.read(rig.one, at, 8), Err(BusError::Unsupported));
    rig.fabric.absent(Absent::Ones);
    assert_eq!(rig.fabric.read(rig.one, at + 4090, 8), Ok(vec![0xff; 8]));
}

#[test]
fn an_iommu_lets_pass_what_is_mapped_and_keeps_what_it_refused() {
    let mut rig = rig();
    let at = rig.own(rig.two);
    let mut iommu = Iommu::new();
    iommu.map(Window { address: 0x1000, length: 0x1000 }, at + 0x1000, Access::ReadWrite);
    iommu.map(Window { address: 0x2000, length: 0x1000 }, at, Access::Write);
    rig.fabric.set_iommu(rig.one, Some(iommu));
    // One write over both mappings, which do not follow each other behind the IOMMU.
    rig.write(rig.one, 0x1ffc, b"12345678");
    rig.write(rig.one, at, b"no");
    rig.events();
    let mut bytes = [0; 4];
    rig.fabric.port(rig.two).load(0x1ffc, &mut bytes);
    assert_eq!(&bytes, b"1234");
    rig.fabric.port(rig.two).load(0, &mut bytes);
    assert_eq!(&bytes, b"5678");
    assert_eq!(rig.fabric.read(rig.one, 0x1ffc, 4), Ok(b"1234".to_vec()));
    assert_eq!(rig.fabric.read(rig.one, 0x2000, 4), Err(BusError::Unsupported));
    let refused = rig.fabric.take_refused(rig.one);
    assert_eq!(
        refused.iter().map(|r| (r.address, r.write)).collect::<Vec<_>>(),
        [(at, true), (0x2000, false)]
    );
    assert!(rig.fabric.take_refused(rig.one).is_empty());
}

#[test]
fn times_are_those_of_links_and_hops() {
    let mut rig = rig();
    let at = rig.own(rig.two);
    rig.fabric.read(rig.one, at, 64).unwrap();
    // Four hops, the completer, and packets of 24 and 88 bytes on both links.
    let expected = 4 * 125 + 100 + (24 + 88) * (254 + 500) / 1000;
    assert_eq!(rig.fabric.now().as_nanos() as u64, expected);
    let start = rig.fabric.now();
    rig.write(rig.one, at, &[0; 4096]);
    rig.events();
    let took = (rig.fabric.now() - start).as_nanos() as u64;
    assert_eq!(took, (280 * 254 + 4480 * 500) / 1000 + 250);
    let (up, _) = rig.fabric.link_bytes(rig.one);
    assert_eq!(up, 24 + 4480);
}

#[test]
fn time_goes_to_the_next_event_or_as_far_as_is_said() {
    let mut rig = rig();
    rig.fabric.port(rig.one).wake(Duration::from_secs(5), 3);
    assert_eq!(rig.fabric.step(Some(Duration::from_secs(2))), None);
    assert_eq!(rig.fabric.now(), Duration::from_secs(2));
    assert_eq!(rig.fabric.step(Some(Duration::from_secs(1))), None);
    assert_eq!(rig.fabric.now(), Duration::from_secs(2));
    assert_eq!(rig.fabric.step(None), Some(Event::Wake { function: rig.one, token: 3 }));
    assert_eq!(rig.fabric.now(), Duration::from_secs(5));
    assert_eq!(rig.fabric.step(None), None);
}

#[test]
fn transactions_are_dropped_aborted_and_led_astray() {
    let mut rig = rig();
    let at = rig.own(rig.two);
    let window = Window { address: at, length: 4096 };
    rig.fabric.inject(rig.one, Rule::once(When::Read(window), Fault::DropTransaction));
    rig.fabric.inject(rig.one, Rule::once(When::Read(window), Fault::AbortTransaction).after(1));
    assert_eq!(rig.fabric.read(rig.one, at, 4), Err(BusError::Timeout));
    assert_eq!(rig.fabric.now(), Duration::from_millis(50));
    assert_eq!(rig.fabric.read(rig.one, at, 4), Err(BusError::Aborted));
    rig.fabric.inject(rig.one, Rule::once(When::Write(window), Fault::DropTransaction));
    rig.fabric.inject(rig.one, Rule::once(When::Write(window), Fault::MisdirectTransaction(0x100)).after(1));
    rig.write(rig.one, at, b"gone");
    rig.write(rig.one, at, b"away");
    assert_eq!(rig.events().len(), 1);
    assert_eq!(rig.fabric.read(rig.one, at + 0x100, 4), Ok(b"away".to_vec()));
    assert_eq!(rig.fabric.faults_struck(rig.one), 4);
}

#[test]
fn a_read_that_takes_too_long_is_given_up() {
    let mut rig = rig();
    let at = rig.own(rig.two);
    let window = Window { address: at, length: 4096 };
    let late = |millis| Fault::DelayTransaction(Duration::from_millis(millis));
    rig.fabric.inject(rig.one, Rule::once(When::Read(window), late(40)));
    rig.fabric.inject(rig.one, Rule::once(When::Read(window), late(60)).after(1));
    assert_eq!(rig.fabric.read(rig.one, at, 4), Ok(vec![0; 4]));
    let start = rig.fabric.now();
    assert_eq!(rig.fabric.read(rig.one, at, 4), Err(BusError::Timeout));
    assert_eq!(rig.fabric.now() - start, Duration::from_millis(50));
    // The timeout of a read that waits behind a write begins later: it finds the written bytes, and times out only without
    // an answer.
    rig.fabric.inject(rig.one, Rule::always(When::Write(window), late(1000)));
    rig.write(rig.one, at, b"late");
    assert_eq!(rig.fabric.read(rig.one, at, 4), Ok(b"late".to_vec()));
    rig.write(rig.one, at, b"more");
    rig.fabric.strike(rig.two, Fault::HangBus);
    assert_eq!(rig.fabric.read(rig.one, at, 4), Err(BusError::Timeout));
}

#[test]
fn a_function_that_hangs_at_the_bus_times_out_until_it_is_reset() {
    let mut rig = rig();
    let ssd = rig.fabric.add_device("ssd", Rate::GEN3_X4, nvme::Nvme::new(nvme::Config::default()));
    let at = rig.fabric.bar(ssd, 0).address;
    assert_eq!(rig.fabric.read(rig.one, at + 8, 4), Ok(vec![0, 4, 1, 0]));
    rig.fabric.strike(ssd, Fault::HangBus);
    assert_eq!(rig.fabric.read(rig.one, at + 8, 4), Err(BusError::Timeout));
    rig.fabric.reset(ssd);
    assert_eq!(rig.fabric.read(rig.one, at + 8, 4), Ok(vec![0, 4, 1, 0]));
}

#[test]
fn an_interrupt_comes_after_the_writes_before_it_or_is_one() {
    let mut rig = rig();
    let at = rig.own(rig.two);
    rig.write(rig.one, at, &[0; 20_000]);
    rig.fabric.port(rig.one).interrupt(2);
    let events = rig.events();
    assert_eq!(events.last(), Some(&Event::Interrupt { function: rig.one, vector: 2 }));
    rig.fabric.set_vector(rig.one, 2, Some((at + 64, 0xabcd)));
    rig.fabric.port(rig.one).interrupt(2);
    assert!(matches!(rig.events()[..], [Event::Written { offset: 64, .. }]));
    assert_eq!(rig.fabric.interrupts(rig.one, 2), 2);
}

#[test]
fn a_meter_counts_its_window_alone() {
    let mut rig = rig();
    let meter = rig.fabric.meter(Window { address: 0x1000, length: 0x2000 });
    rig.write(rig.one, 0xffc, &[0; 8]);
    rig.write(rig.two, 0x2000, &[0; 16]);
    rig.events();
    let counted = rig.fabric.metered(meter);
    assert_eq!((counted.writes, counted.bytes_written), (2, 20));
}

#[test]
fn frames_cross_a_wire_and_faults_of_a_lossy_one_are_the_seeds() {
    let lossy = Wire { lose: 100, duplicate: 50, reorder: 50, ..Wire::default() };
    let run = |seed| {
        let mut fabric = Fabric::new(Timing::default(), 4096, seed);
        let [left, right] = fabric.connect(lossy, [None, None]);
        for i in 0..1000u32 {
            fabric.send(left, i.to_le_bytes().to_vec());
        }
        let mut came = Vec::new();
        while let Some(event) = fabric.step(None) {
            let Event::Frame { end, bytes } = event else { panic!("{event:?}") };
            assert_eq!(end, right);
            came.push(bytes);
        }
        let count = fabric.wire_count(left);
        assert_eq!(count.frames, 1000);
        assert!((50..200).contains(&count.lost) && count.duplicated > 10 && count.reordered > 10);
        assert_eq!(came.len() as u64, 1000 - count.lost + count.duplicated);
        came
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
