//! Slots shared by several guests: latencies and QoS violations (figures 7, 8 and 18), and fairness towards guests whose
//! neighbour demands more than its share.
//!
//! A request encrypts 1 MiB of the guest's data in the card's memory: 5 ms of a slot, as in figure 8, where four guests with 50
//! requests per second each use up one operator. The slots are [`dcs_slots`]; requests go through the guest, the engine and the
//! bus.

use super::{Setting, wait};
use crate::drives::design::{Design, Place, Request, Server};
use crate::drives::machine::Build;
use crate::drives::{Operator, Timings};
use crate::executor::Handle;
use crate::experiments::figure::{Figure, Reach};
use dcs_engine::Nanos;
use dcs_slots::{Order, Policy, Tenant, assignment};
use dcs_testkit::Random;
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes of a request.
pub const LENGTH: u64 = 1 << 20;
/// Number of guests.
pub const GUESTS: usize = 4;
/// Latency that counts as a violation, as a multiple of the latency without other guests.
const LATE: f64 = 1.5;

/// Policy for assigning slots (figure 18), and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Two slots, each with the guests of one group.
    StaticWorst,
    /// Two slots, each with one guest of each group.
    StaticBest,
    /// Two slots shared by all.
    Dynamic,
    /// Four slots, two of which hold other operators at first.
    DynamicPr,
    /// One slot for all guests (figure 8).
    One,
    /// Two slots for all guests, by shares.
    Shares,
    /// Two slots for all guests, by shares; the first guest has a head start.
    Priority,
}

impl Strategy {
    /// Strategies of figure 18.
    pub const PAPER: [Strategy; 4] =
        [Strategy::StaticWorst, Strategy::StaticBest, Strategy::Dynamic, Strategy::DynamicPr];

    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::StaticWorst => "static-worst",
            Strategy::StaticBest => "static-best",
            Strategy::Dynamic => "dynamic",
            Strategy::DynamicPr => "dynamic+pr",
            Strategy::One => "one operator",
            Strategy::Shares => "dynamic, shares",
            Strategy::Priority => "shares, priority",
        }
    }
}

/// Load of one guest.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Waits for an answer, then on average this many times the execution time, then requests again.
    Closed(f64),
    /// Sends this many requests per second, whether or not they are answered.
    Open(f64),
    /// Always has this many requests in flight.
    Always(usize),
}

/// Latencies of a guest's requests.
#[derive(Clone, Debug, Default)]
pub struct Latencies(pub Vec<Nanos>);

impl Latencies {
    /// Returns the share of requests that took longer than permitted.
    pub fn violations(&self, alone: Nanos) -> f64 {
        let late = self.0.iter().filter(|taken| **taken as f64 > LATE * alone as f64).count();
        late as f64 / self.0.len().max(1) as f64
    }

