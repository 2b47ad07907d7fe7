//! The host's processor: cores, threads that share them under Linux's fair scheduler, interrupts.
//!
//! A thread runs when it has work, and sleeps otherwise. Interrupts get their core at once. A core picks the waiting thread with
//! the least time so far (CFS: `vruntime`). A thread that wakes up preempts one with more time, by at least the wake-up
//! granularity; a running thread continues for its share of the scheduling latency. All cores share one queue.

use crate::parameters::Parameters;
use dcs_engine::Nanos;
use std::collections::{HashSet, VecDeque};

/// Work of a core or a device: the papers' components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// Work for a request apart from its data: parsing, naming, answering.
    Application,
    /// The kernel's storage and network stacks.
    Kernel,
    /// Transitions between user and kernel, and between software and devices: system calls, interrupts, wake-ups, context
    /// switches.
    Crossing,
    /// Copies between buffers.
    Copy,
    /// Building commands and reading completions in user space; the card's library.
    Control,
    /// Calls of the GPU's driver.
    GpuControl,
    /// Operators on the processor.
    Processing,
    /// A guest's kernel.
    Guest,
    /// The hypervisor: exits and entries, and the device model in user space.
    Hypervisor,
    /// Busy waiting.
    Polling,
    /// The card's own control: fetching, scoreboard, completing.
    Card,
    /// The SSD, from its doorbell to its completion.
    Ssd,
    /// The NIC and the wire, from the doorbell to the far end.
    Network,
    /// Transactions between devices, and between them and host memory, where these are counted separately from the devices' own
    /// time.
    Bus,
    /// The GPU: copies and kernels.
    Gpu,
    /// The card's processing units.
    Ndp,
    /// Processes that contend for the processor.
    Spinner,
}

impl Component {
    /// All components, those of the host's software first.
    pub const ALL: [Component; 17] = [
        Component::Application,
        Component::Kernel,
        Component::Crossing,
        Component::Copy,
        Component::Control,
        Component::GpuControl,
        Component::Processing,
        Component::Guest,
        Component::Hypervisor,
        Component::Polling,
        Component::Card,
        Component::Ssd,
        Component::Network,
        Component::Bus,
        Component::Gpu,
        Component::Ndp,
        Component::Spinner,
    ];

    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Component::Application => "application",
            Component::Kernel => "kernel stacks",
            Component::Crossing => "crossings, interrupts",
            Component::Copy => "data copies",
            Component::Control => "device control",
            Component::GpuControl => "GPU control",
            Component::Processing => "operators on the CPU",
            Component::Guest => "guest's kernel",
            Component::Hypervisor => "hypervisor",
            Component::Polling => "polling",
            Component::Card => "card control",
            Component::Ssd => "SSD",
            Component::Network => "NIC, wire",
            Component::Bus => "PCIe",
            Component::Gpu => "GPU",
            Component::Ndp => "NDP units",
            Component::Spinner => "spinners",
        }
    }

    /// Returns true for the host's software. Polling is not software's time: it waits for hardware.
    pub fn is_software(self) -> bool {
        self < Component::Polling
    }

    /// Returns true for a device's own time, for which every design has to wait.
    pub fn is_device(self) -> bool {
        matches!(
            self,
            Component::Ssd
                | Component::Network
                | Component::Bus
                | Component::Gpu
                | Component::Ndp
                | Component::Polling
        )
    }
}

/// A thread of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(usize);

/// Work of a thread or an interrupt.
pub type Job = u64;

#[derive(Debug)]
struct Work {
    job: Job,
    left: Nanos,
    what: Component,
}

#[derive(Debug, Default)]
struct Thread {
    vruntime: Nanos,
    work: Option<Work>,
    core: Option<usize>,
    waiting: bool,
    /// True if its last work ended just now: it keeps its core if it gets more at once.
    lingers: bool,
}

#[derive(Debug, Default)]
struct Core {
    current: Option<usize>,
    last: Option<usize>,
    /// Remaining time of a context switch.
    switching: Nanos,
    /// Time at which the thread on it has used its share.
    slice: Nanos,
    interrupts: VecDeque<Work>,
}

