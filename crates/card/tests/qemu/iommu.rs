//! Tests through an IOMMU: a driver in the guest's user space decides what each device may reach, and gets its interrupts.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use dcs_drivers::bus::{Bus, BusError, Tag};
use dcs_vfio::{Access, Buffer, Container, Function};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::nvme::{scenarios, ssd};
use crate::rig::{LIMIT, RAM, Rig};

/// Bus addresses chosen by the driver, which nothing else uses.
const BUFFER: u64 = 0x1_0000_0000;
const CARD: u64 = 0x2_0000_0000;
const SSD: u64 = 0x3_0000_0000;

#[test]
fn devices_reach_what_the_driver_maps_and_nothing_else() {
    let Some(mut rig) = Rig::boot_with_iommu("iommu::the_driver_in_the_guest") else { return };
    assert_eq!(rig.letter(0x10), SSD);
    rig.letter(0x20);
    rig.bus.set_address(Some(CARD));
    assert_eq!(rig.read(BUFFER, 14), b"from the guest");
    rig.bus.write(BUFFER + 64, b"from the card");
    for address in [RAM, 0, BUFFER + 0x1_0000, SSD - 4] {
        rig.bus.read(address, 4, Tag(2));
        assert_eq!(rig.bus.wait_for(Tag(2), LIMIT), Err(BusError::Unsupported), "{address:#x}");
    }
    assert_eq!(rig.read32(SSD + 8) >> 16, 1, "NVMe 1.x");
    // The SSD has nothing in its address space except the driver's mappings: no data can pass through the guest's memory.
    scenarios::random_requests_against_an_array(ssd(&mut rig, SSD), 4, 10, |_| {});
    rig.bus.interrupt(1);
    assert_eq!(rig.guest.wait_for("@driver", LIMIT).unwrap(), "from the card, interrupt 1");
    rig.guest.wait(LIMIT).unwrap();
}

/// Runs in the guest.
#[test]
#[ignore = "the guest's side of the test above"]
fn the_driver_in_the_guest() {
    let only = |found: Vec<String>| found.last().expect("the device").clone();
    let addresses = [
        only(dcs_vfio::functions(Some(0xdc51), None, None)),
        only(dcs_vfio::functions(None, None, Some(0x01_0802))),
    ];
    let container = Container::new().unwrap();
    let [card, ssd] = addresses.map(|address| {
        dcs_vfio::bind(&address).unwrap();
        Function::open(&container, &address).unwrap()
    });
    card.enable(true).unwrap();
    ssd.enable(true).unwrap();
    let buffer = Buffer::new(&container, BUFFER, 0x1_0000, Access::Both).unwrap();
    buffer.store(0, b"from the guest");
    container.map(&Arc::new(card.bar(2).unwrap()), CARD, Access::Both).unwrap();
    container.map(&Arc::new(ssd.bar(0).unwrap()), SSD, Access::Both).unwrap();
    assert_eq!(card.vectors().unwrap(), 4);
    let events: Vec<_> = (0..4).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
    card.interrupts(&events.iter().map(|event| event.as_fd()).collect::<Vec<_>>()).unwrap();
    let registers = card.bar(0).unwrap();
    registers.write64(0x10, SSD);
    registers.write64(0x20, 1);
    let limit = Timespec::try_from(Duration::from_secs(300)).unwrap();
    let mut waits: Vec<_> = events.iter().map(|event| PollFd::new(event, PollFlags::IN)).collect();
    assert_eq!(poll(&mut waits, Some(&limit)).unwrap(), 1);
    let vector = waits.iter().position(|wait| !wait.revents().is_empty()).unwrap();
    let mut said = [0; 13];
    buffer.load(64, &mut said);
    println!("@driver {}, interrupt {vector}", String::from_utf8_lossy(&said));
}
