//! Guests that share one SSD, as where SSD and FPGA are one device, compared with an SSD for each (figures 6 and 17).

use super::Setting;
use crate::drives::Operator;
use crate::drives::design::{Design, Place, Request, Server};
use crate::drives::machine::Build;
use crate::experiments::figure::{Figure, Reach};
use dcs_engine::Nanos;
use dcs_fabric::Rate;
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes of a block of figure 6.
const BLOCK: u64 = 4096;
/// Bytes of a read of figure 17.
const LARGE: u64 = 128 << 10;
/// Concurrent reads of each guest of figure 17.
const DEPTH: usize = 8;
/// Most SSDs, and guests, in the paper.
pub const MOST: usize = 4;
/// Number of guests beyond the paper.
pub const CROWD: usize = 64;

/// A point of figure 6.
#[derive(Clone, Debug)]
pub struct Contended {
    /// Guests that make plain reads of 4 KiB next to the measured one.
    pub others: usize,
    /// Concurrent reads of each of them.
    pub depth: usize,
    /// True if each guest has its own SSD.
    pub decoupled: bool,
    /// Mean latency of the guest that reads 4 KiB through an operator of 100 MB/s.
    pub latency: f64,
}

/// A bar of figure 17.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    /// Guests.
    pub guests: usize,
    /// SSDs.
    pub ssds: usize,
    /// True if data pass an operator in the card; otherwise they go from SSD to guest.
    pub operator: bool,
    /// True if the card's link has 16 lanes instead of the prototype's four.
    pub wide: bool,
    /// Bytes per second of all guests together.
    pub rate: f64,
}

/// Reads until stopped.
async fn load(
    place: Place,
    request: impl Fn(u64) -> Request,
    stop: Rc<RefCell<bool>>,
    moved: Rc<RefCell<u64>>,
) {
    let mut at = 0;
    while !*stop.borrow() {
        let request = request(at);
        place.run(request).await;
        *moved.borrow_mut() += request.length;
        at += 1;
    }
}

/// Measures one point of figure 6.
pub fn contended(setting: &Setting, others: usize, depth: usize, decoupled: bool) -> Contended {
    let ssds = if decoupled { others + 1 } else { 1 };
    let build = Build {
        ssds,
        ssd_bytes: 2 << 20,
        slots: vec![Some(Operator::Example)],
        ..Build::new(setting.parameters, setting.timings, Design::FlexCsv.drives())
    };
    let server = Server::new(Design::FlexCsv, build);
    let handle = server.handle();
    let (stop, moved) = (Rc::new(RefCell::new(false)), Rc::default());
    for guest in 1..=others {
        for at in 0..depth {
            let ssd = if decoupled { guest } else { 0 };
            let place = server.place(guest as u16, ssd, BLOCK);
            let request = move |turn: u64| Request {
                from: Some((turn * 97 + at as u64 * 13) % 512 * BLOCK),
                operator: None,
                to: None,
                length: BLOCK,
            };
            handle.spawn(load(place, request, Rc::clone(&stop), Rc::clone(&moved)));
        }
    }
    let place = server.place(0, 0, BLOCK);
    let count = setting.count.max(10);
    let latency = server.executor.run(async {
        handle.sleep_until(1_000_000 + handle.now()).await;
        let from = handle.now();
        for at in 0..count {
            let request = Request {
                from: Some(at % 512 * BLOCK),
                operator: Some(Operator::Example),
                to: None,
                length: BLOCK,
            };
            place.run(request).await;
        }
        (handle.now() - from) as f64 / count as f64
    });
    *stop.borrow_mut() = true;
    Contended { others, depth, decoupled, latency }
}

