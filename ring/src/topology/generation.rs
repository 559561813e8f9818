//! Generations: the whole, immutable content of a static namespace, replaced at once. A merge into an
//! ordinary namespace is reserved and dropped like one (`merge.rs`). The first records of an ordinary namespace
//! are reserved, attached and promoted like one (`creation.rs`).
//!
//! ```text
//! reserved ── attach ──> attached ── promote ──> current ── promote another ──> previous
//!                           ^                       │                             │
//!                           └──── rolled back <── roll back        current again <┘
//! ```
//!
//! * Reserving gives an id, under which records are stored, and with it a digest key and a ballot. A generation
//!   that is restored without its keys keeps the digest key that it had.
//! * Attaching fixes its content: from then on, members fetch the slices of their partitions. A
//!   member that has all of them is *ready*. A newcomer of a move reports a partition as copied only
//!   when it has the partition's slices of every attached generation ([`Topology::generations`]), so
//!   a ready member stays ready. A member that takes over a lost node's partitions has copied nothing:
//!   it is not ready until it has fetched them.
//! * Promoting requires every replica of the namespace to be ready. From then on, the namespace's
//!   keys are those of the current generation ([`Topology::routing`]): a client with an older topology
//!   computes other digests, and is refused.
//! * The *switch* is over when every member has adopted the topology of the promotion. No get that
//!   begins later is answered from an older generation. The switch waits for members that cannot
//!   confirm this, until [`Command::StopWaiting`](super::Command::StopWaiting) gives up the guarantee
//!   for them.
//!
//! Numbers are assigned only once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use torc_record::{Ballot, Epoch, GenerationDigests, HybridTime, Layer, NamespaceId, NodeSlot};

use super::{
    MAX_GENERATIONS, Namespace, NamespaceMode, Outcome, Topology, TopologyError, is_hidden_name,
};
use crate::{NodeId, Partition, Partitions};

const MAX_SOURCE_LEN: usize = 1_024;

/// The state of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GenerationState {
    /// Reserved, so it can be built.
    Reserved,
    /// Members hold or fetch it.
    Attached,
    /// Nodes answer gets from it.
    Current,
    /// It was current until that epoch.
    Previous(Epoch),
    /// It was rolled back: attach it again before promoting it.
    RolledBack,
    /// A merge into a linearizable namespace, until it is dropped.
    Merging,
}

/// What a generation keeps of each key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GenerationShape {
    /// The key and its value.
    #[default]
    Values,
    /// A fingerprint of the key, and a payload. A present key is always found; an absent key looks
    /// present with probability 2^-`fingerprint_bits`. Keys cannot be listed.
    Keyless {
        /// 1 to 32.
        fingerprint_bits: u8,
        /// Bytes of each value, 0 to 64.
        payload_bytes: u8,
    },
    /// The key and an id, 0 to n - 1: the number of keys in earlier arcs, plus the slot of the key in
    /// its partition's slice.
    Ids(Counts),
}

impl GenerationShape {
    const MAX_FINGERPRINT_BITS: u8 = 32;
    const MAX_PAYLOAD_BYTES: u8 = 64;

