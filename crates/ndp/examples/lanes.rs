//! Units that take several streams at once: GiB/s of one core by the number of streams, on every such unit of
//! this machine. `cargo run --release -p dcs-ndp --example lanes [-- --json]`. The best of several rounds
//! that take turns, so that all columns see the same machine.

use dcs_abi::operator::{OPERATORS, Operator};
use dcs_ndp::{Context, Lanes, Piece};
use std::time::{Duration, Instant};

const PIECE: usize = 64 * 1024;
const ROUNDS: usize = 60;

/// The time of one round: each stream takes in this many pieces.
fn time(operator: Operator, lanes: Lanes, data: &[Vec<u8>]) -> Duration {
    let mut contexts: Vec<Context> = data.iter().filter_map(|_| Context::new(operator, &[]).ok()).collect();
    let start = Instant::now();
    for _ in 0..repetitions(data) {
        let pieces = contexts.iter_mut().zip(data);
        let mut pieces: Vec<Piece<'_>> =
            pieces.map(|(context, data)| Piece { context, data, last: false }).collect();
        Context::absorb_together(lanes, &mut pieces);
    }
    start.elapsed()
}

fn repetitions(data: &[Vec<u8>]) -> usize {
    16 / data.len() + 1
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    for info in OPERATORS {
        let units = Lanes::available(info.operator);
        if units.len() < 2 {
            continue;
        }
        if !json {
            let names: String = units.iter().map(|lanes| format!("{:>12}", format!("{lanes:?}"))).collect();
            println!("{}, GiB/s of one core, pieces of 64 KiB\n\nstreams{names}", info.name);
        }
        for count in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64] {
            let data: Vec<Vec<u8>> = (0..count).map(|at| vec![at as u8; PIECE]).collect();
            let mut best = vec![Duration::MAX; units.len()];
            for _ in 0..ROUNDS {
                for (best, lanes) in best.iter_mut().zip(&units) {
                    *best = time(info.operator, *lanes, &data).min(*best);
                }
            }
            let bytes = repetitions(&data) * count * PIECE;
            let rates = best.iter().map(|best| bytes as f64 / best.as_secs_f64() / (1u64 << 30) as f64);
            if json {
                for (lanes, rate) in units.iter().zip(rates) {
                    println!(
                        r#"{{"operator":"{}","unit":"{lanes:?}","streams":{count},"gib_per_s":{rate:.3}}}"#,
                        info.name
                    );
                }
            } else {
                println!("{count:>7}{}", rates.map(|rate| format!("{rate:>12.2}")).collect::<String>());
            }
        }
        if !json {
            println!();
        }
    }
}
