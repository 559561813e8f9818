//! The keys that nodes recently marked as hot. Pure: the time is an argument.
//!
//! A node marks a hot key in every answer to a get. Without a new mark, the table forgets the key
//! after [`REMEMBERED`].

use std::collections::HashMap;
use std::time::{Duration, Instant};

use torc_record::Digest;

/// A few counting intervals of nodes.
pub(super) const REMEMBERED: Duration = Duration::from_secs(30);
/// Limit of keys. A node marks fewer.
const MOST_KEYS: usize = 1_024;

/// Keys, each with the time of its last mark.
#[derive(Debug, Default)]
pub(super) struct Table {
    said: HashMap<Digest, Instant>,
}

impl Table {
    /// Records a mark at `now`. Ignores the key if the table is full.
    pub(super) fn note(&mut self, digest: Digest, now: Instant) {
        if self.said.len() >= MOST_KEYS && !self.said.contains_key(&digest) {
            self.said
                .retain(|_, said| now.saturating_duration_since(*said) < REMEMBERED);
        }
        if self.said.len() < MOST_KEYS || self.said.contains_key(&digest) {
            self.said.insert(digest, now);
        }
    }

    /// Whether the key's last mark is within [`REMEMBERED`] of `now`.
    pub(super) fn is_hot(&mut self, digest: &Digest, now: Instant) -> bool {
        let Some(said) = self.said.get(digest) else {
            return false;
        };
        let is_fresh = now.saturating_duration_since(*said) < REMEMBERED;
        if !is_fresh {
            self.said.remove(digest);
        }
        is_fresh
    }

    pub(super) fn is_empty(&self) -> bool {
        self.said.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        Digest(bytes)
    }

    #[test]
    fn a_key_is_hot_for_half_a_minute_after_it_was_last_said() {
        let (mut table, start) = (Table::default(), Instant::now());
        let after = |s| start + Duration::from_secs(s);
        assert!(!table.is_hot(&digest(1), start));
        table.note(digest(1), start);
        table.note(digest(1), after(20));
        assert!(table.is_hot(&digest(1), after(49)));
        assert!(!table.is_hot(&digest(2), after(49)));
        assert!(!table.is_hot(&digest(1), after(50)));
        assert!(table.is_empty(), "forgotten, not only hidden");
    }

    #[test]
    fn however_many_keys_are_said_to_be_hot_few_are_remembered() {
        let (mut table, start) = (Table::default(), Instant::now());
        (0..5_000).for_each(|number| table.note(digest(number), start));
        assert_eq!(table.said.len(), MOST_KEYS);
        assert!(table.is_hot(&digest(0), start) && !table.is_hot(&digest(4_999), start));
        let later = start + REMEMBERED;
        table.note(digest(4_999), later);
        assert_eq!(table.said.len(), 1, "what is old makes room");
        assert!(table.is_hot(&digest(4_999), later));
    }
}
