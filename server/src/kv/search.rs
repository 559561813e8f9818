//! Substring search in the values of a scan, by rolling hashes (`torc-sketch`).
//!
//! A page is searched on a thread that serves no requests, in steps of bounded work
//! between which it is noticed that nobody wants the answer any more.

use std::sync::Arc;

use bytes::Bytes;
use torc_proto::{Fault, Reason};
use torc_record::{Record, State};
use torc_sketch::rolling::{Modulus, Patterns, Scan, Searcher};

use crate::admission::stopping;
use crate::shared::Shared;

/// Work between two looks at whether to go on: some milliseconds.
const STEP: u64 = 1 << 20;

/// Byte strings of which a value must contain at least one.
#[derive(Debug, Clone)]
pub(super) struct Search {
    patterns: Patterns,
    wanted: Vec<Bytes>,
}

impl Search {
    /// None for no byte strings. The hash is drawn anew for each scan, so that nobody can store
    /// values that are slow to search.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for empty ones, too many or too long ones.
    pub(super) fn of(wanted: Vec<Bytes>) -> Result<Option<Self>, Fault> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let modulus = Modulus::random(rand::random());
        let patterns = Patterns::new(&modulus, &wanted);
        let patterns =
            patterns.map_err(|error| Fault::new(Reason::Invalid, format!("contains: {error}")))?;
        Ok(Some(Self { patterns, wanted }))
    }

    pub(super) fn wanted(&self) -> Vec<Bytes> {
        self.wanted.clone()
    }

    /// Which records have a value that is wanted. When the reader of `pages` goes away, the
    /// rest is not searched and not wanted.
    pub(super) async fn page<T: Send + 'static>(
        &self,
        shared: &Arc<Shared>,
        records: Vec<Record>,
        pages: &tokio::sync::mpsc::Sender<T>,
    ) -> Result<(Vec<Record>, Vec<bool>), Fault> {
        let mut searcher = Searcher::new(&self.patterns);
        let turn = shared.searchers.acquire().await;
        let _turn = turn.map_err(|_| stopping())?;
        let searched = shared.metrics.scan_searched_bytes.clone();
        let pages = pages.clone();
        let searching = tokio::task::spawn_blocking(move || {
            let mut budget = STEP;
            let mut go_on = || !pages.is_closed();
            let values = records.iter().map(|record| {
                let State::Value { value, .. } = &record.state else {
                    return None;
                };
                let is_there = contains(&mut searcher, value, &mut budget, &mut go_on);
                searched.inc_by(searcher.position());
                Some(is_there)
            });
            let matches = values.map(|found| found.unwrap_or(false)).collect();
            (records, matches)
        });
        searching
            .await
            .map_err(|_| Fault::new(Reason::Internal, "a search failed: report this"))
    }
}

/// Whether a text contains a pattern; false when told not to go on, which is asked for
/// after every [`STEP`] of work.
fn contains(
    searcher: &mut Searcher,
    text: &[u8],
    budget: &mut u64,
    go_on: &mut impl FnMut() -> bool,
) -> bool {
    searcher.restart();
    let mut rest = text;
    loop {
        match searcher.scan(rest, budget) {
            Scan::Found { .. } => return true,
            Scan::Finished => return false,
            Scan::Paused { consumed } => {
                if !go_on() {
                    return false;
                }
                *budget = STEP;
                rest = &rest[consumed..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search(wanted: &[&[u8]]) -> Result<Option<Search>, Fault> {
        Search::of(wanted.iter().map(|it| Bytes::copy_from_slice(it)).collect())
    }

    #[test]
    fn too_many_too_long_and_empty_patterns_are_refused() {
        let long = vec![0; 65_537];
        for wanted in [&[&b""[..]][..], &[&b"a"[..]; 65], &[&long]] {
            let fault = search(wanted).unwrap_err();
            assert_eq!(fault.reason, Reason::Invalid, "{fault}");
        }
        assert!(search(&[&b"a"[..]; 64]).unwrap().is_some());
        assert!(search(&[&long[1..]]).unwrap().is_some());
        assert!(search(&[]).unwrap().is_none(), "nothing is asked for");
    }

    #[test]
    fn a_search_that_nobody_wants_any_more_stops_within_a_step() {
        let search = search(&[b"needle"]).unwrap().unwrap();
        let mut searcher = Searcher::new(&search.patterns);
        let text = vec![7; 4 * STEP as usize];
        let mut asked = 0;
        let mut go_on = || {
            asked += 1;
            asked < 2
        };
        let found = contains(&mut searcher, &text, &mut STEP.clone(), &mut go_on);
        assert!(!found && asked == 2);
        assert_eq!(
            searcher.position(),
            2 * STEP,
            "it was asked after each step"
        );
    }

    proptest! {
        #[test]
        fn it_finds_what_windows_find(
            values in prop::collection::vec(prop::collection::vec(0_u8..3, 0..60), 0..8),
            wanted in prop::collection::vec(prop::collection::vec(0_u8..3, 1..6), 1..5),
            step in 1_u64..40,
        ) {
            let wanted: Vec<&[u8]> = wanted.iter().map(|it| &it[..]).collect();
            let search = search(&wanted).unwrap().unwrap();
            let mut searcher = Searcher::new(&search.patterns);
            for value in values {
                let is_there = wanted.iter().any(|it| value.windows(it.len()).any(|w| w == *it));
                let found = contains(&mut searcher, &value, &mut step.clone(), &mut || true);
                prop_assert_eq!(found, is_there);
            }
        }
    }
}
