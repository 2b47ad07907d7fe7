//! Runs the NVMe host's scenarios, which it passes on the fabric's model, on QEMU's controller.

#[path = "../../../../testbed/fabric/tests/suite/nvme_host/scenarios.rs"]
#[allow(dead_code, reason = "other worlds use the rest")]
pub mod scenarios;

use std::time::{Duration, Instant};

use dcs_drivers::bus::{Bus, ReadDone, Region, Window};
use dcs_drivers::nvme::{CmbBar, Config, Request, SglUse};
use scenarios::World;

use crate::rig::{LIMIT, Rig};

/// QEMU's second controller of the SSD.
pub struct Ssd<'a> {
    rig: &'a mut Rig,
    address: u64,
    /// Controller memory buffer, if the queues are to be there.
    cmb: Option<Window>,
    start: Instant,
}

impl World for Ssd<'_> {
    fn config(&self) -> Config {
        let cmb = self.cmb.map(|window| CmbBar { bar: 2, window });
        Config { cmb, ..Config::new(Window { address: self.address, length: 16 << 10 }, 1) }
    }

    fn memory(&mut self) -> Region {
        Region::whole(self.rig.bus.window())
    }

    fn bus(&mut self, with: &mut dyn FnMut(&mut dyn Bus)) {
        with(&mut self.rig.bus);
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn advance(&mut self, until: Option<u64>) -> Option<ReadDone> {
        let left = until.map_or(u64::MAX, |until| until.saturating_sub(self.now()));
        if let Some(done) = self.rig.bus.answer() {
            return Some(done);
        }
        // The controller's writes to the card's memory arrive without a notification.
        let nap = Duration::from_nanos(left.min(20_000));
        self.rig.bus.wake().sleep(Some(nap), || false);
        self.rig.bus.answer()
    }
}

#[test]
fn queues_lie_in_the_buffer_of_qemu_s_controller() {
    let Some(mut rig) = Rig::boot_with_cmb("post 0x28 $(bar $SSD 2); post 0x20 1; done_ 1") else { return };
    let address = rig.letter(0x10);
    let window = Window { address: rig.letter(0x28), length: 1 << 20 };
    rig.letter(0x20);
    let mut host = scenarios::Rig::ready(Ssd { cmb: Some(window), ..ssd(&mut rig, address) }, |_| {});
    assert!(host.nvme.queues_in_cmb());
    host.with(|nvme, bus, now| nvme.stop(bus, now));
    host.run();
    let world = Ssd { cmb: Some(window), ..ssd(&mut rig, address) };
    scenarios::random_requests_against_an_array(world, 4, 20, |config| config.queues = 4);
    scenarios::many_commands_are_outstanding(Ssd { cmb: Some(window), ..ssd(&mut rig, address) });
    scenarios::a_reset_under_load(Ssd { cmb: Some(window), ..ssd(&mut rig, address) });
    rig.answer(1);
    rig.guest.wait(LIMIT).unwrap();
}

pub fn ssd(rig: &mut Rig, address: u64) -> Ssd<'_> {
    Ssd { rig, address, cmb: None, start: Instant::now() }
}

#[test]
fn the_host_drives_qemu_s_controller() {
    let Some(mut rig) = Rig::boot("post 0x20 1; done_ 1") else { return };
    let address = rig.letter(0x10);
    rig.letter(0x20);
    let rig = &mut rig;
    scenarios::what_was_written_is_read_back(ssd(rig, address));
    scenarios::many_commands_are_outstanding(ssd(rig, address));
    scenarios::a_reset_under_load(ssd(rig, address));
    scenarios::shutdown_and_start(ssd(rig, address));
    scenarios::aborted_commands_end(ssd(rig, address));
    scenarios::random_requests_against_an_array(ssd(rig, address), 1, 20, |_| {});
    scenarios::random_requests_against_an_array(ssd(rig, address), 2, 20, |config| {
        (config.queues, config.depth) = (4, 5);
    });
    scenarios::random_requests_against_an_array(ssd(rig, address), 3, 20, |config| {
        config.sgl = SglUse::Preferred;
    });
    times(rig, address);
    rig.answer(1);
    rig.guest.wait(LIMIT).unwrap();
}

/// Prints the time of a read, for information. The device is emulated: it says nothing about hardware.
fn times(rig: &mut Rig, address: u64) {
    let mut host = scenarios::Rig::ready(ssd(rig, address), |_| {});
    let (start, count) = (Instant::now(), 200u32);
    for n in 0..count {
        host.read(u64::from(n) * 8, 0, 4096).unwrap();
    }
    let one = start.elapsed() / count;
    let start = Instant::now();
    for id in 0..512 {
        let request =
            Request::Read { lba: id * 256 % 32768, data: &[host.at(id % 16 * (128 << 10), 128 << 10)] };
        while host.submit(id, &request).is_err() {
            host.round();
            let _ = host.world.advance(None);
        }
        while host.nvme.outstanding() > 16 {
            host.round();
            let _ = host.world.advance(None);
        }
    }
    host.run();
    let rate = f64::from(512 * 128) / 1024.0 / start.elapsed().as_secs_f64();
    println!("4 KiB read: {one:?}; 128 KiB reads, 16 outstanding: {rate:.0} MiB/s");
}
