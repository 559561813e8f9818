//! Substring search in the values of a scan (`torc-sketch`): finds the records that match, and
//! where.
//!
//! Searches values in place in this node's store and copies only those that match: see
//! [`torc_replication::FilteredPage`]. Runs in steps of bounded work on a thread that serves no
//! requests, and stops if the reader is gone.

use std::sync::Arc;

use bytes::Bytes;
use torc_member::fault::store_fault;
use torc_proto::{Fault, Reason};
use torc_record::{Record, State};
use torc_replication::{FilteredPage, KnownPage, Locator};
use torc_ring::Partition;
use torc_sketch::rolling::Modulus;
use torc_sketch::search::{Budget, Finder, Matches};
use torc_store::{ScanLimits, StoreError};

use super::node::KvNode;
use torc_limits::admission::stopping;

/// Limit on the matches reported per value.
const MAX_MATCHES: usize = 16;

/// Byte strings of which a value must contain at least one.
#[derive(Debug, Clone)]
pub(super) struct Search {
    finder: Finder,
    wanted: Vec<Bytes>,
}

impl Search {
    /// `None` if there are no byte strings. Each scan draws a new hash seed, so no client can store
    /// values that are slow to search.
    ///
    /// # Errors
    /// [`Reason::Invalid`] if one is empty or too long, or if there are too many.
    pub(super) fn of(wanted: Vec<Bytes>) -> Result<Option<Self>, Fault> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let finder = Finder::new(&Modulus::random(rand::random()), &wanted);
        let finder =
            finder.map_err(|error| Fault::new(Reason::Invalid, format!("contains: {error}")))?;
        Ok(Some(Self { finder, wanted }))
    }

    pub(super) fn wanted(&self) -> Vec<Bytes> {
        self.wanted.clone()
    }

    /// The matching values of the store's next page of a partition. `None` if the store has no sum
    /// for the rest of the page, or is damaged there.
    pub(super) async fn filtered_page<T: Send + 'static>(
        &self,
        node: &Arc<KvNode>,
        partition: Partition,
        after: Option<Locator>,
        pages: &tokio::sync::mpsc::Sender<T>,
    ) -> Result<Option<FilteredPage>, Fault> {
        let mut finder = self.finder.clone();
        let turn = node.limits.searchers.acquire().await;
        let _turn = turn.map_err(|_| stopping())?;
        let (pages, node) = (pages.clone(), Arc::clone(node));
        let reading = tokio::task::spawn_blocking(move || {
            let mut budget = Budget::new(|| !pages.is_closed());
            let searched = node.metrics.scan_searched_bytes.clone();
            let mut keep = |value: &[u8]| {
                searched.inc_by(value.len() as u64);
                let found = finder.find(value, 1, &mut budget);
                found.is_some_and(|found| !found.first.is_empty())
            };
            let limits = ScanLimits::default();
            let store = &node.store;
            store.scan_filtered(partition, after.as_ref(), limits, &mut keep)
        });
        let page = reading.await.map_err(|_| failed())?;
        let page = match page {
            // A quorum may have the records that cannot be read here.
            Err(StoreError::Damaged { .. }) => None,
            page => page.map_err(|error| store_fault(&error))?,
        };
        Ok(page.map(|filtered| {
            let last = filtered.page.next;
            FilteredPage {
                records: filtered.page.records,
                known: KnownPage {
                    next: last.as_ref().map(Locator::id),
                    count: filtered.sum.count,
                    sum: filtered.sum.sum,
                },
                last,
                left_out: filtered.left_out,
            }
        }))
    }

    /// The matching records with their matches. Stops and returns nothing more when the reader of
    /// `pages` is gone.
    pub(super) async fn page<T: Send + 'static>(
        &self,
        node: &Arc<KvNode>,
        records: Vec<Record>,
        pages: &tokio::sync::mpsc::Sender<T>,
    ) -> Result<Vec<(Record, Matches)>, Fault> {
        let mut finder = self.finder.clone();
        let turn = node.limits.searchers.acquire().await;
        let _turn = turn.map_err(|_| stopping())?;
        let searched = node.metrics.scan_searched_bytes.clone();
        let pages = pages.clone();
        let searching = tokio::task::spawn_blocking(move || {
            let mut budget = Budget::new(|| !pages.is_closed());
            let searched = |record: Record| {
                let State::Value { value, .. } = &record.state else {
                    return None;
                };
                searched.inc_by(value.len() as u64);
                let matches = finder.find(value, MAX_MATCHES, &mut budget)?;
                (!matches.first.is_empty()).then_some((record, matches))
            };
            records.into_iter().filter_map(searched).collect()
        });
        searching.await.map_err(|_| failed())
    }
}

fn failed() -> Fault {
    Fault::new(Reason::Internal, "a search failed: report this")
}

#[cfg(test)]
mod tests {
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
}
