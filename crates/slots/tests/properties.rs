//! Random loads on random slots, in virtual time. All checks follow from the actions alone.

use dcs_slots::{Action, Config, Job, JobId, Nanos, OperatorId, Order, Policy, Slots, Tenant};
use dcs_testkit::Random;
use proptest::prelude::*;
use std::collections::BTreeMap;

const OPERATORS: u32 = 3;

/// A load, generated from a few numbers.
#[derive(Clone, Debug)]
struct Load {
    slots: usize,
    policy: Policy,
    order: Order,
    lag: Nanos,
    linger: Nanos,
    loading: Nanos,
    longest: Nanos,
    tenants: Vec<Tenant>,
    /// For each tenant: the number of jobs that always wait (0: jobs now and then), and the number of their operators.
    always: Vec<(usize, u32)>,
    seed: u64,
}

fn loads(policies: &'static [Policy], orders: &'static [Order]) -> impl Strategy<Value = Load> {
    let tenant = (1..=5_u32, prop_oneof![Just(0), 1..2_000_u64], any::<u16>());
    let each = (tenant, 0..4_usize, 1..=OPERATORS);
    let numbers = (1..5_usize, prop_oneof![Just(0), 1..3_000_u64], prop_oneof![Just(0), 1..500_u64]);
    let times = (1..800_u64, 1..900_u64, any::<u64>());
    let kinds = (proptest::sample::select(policies), proptest::sample::select(orders));
    (numbers, times, kinds, prop::collection::vec(each, 2..6)).prop_map(
        |((slots, lag, linger), (loading, longest, seed), (policy, order), each)| {
            let tenant = |((weight, head_start, slot), ..): &((u32, u64, u16), usize, u32)| Tenant {
                weight: *weight,
                head_start: *head_start,
                slot: slot % slots as u16,
            };
            // Without loading all jobs are for the one operator in their slots.
            let kinds = |kinds: u32| if policy == Policy::Reconfiguration { kinds } else { 1 };
            Load {
                slots,
                policy,
                order,
                lag,
                linger,
                loading,
                longest,
                tenants: each.iter().map(tenant).collect(),
                always: each.iter().map(|(_, always, count)| (*always, kinds(*count))).collect(),
                seed,
            }
        },
    )
}

/// Work of a slot, according to the actions.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    holds: Option<OperatorId>,
    job: Option<Job>,
    taken: Nanos,
    /// End of the load.
    loaded: Option<Nanos>,
    ends: Nanos,
    idle: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Waits {
    job: Job,
    since: Nanos,
}

struct Run {
    load: Load,
    slots: Slots,
    random: Random,
    now: Nanos,
    watched: Vec<Watched>,
    waiting: BTreeMap<u64, Waits>,
    names: u64,
    /// Slot time of each tenant for finished work.
    had: Vec<Nanos>,
    /// Time of each tenant's next occasional job.
    comes: Vec<Nanos>,
    started: usize,
    /// Starts by tenant.
    starts: Vec<usize>,
    loads: usize,
}

impl Run {
    fn new(load: &Load) -> Run {
        let holds = |at: usize| {
            (load.policy != Policy::Reconfiguration || at.is_multiple_of(2)).then_some(OperatorId(0))
        };
        let held: Vec<Option<OperatorId>> = (0..load.slots).map(holds).collect();
        let config = Config {
            slots: held.clone(),
            policy: load.policy,
            order: load.order,
            lag: load.lag,
            linger: load.linger,
        };
        let mut slots = Slots::new(&config).expect("it can be");
        for (at, tenant) in load.tenants.iter().enumerate() {
            slots.set_tenant(at as u16, *tenant).expect("it can be");
        }
        Run {
            load: load.clone(),
            slots,
            random: Random(load.seed),
            now: 0,
            watched: held.iter().map(|holds| Watched { holds: *holds, ..Watched::default() }).collect(),
            waiting: BTreeMap::new(),
            names: 0,
            had: vec![0; load.tenants.len()],
            comes: vec![0; load.tenants.len()],
            started: 0,
            starts: vec![0; load.tenants.len()],
            loads: 0,
        }
    }

    fn waits(&self, tenant: usize) -> usize {
        self.waiting.values().filter(|waits| usize::from(waits.job.tenant) == tenant).count()
    }

    /// Returns the slot time that a tenant has had, to the nanosecond.
    fn service(&self, tenant: usize) -> Nanos {
        let now = self.now;
        let in_slot = |slot: &&Watched| slot.job.is_some_and(|job| usize::from(job.tenant) == tenant);
        self.had[tenant] + self.watched.iter().filter(in_slot).map(|slot| now - slot.taken).sum::<Nanos>()
    }