    fn check(&self, records: u64) -> Result<(), TopologyError> {
        match self {
            Self::Values => Ok(()),
            Self::Keyless {
                fingerprint_bits,
                payload_bytes,
            } => {
                if !(1..=Self::MAX_FINGERPRINT_BITS).contains(fingerprint_bits) {
                    Err(TopologyError::setting("fingerprint_bits", "1 to 32"))
                } else if *payload_bytes > Self::MAX_PAYLOAD_BYTES {
                    Err(TopologyError::setting("payload_bytes", "at most 64"))
                } else {
                    Ok(())
                }
            }
            Self::Ids(counts) => {
                if counts.ends.len() > Partitions::MAX_COUNT as usize {
                    Err(TopologyError::setting("counts", "one count for each arc"))
                } else if counts.total() != records {
                    let all = "counts that sum to the number of records";
                    Err(TopologyError::setting("counts", all))
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// The number of keys in each arc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u32>", into = "Vec<u32>")]
pub struct Counts {
    /// The number of keys up to the end of each arc. Topologies are copied, and share it.
    ends: Arc<[u64]>,
}

impl From<Vec<u32>> for Counts {
    fn from(counts: Vec<u32>) -> Self {
        let mut end = 0;
        let ends = counts.into_iter().map(|count| {
            end += u64::from(count);
            end
        });
        Self {
            ends: ends.collect(),
        }
    }
}

impl From<Counts> for Vec<u32> {
    fn from(counts: Counts) -> Self {
        counts.iter().collect()
    }
}

impl Counts {
    /// The counts of these partitions, of any layer.
    pub fn of(partitions: Partitions, some: impl IntoIterator<Item = (Partition, u32)>) -> Self {
        let mut counts = vec![0; partitions.count() as usize];
        for (partition, count) in some {
            let arc = partitions.in_layer(torc_record::Layer::BASE, partition);
            if let Some(held) = counts.get_mut(arc.index()) {
                *held = count;
            }
        }
        counts.into()
    }

    /// From [`Counts::to_bytes`]; `None` if the length is impossible.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (counts, rest) = bytes.as_chunks::<4>();
        let is_possible = rest.is_empty() && counts.len() <= Partitions::MAX_COUNT as usize;
        let counts = counts.iter().map(|count| u32::from_le_bytes(*count));
        is_possible.then(|| counts.collect::<Vec<_>>().into())
    }

    /// Four little-endian bytes for each arc.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(u32::to_le_bytes).collect()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "it was made from counts of 32 bits"
    )]
    fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.ends.len()).map(|arc| (self.ends[arc] - self.before(arc)) as u32)
    }

    /// The arcs that have keys.
    fn arcs(&self) -> Arcs {
        let mut bits = vec![0; self.ends.len().div_ceil(8)];
        for (arc, count) in self.iter().enumerate() {
            bits[arc / 8] |= u8::from(count > 0) << (arc % 8);
        }
        Arcs(bits)
    }

    /// The number of keys in earlier arcs.
    fn before(&self, arc: usize) -> u64 {
        let last = arc.checked_sub(1).and_then(|arc| self.ends.get(arc));
        last.copied().unwrap_or_default()
    }

    /// All keys.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.before(self.ends.len())
    }

    /// The id of the key in a slot of a partition's slice; `None` if the slice has fewer keys.
    #[must_use]
    pub fn id(&self, partitions: Partitions, partition: Partition, slot: u32) -> Option<u64> {
        let arc = partitions.in_layer(torc_record::Layer::BASE, partition);
        let id = self.before(arc.index()) + u64::from(slot);
        (id < *self.ends.get(arc.index())?).then_some(id)
    }

    /// The arc, as a partition of the base layer, and the slot of an id; `None` if the generation has
    /// fewer keys.
    #[must_use]
    pub fn place(&self, id: u64) -> Option<(Partition, u32)> {
        let arc = self.ends.partition_point(|end| *end <= id);
        let slot = u32::try_from(id.checked_sub(self.before(arc))?).ok()?;
        let partition = u32::try_from(arc).ok().map(Partition)?;
        (arc < self.ends.len()).then_some((partition, slot))
    }
}

/// What a generation consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationContent {
    /// BLAKE3 of its manifest, which lists every file.
    pub manifest: [u8; 32],
    /// Where nodes fetch it from.
    pub source: String,
    /// Its keys.
    pub records: u64,
    /// Bytes of its keys and values.
    pub bytes: u64,
    /// The arcs in which it has keys.
    pub arcs: Arcs,
    /// What it keeps of each key.
    #[serde(default)]
    pub shape: GenerationShape,
}

impl GenerationContent {
    pub(super) fn check(&self) -> Result<(), TopologyError> {
        if self.source.len() > MAX_SOURCE_LEN {
            return Err(TopologyError::setting("source", "at most 1,024 bytes"));
        }
        if self.arcs.0.len() > Partitions::MAX_COUNT as usize / 8 {
            return Err(TopologyError::setting("arcs", "a bit for each arc"));
        }
        self.shape.check(self.records)
    }
}

