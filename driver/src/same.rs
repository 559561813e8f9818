//! Checks for backups whether this node's replica of a partition lacks a record.

use std::sync::Arc;
use std::time::Instant;

use torc_replication::{KnownPage, SameRound};
use torc_ring::Partition;

use super::Registers;
use super::listing::{ADOPTING, ASK_AGAIN, Forgotten, NoQuorum};
use crate::mutants::broken_rules;

impl Registers {
    /// Whether the store holds exactly the records of the partition that a quorum holds. If so, it
    /// has every write that was acknowledged before the call. Reads no records.
    pub async fn holds_the_same(
        self: &Arc<Self>,
        partition: Partition,
        deadline: Instant,
    ) -> Result<bool, NoQuorum> {
        while Instant::now() < deadline {
            let Some(config) = self.config(partition) else {
                tokio::time::sleep(ADOPTING).await;
                continue;
            };
            let (tag, mut answers) = self.listings.wait();
            let _forgotten = Forgotten(&self.listings, tag);
            let Some(sum) = self.store.page_sum(partition, None, None, usize::MAX) else {
                return Ok(false);
            };
            let known = KnownPage {
                next: None,
                count: sum.count,
                sum: sum.sum,
            };
            let mut round = SameRound::new(config, tag, known, broken_rules());
            let _time = self.send_asks(partition, round.asks());
            let again = tokio::time::Instant::from_std(Instant::now() + ASK_AGAIN);
            while let Ok(Some((from, answer))) =
                tokio::time::timeout_at(again, answers.recv()).await
            {
                if let Some(is_same) = round.on_answer(from, &answer) {
                    return Ok(is_same);
                }
            }
        }
        Err(NoQuorum)
    }
}
