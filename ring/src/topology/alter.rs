//! Altering how many replicas namespaces have.
//!
//! The id of a namespace says in which layer its keys lie, and their digests carry the id, so no
//! key changes its layer. The number of replicas belongs to the layer: it changes for all
//! namespaces in it at once, partition by partition, as replica sets grow and shrink when nodes
//! come and go. The ring stays as it is.

use torc_record::Layer;

use super::{Move, Topology, TopologyError, Transition, TransitionKind, is_dropped_name};
use crate::replicas::Stage;
use crate::{MAX_REPLICAS, Partition};

/// Getters.
impl Topology {
    /// The change that gives a namespace so many replicas, and with it all that
    /// [`Topology::namespaces_in`] names.
    ///
    /// # Errors
    /// [`TopologyError::UnknownNamespace`].
    pub fn alteration(&self, name: &str, replicas: u8) -> Result<TransitionKind, TopologyError> {
        let namespace = self.stored.namespaces.get(name);
        let namespace = namespace.filter(|_| !is_dropped_name(name));
        let unknown = || TopologyError::UnknownNamespace { name: name.into() };
        let layer = namespace.ok_or_else(unknown)?.id.layer();
        Ok(TransitionKind::Alter { layer, replicas })
    }

    /// The namespaces that lie in a layer, by name, without those that were dropped.
    #[must_use]
    pub fn namespaces_in(&self, layer: Layer) -> Vec<String> {
        let namespaces = self.stored.namespaces.iter();
        let inside =
            namespaces.filter(|(name, it)| it.id.layer() == layer && !is_dropped_name(name));
        inside.map(|(name, _)| name.clone()).collect()
    }

    /// How many replicas the partitions of a layer are to have; while that is altered, how many
    /// they were to have before.
    #[must_use]
    pub fn replicas_in(&self, layer: Layer) -> u8 {
        self.stored.layers.replicas(layer)
    }

    /// Whether a namespace shares its layer with no other.
    ///
    /// # Errors
    /// [`TopologyError::NotAlone`] names the others.
    pub fn check_alone(&self, name: &str) -> Result<(), TopologyError> {
        let namespace = self.stored.namespaces.get(name);
        let mut others = namespace.map_or_else(Vec::new, |it| self.namespaces_in(it.id.layer()));
        others.retain(|other| other != name);
        if others.is_empty() {
            return Ok(());
        }
        let name = name.to_owned();
        Err(TopologyError::NotAlone { name, others })
    }

    /// How many replicas should answer for a partition now: as many as it is to have, and while
    /// that is altered, the new number from the stage on that reads the new set.
    #[must_use]
    pub fn replicas_due(&self, partition: Partition) -> u8 {
        let layer = self.stored.partitions.layer(partition).unwrap_or_default();
        let running = self.stored.transition.as_ref().filter(|it| !it.aborted);
        if let Some(Transition { kind, moves, .. }) = running
            && let TransitionKind::Alter {
                layer: altered,
                replicas,
            } = *kind
            && altered == layer
        {
            let config = self.config(partition);
            let reads_new = config.is_some_and(|it| it.stage == Stage::WriteBothReadNew);
            match moves.get(&partition) {
                Some(Move::Done) => return replicas,
                Some(Move::Moving) if reads_new => return replicas,
                Some(Move::Moving | Move::Waiting) | None => {}
            }
        }
        self.replicas_in(layer)
    }
}

/// What commands are made of.
impl Topology {
    pub(super) fn check_may_alter(&self, layer: Layer, replicas: u8) -> Result<(), TopologyError> {
        check_number(replicas)?;
        if !self.stored.layers.contains(layer) {
            return Err(TopologyError::setting("layer", "a layer in use"));
        }
        if let Some(&node) = self.stored.dead.first() {
            return Err(TopologyError::WrittenOff { node });
        }
        self.check_enough_for(replicas)
    }

    pub(super) fn check_enough_for(&self, asked: u8) -> Result<(), TopologyError> {
        let active = self.stored.active();
        if active < usize::from(asked) {
            return Err(TopologyError::TooFewNodesFor { asked, active });
        }
        Ok(())
    }

    /// The transition that alters a layer, or goes back from there.
    pub(super) fn altering(&self) -> Option<(&Transition, Layer)> {
        let running = self.stored.transition.as_ref()?;
        Some((running, running.kind.alters()?))
    }
}

/// Whether a layer can have so many replicas.
pub(super) fn check_number(replicas: u8) -> Result<(), TopologyError> {
    if (1..=MAX_REPLICAS).contains(&replicas) {
        return Ok(());
    }
    Err(TopologyError::setting("replicas", "1 to 5"))
}