/// A set of partition arcs, one bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arcs(Vec<u8>);

impl Arcs {
    /// The arcs of these partitions, of any layer.
    pub fn of(partitions: Partitions, some: impl IntoIterator<Item = Partition>) -> Self {
        let mut bits = vec![0; (partitions.count() as usize).div_ceil(8)];
        for partition in some {
            let arc = partitions.in_layer(torc_record::Layer::BASE, partition);
            if let Some(byte) = bits.get_mut(arc.index() / 8) {
                *byte |= 1 << (arc.index() % 8);
            }
        }
        Self(bits)
    }

    /// From [`Arcs::as_bytes`].
    #[must_use]
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// One bit per arc, lowest bit of each byte first.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the arc of a partition is among them.
    #[must_use]
    pub fn contains(&self, partitions: Partitions, partition: Partition) -> bool {
        let arc = partitions.in_layer(torc_record::Layer::BASE, partition);
        let byte = self.0.get(arc.index() / 8).copied().unwrap_or_default();
        byte & (1 << (arc.index() % 8)) != 0
    }
}

/// A generation of a static namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// The id under which its records are stored.
    pub id: NamespaceId,
    /// Its namespace.
    pub namespace: String,
    /// The version of all of its records; of a merge, the ballot below which it replaces versions.
    pub ballot: Ballot,
    /// Its state.
    pub state: GenerationState,
    /// Its content; `None` while it is reserved.
    pub content: Option<GenerationContent>,
    /// The members that hold all of their share.
    pub ready: BTreeSet<NodeId>,
    /// The epoch in which members last got partitions without slices: reports by an earlier topology
    /// do not count.
    pub ready_since: Epoch,
    /// How its digests are computed, if this does not follow from the cluster's digest key and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests: Option<GenerationDigests>,
    /// Of an ordinary namespace, which its promotion creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creates: Option<Creation>,
}

/// How a promotion creates a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creation {
    /// Whether it takes the place of another namespace of the same name, which is dropped then.
    pub replaces: bool,
}

impl Generation {
    /// Whether members hold or fetch it.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        match self.state {
            GenerationState::Reserved | GenerationState::Merging => false,
            GenerationState::Attached => true,
            GenerationState::Current
            | GenerationState::Previous(_)
            | GenerationState::RolledBack => self.creates.is_none(),
        }
    }

    /// Whether its promotion will create a namespace.
    #[must_use]
    pub const fn is_coming(&self) -> bool {
        let is_promoted = matches!(self.state, GenerationState::Current);
        self.creates.is_some() && !is_promoted
    }

    /// What it keeps of each key; `None` while it is reserved.
    #[must_use]
    pub fn shape(&self) -> Option<&GenerationShape> {
        self.content.as_ref().map(|content| &content.shape)
    }

    /// Whether it has keys in a partition; never in one of another layer.
    #[must_use]
    pub fn has_keys_in(&self, partitions: Partitions, partition: Partition) -> bool {
        let content = self.content.as_ref().filter(|_| self.is_held());
        partitions.layer(partition) == Some(self.id.layer())
            && content.is_some_and(|content| content.arcs.contains(partitions, partition))
    }
}

/// A promotion, a dropped namespace, or a raised epoch that some members may not know of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Epoch of the topology with the change.
    pub epoch: Epoch,
    /// The members at that time that have not adopted it yet.
    pub waiting: BTreeSet<NodeId>,
}

/// Getters.
impl Topology {
    /// All generations, in the order of their numbers.
    pub fn generations(&self) -> impl Iterator<Item = &Generation> {
        self.stored.generations.values()
    }

    /// The generation with this number.
    #[must_use]
    pub fn generation(&self, number: u32) -> Option<&Generation> {
        self.stored.generations.get(&number)
    }

    /// The current generation of a namespace.
    #[must_use]
    pub fn current_generation(&self, namespace: &str) -> Option<&Generation> {
        let is_it =
            |it: &&Generation| it.namespace == namespace && it.state == GenerationState::Current;
        self.generations().find(is_it)
    }