    /// Returns the mean in nanoseconds.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<Nanos>() as f64 / self.0.len().max(1) as f64
    }

    /// Returns the latency that this share of the requests does not exceed.
    pub fn quantile(&self, part: f64) -> Nanos {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(at.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// Returns the time to load a slot from the card's own memory.
pub fn loading(timings: &Timings) -> Nanos {
    (u128::from(timings.bitstream) * 1_000_000_000 / u128::from(timings.icap)) as Nanos
}

fn build(setting: &Setting, strategy: Strategy, loads: &[Load]) -> Build {
    let mut build = Build::new(setting.parameters, setting.timings, Design::FlexCsv.drives());
    (build.computes, build.ssd_bytes) = (false, 1 << 20);
    let encryption = Some(Operator::Encryption);
    build.slots = vec![encryption; 2];
    build.loading = loading(&setting.timings);
    let execution = setting.timings.working(Operator::Encryption, LENGTH);
    let busy = |load: &Load| match load {
        Load::Closed(wait) => 1.0 / (1.0 + wait),
        Load::Open(rate) => rate * execution as f64 / 1e9,
        Load::Always(count) => *count as f64,
    };
    let loads: Vec<f64> = loads.iter().map(busy).collect();
    let assigned = match strategy {
        Strategy::StaticWorst => assignment::worst(&loads, 2),
        Strategy::StaticBest => assignment::best(&loads, 2),
        _ => vec![0; loads.len()],
    };
    build.tenants = assigned.iter().map(|slot| Tenant { slot: *slot, ..Tenant::default() }).collect();
    match strategy {
        Strategy::StaticWorst | Strategy::StaticBest => build.policy = Policy::Static,
        Strategy::Dynamic => build.policy = Policy::Dynamic,
        Strategy::One => build.slots = vec![encryption],
        Strategy::DynamicPr => {
            build.policy = Policy::Reconfiguration;
            build.slots.extend([Some(Operator::Filter), Some(Operator::Grep)]);
        }
        Strategy::Shares | Strategy::Priority => {
            (build.policy, build.order) = (Policy::Dynamic, Order::Shares);
            if strategy == Strategy::Priority {
                build.tenants[0].head_start = 4 * execution;
            }
        }
    }
    build
}

/// Results of a run, by guest.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Latencies of each guest's requests.
    pub latencies: Vec<Latencies>,
    /// Slot time that each guest got.
    pub charged: Vec<Nanos>,
}

/// Runs the guests' loads.
pub fn run(setting: &Setting, strategy: Strategy, loads: &[Load]) -> RunResult {
    let server = Server::new(Design::FlexCsv, build(setting, strategy, loads));
    let handle = server.handle();
    let execution = setting.timings.working(Operator::Encryption, LENGTH);
    // All guests request for the same time: the busiest makes this many requests.
    let least = loads.iter().map(|load| match load {
        Load::Closed(wait) => execution as f64 * (1.0 + wait),
        Load::Open(rate) => 1e9 / rate,
        Load::Always(_) => execution as f64,
    });
    let end = (least.fold(f64::MAX, f64::min) * setting.count as f64) as Nanos;
    let taken: Vec<Rc<RefCell<Latencies>>> = loads.iter().map(|_| Rc::default()).collect();
    let left = Rc::new(RefCell::new(loads.len()));
    for (guest, load) in loads.iter().enumerate() {
        let places = match load {
            Load::Closed(_) => 1,
            // As many as queue pairs.
            Load::Open(_) => 8,
            Load::Always(count) => *count,
        };
        let places: Vec<Place> = (0..places).map(|_| server.place(guest as u16, 0, LENGTH)).collect();
        let ask = Ask { handle: handle.clone(), taken: Rc::clone(&taken[guest]), end, execution };
        let random = Random(guest as u64 + 11);
        let (load, left) = (*load, Rc::clone(&left));
        handle.spawn(async move {
            ask.guest(load, places, random).await;
            *left.borrow_mut() -= 1;
        });
    }
    // Slot time of each guest when no more requests begin.
    let charged: Vec<Nanos> = server.executor.run(async {
        handle.sleep_until(end).await;
        let of = |guest| handle.with(|machine| machine.slots().charged(guest as u16));
        let charged = (0..loads.len()).map(of).collect();
        handle.until(|_| (*left.borrow() == 0).then_some(())).await;
        charged
    });
    RunResult { latencies: taken.into_iter().map(|latencies| latencies.borrow().clone()).collect(), charged }
}

/// A guest's program.
#[derive(Clone)]
struct Ask {
    handle: Handle<crate::drives::machine::Machine>,
    taken: Rc<RefCell<Latencies>>,
    end: Nanos,
    execution: Nanos,
}

impl Ask {
    async fn guest(self, load: Load, places: Vec<Place>, mut random: Random) {
        match load {
            Load::Closed(mean) => {
                while self.handle.now() < self.end {
                    let until = self.handle.now() + wait(&mut random, mean * self.execution as f64);
                    self.handle.sleep_until(until).await;
                    self.one(&places[0], self.handle.now()).await;
                }
            }
            Load::Open(rate) => self.open(rate, places, random).await,
            Load::Always(count) => {
                let left = Rc::new(RefCell::new(count));
                for place in places {
                    let (ask, left) = (self.clone(), Rc::clone(&left));
                    self.handle.spawn(async move {
                        while ask.handle.now() < ask.end {
                            ask.one(&place, ask.handle.now()).await;
                        }
                        *left.borrow_mut() -= 1;
                    });
                }
                self.handle.until(|_| (*left.borrow() == 0).then_some(())).await;
            }
        }
    }

    /// Generates arrivals whether or not requests are answered; those beyond the places wait in the guest.
    async fn open(&self, rate: f64, places: Vec<Place>, mut random: Random) {
        let free = Rc::new(RefCell::new(places));
        let count = free.borrow().len();
        let mut arrival = 0;
        while arrival < self.end {
            arrival += wait(&mut random, 1e9 / rate);
            self.handle.sleep_until(arrival).await;
            let place = self.handle.until(|_| free.borrow_mut().pop()).await;
            let (ask, free) = (self.clone(), Rc::clone(&free));
            self.handle.spawn(async move {
                ask.one(&place, arrival).await;
                free.borrow_mut().push(place);
                ask.handle.with(|_| ());
            });
        }
        self.handle.until(|_| (free.borrow().len() == count).then_some(())).await;
    }

    async fn one(&self, place: &Place, from: Nanos) {
        let operator = Some(Operator::Encryption);
        place.run(Request { from: None, operator, to: None, length: LENGTH }).await;
        self.taken.borrow_mut().0.push(self.handle.now() - from);
    }
}

/// Returns the latency of a request without other guests.
pub fn alone(setting: &Setting) -> Nanos {
    let setting = Setting { count: 3, ..*setting };
    run(&setting, Strategy::Dynamic, &[Load::Closed(1.0)]).latencies[0].0[0]
}

/// A bar of figure 18.
#[derive(Clone, Debug)]
pub struct Violations {
    /// Waiting time relative to execution time, for both groups.
    pub groups: [f64; 2],
    /// Policy for assigning slots.
    pub strategy: Strategy,
    /// Share of all requests that were late.
    pub ratio: f64,
    /// Share of late requests of each group.
    pub by_group: [f64; 2],
}

/// Groups of figure 18.
pub const GROUPS: [[f64; 2]; 10] = [
    [0.5, 0.5],
    [0.5, 1.0],
    [0.5, 2.0],
    [0.5, 4.0],
    [1.0, 1.0],
    [1.0, 4.0],
    [2.0, 2.0],
    [2.0, 8.0],
    [4.0, 4.0],
    [4.0, 8.0],
];

/// Measures figure 18.
pub fn violations(setting: &Setting) -> Vec<Violations> {
    let alone = alone(setting);
    let of = |groups: [f64; 2], strategy| {
        let loads = [groups[0], groups[0], groups[1], groups[1]].map(Load::Closed);
        let latencies = run(setting, strategy, &loads).latencies;
        let together = |range: std::ops::Range<usize>| {
            Latencies(latencies[range].iter().flat_map(|latencies| latencies.0.clone()).collect())
                .violations(alone)
        };
        Violations { groups, strategy, ratio: together(0..4), by_group: [together(0..2), together(2..4)] }
    };
    GROUPS.iter().flat_map(|groups| Strategy::PAPER.map(|strategy| of(*groups, strategy))).collect()
}

/// A part of figure 8: one operator, this many guests with this many requests per second each.
#[derive(Clone, Debug)]
pub struct Rate {
    /// Number of guests.
    pub guests: usize,
    /// Requests per second of each guest.
    pub rate: f64,
    /// Mean latency of all requests, in nanoseconds.
    pub mean: f64,
}

/// Measures figure 8: guests that share one operator.
pub fn rates(setting: &Setting) -> Vec<Rate> {
    let of = |guests: usize, rate: f64| {
        let ran = run(setting, Strategy::One, &vec![Load::Open(rate); guests]);
        let all: Vec<Nanos> = ran.latencies.iter().flat_map(|latencies| latencies.0.clone()).collect();
        Rate { guests, rate, mean: Latencies(all).mean() }
    };
    let rates = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0];
    (1..=GUESTS).flat_map(|guests| rates.map(|rate| of(guests, rate))).collect()
}

