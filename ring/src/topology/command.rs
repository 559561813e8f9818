//! Commands to the topology, and reports of nodes.

use serde::{Deserialize, Serialize};
use torc_record::{DigestKey, Epoch, GenerationDigests, NamespaceId};

use super::merge::check_raised;
use super::namespace::check_name_len;
use super::{
    Authorities, BearerId, BearerToken, Boot, ClusterId, GenerationContent, Incarnation, KeyDigest,
    NewMember, NewNamespace, Proposal, Release, RotationStep, SecretHash, Sizes, TopologyError,
};
use crate::replicas::{Config, Milestone};
use crate::{NodeId, Partition, Partitions};

/// A change to agree on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// The first command of a cluster, see [`super::Topology::found`].
    Found(Founding),
    /// Gives a node an id and a slot. Repeating it gives the same.
    Enrol(NewMember),
    /// A member has a new address.
    Relocate {
        /// The member.
        node: NodeId,
        /// host:port of gRPC.
        address: String,
        /// host:port of its peer port.
        peer_address: String,
        /// host:port of HTTP.
        http_address: String,
    },
    /// A member was started. Refused unless its data directory is the member's and knows every
    /// earlier confirmed start, or if its release does not support the cluster's feature
    /// level. Repeating it is harmless. Makes a new epoch only if the release has changed:
    /// routers do not see starts.
    Booted {
        /// The member.
        node: NodeId,
        /// Its data directory.
        incarnation: Incarnation,
        /// This start.
        boot: Boot,
        /// Its release.
        release: Release,
    },
    /// Starts a transition. Repeating it while it runs is harmless.
    Begin(Proposal),
    /// Facts that a node vouches for. Facts of another epoch than the partition's are void.
    Report {
        /// The reporting node.
        node: NodeId,
        /// The facts.
        reports: Vec<Report>,
    },
    /// A newcomer, or a node that stays in a shrinking set, is unreachable: writes must not
    /// wait for it. Changes nothing where enough others accept.
    Retreat {
        /// The node.
        node: NodeId,
    },
    /// A node that the running transition displaces is dead: it has no vote in any move,
    /// and its successors gather from the others instead of copying it. Refused if no majority
    /// is left without it.
    Exclude {
        /// The dead node.
        node: NodeId,
    },
    /// A node is dead for good, even if this loses data: it leads no partition, no move waits for it,
    /// and partitions without a majority continue with their survivors. One move does wait: if the only
    /// replica of a partition leaves and was to move to this node. Abort that change. Repeating it is
    /// harmless.
    WriteOff {
        /// The dead node.
        node: NodeId,
        /// Unix milliseconds.
        at_ms: u64,
    },
    /// Undoes the running transition: moved partitions move back. Repeating it is
    /// harmless.
    Abort {
        /// Number of the transition.
        transition: u64,
        /// Unix milliseconds.
        at_ms: u64,
    },
    /// Creates a namespace. Repeating it while it has the same settings is harmless.
    CreateNamespace(NewNamespace),
    /// Drops a namespace with its records, for good.
    DropNamespace {
        /// The namespace.
        name: String,
    },
    /// A member has deleted the records of a dropped namespace in the partitions that it leads. Repeating it is
    /// harmless.
    Swept {
        /// The member.
        node: NodeId,
        /// The namespace.
        namespace: NamespaceId,
        /// The topology that named the leads. Void if the leads have changed since.
        epoch: Epoch,
    },
    /// Reserves a generation of a static namespace, or a merge into a linearizable one. Repeating it
    /// reserves another, unless it is applied [once](Self::Once).
    ReserveGeneration {
        /// The namespace.
        namespace: String,
        /// Whether to reserve a merge.
        #[serde(default)]
        merge: bool,
        /// Unix milliseconds.
        at_ms: u64,
        /// Of a generation that is restored without its keys: how its digests were computed. Refused if
        /// another generation of the namespace has the same digests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digests: Option<GenerationDigests>,
    },
    /// Reserves a namespace that is created with its first records, and a generation to build them in.
    /// Repeating it is refused, unless it is applied [once](Self::Once).
    ReserveNamespace {
        /// The namespace; not a static one.
        new: NewNamespace,
        /// The versions of its records are above every ballot of this epoch.
        above: Epoch,
        /// Whether it may take the place of another one of this name, which is dropped then.
        replaces: bool,
    },
    /// Attaches a built or a rolled-back generation: members fetch it. Repeating it is
    /// harmless.
    AttachGeneration {
        /// Its number.
        number: u32,
        /// What it is.
        content: GenerationContent,
    },
    /// A member holds the slices of all of its partitions. Repeating it is harmless.
    HoldsGeneration {
        /// The member.
        node: NodeId,
        /// The generation.
        number: u32,
        /// The topology that named its partitions. Void if members have got others without slices since.
        epoch: Epoch,
    },
    /// Makes a generation the current one, or creates the namespace that waits for it. Refused while a member
    /// that should hold it is not ready. Repeating it is harmless.
    PromoteGeneration {
        /// The generation.
        number: u32,
    },
    /// Makes the previous generation of a namespace current again. Repeating it goes back one more,
    /// unless it is applied [once](Self::Once).
    RollBack {
        /// The namespace.
        namespace: String,
    },
    /// Drops a generation that is not current, or ends a merge, for good.
    DropGeneration {
        /// The generation.
        number: u32,
    },
    /// Raises the epoch of a namespace's partitions, so that later writes have versions above every
    /// ballot of the epoch `above`. Repeating it is harmless.
    RaiseEpoch {
        /// The namespace.
        namespace: String,
        /// The epoch to leave behind.
        above: Epoch,
    },
    /// A member no longer acts on any older topology. Repeating it is harmless.
    Adopted {
        /// The member.
        node: NodeId,
        /// The topology.
        epoch: Epoch,
    },
    /// Stops waiting for members that may not know the current generation.
    StopWaiting {
        /// The namespace.
        namespace: String,
    },
    /// Creates a bearer token. Repeating it is harmless.
    CreateBearerToken {
        /// Drawn at random.
        id: BearerId,
        /// What it is.
        token: BearerToken,
    },
    /// Admits a node with a join token. Repeating it with the same key is harmless.
    UseJoinToken {
        /// The token.
        id: BearerId,
        /// Hash of the node's secret.
        hash: SecretHash,
        /// Digest of the node's key.
        by: KeyDigest,
        /// Unix milliseconds.
        at_ms: u64,
    },
    /// Revokes a bearer token. Repeating it is harmless.
    RevokeBearerToken {
        /// The token.
        id: BearerId,
    },
    /// Starts a rotation: members trust a new certificate authority beside the old one.
    BeginRotation {
        /// The certificate of the issuing authority, in PEM.
        old: String,
        /// The certificate of the new authority, in PEM.
        new: String,
    },
    /// Starts the next step of a rotation. Refused while a member has not finished the previous
    /// one. Repeating it is harmless.
    Rotate {
        /// Its number.
        rotation: u32,
        /// The step.
        to: RotationStep,
    },
    /// Removes the new authority of a rotation, before it issues certificates. Repeating it is
    /// harmless.
    AbortRotation {
        /// Its number.
        rotation: u32,
    },
    /// A member has durably finished a step of a rotation. Repeating it is harmless.
    RotationDone {
        /// The member.
        node: NodeId,
        /// The number of the rotation.
        rotation: u32,
        /// The step.
        step: RotationStep,
    },
    /// A command that must be applied only once, however often the group's log has it: once it has been
    /// applied, a repetition has the same outcome. A refused command may be applied later.
    Once {
        /// Drawn at random.
        request: u64,
        /// Any other command.
        command: Box<Command>,
    },
}

