//! Operator slots: the operator in each slot, the next block to process, and when to load a slot with another operator (FlexCSV,
//! ATC 2021, section 4.5).
//!
//! A *slot* holds one operator at a time and works on one block at a time. Loading another operator costs time: partial
//! reconfiguration in an FPGA, an instance of a module in a process. [`Slots`] is the renaming table with its policies as a state
//! machine: no I/O, no threads, no clock. Its owner supplies the [`Job`]s and the time, carries out the [`Action`]s, and reports
//! when each is done.
//!
//! The engine's own renaming (`crates/engine/src/renaming.rs`) is for *units*, each of which computes one operator permanently,
//! and serves in order of arrival. Slots can do what units cannot: change their operator, and keep tenants to their shares.
//!
//! # Architecture
//!
//! ```text
//!   request(job) ->  tenants     waiting jobs by tenant and operator; charges of each tenant
//!                       |  head of each line, with its key
//!   next() <-------  Slots       the servable head with the least key: Run, or Load and Run
//!                       |
//!   loaded, done ->  table       slots: the operator that each holds, and its current work
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | [`Config`], [`Policy`], [`Order`], [`Tenant`], and their errors |
//! | `tenants` | lines of jobs, charges, keys |
//! | `table` | the renaming table |
//! | [`assignment`] | assignment of tenants to slots for [`Policy::Static`]: the worst and the best |
//!
//! A job is one block at one operator of its chain. Blocks of one stream stay in order because the owner requests the next one
//! when the one before is done. The slot is chosen for each block, so a stream's state belongs to the stream, never to the slot.
//!
//! # Policies
//!
//! | [`Policy`] | in the paper | a job runs |
//! |---|---|---|
//! | `Static` | static-worst, static-best, by the [`assignment`] | in its tenant's slot |
//! | `Dynamic` | dynamic | in any free slot that holds its operator |
//! | `Reconfiguration` | dynamic+pr | the same; where there is none, a free slot is loaded |
//!
//! Of several free slots with the operator, the one with the lowest number is used, so that the others stay idle for long and may
//! be loaded.
//!
//! # Order, shares, priority
//!
//! Each waiting job has a *key*; the servable one with the least key is next. With [`Order::Arrival`] (the paper's) the key is
//! the time of arrival. With [`Order::Shares`] it is its tenant's *virtual time*: the tenant's charges divided by its weight.
//! When a tenant's job is done, the tenant is charged for the time that the slot was taken, including loading. A tenant that
//! begins to wait gets no credit for the time before: its virtual time is raised to `V - lag`, where `V` is the largest key at
//! which a job was started.
//!
//! Priority is a [head start](Tenant::head_start), which is subtracted from the key (borrowed virtual time, Duda and Cheriton,
//! SOSP 1999). It makes a tenant's blocks go first when it has had little; it doesn't change the tenant's share in the long run,
//! so no tenant starves.
//!
//! # Hysteresis
//!
//! A free slot is loaded with another operator only if
//!
//! * jobs wait for its current operator, and their least key is more than [`Config::lag`] above the key of the job that it would
//!   be loaded for;
//! * no jobs wait for its current operator, and it was idle for [`Config::linger`].
//!
//! So two tenants with different operators take turns of about `2 lag` in a slot rather than of a block, and the share of time
//! lost to loading is at most that of a load in such a turn. With `lag` = `linger` = 0 there is no hysteresis.
//!
//! # The bound
//!
//! With [`Order::Shares`] and [`Policy::Reconfiguration`] (or [`Policy::Dynamic`] where all jobs are of one
//! operator) take two tenants *f* and *g* that both have a job waiting throughout an interval. `S` is the slot
//! time that a tenant got in it, to the nanosecond; `w` its weight, `h` its head start; `N` the number of slots,
//! `B` the longest time for which a slot was taken in one go (loading and a block), `Q` = `lag`. Then, with 2 ns
//! for the rounding of virtual times,
//!
//! ```text
//!   | S_f / w_f - S_g / w_g |  <=  2 Q + h_f + h_g + N B (1 / w_f + 1 / w_g) + 2
//! ```
//!
//! Derivation. Write `key_i = v_i - h_i`, where `v_i` is the virtual time.
//!
//! 1. *A tenant that is started is at most `Q` ahead of any that waits.* Let a job of *k* be started in slot *s*
//!    while *f* waits with a smaller key. *f* was considered first and could not use *s*. If *k*'s job needs no
//!    loading, *k* has the least key of the tenants that wait for the operator of *s*, so the lag denied *s* to
//!    *f*: `key_k - key_f <= Q`. If *s* is loaded for *k*, then either no tenant waits for its operator and it was
//!    idle for long enough, or the least key of those that wait is more than `Q` above `key_k`, hence above
//!    `key_f`: *f* would have got it.
//! 2. *From below.* When *f* began to wait, `v_f >= V - Q`. After that `V` grows by starts of others, to at most
//!    `key_f + Q` by 1, or by *f*'s own, to `key_f`. So `key_f >= V - Q - h_f`.
//! 3. *From above.* At *f*'s last start `key_f <= V`. The slot time that it got since, or had not been charged for
//!    then, is that of at most `N` slots, each at most once: `S_f / w_f`, counted from the same origin as `key_f`,
//!    is at most `V + N B / w_f`. And it is never less than `key_f`, since charges come at the end.
//! 4. So each of the two stays in a band around the same `V`, of width `Q + h + N B / w`; between two moments the
//!    slot time of each differs from the growth of `V` by no more than that.
//!
//! **No tenant starves.** While a job of *f* waits and none of *f*'s is started, `V` grows to `key_f + Q` at most,
//! and `key_f` by *f*'s work in slots, `N B / w_f`. So another tenant *k* gets at most
//! `w_k (2 Q + h_k + N B / w_f) + N B` in that time. *f*'s own jobs for one operator could pass its other jobs again
//! and again, as long as a slot holds that operator: so when a tenant got more than `Q` (by its virtual time) since
//! one of its lines began to wait, only that line is offered. With [`Order::Arrival`] no job is started that came
//! more than `Q` and its head start after one that waits.
//!
//! **Work conserving**: no slot is free while a job is offered that it could do; that is, whose operator it holds,
//! or that it may be loaded for.
//!
//! `tests/properties.rs` shows all of this for random loads.
//!
//! # What it doesn't implement
//!
//! * Preemption: a block is done to its end.
//! * Reservation of all operators of a chain at once (the paper's): operators are mapped one by one, as in the
//!   engine.
//! * Prefetching: an operator is loaded when a job waits for it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod assignment;
pub mod config;
mod slots;
mod table;
mod tenants;

pub use config::{Config, ConfigError, Order, Policy, Tenant};
pub use slots::{Action, Refused, Slots};
pub use table::{Doing, Slot};

/// Nanoseconds of a clock that the owner chooses.
pub type Nanos = u64;

/// Number of an operator, chosen by the owner: one of `dcs-abi`'s, or one above those for a user's module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId(pub u32);

/// Identifier of a job, chosen by the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobId(pub u64);

/// A block that waits for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Identifier of the job.
    pub id: JobId,
    /// Tenant that it belongs to.
    pub tenant: u16,
    /// Operator that it needs.
    pub operator: OperatorId,
}