/// A group of guests of figure 7.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Requests of a guest per execution time: 1/2 means it waits as long as it works.
    pub rate: f64,
    /// Policy for assigning slots.
    pub strategy: Strategy,
    /// Latencies relative to the latency without other guests that 25, 50, 75, 90, 95 and 99 % of the requests don't exceed.
    pub quantiles: [f64; 6],
    /// Share of requests that were late.
    pub violations: f64,
}

/// Shares of [`Distribution::quantiles`].
pub const QUANTILES: [f64; 6] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

/// Measures figure 7, and the same with slots shared by all.
pub fn distributions(setting: &Setting) -> Vec<Distribution> {
    let alone = alone(setting);
    let loads = [1.0, 1.0, 15.0, 15.0].map(Load::Closed);
    let of = |strategy| {
        let latencies = run(setting, strategy, &loads).latencies;
        [(2.0, 0..2), (16.0, 2..4)].map(|(period, guests): (f64, std::ops::Range<usize>)| {
            let all = Latencies(latencies[guests].iter().flat_map(|latencies| latencies.0.clone()).collect());
            Distribution {
                rate: 1.0 / period,
                strategy,
                quantiles: QUANTILES.map(|part| all.quantile(part) as f64 / alone as f64),
                violations: all.violations(alone),
            }
        })
    };
    [Strategy::StaticWorst, Strategy::Dynamic].into_iter().flat_map(of).collect()
}

