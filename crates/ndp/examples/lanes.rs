//! MD5 by lanes: GiB/s of one core by the number of streams, on every vector unit of this machine.

use dcs_abi::operator::Operator;
use dcs_ndp::{Context, Lanes};
use std::time::Instant;

const PIECE: usize = 64 * 1024;

fn rate(lanes: Lanes, count: usize) -> f64 {
    let data: Vec<Vec<u8>> = (0..count).map(|at| vec![at as u8; PIECE]).collect();
    let mut contexts: Vec<Context> =
        (0..count).filter_map(|_| Context::new(Operator::Md5, &[]).ok()).collect();
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed().as_millis() < 200 {
        let mut work: Vec<_> = contexts.iter_mut().zip(&data).map(|(c, d)| (c, d.as_slice())).collect();
        Context::absorb_together(lanes, &mut work);
        rounds += 1;
    }
    let bytes = rounds * count * PIECE;
    bytes as f64 / start.elapsed().as_secs_f64() / (1u64 << 30) as f64
}

fn main() {
    let units = Lanes::available();
    println!("MD5, GiB/s of one core, pieces of 64 KiB\n");
    println!("streams  {}", units.iter().map(|lanes| format!("{lanes:>8?}")).collect::<String>());
    for count in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64] {
        let row: String = units.iter().map(|lanes| format!("{:>8.2}", rate(*lanes, count))).collect();
        println!("{count:>7}  {row}");
    }
}
