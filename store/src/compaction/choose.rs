//! Which slices to compact.

/// This many slices of one size are compacted into one of the next size.
const FANOUT: usize = 4;
/// A slice of at most this many times the total of all smaller ones counts as the same size.
const SAME_SIZE: u64 = 2;
/// On an idle node, slices are compacted into the largest one if together they have at least this
/// fraction (1/n) of its length.
const WORTH_SHARE: u64 = 16;

/// How much to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Only what reads need.
    Busy,
    /// More, because the node is idle.
    Idle,
    /// All slices into one.
    Whole,
}

/// The number of slices to compact, smallest first; `lens` is ascending. Never 1.
pub(crate) fn how_many(lens: &[u64], most: usize, urgency: Urgency) -> usize {
    let count = lens.len();
    if count < 2 {
        return 0;
    }
    if urgency == Urgency::Whole {
        return count;
    }
    let smaller: u64 = lens[..count - 1].iter().sum();
    if urgency == Urgency::Idle && smaller.saturating_mul(WORTH_SHARE) >= lens[count - 1] {
        return count;
    }
    let mut sum = 0_u64;
    let same = lens
        .iter()
        .take_while(|len| {
            let is_same = sum == 0 || **len <= sum.saturating_mul(SAME_SIZE);
            sum += **len;
            is_same
        })
        .count();
    let needed = if count > most { count - most + 1 } else { 0 };
    let many = same.max(needed);
    let is_due = many >= FANOUT || needed > 0 || urgency == Urgency::Idle;
    if is_due && many >= 2 { many } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_number_of_slices_is_bounded_and_no_compaction_is_of_one(
            mut lens in proptest::collection::vec(1_u64..1_000_000, 0..40),
            most in 2_usize..12,
        ) {
            lens.sort_unstable();
            for urgency in [Urgency::Busy, Urgency::Idle, Urgency::Whole] {
                let many = how_many(&lens, most, urgency);
                prop_assert!(many != 1 && many <= lens.len());
                let left = if many == 0 { lens.len() } else { lens.len() - many + 1 };
                prop_assert!(left <= most);
            }
        }

        #[test]
        fn a_record_is_written_about_once_for_each_fourfold_growth(flushes in 1_usize..600) {
            let mut lens: Vec<u64> = Vec::new();
            let mut written = 0;
            for _ in 0..flushes {
                lens.push(100);
                lens.sort_unstable();
                let many = how_many(&lens, 8, Urgency::Busy);
                if many > 0 {
                    let sum = lens.drain(..many).sum();
                    written += sum;
                    lens.push(sum);
                }
            }
            let growth = (flushes as f64).log(4.0) + 1.5;
            let times = written as f64 / (flushes as f64 * 100.0);
            prop_assert!(times <= growth, "{times} times for {flushes} flushes, at most {growth}");
        }
    }
}