/// Guests whose neighbour demands more than its share.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Policy for assigning slots.
    pub strategy: Strategy,
    /// Share of late requests of each guest; the last guest has many requests.
    pub violations: Vec<f64>,
    /// Slot time of the guest that got least, and of the one that got most, relative to an equal share, when all four always have
    /// 2, 2, 4 and 8 requests.
    pub shares: [f64; 2],
    /// Difference of the two relative to the bound of `dcs_slots`.
    pub of_bound: f64,
}

/// Strategies compared with such a neighbour.
pub const NEIGHBOURS: [Strategy; 3] = [Strategy::Dynamic, Strategy::Shares, Strategy::Priority];

/// Runs three guests with moderate loads next to one that always has eight requests.
pub fn neighbours(setting: &Setting) -> Vec<Neighbour> {
    let alone = alone(setting);
    let moderate = Load::Closed(2.0);
    let of = |strategy| {
        let ran = run(setting, strategy, &[moderate, moderate, moderate, Load::Always(8)]);
        let crowd = run(setting, strategy, &[2, 2, 4, 8].map(Load::Always));
        let equal = crowd.charged.iter().sum::<Nanos>() as f64 / GUESTS as f64;
        let shares = crowd.charged.iter().map(|charged| *charged as f64 / equal);
        // Two slots, with a block of each of two guests.
        let bound = 4.0 * setting.timings.working(Operator::Encryption, LENGTH) as f64;
        let difference = crowd.charged.iter().max().zip(crowd.charged.iter().min());
        Neighbour {
            of_bound: difference.map_or(0.0, |(most, least)| (most - least) as f64 / bound),
            strategy,
            violations: ran.latencies.iter().map(|latencies| latencies.violations(alone)).collect(),
            shares: [shares.clone().fold(f64::MAX, f64::min), shares.fold(0.0, f64::max)],
        }
    };
    NEIGHBOURS.map(of).into()
}

/// All measurements.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Figure 7.
    pub distributions: Vec<Distribution>,
    /// Figure 8.
    pub rates: Vec<Rate>,
    /// Figure 18.
    pub violations: Vec<Violations>,
    /// Fairness.
    pub neighbours: Vec<Neighbour>,
}

/// Measures everything.
pub fn measure(setting: &Setting) -> Rows {
    Rows {
        distributions: distributions(setting),
        rates: rates(setting),
        violations: violations(setting),
        neighbours: neighbours(setting),
    }
}

