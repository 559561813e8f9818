//! Configurations on the wire.
//!
//! A received configuration is checked like a stored one. The history of a partition is not
//! sent, because clients do not compare versions: a reader of this form treats no earlier epoch
//! as settled. Nor is sent whether a merge is open, which only nodes act on.

use torc_record::Epoch;
use torc_ring::replicas::{Config, Member, Seat, Settled, Stage, Votes};
use torc_ring::{NodeId, Partition};

use crate::convert::WireError;
use crate::v1;

const IMPOSSIBLE: WireError = WireError::Topology {
    why: "replicas that no steps lead to",
};

/// A configuration, without the parts that the partition's state has.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a seat is a position among the members"
)]
pub(crate) fn config_to_wire(config: &Config) -> v1::Config {
    let is_moving = config.stage != Stage::Stable;
    let bits = |votes: Votes| u16::from(votes).into();
    v1::Config {
        members: config
            .members
            .iter()
            .map(|member| v1::Membership {
                node: member.node.0,
                since: member.since.0,
            })
            .collect(),
        // In a stable partition, the old set contains all members.
        old: if is_moving { bits(config.old) } else { 0 },
        new: bits(config.new),
        excluded: bits(config.excluded),
        seats: config
            .seats
            .iter()
            .map(|seat| v1::Seat {
                newcomer: seat.newcomer as u32,
                displaced: seat.displaced.map(|index| index as u32),
            })
            .collect(),
        returning: config.returning,
    }
}

/// The configuration of a partition in this epoch and stage.
pub(crate) fn config_from_wire(
    (partition, epoch, stage): (Partition, Epoch, Stage),
    wire: &v1::PartitionState,
) -> Result<Config, WireError> {
    let sent = wire.config.as_ref().ok_or(IMPOSSIBLE)?;
    let members = sent.members.iter().map(|replica| Member {
        node: NodeId(replica.node),
        since: Epoch(replica.since),
    });
    let seats = sent.seats.iter().map(|seat| Seat {
        newcomer: seat.newcomer as usize,
        displaced: seat.displaced.map(|index| index as usize),
    });
    let config = Config {
        partition,
        epoch,
        stage,
        returning: sent.returning,
        members: members.collect(),
        old: match stage {
            Stage::Stable => Votes::first(sent.members.len()),
            _ => votes(sent.old)?,
        },
        new: votes(sent.new)?,
        excluded: votes(sent.excluded)?,
        seats: seats.collect(),
        settled: Settled::unknown_before(epoch),
        merging: false,
    };
    config.check().map_err(|_| IMPOSSIBLE)?;
    Ok(config)
}

fn votes(bits: u32) -> Result<Votes, WireError> {
    let bits = u16::try_from(bits).map_err(|_| IMPOSSIBLE)?;
    Votes::try_from(bits).map_err(|_| IMPOSSIBLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_ring::replicas::Mutations;

    fn state_of(config: &Config) -> v1::PartitionState {
        let list = |set| config.nodes(set).map(|node| node.0).collect();
        v1::PartitionState {
            nodes: list(config.old),
            next_nodes: list(config.new),
            config: Some(config_to_wire(config)),
            ..v1::PartitionState::default()
        }
    }

    fn through_the_wire(config: &Config) -> Result<Config, WireError> {
        let at = (config.partition, config.epoch, config.stage);
        config_from_wire(at, &state_of(config))
    }

    #[test]
    fn every_stage_survives_the_wire() {
        let nodes = |ids: &[u64]| -> Vec<_> { ids.iter().copied().map(NodeId).collect() };
        let stable = Config::founded(Partition(3), Epoch(1), &nodes(&[1, 2, 3]));
        let (to, dead) = (nodes(&[4, 2, 3]), nodes(&[1]));
        let without_history = |config: &Config| Config {
            settled: Settled::unknown_before(config.epoch),
            ..config.clone()
        };
        let mut config = stable.begin(Epoch(2), &to, &dead).unwrap();
        for epoch in 3..6 {
            assert_eq!(through_the_wire(&config), Ok(without_history(&config)));
            config = config.advance(Epoch(epoch), Mutations::NONE).unwrap();
        }
        assert_eq!(config.stage, Stage::Stable);
        assert_eq!(through_the_wire(&config), Ok(without_history(&config)));
    }

    #[test]
    fn nonsense_is_refused() {
        let config = Config::founded(Partition(3), Epoch(7), &[NodeId(1)]);
        let at = (Partition(3), Epoch(7), Stage::Stable);
        let none = v1::PartitionState {
            config: None,
            ..state_of(&config)
        };
        assert_eq!(config_from_wire(at, &none), Err(IMPOSSIBLE));
        let mut nonsense = state_of(&config);
        if let Some(sent) = &mut nonsense.config {
            sent.new = 1;
        }
        assert_eq!(config_from_wire(at, &nonsense), Err(IMPOSSIBLE));
    }
}
