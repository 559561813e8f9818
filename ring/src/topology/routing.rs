//! The routing table: the part of a topology that nodes and clients need.

use std::collections::BTreeMap;
use std::sync::Arc;

use torc_record::{Digest, DigestKey, Epoch, GenerationDigests, Layer, NamespaceId};

use super::{ClusterId, Generation, Layers, Member, Namespace, is_hidden_name};
use crate::replicas::Config;
use crate::{NodeId, Partition, Partitions, PreferenceList, Ring, Token};

/// One partition: its replicas and its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// Epoch of the topology that last changed anything here: at least that of `config`, and more if
    /// only the order of the nodes has changed since.
    pub changed: Epoch,
    /// The node to which operations go; a replica of the reading set.
    pub lead: NodeId,
    /// The preference list; the old one while the partition moves.
    pub nodes: PreferenceList,
    /// The new preference list while the partition moves.
    pub next: Option<PreferenceList>,
    /// Its replicas, their quorums, its stage and its epoch.
    pub config: Arc<Config>,
}

impl PartitionState {
    /// The state of a configuration, with the nodes in its own order.
    #[must_use]
    pub fn of(config: Config, lead: NodeId) -> Self {
        let list = |set| PreferenceList::from(config.nodes(set).collect::<Vec<_>>());
        Self {
            changed: config.epoch,
            lead,
            nodes: list(config.old),
            next: (!config.new.is_empty()).then(|| list(config.new)),
            config: Arc::new(config),
        }
    }

    /// Whether the same nodes serve in the same order and stage.
    #[must_use]
    pub fn same_placement(&self, other: &Self) -> bool {
        let of = |state: &Self| (state.config.stage, state.lead);
        of(self) == of(other) && self.nodes == other.nodes && self.next == other.next
    }
}

/// Routes keys to nodes. Immutable; a newer topology has a newer table.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutingTable {
    /// The cluster's id.
    pub cluster: ClusterId,
    /// The key of the digest.
    pub digest_key: DigestKey,
    /// Number of the topology.
    pub epoch: Epoch,
    /// The feature level that every member supports.
    pub feature_level: u32,
    /// Number of partitions of each layer.
    pub partitions: Partitions,
    /// The layers in use, with their numbers of replicas.
    pub layers: Layers,
    /// Members by id.
    pub members: BTreeMap<NodeId, Member>,
    /// Positions on the ring.
    pub ring: Ring,
    /// One state per partition of the layers in use, in the order of their numbers.
    pub states: Vec<PartitionState>,
    /// Namespaces by name. The id of a static one is that of its current generation.
    pub namespaces: BTreeMap<String, Namespace>,
    /// The generations that members hold or fetch, by their ids. Empty for clients.
    pub generations: BTreeMap<NamespaceId, Arc<Generation>>,
    /// How digests are computed in the current generations that do not derive this from `digest_key`.
    pub restored: BTreeMap<NamespaceId, GenerationDigests>,
    /// The authorities that members trust, in PEM, once the cluster has started to rotate its own;
    /// empty before.
    pub authorities: Vec<String>,
}

impl RoutingTable {
    /// The digest of a key in a namespace or current generation.
    #[must_use]
    pub fn digest(&self, namespace: NamespaceId, key: &[u8]) -> Digest {
        match self.restored.get(&namespace) {
            Some(digests) => digests.digest(key),
            None => Digest::of(&self.digest_key, namespace, key),
        }
    }

    /// How the digests of a current generation are computed.
    #[must_use]
    pub fn digests_of(&self, generation: NamespaceId) -> GenerationDigests {
        let derived = || GenerationDigests::derived(&self.digest_key, generation);
        let restored = self.restored.get(&generation);
        restored.copied().unwrap_or_else(derived)
    }

    /// The partition of a namespace's key with this digest.
    #[must_use]
    pub fn partition_of(&self, namespace: NamespaceId, digest: &Digest) -> Partition {
        self.partitions.holding(namespace, Token::of(digest))
    }

    /// A namespace by its name; the empty name means `default`. `None` if it is unknown, dropped or waits for its
    /// first records.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        let name = if name.is_empty() { "default" } else { name };
        self.namespaces.get(name).filter(|_| !is_hidden_name(name))
    }

    /// State of a partition; `None` if the partition is not in use.
    #[must_use]
    pub fn state(&self, partition: Partition) -> Option<&PartitionState> {
        self.states
            .get(self.layers.index(self.partitions, partition)?)
    }

    /// The generations with keys in a partition, whose replicas hold a slice of each.
    pub fn generations_in(&self, partition: Partition) -> impl Iterator<Item = &Arc<Generation>> {
        let all = self.generations.values();
        all.filter(move |it| it.has_keys_in(self.partitions, partition))
    }

    /// The partitions in which a node should hold a slice of a generation, in any stage.
    pub fn due(&self, node: NodeId, generation: &Generation) -> impl Iterator<Item = Partition> {
        let mine = move |config: &&Arc<Config>| {
            config.index(node).is_some()
                && generation.has_keys_in(self.partitions, config.partition)
        };
        let configs = self.states.iter().map(|state| &state.config);
        configs.filter(mine).map(|config| config.partition)
    }

    /// The number of replicas of the base layer.
    #[must_use]
    pub const fn replicas(&self) -> u8 {
        self.layers.replicas(Layer::BASE)
    }

    /// Where other nodes reach a member.
    #[must_use]
    pub fn peer_address(&self, node: NodeId) -> Option<&str> {
        self.members
            .get(&node)
            .map(|member| member.identity.peer_address.as_str())
    }

    /// Id of the namespace of this name.
    #[must_use]
    pub fn namespace_id(&self, name: &str) -> Option<NamespaceId> {
        self.namespaces.get(name).map(|namespace| namespace.id)
    }
}