    /// The members that may still serve an older generation of a namespace, or a dropped namespace, or
    /// write with ballots of an earlier epoch.
    #[must_use]
    pub fn unconfirmed(&self, namespace: &str) -> BTreeSet<NodeId> {
        let switch = self.stored.switches.get(namespace);
        let waiting = switch.into_iter().flat_map(|switch| &switch.waiting);
        let counts = |node: &&NodeId| {
            self.stored.members.contains_key(node) && !self.stored.dead.contains(node)
        };
        waiting.filter(counts).copied().collect()
    }

    /// Whether a member must report that it has adopted this epoch, because a switch waits for it.
    #[must_use]
    pub fn must_tell(&self, node: NodeId, adopted: Epoch) -> bool {
        let mut switches = self.stored.switches.values();
        switches.any(|it| it.epoch <= adopted && it.waiting.contains(&node))
    }

    /// The members that should hold a generation but have not reported it.
    #[must_use]
    pub fn not_ready(&self, generation: &Generation) -> BTreeSet<NodeId> {
        let layer = generation.id.layer();
        let partitions = self.stored.partitions;
        let configs = self.stored.configs.iter();
        let of_layer = configs.filter(|it| partitions.layer(it.partition) == Some(layer));
        let holders: BTreeSet<NodeId> = of_layer
            .flat_map(|config| config.members.iter().map(|member| member.node))
            .collect();
        let lacks =
            |node: &NodeId| !generation.ready.contains(node) && !self.stored.dead.contains(node);
        holders.into_iter().filter(lacks).collect()
    }

    /// The generations that members hold or fetch, by their ids.
    pub(super) fn held_generations(&self) -> BTreeMap<NamespaceId, Arc<Generation>> {
        let held = self.generations().filter(|it| it.is_held());
        held.map(|it| (it.id, Arc::new(it.clone()))).collect()
    }

    /// How digests are computed in the current generations that do not derive this from the cluster's digest key.
    pub(super) fn restored_digests(&self) -> BTreeMap<NamespaceId, GenerationDigests> {
        let current = self
            .generations()
            .filter(|it| it.state == GenerationState::Current);
        current
            .filter_map(|it| Some((it.id, it.digests?)))
            .collect()
    }

    /// How the digests of a generation are computed.
    #[must_use]
    pub fn digests_of(&self, generation: &Generation) -> GenerationDigests {
        let derived = || GenerationDigests::derived(&self.stored.digest_key, generation.id);
        generation.digests.unwrap_or_else(derived)
    }

    /// A namespace for routing: a static one has the id of its current generation.
    pub(super) fn as_routed(&self, name: &str, namespace: Namespace) -> Namespace {
        let current = self.current_generation(name);
        let id = current.map_or(namespace.id, |generation| generation.id);
        Namespace { id, ..namespace }
    }
}

/// Commands.
impl Topology {
    pub(super) fn reserve_generation(
        &mut self,
        namespace: String,
        digests: Option<GenerationDigests>,
        at_ms: u64,
    ) -> Result<Outcome, TopologyError> {
        let layer = self.static_namespace(&namespace)?.id.layer();
        self.check_generations()?;
        if let Some(digests) = digests {
            let mut others = self.generations().filter(|it| it.namespace == namespace);
            if let Some(other) = others.find(|it| self.digests_of(it) == digests) {
                let number = other.id.number();
                return Err(TopologyError::SameDigests { number });
            }
        }
        let time = HybridTime::from_unix_ms(at_ms);
        let (epoch, slot) = (self.advance_epoch(), NodeSlot(0));
        let reserved = Generation {
            digests,
            ..self.next_generation(namespace, layer, Ballot { epoch, time, slot })
        };
        Ok(self.reserved(reserved))
    }

    pub(super) fn reserve_merge(&mut self, namespace: String) -> Result<Outcome, TopologyError> {
        let into = self.known_namespace(&namespace)?;
        self.check_generations()?;
        let (ballot, layer) = (self.reserve_ballot(&namespace, into)?, into.id.layer());
        let reserved = Generation {
            state: GenerationState::Merging,
            ..self.next_generation(namespace, layer, ballot)
        };
        let outcome = self.reserved(reserved);
        self.renew(layer, ballot.epoch);
        Ok(outcome)
    }

