//! Ordinary namespaces that are created with records: these are built outside the cluster, as slices.
//!
//! A creation is a generation with the id of the new namespace. Until its promotion, the namespace has a name
//! that no request can use, so there is no operation on its keys that the records could conflict with. The
//! promotion requires that every replica holds all of its slices, and gives the namespace its name.
//!
//! * All records have the lowest ballot of an epoch that the partitions have reached when the namespace gets its
//!   name: every write is above it.
//! * No partition moves while members fetch the records, because a newcomer would not get them.
//! * A replica that holds the records holds them like any others: they are merged, summed, scanned and moved.
//!
//! A creation that is promoted has nothing left to do, and is dropped. Dropping an earlier one drops the
//! namespace.

use torc_record::{Ballot, Epoch, HybridTime, NodeSlot};

use super::namespace::new_name;
use super::{
    Creation, Generation, GenerationContent, GenerationShape, GenerationState, NamespaceMode,
    NewNamespace, Outcome, Topology, TopologyError,
};

/// Commands.
impl Topology {
    pub(super) fn reserve_namespace(
        &mut self,
        new: &NewNamespace,
        above: Epoch,
        replaces: bool,
    ) -> Result<Outcome, TopologyError> {
        if new.mode == NamespaceMode::Static {
            let others = "linearizable or eventual: a static namespace has generations";
            return Err(TopologyError::setting("mode", others));
        }
        self.check_generations()?;
        self.check_not_coming(&new.name)?;
        if let Some(known) = self.namespace(&new.name)
            && (!replaces || known.mode == NamespaceMode::Static)
        {
            let name = new.name.clone();
            return Err(TopologyError::NamespaceExists { name });
        }
        // The namespace and its generation have the same number.
        let number = self.stored.next_namespace;
        let number = number.max(self.stored.next_generation + 1);
        let before = std::mem::replace(&mut self.stored.next_namespace, number);
        let added = self.add_namespace(new, new_name);
        let id = added.inspect_err(|_| self.stored.next_namespace = before)?;
        let (lowest, _) = self.epochs_of(id.layer());
        let ballot = Ballot {
            epoch: lowest.max(Epoch(above.0 + 1)),
            time: HybridTime::default(),
            slot: NodeSlot(0),
        };
        let reserved = Generation {
            id,
            creates: Some(Creation { replaces }),
            ..self.next_generation(new.name.clone(), id.layer(), ballot)
        };
        Ok(self.reserved(reserved))
    }

    /// Gives a namespace whose records all replicas hold its name.
    pub(super) fn create_with(
        &mut self,
        number: u32,
        generation: &Generation,
        creation: Creation,
    ) -> Result<Outcome, TopologyError> {
        let Generation {
            id,
            namespace: name,
            ballot,
            ..
        } = generation;
        if self.epochs_of(id.layer()).0 < ballot.epoch {
            return Err(TopologyError::EpochTooLow {
                name: name.clone(),
                above: Epoch(ballot.epoch.0 - 1),
            });
        }
        let exists = self.stored.namespaces.contains_key(name);
        if exists && !creation.replaces {
            let name = name.clone();
            return Err(TopologyError::NamespaceExists { name });
        }
        if let Some(replaced) = self.stored.namespaces.remove(name) {
            self.begin_drop(name, replaced);
        }
        if let Some(created) = self.stored.namespaces.remove(&new_name(*id)) {
            self.stored.namespaces.insert(name.clone(), created);
        }
        self.switch_to(number, name);
        Ok(Outcome::Done)
    }

    /// Drops a creation: with its namespace, unless it was promoted.
    pub(super) fn end_creation(&mut self, number: u32, generation: &Generation) {
        self.stored.generations.remove(&number);
        if let Some(namespace) = self.stored.namespaces.remove(&new_name(generation.id)) {
            self.begin_drop(&new_name(generation.id), namespace);
        }
    }
}

impl Topology {
    /// The creation that will give a namespace this name.
    pub(super) fn coming(&self, name: &str) -> Option<&Generation> {
        let mut all = self.stored.generations.values();
        all.find(|it| it.is_coming() && it.namespace == name)
    }

    /// Refuses a name that a creation will give.
    pub(super) fn check_not_coming(&self, name: &str) -> Result<(), TopologyError> {
        match self.coming(name) {
            None => Ok(()),
            Some(coming) => Err(TopologyError::NamespaceIsComing {
                name: name.to_owned(),
                number: coming.id.number(),
            }),
        }
    }

    /// Refuses moves while members fetch the records of a creation.
    pub(super) fn check_not_creating(&self) -> Result<(), TopologyError> {
        let mut all = self.stored.generations.values();
        let fetched = all.find(|it| it.is_coming() && it.state == GenerationState::Attached);
        match fetched {
            None => Ok(()),
            Some(fetched) => Err(TopologyError::IsCreating {
                number: fetched.id.number(),
            }),
        }
    }

    /// Refuses content that cannot be attached to a creation, or not now.
    pub(super) fn check_creation(
        &self,
        number: u32,
        content: &GenerationContent,
    ) -> Result<(), TopologyError> {
        let generation = self.stored.generations.get(&number);
        if generation.is_none_or(|it| it.creates.is_none()) {
            return Ok(());
        }
        if content.shape != GenerationShape::Values {
            let values = "values: an ordinary namespace has no others";
            return Err(TopologyError::setting("shape", values));
        }
        self.check_nothing_moves()
    }
}