/// The processor. See the [module](self).
#[derive(Debug)]
pub struct Cpu {
    cores: Vec<Core>,
    threads: Vec<Thread>,
    now: Nanos,
    next_job: Job,
    done: HashSet<Job>,
    busy: [Nanos; Component::ALL.len()],
    latency: Nanos,
    granularity: Nanos,
    wakeup: Nanos,
    switch: Nanos,
}

impl Cpu {
    /// Returns a processor with `cores` cores, scheduled according to `parameters`.
    pub fn new(cores: usize, parameters: &Parameters) -> Cpu {
        // Linux scales the three by 1 + log2 of the number of cores.
        let factor = 1 + u64::from(cores.ilog2());
        Cpu {
            cores: (0..cores).map(|_| Core::default()).collect(),
            threads: Vec::new(),
            now: 0,
            next_job: 0,
            done: HashSet::new(),
            busy: [0; Component::ALL.len()],
            latency: parameters.sched_latency * factor,
            granularity: parameters.sched_granularity * factor,
            wakeup: parameters.sched_wakeup * factor,
            switch: parameters.switch,
        }
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Returns the time that all cores together have spent on a component, since the start.
    pub fn busy(&self, what: Component) -> Nanos {
        self.busy[what as usize]
    }

    /// Adds a thread that sleeps.
    pub fn thread(&mut self) -> ThreadId {
        self.threads.push(Thread::default());
        ThreadId(self.threads.len() - 1)
    }

    /// Adds a thread that never sleeps, and does no useful work.
    pub fn spinner(&mut self) {
        let thread = self.thread();
        self.work(thread, Component::Spinner, Nanos::MAX);
    }

    /// Gives an idle thread work. [`Cpu::take`] tells when it is done.
    ///
    /// # Panics
    ///
    /// If the thread already has work.
    pub fn work(&mut self, thread: ThreadId, what: Component, time: Nanos) -> Job {
        let job = self.job();
        let floor = self.least().saturating_sub(self.latency / 2);
        let held = &mut self.threads[thread.0];
        assert!(held.work.is_none(), "a thread does one thing at a time");
        held.work = Some(Work { job, left: time, what });
        if !std::mem::take(&mut held.lingers) {
            // A sleeper gets credit for its sleep up to half of a latency (GENTLE_FAIR_SLEEPERS).
            held.vruntime = held.vruntime.max(floor);
            held.waiting = true;
            self.wake(thread.0);
        }
        self.finish();
        job
    }

    /// Makes a thread busy-wait on its core until [`Cpu::stop_polling`].
    pub fn poll(&mut self, thread: ThreadId) -> Job {
        self.work(thread, Component::Polling, Nanos::MAX)
    }

    /// Ends busy waiting. Returns false if the thread is not on a core, and so cannot see the end.
    pub fn stop_polling(&mut self, thread: ThreadId) -> bool {
        let held = &mut self.threads[thread.0];
        let Some(core) = held
            .core
            .filter(|core| self.cores[*core].interrupts.is_empty() && self.cores[*core].switching == 0)
        else {
            return false;
        };
        debug_assert_eq!(self.cores[core].current, Some(thread.0));
        held.work = None;
        held.lingers = true;
        true
    }

    /// Gives a core an interrupt's work, which precedes any thread's.
    pub fn interrupt(&mut self, core: usize, what: Component, time: Nanos) -> Job {
        let job = self.job();
        let count = self.cores.len();
        self.cores[core % count].interrupts.push_back(Work { job, left: time, what });
        self.finish();
        job
    }

    /// Returns true, once, when that work is done.
    pub fn take(&mut self, job: Job) -> bool {
        self.done.remove(&job)
    }

    fn job(&mut self) -> Job {
        self.next_job += 1;
        self.next_job
    }

    /// Returns the time of the next event here, if no work is added.
    pub fn deadline(&self) -> Option<Nanos> {
        let crowded = self.threads.iter().any(|thread| thread.waiting);
        let of = |core: &Core| {
            if let Some(first) = core.interrupts.front() {
                return Some(self.now + first.left);
            }
            let thread = &self.threads[core.current?];
            let end = thread.work.as_ref().map(|work| work.left.saturating_add(core.switching));
            let end = end.map(|left| self.now.saturating_add(left)).filter(|at| *at != Nanos::MAX);
            let slice = crowded.then_some(core.slice.max(self.now));
            [end, slice].into_iter().flatten().min()
        };
        self.cores.iter().filter_map(of).min()
    }

    /// Advances time to `now`, which is not after [`Cpu::deadline`]. Returns true if work was done.
    pub fn advance(&mut self, now: Nanos) -> bool {
        let elapsed = now - self.now;
        self.now = now;
        for at in 0..self.cores.len() {
            self.spend(at, elapsed);
        }
        let any = self.finish();
        for at in 0..self.cores.len() {
            self.rotate(at);
        }
        any
    }

    /// Puts threads to sleep that lingered and got no work, and gives cores without a thread a new one.
    pub fn settle(&mut self) {
        for at in 0..self.threads.len() {
            if std::mem::take(&mut self.threads[at].lingers)
                && let Some(core) = self.threads[at].core.take()
            {
                self.cores[core].current = None;
            }
        }
        for core in 0..self.cores.len() {
            if self.cores[core].current.is_none() {
                self.pick(core);
            }
        }
    }

    fn spend(&mut self, at: usize, mut elapsed: Nanos) {
        let core = &mut self.cores[at];
        while elapsed > 0
            && let Some(first) = core.interrupts.iter_mut().find(|work| work.left > 0)
        {
            let part = first.left.min(elapsed);
            first.left -= part;
            elapsed -= part;
            self.busy[first.what as usize] += part;
        }
        let Some(current) = core.current else { return };
        let part = core.switching.min(elapsed);
        core.switching -= part;
        elapsed -= part;
        self.busy[Component::Crossing as usize] += part;
        let thread = &mut self.threads[current];
        thread.vruntime += elapsed;
        if let Some(work) = &mut thread.work {
            if work.left != Nanos::MAX {
                work.left -= elapsed.min(work.left);
            }
            self.busy[work.what as usize] += elapsed;
        }
    }

    /// Ends work that is complete.
    fn finish(&mut self) -> bool {
        let mut any = false;
        for core in &mut self.cores {
            while core.interrupts.front().is_some_and(|work| work.left == 0) {
                let ended = core.interrupts.pop_front().expect("it was there");
                any |= self.done.insert(ended.job);
            }
            if !core.interrupts.is_empty() || core.switching > 0 {
                continue;
            }
            let Some(current) = core.current else { continue };
            let thread = &mut self.threads[current];
            if let Some(ended) = thread.work.take_if(|work| work.left == 0) {
                thread.lingers = true;
                any |= self.done.insert(ended.job);
            }
        }
        any
    }

    /// Gives the core to another thread if the one on it has used its share.
    fn rotate(&mut self, at: usize) {
        let core = &self.cores[at];
        let Some(current) = core.current else { return };
        let over = core.slice <= self.now && !self.threads[current].lingers;
        if over && self.threads.iter().any(|thread| thread.waiting) {
            self.displace(at);
            self.pick(at);
        }
    }

    fn displace(&mut self, core: usize) {
        if let Some(current) = self.cores[core].current.take() {
            self.threads[current].core = None;
            self.threads[current].waiting = true;
        }
    }

    /// Picks the thread with the least time for a core.
    fn pick(&mut self, core: usize) {
        let waiting = self.threads.iter().enumerate().filter(|(_, thread)| thread.waiting);
        let Some((next, _)) = waiting.min_by_key(|(at, thread)| (thread.vruntime, *at)) else { return };
        let runnable = self.threads.iter().filter(|thread| thread.waiting || thread.core.is_some()).count();
        let each = self.latency / (runnable.div_ceil(self.cores.len()) as u64).max(1);
        let held = &mut self.cores[core];
        held.switching = if held.last == Some(next) || held.last.is_none() { 0 } else { self.switch };
        held.slice = self.now + each.max(self.granularity);
        (held.current, held.last) = (Some(next), Some(next));
        self.threads[next].core = Some(core);
        self.threads[next].waiting = false;
    }

    /// Wakes a thread: it takes a free core, or preempts a thread that has had more time.
    fn wake(&mut self, thread: usize) {
        if let Some(free) = self.free_core(thread) {
            return self.pick(free);
        }
        let had = |core: &Core| core.current.map_or(0, |current| self.threads[current].vruntime);
        let Some((most, core)) = self.cores.iter().enumerate().max_by_key(|(_, core)| had(core)) else {
            return;
        };
        let lingers = core.current.is_some_and(|current| self.threads[current].lingers);
        if !lingers && had(core) > self.threads[thread].vruntime + self.wakeup {
            self.displace(most);
            self.pick(most);
        }
    }

    /// Returns a core without a thread: preferably the thread's last one.
    fn free_core(&self, thread: usize) -> Option<usize> {
        let free = |core: &&(usize, &Core)| core.1.current.is_none();
        let cores: Vec<(usize, &Core)> = self.cores.iter().enumerate().collect();
        let own = cores.iter().filter(free).find(|(_, core)| core.last == Some(thread));
        // Then one without an earlier thread; the last core first, since interrupts go to the first ones.
        let unused = cores.iter().rev().filter(free).find(|(_, core)| core.last.is_none());
        own.or(unused).or_else(|| cores.iter().rev().find(free)).map(|(at, _)| *at)
    }

    fn least(&self) -> Nanos {
        let runs = self.threads.iter().filter(|thread| thread.waiting || thread.core.is_some());
        runs.map(|thread| thread.vruntime).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(cores: usize) -> Cpu {
        Cpu::new(cores, &Parameters::default())
    }

    /// Runs until `end`.
    fn run(cpu: &mut Cpu, end: Nanos) {
        loop {
            cpu.settle();
            let next = cpu.deadline().unwrap_or(end).min(end);
            cpu.advance(next);
            if next == end {
                return;
            }
        }
    }

    #[test]
    fn work_takes_its_time_and_interrupts_go_first() {
        let mut cpu = cpu(1);
        let thread = cpu.thread();
        let job = cpu.work(thread, Component::Control, 1000);
        cpu.advance(400);
        let interrupt = cpu.interrupt(0, Component::Crossing, 300);
        assert_eq!(cpu.deadline(), Some(700));
        assert!(cpu.advance(700) && cpu.take(interrupt) && !cpu.take(job));
        assert_eq!(cpu.deadline(), Some(1300));
        assert!(cpu.advance(1300) && cpu.take(job) && !cpu.take(job));
        assert_eq!((cpu.busy(Component::Control), cpu.busy(Component::Crossing)), (1000, 300));
    }

    #[test]
    fn threads_that_never_sleep_share_the_cores_evenly() {
        let mut cpu = cpu(2);
        let thread = cpu.thread();
        for _ in 0..9 {
            cpu.spinner();
        }
        let end = 10_000_000_000;
        let mut had = 0;
        cpu.work(thread, Component::Control, Nanos::MAX);
        run(&mut cpu, end);
        had += cpu.busy(Component::Control);
        let share = had as f64 / (2.0 * end as f64 / 10.0);
        assert!((0.95..1.05).contains(&share), "{share} of a fair share");
        let all = Component::ALL.iter().map(|what| cpu.busy(*what)).sum::<Nanos>();
        assert_eq!(all, 2 * end, "no core was ever idle");
    }

    #[test]
    fn who_sleeps_most_of_the_time_gets_a_core_soon_when_it_wakes_up() {
        let mut cpu = cpu(1);
        for _ in 0..8 {
            cpu.spinner();
        }
        let thread = cpu.thread();
        let (mut at, mut late) = (50_000_000, 0);
        run(&mut cpu, at);
        for _ in 0..100 {
            let job = cpu.work(thread, Component::Control, 10_000);
            let begun = at;
            while !cpu.take(job) {
                cpu.settle();
                at = cpu.deadline().expect("there is work");
                cpu.advance(at);
            }
            cpu.settle();
            late = late.max(at - begun);
            at += 10_000_000;
            run(&mut cpu, at);
        }
        assert!(late < 20_000, "{late} ns for 10,000 ns of work");
    }

    #[test]
    fn a_thread_that_polls_sees_the_end_only_where_it_runs() {
        let mut cpu = cpu(1);
        let thread = cpu.thread();
        cpu.poll(thread);
        cpu.advance(1000);
        cpu.interrupt(0, Component::Crossing, 100);
        assert!(!cpu.stop_polling(thread));
        cpu.advance(1100);
        assert!(cpu.stop_polling(thread));
        cpu.settle();
        cpu.work(thread, Component::Control, 5);
        cpu.advance(1105);
        assert_eq!((cpu.busy(Component::Polling), cpu.busy(Component::Control)), (1000, 5));
    }
}
