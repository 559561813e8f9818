//! The epoch fence.

use torc_record::Epoch;

/// A replica's reaction to a message of some epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// Handle it.
    Pass,
    /// The epoch is over: refuse, and send the current one.
    Refuse,
    /// The epoch is unknown: adopt it durably, then handle the message.
    AdoptFirst,
}

impl Fence {
    /// Compares a message's epoch with the one this replica has adopted for the partition.
    #[must_use]
    pub fn check(adopted: Epoch, message: Epoch) -> Self {
        match message.cmp(&adopted) {
            std::cmp::Ordering::Less => Self::Refuse,
            std::cmp::Ordering::Equal => Self::Pass,
            std::cmp::Ordering::Greater => Self::AdoptFirst,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_adopted_epoch_passes() {
        assert_eq!(Fence::check(Epoch(5), Epoch(4)), Fence::Refuse);
        assert_eq!(Fence::check(Epoch(5), Epoch(5)), Fence::Pass);
        assert_eq!(Fence::check(Epoch(5), Epoch(6)), Fence::AdoptFirst);
    }
}