/// Returns the figures of [`measure`].
pub fn figures(rows: &Rows) -> Vec<Figure> {
    let of = |groups: [f64; 2], strategy| {
        let is = |row: &&Violations| (row.groups, row.strategy) == (groups, strategy);
        rows.violations.iter().find(is).expect("it was measured").ratio
    };
    let ratio = |groups, strategy| of(groups, strategy) / of(groups, Strategy::StaticWorst);
    let rate = |guests, rate| {
        let is = |row: &&Rate| (row.guests, row.rate) == (guests, rate);
        rows.rates.iter().find(is).expect("it was measured").mean
    };
    let beside =
        |strategy| rows.neighbours.iter().find(|row| row.strategy == strategy).expect("it was measured");
    let others = |strategy| beside(strategy).violations[..3].iter().sum::<f64>() / 3.0;
    let skewed = |strategy: Strategy, period: f64| {
        let is = |row: &&Distribution| row.strategy == strategy && row.rate == 1.0 / period;
        rows.distributions.iter().find(is).expect("it was measured").violations
    };
    let figure = |what, ours, paper, reach, why| Figure { what, ours, paper, reach, why };
    let least = |reach| Some(Reach::AtLeast(reach));
    let most = |reach| Some(Reach::AtMost(reach));
    const DRAWN: &str = "The paper has figure 18 as bars without numbers, and says \"significantly lowers\". Guests ask, are answered, wait: with arrivals that don't wait for answers two slots would be overloaded.";
    vec![
        figure(
            "QoS violations, [0.5, 0.5]: dynamic / static-worst",
            ratio([0.5, 0.5], Strategy::Dynamic),
            None,
            most(1.0),
            DRAWN,
        ),
        figure(
            "the same, dynamic+pr / static-worst",
            ratio([0.5, 0.5], Strategy::DynamicPr),
            None,
            most(0.1),
            "Four slots for four guests: nobody waits but for the two loads at first.",
        ),
        figure(
            "QoS violations, [4, 8]: dynamic / static-worst",
            ratio([4.0, 8.0], Strategy::Dynamic),
            None,
            most(0.5),
            "",
        ),
        figure(
            "the same, dynamic+pr / static-worst",
            ratio([4.0, 8.0], Strategy::DynamicPr),
            None,
            most(0.5),
            "\"Increasing the number of operators has a minor impact\": there is little left to lower.",
        ),
        figure(
            "static-best / static-worst, groups that differ most, [0.5, 4]",
            ratio([0.5, 4.0], Strategy::StaticBest),
            None,
            most(1.0),
            "\"Except when the request rate between the two groups is the same\".",
        ),
        figure(
            "figure 7, static: violations of guests with 1/2T, / of those with 1/16T",
            skewed(Strategy::StaticWorst, 2.0) / skewed(Strategy::StaticWorst, 16.0).max(1e-3),
            None,
            least(2.0),
            "\"A larger number of QoS violations\": the paper has no number.",
        ),
        figure(
            "figure 8: four guests with 60 requests a second each / with 40, mean latency",
            rate(4, 60.0) / rate(4, 40.0),
            None,
            least(3.0),
            "The operator does 201 requests of 1 MiB a second; 4 x 50 is the paper's edge too.",
        ),
        figure(
            "violations beside a guest that always has eight requests: by shares / by arrival",
            others(Strategy::Shares) / others(Strategy::Dynamic),
            None,
            None,
            "Not in the paper, which leaves fairness to others. A block is done to its end: what remains is waiting for two that have begun.",
        ),
        figure(
            "slot time, most less least, where all always ask, of the bound of crates/slots: by shares",
            beside(Strategy::Shares).of_bound,
            None,
            most(1.0),
            "2, 2, 4 and 8 requests at a time. Twice the bound was to be reached.",
        ),
        figure(
            "the same by arrival",
            beside(Strategy::Dynamic).of_bound,
            None,
            None,
            "Who asks for more gets more.",
        ),
    ]
}
