//! The answers of one round, and what they say together.
//!
//! A version's collection watermark is what absence is worth: an absent key, and a
//! tombstone or expired value that a watermark covers, is version `collected`, the
//! highest watermark among the answers. So replicas that have and have not dropped a
//! tombstone say the same.
//!
//! Only readers can say that a key is absent. A newcomer that has not copied yet has
//! nothing, which means nothing; a version that it accepted counts.

use torc_record::{Ballot, HybridTime};

use crate::{Config, Content, Held, Recall, Votes, is_collected};

/// Answers of one round.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    held: Vec<(usize, Held)>,
    /// Who answered with what they hold.
    pub(super) answered: Votes,
    /// Who accepted.
    pub(super) accepted: Votes,
    /// What they remember of what this operation sent.
    recalls: Vec<(usize, Recall)>,
    /// Who refused or has no say.
    pub(super) refused: Votes,
}

/// What the answers say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// The highest ballot.
    pub(super) ballot: Ballot,
    /// The version that was written: another ballot if it was accepted anew since.
    pub(super) version: Ballot,
    /// Who holds exactly that.
    pub(super) holders: Votes,
    /// What it says, with the value if any answer brought it.
    pub(super) content: Content,
    /// The latest time of a collection that any has begun. Not that of the highest ballot: a
    /// later epoch may have an earlier clock.
    pub(super) collecting: HybridTime,
}

impl Seen {
    /// The version, if it is not the ballot.
    pub(super) fn origin(&self) -> Option<Ballot> {
        (self.version != self.ballot).then_some(self.version)
    }
}

impl Tally {
    /// Whether nobody has said anything.
    pub(super) fn is_empty(&self) -> bool {
        let said = self.answered.union(self.refused).union(self.accepted);
        said.is_empty()
    }

    /// Notes an answer; a later one of the same replica replaces it.
    pub(super) fn add(&mut self, index: usize, held: Held) {
        self.answered.insert(index);
        match self.held.iter_mut().find(|(known, _)| *known == index) {
            Some((_, known)) => *known = held,
            None => self.held.push((index, held)),
        }
    }

    /// Notes what a replica remembers.
    pub(super) fn remember(&mut self, index: usize, recall: Recall) {
        self.recalls.retain(|(known, _)| *known != index);
        self.recalls.push((index, recall));
    }

    /// Who remembers exactly this.
    pub(super) fn remembering(&self, recall: Recall) -> Votes {
        let them = self.recalls.iter().filter(|(_, it)| *it == recall);
        them.fold(Votes::NONE, |votes, (index, _)| {
            votes.union(Votes::one(*index))
        })
    }

    /// The highest version among the answers. Absent at version zero if there are none.
    ///
    /// A newcomer that has not copied yet does not say that a key is absent. What it says counts
    /// for no quorum that reads, so that nothing would be wrong; but gets would take two rounds.
    pub(super) fn seen(&self, config: &Config) -> Seen {
        let collected = self.highest(|held| held.collected);
        let mut seen = Seen {
            ballot: Ballot::default(),
            version: Ballot::default(),
            holders: Votes::NONE,
            content: Content::Absent,
            collecting: self.highest(|held| held.collecting.time),
        };
        for (index, held) in &self.held {
            let absent = is_gone(held, collected);
            if absent && !config.readers().contains(*index) {
                continue;
            }
            let ballot = if absent { collected } else { held.ballot };
            let first = seen.holders.is_empty();
            if first || ballot > seen.ballot {
                seen.ballot = ballot;
                seen.version = held.origin.filter(|_| !absent).unwrap_or(ballot);
                seen.holders = Votes::NONE;
                seen.content = if absent {
                    Content::Absent
                } else {
                    held.content.clone()
                };
            }
            if ballot == seen.ballot {
                seen.holders.insert(*index);
                let lacks = matches!(seen.content, Content::Value { value: None, .. });
                if lacks && !absent {
                    seen.content = held.content.clone();
                }
            }
        }
        seen
    }

    /// Who answered with a lower ballot than this one.
    pub(super) fn behind(&self, ballot: Ballot) -> impl Iterator<Item = usize> + '_ {
        self.held
            .iter()
            .filter(move |(_, held)| held.ballot < ballot)
            .map(|(index, _)| *index)
    }

    fn highest<T: Ord + Default>(&self, of: impl Fn(&Held) -> T) -> T {
        let all = self.held.iter().map(|(_, held)| of(held));
        all.max().unwrap_or_default()
    }
}

fn is_gone(held: &Held, collected: Ballot) -> bool {
    match held.content.to_state_head() {
        None => true,
        Some(state) => is_collected(held.ballot, &state, collected),
    }
}
