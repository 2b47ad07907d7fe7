//! Measures the processor's time for a job: it requests a slot, gets it, is done; and what renaming adds: the difference from
//! policy *static*, where each tenant has a slot of its own.
//!
//!     cargo run --release -p dcs-slots --example renaming
//!
//! `-- static` or `-- dynamic` runs a fixed number of jobs, so that their instructions can be counted:
//!
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/renaming dynamic
#![allow(missing_docs)]

use dcs_slots::{Action, Config, Job, JobId, OperatorId, Order, Policy, Slots, Tenant};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u64 = 2_000_000;
const SLOTS: u16 = 4;

/// Returns the nanoseconds per job, with this many jobs waiting and in slots at a time.
fn measure(policy: Policy, order: Order, tenants: u16, at_once: u64) -> f64 {
    let slots = vec![Some(OperatorId(0)); SLOTS.into()];
    let mut slots = Slots::new(&Config { slots, policy, order, lag: 0, linger: 0 }).expect("it can be");
    for tenant in 0..tenants {
        slots.set_tenant(tenant, Tenant { slot: tenant % SLOTS, ..Tenant::default() }).expect("it can be");
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
    let counted = match std::env::args().nth(1).as_deref() {
        Some("static") => Some(Policy::Static),
        Some("dynamic") => Some(Policy::Dynamic),
        _ => None,
    };
    if let Some(policy) = counted {
        measure(policy, Order::Arrival, 4, 1);
        return;
    }
    for (order, tenants, at_once) in [
        (Order::Arrival, 1, 1),
        (Order::Arrival, 4, 1),
        (Order::Arrival, 4, 32),
        (Order::Shares, 4, 1),
        (Order::Shares, 4, 32),
        (Order::Shares, 16, 64),
    ] {
        let best = |policy| (0..5).map(|_| measure(policy, order, tenants, at_once)).fold(f64::MAX, f64::min);
        let (fixed, renamed) = (best(Policy::Static), best(Policy::Dynamic));
        println!(
            "{order:?}, {tenants} tenants, {at_once} jobs at a time: {renamed:.0} ns a job; renaming adds {:.0}",
            renamed - fixed
        );
    }
}
