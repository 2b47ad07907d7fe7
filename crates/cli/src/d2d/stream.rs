//! `dcs d2d stream`: has an SSD send a video to a NIC, by writing to the registers of both in order.

use super::args;
use super::driver::{Driver, address, stall};
use crate::failure::Failure;
use crate::interrupt;
use crate::report::Report;
use crate::stream::args::Rate as Pacing;
use dcs::media::Framing;
use dcs_d2d::driver::{Receive, Send, Write};
use dcs_d2d::register::{APERTURE_BASE, GRANT, Kind, Rate, Task};
use dcs_d2d::uoe::{Rtp, Template};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Bytes of a packet's payload: seven packets of an MPEG transport stream.
const PAYLOAD: u16 = 1316;

pub fn run(options: &args::Stream, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let to = address(&options.to, options.streams)?;
    let rate = rate(options)?;
    let driver = Driver::open(&options.functions, options.streams, Kind::Ssd)?;
    let blocks = driver.blocks(options.block, options.length, 1)?;
    let task = Task { lba: options.block, blocks };
    driver.run(&options.to, options.stall, || start(options, &driver, to, rate, task), report)
}

fn rate(options: &args::Stream) -> Result<Rate, Failure> {
    let bytes_per_second = match options.rate {
        Pacing::Free => return Ok(Rate::default()),
        Pacing::Pcr => {
            return Err(Failure::usage("--rate pcr: a D2D SSD looks at no byte of the video")
                .advise("say its rate in bits a second: --rate 7.82M"));
        }
        Pacing::Bits(bits) => bits.div_ceil(8),
    };
    let granularity_us = u32::try_from(options.slot.as_micros()).unwrap_or(u32::MAX);
    if bytes_per_second >= 1 << 40 || !(1..1 << 24).contains(&granularity_us) {
        return Err(Failure::usage("a rate is below 8.7 Tb/s, a slot from 1 us to 16 s"));
    }
    Ok(Rate { bytes_per_second, granularity_us })
}

fn template(options: &args::Stream, to: Ipv4Addr, stream: u16) -> Template {
    let port = options.to.port + 2 * stream;
    let rtp = Rtp { kind: 33, sequence: 0, timestamp: 0, ssrc: u32::from(stream) + 1 };
    Template {
        mac_destination: options.mac,
        mac_source: [2, 0, 0, 0, 0, 2],
        tag: None,
        service: 0,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
        source: options.from.octets(),
        destination: to.octets(),
        source_port: port,
        destination_port: port,
        rtp: (options.to.framing == Framing::Rtp).then_some(rtp),
        payload: PAYLOAD,
    }
}

/// Writes all registers, and starts the streams.
fn start(
    options: &args::Stream,
    driver: &Driver,
    to: Ipv4Addr,
    rate: Rate,
    task: Task,
) -> Result<(), Failure> {
    let Driver { ssd, nic, .. } = driver;
    let (aperture, grants) = (nic.bar(2)?, ssd.bar(0)?);
    nic.write(&[Write { offset: APERTURE_BASE, value: aperture }]);
    // A receiver's stall limit includes its sender's wait for a slot, or for its first byte.
    let patience = options.stall.saturating_add(options.slot).saturating_add(Duration::from_secs(2));
    for stream in 0..driver.streams {
        let grants_to = grants + ssd.layout.register(stream, GRANT);
        nic.write(&nic.layout.template(stream, &template(options, to, stream)));
        let receive =
            Receive { bytes: options.length, grants_to, times: stall(patience), ..Receive::default() };
        nic.write(&nic.layout.receive(stream, &receive));
        let place = nic.layout.place(nic.read(nic.layout.place_reads(stream)));
        let place = place.map_err(|status| driver.failure(stream, "the NIC", &status))?;
        ssd.write(&driver.tasks(stream, task)?);
        let send =
            Send { bytes: options.length, rate, credits: 0, times: stall(options.stall), interrupt: true };
        ssd.write(&ssd.layout.send(stream, &place, &send));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        stream: args::Stream,
    }

    fn options(words: &str) -> args::Stream {
        let first = ["stream", "0000:00:03.0", "0000:00:04.0"];
        Line::try_parse_from(first.into_iter().chain(words.split(' '))).unwrap().stream
    }

    #[test]
    fn rates_and_ports_are_checked_before_a_function_is_taken() {
        let good = options("udp://10.0.2.2:5004 --length 1MiB --rate 7.82M --streams 120");
        assert_eq!(rate(&good).unwrap(), Rate { bytes_per_second: 977_500, granularity_us: 10_000 });
        assert_eq!(address(&good.to, good.streams).unwrap(), Ipv4Addr::new(10, 0, 2, 2));
        for wrong in
            ["udp://10.0.2.2:65535 --length 1 --rate 1M --streams 2", "udp://[::1]:5004 --length 1 --rate 1M"]
        {
            let wrong_one = options(wrong);
            assert_eq!(address(&wrong_one.to, wrong_one.streams).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
        for wrong in [
            "udp://10.0.2.2:5004 --length 1 --rate pcr",
            "udp://10.0.2.2:5004 --length 1 --rate 1M --slot 17s",
            "udp://10.0.2.2:5004 --length 1 --rate 1M --slot 0.1us",
        ] {
            assert_eq!(rate(&options(wrong)).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
        assert_eq!(rate(&options("udp://10.0.2.2:5004 --length 1 --rate free")).unwrap(), Rate::default());
    }
}
