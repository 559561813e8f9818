//! Adds one server: how many keys move by modulo, by another random hash, and on the ring.

use std::collections::BTreeMap;

use anyhow::Result;
use torc_sketch::SeedStream;

use super::super::claim::{Claim, Says};
use super::Sizes;
use torc_plot::{Axis, Plot};

/// Points per server on the ring.
const POINTS: u64 = 32;
/// Rings over which a share is averaged.
const RINGS: u64 = 20;

/// The lecture's ring: hashes of servers, and clockwise successors.
struct HashedRing(BTreeMap<u64, u64>);

impl HashedRing {
    /// `ring` selects the hashes.
    fn of(servers: u64, points: u64, ring: u64) -> Self {
        let all = (0..servers).flat_map(|server| (0..points).map(move |point| (server, point)));
        Self(
            all.map(|(server, point)| (hash(ring << 40 | server << 20 | point), server))
                .collect(),
        )
    }

    fn server(&self, key: u64) -> u64 {
        let successor = self.0.range(key..).next().or_else(|| self.0.iter().next());
        successor.map_or(0, |(_, server)| *server)
    }
}

fn hash(x: u64) -> u64 {
    SeedStream::new(x).next_u64()
}

/// The share of keys that change their server.
fn moved(keys: &[u64], before: impl Fn(u64) -> u64, after: impl Fn(u64) -> u64) -> f64 {
    let moved = keys.iter().filter(|key| before(**key) != after(**key));
    100.0 * moved.count() as f64 / keys.len() as f64
}

#[expect(clippy::unnecessary_wraps, reason = "claims have one signature")]
pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim =
        Claim::new("Lecture, load balancing: keys that move when a server is added to m");
    let mut plot = Plot::new(
        "Lecture: keys that move when a server is added",
        Axis::log("m, servers before"),
        Axis::log("% of keys"),
    );
    let mut seeds = SeedStream::new(sizes.seed ^ 1);
    let keys: Vec<u64> = (0..sizes.of(50_000)).map(|_| seeds.next_u64()).collect();
    let mut lines: [Vec<(f64, f64)>; 4] = Default::default();
    for m in [2, 4, 10, 30, 100] {
        let case = format!("{m} servers");
        let modulo = moved(&keys, |key| key % m, |key| key % (m + 1));
        let random = moved(&keys, |key| hash(key) % m, |key| hash(!key) % (m + 1));
        let ring = (0..RINGS).map(|ring| {
            let before = HashedRing::of(m, POINTS, ring);
            let after = HashedRing::of(m + 1, POINTS, ring);
            moved(&keys, |key| before.server(key), |key| after.server(key))
        });
        let ring = ring.sum::<f64>() / RINGS as f64;
        let (all, least) = (100.0 * m as f64 / (m + 1) as f64, 100.0 / (m + 1) as f64);
        claim.row(&case, ("by modulo", "%"), Says::Is(all), modulo);
        claim.row(
            &case,
            ("by another random hash", "%"),
            Says::Is(all),
            random,
        );
        claim.row(&case, ("on the ring", "%"), Says::Is(least), ring);
        for (line, value) in lines.iter_mut().zip([all, least, modulo, ring]) {
            line.push((m as f64, value));
        }
    }
    let [all, least, modulo, ring] = lines;
    plot.dashed("m / (m + 1)", all);
    plot.dashed("1 / (m + 1)", least);
    plot.measured("by modulo", modulo);
    plot.measured("ring, 32 points a server", ring);
    claim.plot(&plot);
    claim.why("Modulo: a key stays if its remainders by m and m + 1 agree, one time in m + 1; so does another random hash.");
    claim.why("Ring: only keys move whose new successor is the new server. The share of one ring strays from 1/(m + 1) by 1/sqrt(32) of that, the mean of 20 by 4 %; Torc's planned positions do not (claim `positions`).");
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_ring_keys_move_to_the_new_server_only() {
        let (before, after) = (HashedRing::of(7, 4, 0), HashedRing::of(8, 4, 0));
        for key in (0..2_000).map(hash) {
            let (old, new) = (before.server(key), after.server(key));
            assert!(old == new || new == 7);
        }
        let naive = |key: u64| {
            let points =
                (0..7).flat_map(|s| (0..4).map(move |p| (hash(s << 20 | p).wrapping_sub(key), s)));
            points.min().map(|(_, server)| server)
        };
        assert!(
            (0..500)
                .map(hash)
                .all(|key| naive(key) == Some(before.server(key)))
        );
    }
}