    fn ask(&mut self) {
        for tenant in 0..self.load.tenants.len() {
            let (always, kinds) = self.load.always[tenant];
            let comes = always == 0 && self.comes[tenant] <= self.now;
            while self.waits(tenant) < always || (comes && self.comes[tenant] <= self.now) {
                let operator = OperatorId(self.random.below(u64::from(kinds)) as u32);
                self.names += 1;
                let job = Job { id: JobId(self.names), tenant: tenant as u16, operator };
                self.slots.request(job, self.now).expect("it is possible");
                self.waiting.insert(self.names, Waits { job, since: self.now });
                self.comes[tenant] = self.now + self.random.below(4 * self.load.longest);
            }
        }
    }

    /// Carries out all actions, and checks each step.
    fn act(&mut self) {
        while let Some(action) = self.slots.next(self.now) {
            let (Action::Load { slot, job } | Action::Run { slot, job }) = action;
            let waits = self.waiting.remove(&job.id.0).expect("it waited, and was started once");
            assert_eq!(waits.job, job);
            if self.load.order == Order::Arrival {
                self.assert_arrival(waits);
            }
            let watched = &mut self.watched[usize::from(slot)];
            assert!(watched.job.is_none(), "one block at a time in a slot");
            let loads = matches!(action, Action::Load { .. });
            assert!(!loads || self.load.policy == Policy::Reconfiguration, "{action:?}");
            assert!(
                loads || watched.holds == Some(job.operator),
                "a slot that holds it: {action:?}, {watched:?}"
            );
            assert!(!loads || watched.holds != Some(job.operator), "a load for nothing: {action:?}");
            if self.load.policy == Policy::Static {
                assert_eq!(slot, self.load.tenants[usize::from(job.tenant)].slot);
            }
            let loaded = loads.then(|| self.now + 1 + self.random.below(self.load.loading));
            let ends = loaded.unwrap_or(self.now) + 1 + self.random.below(self.load.longest);
            *watched = Watched {
                holds: Some(job.operator),
                job: Some(job),
                taken: self.now,
                loaded,
                ends,
                ..*watched
            };
            self.started += 1;
            self.starts[usize::from(job.tenant)] += 1;
            self.loads += usize::from(loads);
            // A tenant that always has a waiting job has one at the next choice, too.
            self.ask();
        }
        self.assert_work_conserving();
    }

    /// Checks that no waiting job arrived much before the one started.
    fn assert_arrival(&self, started: Waits) {
        let ahead = |job: Job| self.load.tenants[usize::from(job.tenant)].head_start as i64;
        for other in self.waiting.values() {
            // Without loading a job may be in the wrong line: its tenant's slot is taken.
            if self.load.policy != Policy::Static {
                let late =
                    (started.since as i64 - ahead(started.job)) - (other.since as i64 - ahead(other.job));
                assert!(late <= self.load.lag as i64, "{late} after {other:?}: {started:?}");
            }
        }
    }

    /// Checks that no idle slot could work. (Taking a slot from those that wait for its operator depends on keys, which only the
    /// crate knows: the bound shows that it happens.)
    fn assert_work_conserving(&self) {
        let free = || self.watched.iter().enumerate().filter(|(_, slot)| slot.job.is_none());
        for waits in self.waiting.values() {
            for (at, slot) in free() {
                let tenant = usize::from(waits.job.tenant);
                let own =
                    self.load.policy != Policy::Static || usize::from(self.load.tenants[tenant].slot) == at;
                // A tenant with several lines may be restricted to the one that it has passed over.
                let offered = self.load.always[tenant].1 == 1 || self.load.order == Order::Arrival;
                assert!(!own || !offered || slot.holds != Some(waits.job.operator), "{waits:?} and {slot:?}");
                let asked = self.waiting.values().any(|other| Some(other.job.operator) == slot.holds);
                let loadable = slot.holds.is_none() || !asked && self.now >= slot.idle + self.load.linger;
                let loads = self.load.policy == Policy::Reconfiguration;
                assert!(!loads || !loadable, "{waits:?} could have {slot:?} at {}", self.now);
            }
        }
    }