    pub(super) fn check_generations(&self) -> Result<(), TopologyError> {
        if self.stored.generations.len() < MAX_GENERATIONS {
            return Ok(());
        }
        Err(TopologyError::TooManyGenerations)
    }

    /// A reserved generation with the next number.
    pub(super) fn next_generation(
        &self,
        namespace: String,
        layer: Layer,
        ballot: Ballot,
    ) -> Generation {
        Generation {
            id: NamespaceId::generation(layer, self.stored.next_generation + 1),
            namespace,
            ballot,
            state: GenerationState::Reserved,
            content: None,
            ready: BTreeSet::new(),
            ready_since: Epoch::default(),
            digests: None,
            creates: None,
        }
    }

    pub(super) fn reserved(&mut self, generation: Generation) -> Outcome {
        let number = generation.id.number();
        self.stored.next_generation = number;
        self.stored.generations.insert(number, generation);
        Outcome::Reserved { number }
    }

    pub(super) fn attach_generation(
        &mut self,
        number: u32,
        content: GenerationContent,
    ) -> Result<Outcome, TopologyError> {
        let bits = self.stored.partitions.count() as usize;
        if content.arcs.0.len() != bits.div_ceil(8) {
            return Err(TopologyError::setting("arcs", "a bit for each arc"));
        }
        if let GenerationShape::Ids(counts) = &content.shape {
            if counts.ends.len() != bits {
                return Err(TopologyError::setting("counts", "one count for each arc"));
            }
            if counts.arcs() != content.arcs {
                let those = "the arcs whose count is not zero";
                return Err(TopologyError::setting("arcs", those));
            }
        }
        self.check_creation(number, &content)?;
        let generation = self.known_generation(number)?;
        match generation.state {
            GenerationState::Attached if generation.content.as_ref() == Some(&content) => {
                return Ok(Outcome::Done);
            }
            GenerationState::Reserved | GenerationState::Attached | GenerationState::RolledBack => {
            }
            GenerationState::Current | GenerationState::Previous(_) => {
                return Err(TopologyError::GenerationInUse { number });
            }
            GenerationState::Merging => return Err(TopologyError::IsMerge { number }),
        }
        // Members that hold it do not fetch it again. Only its source may have moved.
        let differs = |known: &GenerationContent| {
            let source = content.source.clone();
            GenerationContent {
                source,
                ..known.clone()
            } != content
        };
        if generation.content.as_ref().is_some_and(differs) {
            return Err(TopologyError::OtherContent { number });
        }
        generation.content = Some(content);
        generation.state = GenerationState::Attached;
        generation.ready.clear();
        self.advance_epoch();
        Ok(Outcome::Done)
    }

    /// Records that a member holds its share of a generation by the topology of `epoch`.
    pub(super) fn holds_generation(&mut self, node: NodeId, number: u32, epoch: Epoch) -> Outcome {
        if let Some(generation) = self.stored.generations.get_mut(&number)
            && generation.is_held()
            && epoch >= generation.ready_since
        {
            generation.ready.insert(node);
        }
        Outcome::Done
    }

    pub(super) fn promote_generation(&mut self, number: u32) -> Result<Outcome, TopologyError> {
        let generation = self.known_generation(number)?.clone();
        match generation.state {
            GenerationState::Current => return Ok(Outcome::Done),
            GenerationState::Attached => {}
            GenerationState::Reserved
            | GenerationState::Previous(_)
            | GenerationState::RolledBack => {
                return Err(TopologyError::NotAttached { number });
            }
            GenerationState::Merging => return Err(TopologyError::IsMerge { number }),
        }
        let waiting = self.not_ready(&generation);
        if !waiting.is_empty() {
            return Err(TopologyError::NotReady {
                number,
                waiting: waiting.into_iter().collect(),
            });
        }
        if let Some(creation) = generation.creates {
            return self.create_with(number, &generation, creation);
        }
        let epoch = Epoch(self.stored.epoch.0 + 1);
        self.leave_current(&generation.namespace, GenerationState::Previous(epoch));
        self.switch_to(number, &generation.namespace);
        Ok(Outcome::Done)
    }

