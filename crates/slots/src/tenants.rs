//! Waiting jobs by tenant and operator, and the charges of each tenant.

use crate::{Job, JobId, Nanos, OperatorId, Order, Tenant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Rank of a waiting job: the least is next. Ties are broken by arrival.
pub(crate) type Key = (i64, u64);

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: JobId,
    arrived: Nanos,
    sequence: u64,
}

/// Jobs of a tenant that wait for one operator.
#[derive(Clone, Debug)]
struct Line {
    operator: OperatorId,
    jobs: VecDeque<Waiting>,
    /// The tenant's virtual time when the current first job became the first.
    since: u64,
}

#[derive(Clone, Debug)]
struct Member {
    tenant: Tenant,
    lines: Vec<Line>,
    waiting: usize,
    /// Virtual time.
    time: u64,
    /// Charges beyond the virtual time, less than the weight.
    rest: u64,
    /// Sum of all charges.
    charged: Nanos,
}

impl Member {
    /// Returns the line that has waited longest, if the tenant got more than `patience` in that time.
    #[inline]
    fn passed_over(&self, patience: u64) -> Option<usize> {
        if patience == u64::MAX || self.lines.len() < 2 {
            return None;
        }
        let waiting = self.lines.iter().enumerate().filter(|(_, line)| !line.jobs.is_empty());
        let (at, line) =
            waiting.min_by_key(|(_, line)| (line.since, line.jobs.front().map(|job| job.sequence)))?;
        (self.time - line.since > patience).then_some(at)
    }
}

/// The first job of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub key: Key,
    pub job: Job,
    pub line: usize,
}

/// All tenants.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    members: Vec<Option<Member>>,
    order: Order,
    lag: Nanos,
    /// Virtual time for which a tenant may be served while one of its lines waits.
    patience: u64,
    pub waiting: usize,
    sequence: u64,
    /// Largest key at which a job was started.
    started: i64,
    /// Heads that were looked at.
    #[cfg(test)]
    pub looks: core::cell::Cell<usize>,
}

impl Tenants {
    pub fn new(order: Order, lag: Nanos, patience: u64) -> Tenants {
        Tenants {
            members: Vec::new(),
            order,
            lag,
            patience,
            waiting: 0,
            sequence: 0,
            started: 0,
            #[cfg(test)]
            looks: core::cell::Cell::default(),
        }
    }

    pub fn set(&mut self, index: u16, tenant: Tenant) {
        let index = usize::from(index);
        if self.members.len() <= index {
            self.members.resize_with(index + 1, || None);
        }
        match &mut self.members[index] {
            Some(member) => (member.tenant, member.rest) = (tenant, 0),
            empty => {
                let lines = Vec::new();
                *empty = Some(Member { tenant, lines, waiting: 0, time: 0, rest: 0, charged: 0 });
            }
        }
    }

    pub fn remove(&mut self, index: u16) {
        if let Some(member) = self.members.get_mut(usize::from(index)).and_then(Option::take) {
            self.waiting -= member.waiting;
        }
    }

    pub fn get(&self, index: u16) -> Option<Tenant> {
        Some(self.members.get(usize::from(index))?.as_ref()?.tenant)
    }

    /// Returns all charges of a tenant.
    pub fn charged(&self, index: u16) -> Nanos {
        self.members.get(usize::from(index)).and_then(Option::as_ref).map_or(0, |member| member.charged)
    }

    fn member(&mut self, index: u16) -> &mut Member {
        self.members[usize::from(index)].as_mut().expect("its job was taken")
    }

    /// Adds a waiting job of an existing tenant.
    pub fn push(&mut self, job: Job, now: Nanos) {
        self.sequence += 1;
        self.waiting += 1;
        let waiting = Waiting { id: job.id, arrived: now, sequence: self.sequence };
        let floor = self.started.saturating_sub_unsigned(self.lag).max(0) as u64;
        let member = self.member(job.tenant);
        if member.waiting == 0 {
            // A tenant gets no credit for the time in which it had no jobs, except for a little: a stream requests its next block
            // when the one before is done.
            member.time = member.time.max(floor);
        }
        member.waiting += 1;
        let since = member.time;
        if let Some(line) = member.lines.iter_mut().find(|line| line.operator == job.operator) {
            if line.jobs.is_empty() {
                line.since = since;
            }
            line.jobs.push_back(waiting);
        } else if let Some(line) = member.lines.iter_mut().find(|line| line.jobs.is_empty()) {
            (line.operator, line.since) = (job.operator, since);
            line.jobs.push_back(waiting);
        } else {
            member.lines.push(Line { operator: job.operator, jobs: VecDeque::from([waiting]), since });
        }
    }

    /// Returns the first jobs of all lines. A tenant that has passed over a line for too long offers only that line.
    #[inline]
    pub fn heads(&self) -> impl Iterator<Item = Head> {
        let order = self.order;
        self.members.iter().enumerate().flat_map(move |(tenant, member)| {
            let member = member.as_ref().filter(|member| member.waiting > 0);
            let alone = member.and_then(|member| member.passed_over(self.patience));
            let lines =
                member.into_iter().flat_map(|member| member.lines.iter().map(move |line| (member, line)));
            lines.enumerate().filter_map(move |(at, (member, line))| {
                let first = line.jobs.front().filter(|_| alone.is_none_or(|alone| alone == at))?;
                #[cfg(test)]
                self.looks.set(self.looks.get() + 1);
                let rank = match order {
                    Order::Arrival => first.arrived,
                    Order::Shares => member.time,
                };
                let key = ((rank as i64).saturating_sub_unsigned(member.tenant.head_start), first.sequence);
                let job = Job { id: first.id, tenant: tenant as u16, operator: line.operator };
                Some(Head { key, job, line: at })
            })
        })
    }

    /// Removes a head: its job is started.
    #[inline]
    pub fn start(&mut self, head: &Head) {
        self.started = self.started.max(head.key.0);
        self.waiting -= 1;
        let member = self.member(head.job.tenant);
        member.waiting -= 1;
        let line = &mut member.lines[head.line];
        line.jobs.pop_front();
        line.since = member.time;
    }

    /// Charges a tenant for slot time.
    #[inline]
    pub fn charge(&mut self, index: u16, time: Nanos) {
        // One that was taken out before its block was done owes nothing any more.
        let Some(Some(member)) = self.members.get_mut(usize::from(index)) else { return };
        let weight = u64::from(member.tenant.weight);
        // A block that took no time still counts, so that every tenant's turn comes.
        let cost = time.max(1) + member.rest;
        // Most tenants have a weight of 1, and a division takes longer than everything else here.
        let (whole, rest) = if weight == 1 { (cost, 0) } else { (cost / weight, cost % weight) };
        (member.time, member.rest) = (member.time + whole, rest);
        member.charged += time;
    }

    /// Removes the jobs that are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(Job) -> bool) {
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            for line in &mut member.lines {
                let (before, operator) = (line.jobs.len(), line.operator);
                line.jobs.retain(|waiting| keep(Job { id: waiting.id, tenant: index as u16, operator }));
                let gone = before - line.jobs.len();
                member.waiting -= gone;
                self.waiting -= gone;
            }
        }
    }
}