    /// Advances time to the next end or arrival.
    fn pass(&mut self) {
        let busy = self.watched.iter().filter(|slot| slot.job.is_some());
        let ends = busy.map(|slot| slot.loaded.unwrap_or(slot.ends));
        let comes = (0..self.comes.len()).filter(|at| self.load.always[*at].0 == 0).map(|at| self.comes[at]);
        let next = ends.chain(comes).chain(self.slots.next_deadline(self.now)).min();
        self.now = next.expect("something is always to come").max(self.now);
        for at in 0..self.watched.len() {
            let slot = self.watched[at];
            let Some(job) = slot.job else { continue };
            if slot.loaded == Some(self.now) {
                assert_eq!(self.slots.loaded(at as u16, self.now), job);
                self.watched[at].loaded = None;
            } else if slot.loaded.is_none() && slot.ends == self.now {
                assert_eq!(self.slots.done(at as u16, self.now), job);
                self.had[usize::from(job.tenant)] += self.now - slot.taken;
                self.watched[at] = Watched { job: None, idle: self.now, ..slot };
            }
        }
    }

    /// Returns an upper bound of the longest time for which a slot was taken.
    fn longest(&self) -> f64 {
        let loading = if self.load.policy == Policy::Reconfiguration { self.load.loading } else { 0 };
        (loading + self.load.longest) as f64
    }

    /// Returns `Q + h + N B / w`, and 1 for rounding.
    fn band(&self, tenant: usize) -> f64 {
        let Tenant { weight, head_start, .. } = self.load.tenants[tenant];
        let taken = self.load.slots as f64 * self.longest() / f64::from(weight);
        (self.load.lag + head_start) as f64 + taken + 1.0
    }
}

/// Weighted slot time of two waiting tenants: the difference, and its extremes since both began to wait.
#[derive(Clone, Copy)]
struct Pair {
    least: f64,
    most: f64,
}

/// Returns the largest difference of any two tenants' shares in any interval in which both waited, relative to the bound.
fn largest_difference(load: &Load, steps: usize) -> f64 {
    let mut run = Run::new(load);
    let count = load.tenants.len();
    let mut pairs: BTreeMap<(usize, usize), Pair> = BTreeMap::new();
    let mut worst = 0.0_f64;
    for _ in 0..steps {
        run.ask();
        run.act();
        // After the actions: a tenant that waits now waits until the next event.
        let waits: Vec<bool> = (0..count).map(|at| run.waits(at) > 0).collect();
        for one in 0..count {
            for other in one + 1..count {
                if !(waits[one] && waits[other]) {
                    pairs.remove(&(one, other));
                    continue;
                }
                let share = |at: usize| run.service(at) as f64 / f64::from(load.tenants[at].weight);
                let now = share(one) - share(other);
                let pair = pairs.entry((one, other)).or_insert(Pair { least: now, most: now });
                *pair = Pair { least: pair.least.min(now), most: pair.most.max(now) };
                worst = worst.max((pair.most - pair.least) / (run.band(one) + run.band(other)));
            }
        }
        run.pass();
    }
    assert!(run.started > 0);
    worst
}

