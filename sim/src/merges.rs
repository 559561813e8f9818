//! Merges: the reservation of a ballot, and the records that are put below it.

use std::collections::BTreeMap;

use torc_record::{Ballot, HybridTime, NodeSlot};
use torc_replication::Mutation;

use crate::history::{Kind, Operation, Seen};
use crate::workload::Merge;
use crate::world::World;

impl World {
    /// Follows the topology group, which reserves and ends merges.
    pub(crate) fn follow_merges(&mut self) {
        let reserved = self.group.merges.checked_sub(1);
        let open = self.merge.as_ref().map(|merge| merge.number);
        if !self.group.config.merging {
            self.end_merge();
        } else if reserved != open
            && let Some(number) = reserved
        {
            self.begin_merge(number);
        }
        let waits = self.merge.as_ref().is_some_and(|it| !it.is_reserved);
        if waits && (self.all_act() || self.group.breaks(Mutation::ReservesUnheard)) {
            self.finish_reservation();
        }
    }

    fn begin_merge(&mut self, number: u8) {
        let ballot = Ballot {
            epoch: self.group.config.epoch,
            time: HybridTime::default(),
            slot: NodeSlot(0),
        };
        let mut at = BTreeMap::new();
        self.counts.add("merge");
        for key in 0..self.workload.keys.len() {
            if !self.workload.is_eventual(key) {
                self.moment += 1;
                let history = &mut self.workload.histories[key];
                at.insert(key, history.operations.len());
                history.operations.push(Operation {
                    kind: Kind::Reserve(number),
                    seen: Seen::Unknown,
                    call: self.moment,
                    ret: u64::MAX,
                    ret_ms: u64::MAX,
                });
            }
        }
        self.merge = Some(Merge {
            number,
            ballot,
            is_reserved: false,
            at,
        });
    }

    /// Whether every node has durably adopted the epoch of the merge.
    fn all_act(&self) -> bool {
        let epoch = self.merge.as_ref().map(|merge| merge.ballot.epoch);
        let mut there = self.nodes.iter().filter(|node| !node.gone);
        there.all(|node| node.is_up() && Some(node.disk.meta.epoch) >= epoch)
    }

    /// From now on, writes that begin are above the reserved ballot: [`World::call`] notes that they
    /// come after the reservation. A write that began earlier may take effect before or after it, even
    /// long after. So the reservation has no end in the history.
    fn finish_reservation(&mut self) {
        let Some(merge) = &mut self.merge else { return };
        merge.is_reserved = true;
        for (key, index) in &merge.at {
            self.workload.histories[*key].operations[*index].seen = Seen::Done;
        }
    }

    /// Records that are still under way become ordinary puts: collection goes on.
    fn end_merge(&mut self) {
        let Some(merge) = self.merge.take() else {
            return;
        };
        let histories = self.workload.histories.iter_mut();
        for operation in histories.flat_map(|history| &mut history.operations) {
            if let Kind::Merge(number, value) = operation.kind
                && number == merge.number
                && operation.seen == Seen::Unknown
            {
                operation.kind = Kind::Put(value);
            }
        }
    }
}
