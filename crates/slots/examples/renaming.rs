//! Measures the processor's time for renaming: a job requests a slot, gets it, is done.
//!
//!     cargo run --release -p dcs-slots --example renaming
#![allow(missing_docs)]

use dcs_slots::{Action, Config, Job, JobId, OperatorId, Order, Policy, Slots, Tenant};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u64 = 2_000_000;

/// Returns the nanoseconds per job, with this many jobs waiting and in slots at a time.
fn measure(order: Order, tenants: u16, at_once: u64) -> f64 {
    let config =
        Config { slots: vec![Some(OperatorId(0)); 4], policy: Policy::Dynamic, order, lag: 0, linger: 0 };
    let mut slots = Slots::new(&config).expect("it can be");
    for tenant in 0..tenants {
        slots.set_tenant(tenant, Tenant::default()).expect("it can be");
    }
    let job =
        |at: u64| Job { id: JobId(at), tenant: (at % u64::from(tenants)) as u16, operator: OperatorId(0) };
    for at in 1..at_once {
        slots.request(job(at), 0).expect("a slot holds it");
    }
    let mut busy = std::collections::VecDeque::new();
    let begun = Instant::now();
    for at in 0..ROUNDS {
        slots.request(black_box(job(at)), at).expect("a slot holds it");
        while let Some(Action::Run { slot, .. }) = slots.next(at) {
            busy.push_back(slot);
        }
        if let Some(slot) = busy.pop_front() {
            black_box(slots.done(slot, at));
        }
    }
    begun.elapsed().as_nanos() as f64 / ROUNDS as f64
}

fn main() {
    for (order, tenants, at_once) in [
        (Order::Arrival, 1, 1),
        (Order::Arrival, 4, 1),
        (Order::Arrival, 4, 32),
        (Order::Shares, 4, 1),
        (Order::Shares, 4, 32),
        (Order::Shares, 16, 64),
    ] {
        let best = (0..5).map(|_| measure(order, tenants, at_once)).fold(f64::MAX, f64::min);
        println!("{order:?}, {tenants} tenants, {at_once} jobs at a time: {best:.0} ns a job");
    }
}