impl Command {
    /// This command, applied only once. `request` is drawn at random.
    #[must_use]
    pub fn once(self, request: u64) -> Self {
        let command = Box::new(self);
        Self::Once { request, command }
    }

    /// Checks what does not depend on the topology's state, names and lengths above all. The
    /// topology refuses such a command anyway, but by then it has gone through the group's log.
    ///
    /// # Errors
    /// [`TopologyError::Setting`] or another, and nothing changes.
    pub fn check(&self) -> Result<(), TopologyError> {
        match self {
            Self::Found(founding) => founding.check(),
            Self::Enrol(new) => new.check(),
            Self::Relocate {
                address,
                peer_address,
                http_address,
                ..
            } => NewMember::check_addresses(address, peer_address, http_address),
            Self::Booted { release, .. } => release.check(),
            Self::CreateNamespace(new) => new.check_name(),
            Self::ReserveNamespace { new, above, .. } => {
                check_raised(*above)?;
                new.check_name()
            }
            Self::DropNamespace { name } => check_name_len(name),
            Self::ReserveGeneration { namespace, .. }
            | Self::RollBack { namespace }
            | Self::RaiseEpoch { namespace, .. }
            | Self::StopWaiting { namespace } => check_name_len(namespace),
            Self::AttachGeneration { content, .. } => content.check(),
            Self::CreateBearerToken { token, .. } => token.check(),
            Self::BeginRotation { old, new } => Authorities::check(old, new),
            Self::Once { command, .. } => match **command {
                Self::Once { .. } => {
                    Err(TopologyError::setting("command", "one that is not nested"))
                }
                _ => command.check(),
            },
            // Numbers and digests, which only the topology's state can judge. A new command decides here.
            Self::Begin(_)
            | Self::Report { .. }
            | Self::Retreat { .. }
            | Self::Exclude { .. }
            | Self::WriteOff { .. }
            | Self::Abort { .. }
            | Self::Swept { .. }
            | Self::HoldsGeneration { .. }
            | Self::PromoteGeneration { .. }
            | Self::DropGeneration { .. }
            | Self::Adopted { .. }
            | Self::UseJoinToken { .. }
            | Self::RevokeBearerToken { .. }
            | Self::Rotate { .. }
            | Self::AbortRotation { .. }
            | Self::RotationDone { .. } => Ok(()),
        }
    }
}

