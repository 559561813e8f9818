//! Merges into ordinary namespaces, and epochs that rise without a move.
//!
//! A merge reserves a ballot: every write that begins after the reservation is above it, whatever
//! any clock says, because all partitions of the layer enter a new epoch and the reservation waits
//! until every member acts in it ([`Topology::unconfirmed`]). Records are merged as puts on the
//! condition that the key's version is below the reserved ballot.
//!
//! An absent key has the version of its partition's last collection. While a merge is open, its
//! partitions therefore collect nothing, and a delete that finds no value leaves a tombstone
//! ([`Config::merging`](crate::replicas::Config::merging)).

use std::sync::Arc;

use torc_record::{Ballot, Epoch, HybridTime, Layer, NodeSlot};

use super::writeoff::RECOVERY_GAP;
use super::{GenerationState, Namespace, NamespaceMode, Outcome, Topology, TopologyError};
use crate::replicas::Milestones;

/// No command raises the epoch above this: it never overflows, and JSON readers take it exactly.
const MAX_RAISED: Epoch = Epoch(1 << 48);

/// Epochs that one command may skip: a recovery skips more, so it is above a raise that was lost.
const MAX_SKIPPED: u64 = RECOVERY_GAP / 2;

/// Refuses an epoch that no command reaches.
pub(super) fn check_raised(above: Epoch) -> Result<(), TopologyError> {
    if above > MAX_RAISED {
        return Err(TopologyError::setting("above", "an epoch of at most 2^48"));
    }
    Ok(())
}

/// Getters.
impl Topology {
    /// Whether a merge into a namespace of this layer is open.
    #[must_use]
    pub fn is_merging(&self, layer: Layer) -> bool {
        let merges = |it: &super::Generation| it.state == GenerationState::Merging;
        self.generations()
            .any(|it| merges(it) && it.id.layer() == layer)
    }

    /// Whether all partitions of a namespace are in epochs above this one; false if there is no such
    /// namespace.
    #[must_use]
    pub fn is_above(&self, namespace: &str, epoch: Epoch) -> bool {
        let layer = self.layer_of(namespace);
        layer.is_ok_and(|layer| self.epochs_of(layer).0 > epoch)
    }

    /// The layer of a namespace, or of the one that is to take its name.
    fn layer_of(&self, name: &str) -> Result<Layer, TopologyError> {
        if let Some(coming) = self.coming(name) {
            return Ok(coming.id.layer());
        }
        Ok(self.known_namespace(name)?.id.layer())
    }
}

/// Commands.
impl Topology {
    /// Starts a new epoch for a namespace's partitions, above all ballots issued so far. Returns
    /// the lowest ballot of that epoch, which no write uses.
    pub(super) fn reserve_ballot(
        &mut self,
        name: &str,
        namespace: Namespace,
    ) -> Result<Ballot, TopologyError> {
        if namespace.mode != NamespaceMode::Linearizable {
            return Err(TopologyError::NotLinearizable {
                name: name.to_owned(),
            });
        }
        self.check_nothing_moves()?;
        let epoch = self.wait_for_all(name.to_owned());
        Ok(Ballot {
            epoch,
            time: HybridTime::default(),
            slot: NodeSlot(0),
        })
    }

    /// Raises the epoch of a namespace's partitions above `above`, or as far towards it as one
    /// command may. While any member has not heard of an earlier epoch, it raises nothing and waits for
    /// that member: a recovery from it must be above every raise that is lost.
    pub(super) fn raise_epoch(
        &mut self,
        name: &str,
        above: Epoch,
    ) -> Result<Outcome, TopologyError> {
        let layer = self.layer_of(name)?;
        let (lowest, highest) = self.epochs_of(layer);
        if lowest > above {
            // Members may not have adopted what raised it: a move, or a raise for another namespace.
            let switch = self.stored.switches.get(name);
            if switch.is_none_or(|switch| switch.epoch < highest) {
                self.wait_for_all(name.to_owned());
            }
            return Ok(Outcome::Done);
        }
        check_raised(above)?;
        self.check_nothing_moves()?;
        if !self.unconfirmed(name).is_empty() {
            return Ok(Outcome::Done);
        }
        let mut others = self.stored.switches.keys();
        if others.any(|other| !self.unconfirmed(other).is_empty()) {
            self.wait_for_all(name.to_owned());
            return Ok(Outcome::Done);
        }
        let highest = Epoch(self.stored.epoch.0 + MAX_SKIPPED);
        self.stored.epoch = self.stored.epoch.max(above.min(highest));
        let epoch = self.wait_for_all(name.to_owned());
        self.renew(layer, epoch);
        Ok(Outcome::Done)
    }

    /// The lowest and the highest epoch of a layer's partitions.
    pub(super) fn epochs_of(&self, layer: Layer) -> (Epoch, Epoch) {
        let configs = self.stored.configs.iter();
        let of_layer =
            configs.filter(|it| self.stored.partitions.layer(it.partition) == Some(layer));
        let epochs = of_layer.map(|config| config.epoch);
        let (lowest, highest) = (epochs.clone().min(), epochs.max());
        (lowest.unwrap_or_default(), highest.unwrap_or_default())
    }

    /// Lets the partitions of a layer collect again once no merge is open.
    pub(super) fn close_merges(&mut self, layer: Layer) {
        let epoch = self.advance_epoch();
        if !self.is_merging(layer) {
            self.renew(layer, epoch);
        }
    }

    /// Puts the stable partitions of a layer in another epoch, with the same replicas. A partition
    /// that moves learns whether a merge is open with its next step.
    pub(super) fn renew(&mut self, layer: Layer, epoch: Epoch) {
        let merging = self.is_merging(layer);
        let partitions = self.stored.partitions;
        for config in &mut self.stored.configs {
            if partitions.layer(config.partition) != Some(layer) {
                continue;
            }
            let Ok(next) = config.renew(epoch, merging) else {
                continue;
            };
            // Former replicas keep their data until a majority has adopted this epoch.
            if let Some(known) = self.stored.known.get_mut(&config.partition) {
                *known = Milestones::default();
            }
            self.stored.reordered.remove(&config.partition);
            *config = Arc::new(next);
        }
    }

    pub(super) fn check_nothing_moves(&self) -> Result<(), TopologyError> {
        match &self.stored.transition {
            Some(running) => Err(TopologyError::Busy {
                transition: running.id,
            }),
            None => Ok(()),
        }
    }
}
