//! Changes the number of replicas of namespaces.
//!
//! The id of a namespace determines the layer of its keys, and digests contain the id, so no key
//! ever changes its layer. The number of replicas belongs to the layer: it changes for all of
//! the layer's namespaces together, partition by partition, as replica sets grow and shrink when
//! nodes join and leave. The ring does not change.

use torc_record::Layer;

use super::layers::check_number;
use super::{Move, Topology, TopologyError, Transition, TransitionKind, is_hidden_name};
use crate::Partition;
use crate::replicas::Stage;

/// Getters.
impl Topology {
    /// The change that gives this number of replicas to a namespace, and to all others
    /// in its layer ([`Topology::namespaces_in`]).
    ///
    /// # Errors
    /// [`TopologyError::UnknownNamespace`].
    pub fn alteration(&self, name: &str, replicas: u8) -> Result<TransitionKind, TopologyError> {
        let layer = self.known_namespace(name)?.id.layer();
        Ok(TransitionKind::Alter { layer, replicas })
    }

    /// The names of the namespaces in a layer, without those that no request can use.
    #[must_use]
    pub fn namespaces_in(&self, layer: Layer) -> Vec<String> {
        let namespaces = self.stored.namespaces.iter();
        let inside =
            namespaces.filter(|(name, it)| it.id.layer() == layer && !is_hidden_name(name));
        inside.map(|(name, _)| name.clone()).collect()
    }

    /// The number of replicas of a layer's partitions; during an alteration, the number before
    /// it.
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

    /// The number of replicas that should now answer for a partition; during an alteration, the
    /// new number once the new set reads.
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

/// Parts of commands.
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

    /// The running transition that alters a layer, or returns from that.
    pub(super) fn altering(&self) -> Option<(&Transition, Layer)> {
        let running = self.stored.transition.as_ref()?;
        Some((running, running.kind.alters()?))
    }
}
