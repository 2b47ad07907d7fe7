//! Parts shared by the demo and all benchmarks.
//!
//! | module | contents |
//! |---|---|
//! | `contender` | names of contenders, and picking by name |
//! | `cores` | processes and their cores |
//! | `load` | duration, cores and marks of a measurement |
//! | `turns` | contenders that run in turns, and progress |
//! | `figures` | marks of a run, its cost, medians, ratios of paired runs |
//! | `table` | tables for people |
//! | `shown` | words and bars, rows as JSON |
//! | `plot` | plots, as SVG |
//! | `folder` | the folder of the data, and room in it |
//! | `pool` | objects as slices of a pool of text |
//! | `data`, `random` | directions, the key, pseudo-random numbers and text |
//! | `counters` | the processor's counters: instructions, cycles, cache misses |
//! | `process`, `connections`, `syscalls`, `clocks` | helper processes, their connections, system calls and CPU time |

pub mod clocks;
pub mod connections;
pub mod contender;
pub mod cores;
pub mod counters;
pub mod data;
pub mod faults;
pub mod figures;
pub mod folder;
pub mod load;
pub mod plot;
pub mod pool;
pub mod process;
pub mod random;
pub mod shown;
pub mod syscalls;
pub mod table;
pub mod turns;
