//! `dcs d2d record`: the writes that make an SSD store what a NIC receives from the network, in order.

use super::args;
use super::driver::{Driver, address, stall};
use crate::failure::Failure;
use crate::interrupt;
use crate::report::Report;
use dcs::media::Framing;
use dcs_d2d::driver::{Receive, Send, Write};
use dcs_d2d::register::{APERTURE_BASE, GRANT, Kind, Task};
use dcs_d2d::uoe::{Rtp, Template};
use std::net::Ipv4Addr;
use std::time::Duration;

pub fn run(options: &args::Record, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let at = address(&options.at, options.streams)?;
    let driver = Driver::open(&options.functions, options.streams, Kind::Nic)?;
    let blocks = driver.blocks(options.block, options.length, driver.streams)?;
    driver.run(&options.at, options.stall, || start(options, &driver, at, blocks), report)
}

/// Returns the template that selects a stream's packets: those to its address and port. [docs/d2d.md, Parse Control]
fn template(options: &args::Record, at: Ipv4Addr, stream: u16) -> Template {
    // SSRC 0: any source. The other fields are not compared.
    let rtp = Rtp { kind: 33, sequence: 0, timestamp: 0, ssrc: 0 };
    Template {
        mac_destination: [0; 6],
        mac_source: [0; 6],
        tag: None,
        service: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        source: options.from.unwrap_or(Ipv4Addr::UNSPECIFIED).octets(),
        destination: at.octets(),
        source_port: 0,
        destination_port: options.at.port + 2 * stream,
        rtp: (options.at.framing == Framing::Rtp).then_some(rtp),
        payload: 1,
    }
}

/// Writes all registers, and starts the streams.
fn start(options: &args::Record, driver: &Driver, at: Ipv4Addr, blocks: u32) -> Result<(), Failure> {
    let Driver { ssd, nic, .. } = driver;
    let (aperture, grants) = (ssd.bar(2)?, nic.bar(0)?);
    ssd.write(&[Write { offset: APERTURE_BASE, value: aperture }]);
    // The SSD reports a network that is silent for too long. The NIC waits longer, so that it does not fail first.
    let patience = options.stall.saturating_add(Duration::from_secs(2));
    for stream in 0..driver.streams {
        let lba = options.block + u64::from(stream) * u64::from(blocks);
        ssd.write(&driver.tasks(stream, Task { lba, blocks })?);
        let grants_to = grants + nic.layout.register(stream, GRANT);
        let receive =
            Receive { bytes: options.length, grants_to, times: stall(options.stall), ..Receive::default() };
        ssd.write(&ssd.layout.receive(stream, &receive));
        let place = ssd.layout.place(ssd.read(ssd.layout.place_reads(stream)));
        let place = place.map_err(|status| driver.failure(stream, "the SSD", &status))?;
        nic.write(&nic.layout.template(stream, &template(options, at, stream)));
        let send = Send { bytes: options.length, times: stall(patience), interrupt: true, ..Send::default() };
        nic.write(&nic.layout.send(stream, &place, &send));
    }
    Ok(())
}
