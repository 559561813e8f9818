//! The gate's promise and what it costs: measured false-positive rates, bits a key and times.
//!
//! `cargo run --release -p torc-index --example gate_rates`. Prints the rows of the table in
//! the documentation of `torc_index::gate`.

#![allow(clippy::cast_precision_loss, reason = "small numbers and figures")]
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures and prints"
)]

use std::hint::black_box;
use std::time::Instant;
use torc_index::gate::sizing;
use torc_index::{Gate, GateError};
use torc_record::Digest;

/// Strangers asked for each row.
const STRANGERS: usize = 4_000_000;

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A digest of partition 1,234 of 4,096.
fn digest(state: &mut u64) -> Digest {
    let high = (1234 << 52) | (next(state) >> 12);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&next(state).to_be_bytes());
    Digest(bytes)
}

fn row(keys: usize, rate: f64) -> Result<(), GateError> {
    let gates = (200_000 / keys).clamp(1, 4_000);
    let mut state = keys as u64;
    let (mut passed, mut build_ns, mut ask_ns) = (0, 0.0, 0.0);
    let asked = STRANGERS / gates;
    for _ in 0..gates {
        let held: Vec<_> = (0..keys).map(|_| digest(&mut state)).collect();
        let strangers: Vec<_> = (0..asked).map(|_| digest(&mut state)).collect();
        let begun = Instant::now();
        let bytes = Gate::build(&held, rate)?;
        build_ns += begun.elapsed().as_secs_f64() * 1e9;
        let gate = Gate::view(&bytes)?;
        let begun = Instant::now();
        passed += strangers.iter().filter(|key| gate.may_contain(key)).count();
        ask_ns += begun.elapsed().as_secs_f64() * 1e9;
    }
    let measured = passed as f64 / (asked * gates) as f64;
    println!(
        "| {:.1} % | {keys} | {:.2} | {:.2} | {:.3} | {:.0} | {:.1} |",
        100.0 * rate,
        sizing::bits_per_key(rate),
        8.0 * Gate::size_bytes(keys, rate)? as f64 / keys as f64,
        measured / rate,
        build_ns / (keys * gates) as f64,
        ask_ns / (asked * gates) as f64,
    );
    Ok(())
}

fn main() -> Result<(), GateError> {
    println!("| δ | keys | unblocked | bits a key | measured / δ | build ns/key | ask ns |");
    println!("|---|---|---|---|---|---|---|");
    for rate in [0.05, 0.01, 0.001] {
        for keys in [24, 100, 2_441, 65_536, 1_000_000, 10_000_000] {
            row(black_box(keys), rate)?;
        }
    }
    Ok(())
}