    /// Makes the previous generation current again.
    pub(super) fn roll_back(&mut self, namespace: &str) -> Result<Outcome, TopologyError> {
        self.static_namespace(namespace)?;
        let before = self.stored.generations.iter();
        let before = before.filter_map(|(number, it)| match it.state {
            GenerationState::Previous(until) if it.namespace == namespace => Some((until, *number)),
            _ => None,
        });
        let Some((_, number)) = before.max() else {
            return Err(TopologyError::NothingBefore {
                name: namespace.to_owned(),
            });
        };
        self.leave_current(namespace, GenerationState::RolledBack);
        self.switch_to(number, namespace);
        Ok(Outcome::Done)
    }

    pub(super) fn drop_generation(&mut self, number: u32) -> Result<Outcome, TopologyError> {
        let generation = self.known_generation(number)?;
        if generation.creates.is_some() {
            let generation = generation.clone();
            self.end_creation(number, &generation);
            return Ok(Outcome::Done);
        }
        if generation.state == GenerationState::Current {
            return Err(TopologyError::GenerationInUse { number });
        }
        let (namespace, layer) = (generation.namespace.clone(), generation.id.layer());
        if generation.state == GenerationState::Merging {
            self.stored.generations.remove(&number);
            self.close_merges(layer);
            return Ok(Outcome::Done);
        }
        let waiting = self.unconfirmed(&namespace);
        if !waiting.is_empty() {
            return Err(TopologyError::Unconfirmed {
                name: namespace,
                waiting: waiting.into_iter().collect(),
            });
        }
        self.stored.generations.remove(&number);
        self.advance_epoch();
        Ok(Outcome::Done)
    }

    /// Records that a member has adopted a topology and acts on no older one.
    pub(super) fn told_of_switches(&mut self, node: NodeId, adopted: Epoch) -> Outcome {
        self.stored.stop_waiting_for(node, adopted);
        Outcome::Done
    }

    pub(super) fn stop_waiting(&mut self, namespace: &str) -> Outcome {
        self.stored.switches.remove(namespace);
        Outcome::Done
    }
}

impl Topology {
    pub(super) fn known_namespace(&self, name: &str) -> Result<Namespace, TopologyError> {
        let known = self.namespace(name).filter(|_| !is_hidden_name(name));
        known.ok_or_else(|| TopologyError::UnknownNamespace {
            name: name.to_owned(),
        })
    }

    fn static_namespace(&self, name: &str) -> Result<Namespace, TopologyError> {
        let namespace = self.known_namespace(name)?;
        if namespace.mode == NamespaceMode::Static {
            return Ok(namespace);
        }
        Err(TopologyError::NotStatic {
            name: name.to_owned(),
        })
    }

    fn known_generation(&mut self, number: u32) -> Result<&mut Generation, TopologyError> {
        let known = self.stored.generations.get_mut(&number);
        known.ok_or(TopologyError::UnknownGeneration { number })
    }

    fn leave_current(&mut self, namespace: &str, state: GenerationState) {
        let mut all = self.stored.generations.values_mut();
        let is_current = |it: &&mut Generation| {
            it.namespace == namespace && it.state == GenerationState::Current
        };
        if let Some(current) = all.find(is_current) {
            current.state = state;
        }
    }

    pub(super) fn switch_to(&mut self, number: u32, namespace: &str) {
        if let Some(generation) = self.stored.generations.get_mut(&number) {
            generation.state = GenerationState::Current;
        }
        self.wait_for_all(namespace.to_owned());
    }

    /// Makes a new epoch and waits for every member to adopt it.
    pub(super) fn wait_for_all(&mut self, namespace: String) -> Epoch {
        let epoch = self.advance_epoch();
        let switch = Switch {
            epoch,
            waiting: self.stored.members.keys().copied().collect(),
        };
        self.stored.switches.insert(namespace, switch);
        epoch
    }
}