/// Measures one bar of figure 17: guests read the SSDs in turn. `wide`: 16 lanes for the card's link.
pub fn bandwidth(setting: &Setting, guests: usize, ssds: usize, operator: bool, wide: bool) -> Bandwidth {
    let build = Build {
        ssds,
        ssd_bytes: 4 << 20,
        // Enough slots with a fast operator, so that they are not a bottleneck.
        slots: vec![Some(Operator::Aggregate); MOST],
        card_link: if wide { Rate::GEN3_X16 } else { Rate::GEN3_X4 },
        ..Build::new(setting.parameters, setting.timings, Design::FlexCsv.drives())
    };
    let server = Server::new(Design::FlexCsv, build);
    let handle = server.handle();
    let (stop, moved) = (Rc::new(RefCell::new(false)), Rc::new(RefCell::new(0)));
    let operator_of = operator.then_some(Operator::Aggregate);
    for guest in 0..guests {
        // Guests in a crowd have one read each in flight.
        let depth = if guests > MOST { 1 } else { DEPTH as u64 };
        for at in 0..depth {
            let place = server.place(guest as u16, guest % ssds, LARGE);
            let request = move |turn: u64| Request {
                from: Some((turn * depth + at) % 32 * LARGE),
                operator: operator_of,
                to: None,
                length: LARGE,
            };
            handle.spawn(load(place, request, Rc::clone(&stop), Rc::clone(&moved)));
        }
    }
    let span: Nanos = 100_000 * setting.count.clamp(20, 200);
    let bytes = server.executor.run(async {
        handle.sleep_until(handle.now() + 1_000_000).await;
        let before = *moved.borrow();
        handle.sleep_until(handle.now() + span).await;
        *moved.borrow() - before
    });
    *stop.borrow_mut() = true;
    Bandwidth { guests, ssds, operator, wide, rate: bytes as f64 * 1e9 / span as f64 }
}

/// All measurements.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Figure 6.
    pub contended: Vec<Contended>,
    /// Figure 17.
    pub bandwidth: Vec<Bandwidth>,
}

/// Depths of figure 6.
pub const DEPTHS: [usize; 3] = [1, 8, 32];

/// Measures everything.
pub fn measure(setting: &Setting) -> Rows {
    let mut points = vec![contended(setting, 0, 1, false)];
    for others in 1..MOST {
        points.extend(DEPTHS.map(|depth| contended(setting, others, depth, false)));
    }
    points.push(contended(setting, MOST - 1, 32, true));
    let all = (1..=MOST).flat_map(|guests| [1, MOST].map(|ssds| (guests, ssds, false, false)));
    let through = [
        (CROWD, MOST, false, false),
        (MOST, 1, true, false),
        (MOST, MOST, true, false),
        (MOST, MOST, true, true),
    ];
    let bandwidth = all
        .chain(through)
        .map(|(guests, ssds, operator, wide)| bandwidth(setting, guests, ssds, operator, wide));
    Rows { contended: points, bandwidth: bandwidth.collect() }
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &Rows) -> Vec<Figure> {
    let latency = |others, depth, decoupled| {
        let is = |row: &&Contended| (row.others, row.depth, row.decoupled) == (others, depth, decoupled);
        rows.contended.iter().find(is).expect("it was measured").latency
    };
    let alone = latency(0, 1, false);
    let rate = |guests, ssds, operator, wide| {
        let is = |row: &&Bandwidth| {
            (row.guests, row.ssds, row.operator, row.wide) == (guests, ssds, operator, wide)
        };
        rows.bandwidth.iter().find(is).expect("it was measured").rate
    };
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    vec![
        figure(
            "one SSD for all: latency through an operator of 100 MB/s beside two guests with 32 reads each / alone",
            latency(2, 32, false) / alone,
            Some(2.1),
            None,
            "\"When two or more I/O-intensive VMs share the SSD\"; the paper's queue depths are in its drawing alone.",
        ),
        figure(
            "the same beside three",
            latency(3, 32, false) / alone,
            None,
            None,
            "More in the queue, more to wait for.",
        ),
        figure(
            "an SSD each: the same beside three",
            latency(3, 32, true) / alone,
            None,
            None,
            "The SSD is its own. What is shared still is the host's 24 cores: 96 reads at once are more than their stacks can do.",
        ),
        figure(
            "4 guests, 4 SSDs / one: bandwidth",
            rate(4, 4, false, false) / rate(4, 1, false, false),
            Some(3.0),
            Some(Reach::AtLeast(3.9)),
            "Data go from SSD to guest by themselves; the engine has the commands alone.",
        ),
        figure(
            "64 guests with one read each, 4 SSDs / 4 guests: bandwidth",
            rate(CROWD, 4, false, false) / rate(4, 4, false, false),
            None,
            Some(Reach::AtLeast(0.95)),
            "",
        ),
        figure(
            "4 guests, 4 SSDs / one, through operators in the card, its link of four lanes",
            rate(4, 4, true, false) / rate(4, 1, true, false),
            None,
            None,
            "All data pass the card's link, which has 3.9 GB/s: it is the next bottleneck.",
        ),
        figure(
            "the same, a link of 16 lanes",
            rate(4, 4, true, true) / rate(4, 1, true, false),
            None,
            Some(Reach::AtLeast(3.9)),
            "",
        ),
    ]
}
