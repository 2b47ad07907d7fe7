//! The parts that the demo and all benchmarks have in common.
//!
//! | module | what it holds |
//! |---|---|
//! | `contender` | what is compared: names, and picking by name |
//! | `cores` | who runs on which cores |
//! | `load` | how long is measured, on which cores, from which mark to which |
//! | `turns` | contenders that run in turns, and progress |
//! | `figures` | marks of a run, what it cost, medians, ratios of paired runs |
//! | `table` | tables for people |
//! | `shown` | words and bars, rows as JSON |
//! | `plot` | plots, as SVG |
//! | `place` | the folder of the data, and room in it |
//! | `pool` | objects as slices of a pool of text |
//! | `data`, `random` | directions, the key, pseudo-random numbers and text |
//! | `process`, `wire`, `syscalls`, `clocks` | helper processes, their connections, system calls and CPU time |

pub mod clocks;
pub mod contender;
pub mod cores;
pub mod data;
pub mod faults;
pub mod figures;
pub mod load;
pub mod place;
pub mod plot;
pub mod pool;
pub mod process;
pub mod random;
pub mod shown;
pub mod syscalls;
pub mod table;
pub mod turns;
pub mod wire;
