//! The size and the false positive rate of Bloom filters.
//!
//! All of this arithmetic is here. [`bits_per_key`], [`best_probes`] and [`classic_rate`] are about
//! the plain filter (Bloom 1970; Mitzenmacher and Upfal, Probability and Computing, 5.5);
//! [`blocked_rate`] and [`GateSize`] are about the blocked one.
//!
//! [`GateSize`] determines bytes that nodes compare, so it must be the same on every host: it uses
//! only `+ - * /`, which IEEE 754 fixes to the last bit, and no library logarithm.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "estimates: f64 counts keys and bits exactly up to 2^53, and `as` saturates"
)]

use super::{GateError, MAX_RATE, MIN_RATE};

/// Bytes of a block: one cache line.
pub const BLOCK_BYTES: usize = 64;
/// Limit on the bytes of blocks in one gate, because 32 bits select a block.
pub const MAX_BLOCK_BYTES: u64 = 1 << 32;

/// Up to this many bytes of blocks, every size is tried, because a short last block makes the rate
/// jump.
const TRY_EACH_BYTES: u64 = 2 * BLOCK_BYTES as u64;
/// Above that, the search stops when a step gains less than 1/4096 of the size.
const SEARCH_SHIFT: u32 = 12;
/// Occupancies above the mean that are less probable than this are left out of an expected rate.
const NEGLIGIBLE: f64 = MIN_RATE * 1e-6;
/// One probe less is worth this fraction of the rate, because it saves time in every lookup.
const PROBE_WORTH: f64 = 0.01;

/// Bits per key of an unblocked filter at rate `rate`: `log2(1/δ) / ln 2`, 9.585 at 1 %.
#[must_use]
pub fn bits_per_key(rate: f64) -> f64 {
    log2_inverse(rate) / std::f64::consts::LN_2
}

/// `log2(1 / rate)` for a positive `rate` up to 1, to 30 binary digits: the integer part by
/// doubling, the fraction by squaring (Knuth, volume 1, 1.2.2).
fn log2_inverse(rate: f64) -> f64 {
    let (mut rest, mut whole) = (1.0 / rate, 0.0);
    while rest >= 2.0 {
        rest /= 2.0;
        whole += 1.0;
    }
    let (mut fraction, mut digit) = (0.0, 0.5);
    for _ in 0..30 {
        rest *= rest;
        if rest >= 2.0 {
            rest /= 2.0;
            fraction += digit;
        }
        digit /= 2.0;
    }
    whole + fraction
}

/// The number of probes with the lowest rate at `bits_per_key`: `m/n ln 2`, at least 1.
#[must_use]
pub fn best_probes(bits_per_key: f64) -> u32 {
    ((bits_per_key * std::f64::consts::LN_2).round() as u32).max(1)
}

/// Expected rate of an unblocked filter of `bits` bits with `keys` keys of `probes` probes: `(1 -
/// (1 - 1/m)^(kn))^k`.
#[must_use]
pub fn classic_rate(keys: u64, bits: u64, probes: u32) -> f64 {
    let empty = power(1.0 - 1.0 / bits as f64, keys * u64::from(probes));
    power(1.0 - empty, probes.into())
}

/// Expected rate of a gate with `block_bytes` bytes of blocks (at least 1) and `keys` keys.
///
/// A block with a share `s` of all bytes holds `j` keys with the binomial probability of `j` in
/// `keys` at `s`, and gets a share `s` of the queries for non-members. Its rate is the expectation
/// of (share of set bits)^probes. The power of a mean is not the mean of the power, so the
/// second-order term, with the variance of the set bits, is added: 1 % of the rate at 512 bits, a
/// tenth at 64. Takes about 10 us.
#[must_use]
pub fn blocked_rate(keys: u64, block_bytes: u64, probes: u32) -> f64 {
    let line = BLOCK_BYTES as u64;
    let full_blocks = block_bytes / line;
    let last = block_bytes % line;
    let mut rate = 0.0;
    if full_blocks > 0 {
        let share = line as f64 / block_bytes as f64;
        rate += full_blocks as f64 * share * rate_of_blocks(keys, share, 8 * line, probes);
    }
    if last > 0 {
        let share = last as f64 / block_bytes as f64;
        rate += share * rate_of_blocks(keys, share, 8 * last, probes);
    }
    rate
}

/// The rate of a block of `bits` bits to which each key belongs with probability `share`.
fn rate_of_blocks(keys: u64, share: f64, bits: u64, probes: u32) -> f64 {
    let mut fill = Fill::new(bits, probes);
    if share >= 1.0 {
        fill.add_keys(keys);
        return fill.rate();
    }
    // Counts from the rarer side: (1 - share)^keys would underflow for a share near 1.
    let mostly_held = share > 0.5;
    if mostly_held {
        fill.add_keys(keys);
    }
    let rarer = if mostly_held { 1.0 - share } else { share };
    let (odds, mean) = (rarer / (1.0 - rarer), keys as f64 * rarer);
    let mut probability = power(1.0 - rarer, keys);
    let (mut seen, mut rate) = (0.0, 0.0);
    for count in 0..=keys {
        rate += probability * fill.rate();
        seen += probability;
        // Not a comparison of `seen` with 1: with 10^9 keys, rounding alone loses 10^-7.
        if count as f64 > mean && probability < NEGLIGIBLE {
            break;
        }
        probability *= (keys - count) as f64 / (count + 1) as f64 * odds;
        if mostly_held {
            fill.remove_key();
        } else {
            fill.add_keys(1);
        }
    }
    rate / seen
}

