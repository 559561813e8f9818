//! The answers of one round, combined.
//!
//! An absent key, and a tombstone or expired value that a watermark covers, has the
//! version `collected`, the highest watermark among the answers. So replicas agree
//! whether or not they have already dropped a tombstone.
//!
//! Only readers can say that a key is absent. The absence of a key on a newcomer that
//! has not copied yet means nothing; a version that it accepted counts.

use torc_record::Ballot;

use crate::{Config, Content, Held, Recall, Votes};

/// Answers of one round.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    held: Vec<(usize, Held)>,
    /// Members that answered with their record.
    pub(super) answered: Votes,
    /// Members that accepted.
    pub(super) accepted: Votes,
    /// The replicas' memories of this operation's versions.
    recalls: Vec<(usize, Recall)>,
    /// Members that refused or abstained.
    pub(super) refused: Votes,
}

impl Tally {
    /// Whether there are no answers.
    pub(super) fn is_empty(&self) -> bool {
        let said = self.answered.union(self.refused).union(self.accepted);
        said.is_empty()
    }

    /// Records an answer; a later one of the same replica replaces it.
    pub(super) fn add(&mut self, index: usize, held: Held) {
        self.answered.insert(index);
        match self.held.iter_mut().find(|(known, _)| *known == index) {
            Some((_, known)) => *known = held,
            None => self.held.push((index, held)),
        }
    }

    /// Records a replica's memory.
    pub(super) fn remember(&mut self, index: usize, recall: Recall) {
        self.recalls.retain(|(known, _)| *known != index);
        self.recalls.push((index, recall));
    }

    /// The replicas that never stored this operation's versions.
    pub(super) fn never_stored(&self) -> Votes {
        self.recalling(|recall| *recall == Recall::Never)
    }

    /// The replicas that remember storing this version under this ballot.
    pub(super) fn storing(&self, version: Ballot, ballot: Ballot) -> Votes {
        self.recalling(|recall| recall.ballots_of(version).contains(&Some(ballot)))
    }

    /// The ballots under which replicas remember storing this version.
    pub(super) fn ballots_of(&self, version: Ballot) -> impl Iterator<Item = Ballot> + '_ {
        let recalls = self.recalls.iter();
        recalls.flat_map(move |(_, recall)| recall.ballots_of(version).into_iter().flatten())
    }

    fn recalling(&self, is_it: impl Fn(&Recall) -> bool) -> Votes {
        let them = self.recalls.iter().filter(|(_, recall)| is_it(recall));
        them.fold(Votes::NONE, |votes, (index, _)| {
            votes.union(Votes::one(*index))
        })
    }

    /// The highest version among the answers, with the value if any answer has it, and the members
    /// that hold exactly this. Absent at version zero if there are none.
    ///
    /// `collected` and `collecting` are the latest of any replica, and not those of the highest
    /// ballot, because a later epoch may have an earlier clock.
    ///
    /// The absence of a key on a newcomer that has not copied yet is ignored. It counts for no
    /// reading quorum, so it would do no harm, but gets would take two rounds.
    pub(super) fn highest(&self, config: &Config) -> (Held, Votes) {
        let all = || self.held.iter().map(|(_, held)| held);
        let collected = all().map(|held| held.collected).max().unwrap_or_default();
        let collecting = all().map(|held| held.collecting);
        let mut highest = Held {
            ballot: Ballot::default(),
            origin: None,
            content: Content::Absent,
            collected,
            collecting: collecting.max_by_key(|it| it.time).unwrap_or_default(),
        };
        let mut holders = Votes::NONE;
        for (index, held) in &self.held {
            let absent = is_gone(held, collected);
            if absent && !config.readers().contains(*index) {
                continue;
            }
            let ballot = if absent { collected } else { held.ballot };
            if holders.is_empty() || ballot > highest.ballot {
                highest.ballot = ballot;
                highest.origin = held.origin.filter(|origin| !absent && *origin != ballot);
                holders = Votes::NONE;
                highest.content = if absent {
                    Content::Absent
                } else {
                    held.content.clone()
                };
            }
            if ballot == highest.ballot {
                holders.insert(*index);
                let lacks = matches!(highest.content, Content::Value { value: None, .. });
                if lacks && !absent {
                    highest.content = held.content.clone();
                }
            }
        }
        (highest, holders)
    }

    /// The replicas that answered with a lower ballot than this one.
    pub(super) fn behind(&self, ballot: Ballot) -> impl Iterator<Item = usize> + '_ {
        self.held
            .iter()
            .filter(move |(_, held)| held.ballot < ballot)
            .map(|(index, _)| *index)
    }
}

fn is_gone(held: &Held, collected: Ballot) -> bool {
    match held.content.to_state_head() {
        None => true,
        Some(state) => state.is_collected(held.ballot, collected),
    }
}
