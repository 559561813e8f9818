//! The stored form of a configuration.
//!
//! A stable partition has its number, its epoch and a pair per replica; a moving one adds
//! its sets as bits. A form is accepted only if some steps could have led to it, so no
//! damaged or foreign file can create quorums that do not intersect.

use serde::{Deserialize, Serialize};
use torc_record::Epoch;

use super::{Config, Member, Seat};
use crate::replicas::{MAX_MEMBERS, MalformedConfig, Settled, Stage, Votes};
use crate::{NodeId, Partition};

/// The stored form of a [`Config`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Form {
    #[serde(rename = "p")]
    partition: Partition,
    #[serde(rename = "e")]
    epoch: Epoch,
    #[serde(rename = "m")]
    members: Vec<(NodeId, Epoch)>,
    #[serde(rename = "t", default, skip_serializing_if = "Settled::is_empty")]
    settled: Settled,
    #[serde(rename = "mv", default, skip_serializing_if = "Option::is_none")]
    moving: Option<Moving>,
    #[serde(rename = "mg", default, skip_serializing_if = "std::ops::Not::not")]
    merging: bool,
}

/// The stored form of the move of a [`Config`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Moving {
    stage: Stage,
    old: Votes,
    new: Votes,
    #[serde(default, skip_serializing_if = "is_nobody")]
    excluded: Votes,
    seats: Vec<(usize, Option<usize>)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    returning: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_nobody(votes: &Votes) -> bool {
    votes.is_empty()
}

impl From<Config> for Form {
    fn from(config: Config) -> Self {
        let moving = (config.stage != Stage::Stable).then(|| Moving {
            stage: config.stage,
            old: config.old,
            new: config.new,
            excluded: config.excluded,
            seats: config
                .seats
                .iter()
                .map(|seat| (seat.newcomer, seat.displaced))
                .collect(),
            returning: config.returning,
        });
        Self {
            partition: config.partition,
            epoch: config.epoch,
            members: config.members.iter().map(|m| (m.node, m.since)).collect(),
            settled: config.settled,
            moving,
            merging: config.merging,
        }
    }
}

impl TryFrom<Form> for Config {
    type Error = MalformedConfig;

    fn try_from(form: Form) -> Result<Self, MalformedConfig> {
        let moving = form.moving.unwrap_or_else(|| Moving {
            stage: Stage::Stable,
            old: Votes::first(form.members.len()),
            new: Votes::NONE,
            excluded: Votes::NONE,
            seats: Vec::new(),
            returning: false,
        });
        let member = |(node, since)| Member { node, since };
        let seat = |(newcomer, displaced)| Seat {
            newcomer,
            displaced,
        };
        let config = Self {
            partition: form.partition,
            epoch: form.epoch,
            stage: moving.stage,
            returning: moving.returning,
            members: form.members.into_iter().map(member).collect(),
            old: moving.old,
            new: moving.new,
            excluded: moving.excluded,
            seats: moving.seats.into_iter().map(seat).collect(),
            settled: form.settled,
            merging: form.merging,
        };
        config.check()?;
        Ok(config)
    }
}

impl Config {
    /// Whether some steps from a founded partition could have led here.
    ///
    /// # Errors
    /// [`MalformedConfig`] with the contradiction.
    pub fn check(&self) -> Result<(), MalformedConfig> {
        let refuse = |why| Err(MalformedConfig(why));
        let nodes = |i: usize| self.members[..i].iter().map(|member| member.node);
        let repeats = |i: usize| nodes(i).any(|node| node == self.members[i].node);
        if self.members.is_empty() || self.members.len() > MAX_MEMBERS {
            return refuse("no members, or too many");
        }
        if (0..self.members.len()).any(repeats) {
            return refuse("a member twice");
        }
        if self.members.iter().any(|member| member.since > self.epoch) {
            return refuse("a membership of a later epoch");
        }
        let last = self.settled.last_transitional();
        if last.is_some_and(|last| last >= self.epoch) {
            return refuse("transitional epochs that have not been");
        }
        if !fits(self.old) || self.old != Votes::first(self.old.count() as usize) {
            return refuse("the old set does not come first");
        }
        let all = Votes::first(self.members.len());
        match self.stage {
            Stage::Stable if *self == self.stable_on(all) => Ok(()),
            Stage::Stable => refuse("stable and moving at once"),
            _ if !fits(self.new) || self.old.union(self.new) != all => {
                refuse("the sets are not the members")
            }
            _ => self.check_move(),
        }
    }

    fn stable_on(&self, all: Votes) -> Self {
        Self {
            returning: false,
            old: all,
            new: Votes::NONE,
            excluded: Votes::NONE,
            seats: Vec::new(),
            ..self.clone()
        }
    }