/// The expected number of set bits in a block, and its variance, as keys are added.
struct Fill {
    bits: f64,
    probes: u32,
    /// Probabilities that a given bit is clear, and that two given bits are clear.
    clear: f64,
    clear_pair: f64,
    one_key: f64,
    one_key_pair: f64,
}

impl Fill {
    fn new(bits: u64, probes: u32) -> Self {
        let bits = bits as f64;
        Self {
            bits,
            probes,
            clear: 1.0,
            clear_pair: 1.0,
            one_key: power(1.0 - 1.0 / bits, probes.into()),
            one_key_pair: power(1.0 - 2.0 / bits, probes.into()),
        }
    }

    fn add_keys(&mut self, keys: u64) {
        self.clear *= power(self.one_key, keys);
        self.clear_pair *= power(self.one_key_pair, keys);
    }

    fn remove_key(&mut self) {
        self.clear /= self.one_key;
        self.clear_pair /= self.one_key_pair;
    }

    fn rate(&self) -> f64 {
        let probes = self.probes;
        let set = 1.0 - self.clear;
        let variance = self.clear_pair * (1.0 - 1.0 / self.bits) + self.clear / self.bits
            - self.clear * self.clear;
        let pairs = f64::from(probes) * f64::from(probes.saturating_sub(1)) / 2.0;
        let below = if probes < 2 {
            0.0
        } else {
            power(set, u64::from(probes) - 2)
        };
        power(set, probes.into()) + pairs * below * variance
    }
}

/// `base` to the `exponent` by squaring: unlike `powi`, the same on every host.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// Bytes of blocks, and probes per key, of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateSize {
    /// Bytes of blocks; 0 for no keys.
    pub block_bytes: usize,
    /// Probes per key; 0 for no keys.
    pub probes: u32,
}

impl GateSize {
    /// The size for `keys` keys at `rate`. The number of probes is the one with the lowest rate, or
    /// fewer if the rate is hardly higher. The number of bytes is then the smallest for which
    /// [`blocked_rate`] is at most `rate`; above 128 bytes, up to 1/4096 more. Takes 5 to 30 us.
    ///
    /// # Errors
    /// [`GateError::Rate`] outside [`MIN_RATE`] to [`MAX_RATE`], [`GateError::TooMany`] above
    /// [`MAX_BLOCK_BYTES`].
    pub fn for_keys(keys: usize, rate: f64) -> Result<Self, GateError> {
        if !(MIN_RATE..=MAX_RATE).contains(&rate) {
            return Err(GateError::Rate { rate });
        }
        if keys == 0 {
            return Ok(Self {
                block_bytes: 0,
                probes: 0,
            });
        }
        let keys = keys as u64;
        let classic_bytes = (keys as f64 * bits_per_key(rate) / 8.0) as u64;
        if classic_bytes > MAX_BLOCK_BYTES {
            return Err(GateError::TooMany);
        }
        let probes = probes_for(keys, rate, classic_bytes + classic_bytes / 32 + 1);
        let excess = |bytes| blocked_rate(keys, bytes, probes) - rate;
        let bytes = if classic_bytes < TRY_EACH_BYTES {
            first_fit(excess, classic_bytes.max(1))
        } else {
            false_position(excess, classic_bytes)
        };
        if bytes > MAX_BLOCK_BYTES {
            return Err(GateError::TooMany);
        }
        let block_bytes = usize::try_from(bytes).map_err(|_| GateError::TooMany)?;
        Ok(Self {
            block_bytes,
            probes,
        })
    }
}

/// The fewest probes whose rate is hardly above the lowest one at `bytes`.
fn probes_for(keys: u64, rate: f64, bytes: u64) -> u32 {
    let center = log2_inverse(rate) as u32;
    let candidates = center.saturating_sub(2).max(1)..=center + 1;
    let rates = candidates
        .clone()
        .map(|probes| blocked_rate(keys, bytes, probes));
    let least = rates.fold(1.0, f64::min);
    let enough = |probes: &u32| blocked_rate(keys, bytes, *probes) <= least * (1.0 + PROBE_WORTH);
    candidates.into_iter().find(enough).unwrap_or(center.max(1))
}

/// The first size from `bytes` on without excess. It exists, because the excess tends to `-rate`.
fn first_fit(excess: impl Fn(u64) -> f64, mut bytes: u64) -> u64 {
    while excess(bytes) > 0.0 {
        bytes += 1;
    }
    bytes
}

/// The size at which the excess ends, searched from one that is rarely sufficient. The rate falls
/// ever more slowly, so the chord crosses zero on the sufficient side, and each crossing is a
/// better sufficient size.
fn false_position(excess: impl Fn(u64) -> f64, mut too_few: u64) -> u64 {
    let mut over = excess(too_few);
    if over <= 0.0 {
        // One probe has the same rate with blocks and without, so at 50 % the first size may
        // suffice.
        return too_few;
    }
    let mut enough = too_few + too_few / 16;
    let mut under = excess(enough);
    while under > 0.0 {
        (too_few, over) = (enough, under);
        enough += enough / 16;
        under = excess(enough);
    }
    loop {
        let part = over / (over - under);
        let meeting = too_few + 1 + ((enough - too_few) as f64 * part) as u64;
        if meeting + (enough >> SEARCH_SHIFT) >= enough {
            return enough;
        }
        let met = excess(meeting);
        if met > 0.0 {
            (too_few, over) = (meeting, met);
        } else {
            (enough, under) = (meeting, met);
        }
    }
}
