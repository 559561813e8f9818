//! The ring with h(machine), and with planned positions: the busiest server over the mean.

use anyhow::Result;
use torc_ring::{Growth, simulate};
use torc_sketch::SeedStream;

use super::super::claim::{Claim, Says};
use super::Sizes;
use torc_plot::{Axis, Plot};

/// Positions per node of Torc.
const POSITIONS: u16 = 32;
const SHOWN: [u32; 4] = [4, 10, 30, 100];

/// The largest arc of m random points over the mean, averaged over some rings.
fn largest_arc(m: usize, rings: usize, seeds: &mut SeedStream) -> f64 {
    let mut sum = 0.0;
    for _ in 0..rings {
        let mut points: Vec<u64> = (0..m).map(|_| seeds.next_u64()).collect();
        points.sort_unstable();
        let last = points[m - 1];
        let before = std::iter::once(&last).chain(&points);
        let arcs = points
            .iter()
            .zip(before)
            .map(|(point, before)| point.wrapping_sub(*before));
        sum += arcs.max().unwrap_or(0) as f64 / 2_f64.powi(64) * m as f64;
    }
    sum / rings as f64
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new("Lecture, consistent hashing: h(machine) beside planned positions");
    let mut plot = Plot::new(
        "Lecture: keys of the busiest server over the mean",
        Axis::log("servers"),
        Axis::linear("ratio"),
    );
    let growth = Growth {
        nodes: if sizes.quick { 12 } else { 100 },
        positions: POSITIONS,
        seed: sizes.seed,
        ..Growth::default()
    };
    let mut seeds = SeedStream::new(sizes.seed);
    let mut lines: [Vec<(f64, f64)>; 4] = Default::default();
    for row in simulate(growth) {
        let row = row?;
        if !SHOWN.contains(&row.nodes) {
            continue;
        }
        let m = f64::from(row.nodes);
        let one = largest_arc(row.nodes as usize, sizes.of(2_000), &mut seeds);
        // The expected largest of m arcs is H_m / m.
        let harmonic: f64 = (1..=row.nodes).map(|i| 1.0 / f64::from(i)).sum();
        let (random, planned) = (row.random_primary_peak_to_mean, row.primary_peak_to_mean);
        let case = format!("{} servers", row.nodes);
        claim.row(
            &case,
            ("h(machine), one point", "ratio"),
            Says::Is(harmonic),
            one,
        );
        claim.row(&case, ("32 random points", "ratio"), Says::Nothing, random);
        claim.row(
            &case,
            ("32 planned positions", "ratio"),
            Says::Is(1.0),
            planned,
        );
        for (line, value) in lines.iter_mut().zip([harmonic, one, random, planned]) {
            line.push((m, value));
        }
    }
    let [harmonic, one, random, planned] = lines;
    plot.dashed("expected largest of m random arcs", harmonic);
    plot.measured("h(machine), one point", one);
    plot.measured("32 random points", random);
    plot.measured("32 planned positions", planned);
    claim.plot(&plot);
    claim.why("\"Evenly spaced, for the hash is random\": the mean arc is 1/m, but the largest of m is ln m times that. The lecture's ring is balanced in expectation, not in the worst server.");
    claim.why("More points average that out; planning them, on borders of partitions, leaves what the number of partitions does not divide.");
    Ok(claim)
}