/// Settings of a new cluster, which never change except the number of replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Founding {
    /// The cluster's id, drawn at random.
    pub cluster: ClusterId,
    /// The key of the digest, drawn at random.
    pub digest_key: DigestKey,
    /// Number of partitions.
    pub partitions: Partitions,
    /// Replicas of every partition; [`TransitionKind::Alter`](super::TransitionKind::Alter) changes it.
    pub replicas: u8,
    /// Positions on the ring of a node of normal weight.
    pub positions: u16,
    /// The founding members, which share the ring from the start.
    pub members: Vec<NewMember>,
}

impl Founding {
    pub(super) fn check(&self) -> Result<(), TopologyError> {
        if !(1..=5).contains(&self.replicas) {
            return Err(TopologyError::setting("replicas", "1 to 5"));
        }
        if !(1..=1024).contains(&self.positions) {
            return Err(TopologyError::setting("positions", "1 to 1,024"));
        }
        if self.members.is_empty() {
            return Err(TopologyError::setting("members", "at least one member"));
        }
        self.members.iter().try_for_each(NewMember::check)
    }
}

/// A milestone that a replica has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The partition.
    pub partition: Partition,
    /// What the reporting node has reached there.
    pub reached: Milestone,
    /// The amount of data that it received for this.
    pub moved: Sizes,
    /// When, Unix milliseconds.
    pub at_ms: u64,
}

impl Report {
    /// A milestone in a partition's present epoch, without any data.
    #[must_use]
    pub fn of(config: &Config, reached: fn(Epoch) -> Milestone, at_ms: u64) -> Self {
        Self {
            partition: config.partition,
            reached: reached(config.epoch),
            moved: Sizes::default(),
            at_ms,
        }
    }
}