const ALL: [Policy; 3] = [Policy::Static, Policy::Dynamic, Policy::Reconfiguration];

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks: one block at a time, only where its operator is, no idle slot that could work, in order of arrival.
    #[test]
    fn actions_keep_the_rules(load in loads(&ALL, &[Order::Arrival, Order::Shares])) {
        let mut run = Run::new(&load);
        for _ in 0..400 {
            run.ask();
            run.act();
            run.pass();
        }
        let states = run.slots.slots().iter();
        prop_assert_eq!(states.map(|slot| slot.loads as usize).sum::<usize>(), run.loads);
    }

    /// Checks the bound of the crate's documentation.
    #[test]
    fn shares_differ_by_no_more_than_the_bound(load in loads(&[Policy::Dynamic, Policy::Reconfiguration], &[Order::Shares])) {
        let worst = largest_difference(&load, 600);
        prop_assert!(worst <= 1.0, "{worst} of the bound");
    }

    /// Checks that while a job waits and none of its tenant's is started, each other tenant gets no more than documented.
    #[test]
    fn nobody_starves(load in loads(&[Policy::Dynamic, Policy::Reconfiguration], &[Order::Shares])) {
        let mut run = Run::new(&load);
        let count = load.tenants.len();
        let taken = load.slots as f64 * run.longest();
        let mut since: Vec<Option<Vec<Nanos>>> = vec![None; count];
        for _ in 0..600 {
            run.ask();
            let before = run.starts.clone();
            run.act();
            let services: Vec<Nanos> = (0..count).map(|at| run.service(at)).collect();
            for at in 0..count {
                if run.waits(at) == 0 || run.starts[at] != before[at] {
                    since[at] = None;
                }
                if run.waits(at) == 0 {
                    continue;
                }
                let begun = since[at].get_or_insert_with(|| services.clone());
                for other in (0..count).filter(|other| *other != at) {
                    let Tenant { weight, head_start, .. } = load.tenants[other];
                    let ahead = (2 * load.lag + head_start) as f64;
                    let most = f64::from(weight) * (ahead + taken / f64::from(load.tenants[at].weight)) + taken;
                    let had = (services[other] - begun[other]) as f64;
                    prop_assert!(had <= most, "{other} had {had} of {most} while {at} waited");
                }
            }
            run.pass();
        }
    }

    /// Checks that each job's turn comes, also behind its own tenant's jobs for other operators.
    #[test]
    fn every_job_s_turn_comes(load in loads(&ALL, &[Order::Arrival, Order::Shares])) {
        let mut run = Run::new(&load);
        let weights: f64 = load.tenants.iter().map(|tenant| f64::from(tenant.weight)).sum();
        let most_ahead = load.tenants.iter().map(|tenant| tenant.head_start).max().unwrap_or(0) as f64;
        // Each of a tenant's lines, one after the other, and the work of all others in that time; a slot is idle no longer than
        // it lingers, before each job.
        let queued = load.always.iter().map(|(always, _)| always.max(&1)).max().copied().unwrap_or(1) as f64;
        let turn = weights * (2.0 * load.lag as f64 + 2.0 * most_ahead + 4.0 * load.slots as f64 * run.longest());
        let limit = (queued + f64::from(OPERATORS) + 2.0) * 4.0 * turn * (1.0 + load.linger as f64);
        for _ in 0..600 {
            run.ask();
            run.act();
            if load.always.iter().any(|(always, _)| *always > 0) {
                let oldest = run.waiting.values().map(|waits| run.now - waits.since).max().unwrap_or(0);
                prop_assert!(oldest as f64 <= limit, "one waits for {oldest}, of {limit}");
            }
            run.pass();
        }
    }
}

/// Checks that the bound is tight enough: a policy without one exceeds it.
#[test]
fn by_arrival_shares_differ_by_more() {
    let tenants = vec![Tenant::default(), Tenant { weight: 4, ..Tenant::default() }];
    let load = |order| Load {
        slots: 2,
        policy: Policy::Reconfiguration,
        order,
        lag: 100,
        linger: 0,
        loading: 10,
        longest: 100,
        tenants: tenants.clone(),
        always: vec![(3, 2), (1, 1)],
        seed: 7,
    };
    let worst = largest_difference(&load(Order::Arrival), 2000);
    assert!(worst > 3.0, "{worst} of the bound");
    assert!(largest_difference(&load(Order::Shares), 2000) <= 1.0);
}

/// Checks that two tenants with different operators of one slot take turns of `2 lag`, which bounds the time spent on loading.
#[test]
fn hysteresis_makes_loads_rare() {
    const LOADING: Nanos = 300;
    let loading = |lag| {
        let config = Config {
            slots: vec![None],
            policy: Policy::Reconfiguration,
            order: Order::Shares,
            lag,
            linger: 0,
        };
        let mut slots = Slots::new(&config).expect("it can be");
        let job = |at: u16| Job { id: JobId(0), tenant: at, operator: OperatorId(at.into()) };
        for at in [0, 1] {
            slots.set_tenant(at, Tenant::default()).expect("it can be");
            slots.request(job(at), 0).expect("it is possible");
        }
        let mut now = 0;
        for _ in 0..4000 {
            let action = slots.next(now).expect("both always wait");
            let (Action::Load { job: started, .. } | Action::Run { job: started, .. }) = action;
            slots.request(job(started.tenant), now).expect("it is possible");
            if matches!(action, Action::Load { .. }) {
                now += LOADING;
                slots.loaded(0, now);
            }
            now += 20;
            slots.done(0, now);
        }
        assert!(slots.charged(0).abs_diff(slots.charged(1)) <= 2 * lag + 2 * (LOADING + 20));
        let slot = slots.slots()[0];
        assert_eq!(slot.loading, slot.loads * LOADING);
        // The first and the last turn are not complete.
        assert!(lag == 0 || slot.loads <= now / (2 * lag) + 2, "{} loads in {now}", slot.loads);
        slot.loading as f64 / now as f64
    };
    assert!(loading(0) > 0.4, "{} of the time without hysteresis", loading(0));
    for lag in [1000, 3000, 10_000] {
        assert!(loading(lag) < 0.2, "{} of the time", loading(lag));
    }
}