    fn check_move(&self) -> Result<(), MalformedConfig> {
        let refuse = |why| Err(MalformedConfig(why));
        if self.returning && self.stage != Stage::WriteBothReadOld {
            return refuse("returning without writing both");
        }
        let displaced = self.old.without(self.new);
        let left = self.old.is_majority_of(self.old, self.excluded);
        if !displaced.covers(self.excluded) || !left {
            return refuse("an excluded member that is not displaced, or too many");
        }
        let shrinks = self.new.count() < self.old.count();
        let (newcomers, leaving) = if shrinks {
            (self.new, Votes::NONE)
        } else {
            (self.new.without(self.old), displaced)
        };
        let left_seats = self.seats.iter().filter_map(|seat| seat.displaced);
        let comes_to = self.seats.iter().map(|seat| seat.newcomer);
        let each_once = exactly(comes_to, newcomers) && exactly(left_seats, leaving);
        if self.seats.is_empty() || !each_once {
            return refuse("the seats do not fit the sets");
        }
        Ok(())
    }
}

fn fits(set: Votes) -> bool {
    (1..=MAX_MEMBERS / 2).contains(&(set.count() as usize))
}

/// Whether these are the members of the set, each once.
fn exactly(mut indexes: impl Iterator<Item = usize>, set: Votes) -> bool {
    let mut found = Votes::NONE;
    let distinct = indexes.all(|index| {
        let is_new = set.contains(index) && !found.contains(index);
        found.insert(index);
        is_new
    });
    distinct && found == set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicas::Mutations;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn moving() -> Config {
        let nodes = [1, 2, 3].map(NodeId);
        Config::founded(Partition(7), Epoch(1), &nodes)
            .begin(Epoch(5), &[4, 2, 3].map(NodeId), &[NodeId(1)])
            .unwrap()
    }

    #[test]
    fn a_stable_partition_takes_few_bytes() {
        let config = Config::founded(Partition(7), Epoch(1), &[1, 2, 3].map(NodeId));
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(json, r#"{"p":7,"e":1,"m":[[1,1],[2,1],[3,1]]}"#);
    }

    #[test]
    fn what_no_steps_lead_to_is_refused() {
        let good = serde_json::to_value(moving()).unwrap();
        assert_eq!(
            serde_json::from_value::<Config>(good.clone()).unwrap(),
            moving()
        );
        let changes: [(&str, &str, Value); 12] = [
            ("", "m", json!([])),
            ("", "m", json!([[1, 1], [2, 1], [3, 1], [1, 5]])),
            ("", "m", json!([[1, 1], [2, 1], [3, 1], [4, 6]])),
            ("", "e", json!(0)),
            ("", "t", json!([1, 4])),
            ("", "t", json!([1])),
            ("mv", "old", json!(0b0011)),
            ("mv", "new", json!(0b0110)),
            ("mv", "new", json!(0b1_0000_1110)),
            ("mv", "excluded", json!(0b0011)),
            ("mv", "seats", json!([[3, 1]])),
            ("mv", "stage", json!("Stable")),
        ];
        for (part, field, value) in changes {
            let mut bad = good.clone();
            let place = if part.is_empty() {
                &mut bad
            } else {
                &mut bad[part]
            };
            place[field] = value;
            let shown = bad.to_string();
            assert!(serde_json::from_value::<Config>(bad).is_err(), "{shown}");
        }
    }

    proptest! {
        /// Every configuration reached by valid steps is restored unchanged from its stored form.
        #[test]
        fn whatever_steps_lead_to_survives_storage(
            first in 1_u64..6,
            steps in proptest::collection::vec((0_u8..8, proptest::sample::subsequence((1_u64..9).collect::<Vec<_>>(), 1..=5)), 1..60),
        ) {
            let nodes: Vec<_> = (1..=first).map(NodeId).collect();
            let mut config = Config::founded(Partition(3), Epoch(1), &nodes);
            for (step, to) in steps {
                let epoch = Epoch(config.epoch.0 + 1);
                let to: Vec<_> = to.into_iter().map(NodeId).collect();
                let next = match step {
                    0 => config.abort(epoch, Mutations::NONE),
                    1 => config.exclude(epoch, to[0]),
                    2 => config.renew(epoch, to.len() > 2),
                    3..6 => config.advance(epoch, Mutations::NONE),
                    _ => config.begin(epoch, &to, &[]),
                };
                config = next.unwrap_or(config);
                let json = serde_json::to_string(&config).unwrap();
                prop_assert_eq!(&serde_json::from_str::<Config>(&json).unwrap(), &config);
            }
        }
    }
}