/// Checks that a tenant with a head start is served before earlier jobs of others, and gets no more than its share.
#[test]
fn priority_is_a_head_start() {
    let config = Config {
        slots: vec![Some(OperatorId(0))],
        policy: Policy::Dynamic,
        order: Order::Shares,
        lag: 0,
        linger: 0,
    };
    let mut slots = Slots::new(&config).expect("it can be");
    let urgent = Tenant { head_start: 1000, ..Tenant::default() };
    slots.set_tenant(0, Tenant::default()).expect("it can be");
    slots.set_tenant(1, urgent).expect("it can be");
    let mut names = 0;
    let mut ask = |slots: &mut Slots, tenant, now| {
        names += 1;
        slots
            .request(Job { id: JobId(names), tenant, operator: OperatorId(0) }, now)
            .expect("it is possible");
    };
    let mut order = Vec::new();
    for at in 0..60 {
        let now = at * 100;
        if at == 0 {
            (0..60).for_each(|_| ask(&mut slots, 0, 0));
        }
        if at == 5 {
            (0..40).for_each(|_| ask(&mut slots, 1, now));
        }
        let Some(Action::Run { job, .. }) = slots.next(now) else { panic!("there is a block to do") };
        order.push(job.tenant);
        slots.done(0, now + 100);
    }
    // Ten blocks are its head start, and the eleventh is a tie that the earlier job wins.
    assert_eq!(order[5..15], [1; 10]);
    let rest: usize = order[15..].iter().map(|tenant| usize::from(*tenant)).sum();
    assert!((22..=23).contains(&rest), "{rest} of 45: {order:?}");
}

#[test]
fn a_load_that_fails_leaves_an_empty_slot_and_others_jobs_go_on() {
    let config = Config {
        slots: vec![Some(OperatorId(0))],
        policy: Policy::Reconfiguration,
        order: Order::Arrival,
        lag: 0,
        linger: 50,
    };
    let mut slots = Slots::new(&config).expect("it can be");
    slots.set_tenant(0, Tenant::default()).expect("it can be");
    let job = |id, operator| Job { id: JobId(id), tenant: 0, operator: OperatorId(operator) };
    slots.request(job(1, 9), 10).expect("it is possible");
    slots.request(job(2, 8), 11).expect("it is possible");
    assert_eq!(slots.next(12), None, "it lingers");
    assert_eq!(slots.next_deadline(12), Some(50));
    assert_eq!(slots.next(50), Some(Action::Load { slot: 0, job: job(1, 9) }));
    assert_eq!(slots.slot_of(JobId(1)), Some(0));
    assert_eq!(slots.load_failed(0, 80), job(1, 9));
    assert_eq!((slots.slots()[0].operator, slots.charged(0)), (None, 30));
    assert_eq!(slots.next(80), Some(Action::Load { slot: 0, job: job(2, 8) }));
    slots.request(job(3, 8), 81).expect("it is possible");
    slots.retain(|job| job.id != JobId(3));
    assert_eq!((slots.loaded(0, 90), slots.waiting()), (job(2, 8), 0));
    assert_eq!(slots.done(0, 100), job(2, 8));
    assert_eq!(slots.next(100), None);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut config = Config {
        slots: vec![Some(OperatorId(0)), Some(OperatorId(1))],
        policy: Policy::Static,
        order: Order::Arrival,
        lag: 0,
        linger: 0,
    };
    let mut slots = Slots::new(&config).expect("it can be");
    let job = |tenant, operator| Job { id: JobId(0), tenant, operator: OperatorId(operator) };
    assert!(slots.request(job(0, 0), 0).is_err(), "an unknown tenant");
    assert!(slots.set_tenant(0, Tenant { slot: 2, ..Tenant::default() }).is_err());
    assert!(slots.set_tenant(0, Tenant { weight: 0, ..Tenant::default() }).is_err());
    slots.set_tenant(0, Tenant::default()).expect("it can be");
    assert!(slots.request(job(0, 1), 0).is_err(), "another tenant's slot holds it");
    assert!(slots.request(job(0, 0), 0).is_ok());
    config.policy = Policy::Dynamic;
    let mut slots = Slots::new(&config).expect("it can be");
    slots.set_tenant(0, Tenant::default()).expect("it can be");
    assert!(slots.request(job(0, 1), 0).is_ok() && slots.request(job(0, 2), 0).is_err());
    config.slots.clear();
    assert!(Slots::new(&config).is_err());
}
