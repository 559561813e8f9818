//! Why the topology refuses a command.

use serde::{Deserialize, Serialize};
use torc_record::Epoch;

use super::{
    BearerId, Boot, MAX_BEARER_TOKENS, MAX_GENERATIONS, MAX_NAMESPACES, MemberState, Release,
    RotationStep,
};
use crate::replicas::MoveError;
use crate::{AllocateError, NodeId};

/// A refused command. Every variant leaves the topology untouched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The cluster exists already.
    #[error("this cluster was founded already")]
    AlreadyFounded,
    /// No founding command was committed yet. Bootstrap a node first.
    #[error("no cluster was founded yet: start one node with --bootstrap")]
    NotFounded,
    /// Built on a topology that is no longer current. Fetch it and plan again.
    #[error("planned on epoch {based_on}, but epoch {current} is current: plan again")]
    StalePlan {
        /// Epoch the plan was made on.
        based_on: Epoch,
        /// Epoch of the topology now.
        current: Epoch,
    },
    /// Another transition runs. Wait until it ends; `status` shows it.
    #[error("transition {transition} is running: wait until it ends (see `kvctl status`)")]
    Busy {
        /// Number of the running transition.
        transition: u64,
    },
    /// No member has this id.
    #[error("no member has the id {node}: see `kvctl status`")]
    UnknownNode {
        /// The requested id.
        node: NodeId,
    },
    /// The member is not in the state that the change starts from.
    #[error(
        "node {node} is {}, so it cannot change like this; nothing was changed: see `kvctl status`",
        state
    )]
    WrongState {
        /// The member.
        node: NodeId,
        /// Its state.
        state: MemberState,
    },
    /// A later start of the member is known: this one has an older copy of its data
    /// directory, or a clone of it.
    #[error(
        "the cluster has seen start {} of node {node}, but this is start {}: its data directory is an older copy or \
         a clone",
        known.number,
        asked.number
    )]
    Superseded {
        /// The member.
        node: NodeId,
        /// The start that was confirmed last.
        known: Boot,
        /// The start that was refused.
        asked: Boot,
    },
    /// The node runs a release that does not work at the cluster's feature level.
    #[error(
        "{who} runs release {}, which supports feature {}, but the cluster is at level {level}. \
         Nothing was changed: {}",
        release.version,
        release.levels,
        release.levels.advice(*level)
    )]
    OtherLevel {
        /// The node.
        who: String,
        /// What it runs.
        release: Release,
        /// The cluster's level.
        level: u32,
    },
    /// Removing a node would leave fewer nodes than replicas. Add another one first, or
    /// force it: every partition then has fewer replicas.
    #[error(
        "{active} nodes hold up to {replicas} replicas of a key, so none can leave. Nothing was changed: join \
         another node first, or pass `--force` to continue with fewer replicas"
    )]
    TooFewNodes {
        /// Active members now.
        active: usize,
        /// Replicas of every partition.
        replicas: u8,
    },
    /// Another member has this address. Remove it first, or choose another address.
    #[error(
        "another member has the address {address}, and nothing was changed: if that node is lost for good, remove it \
         with `kvctl leave-node ID --dead`"
    )]
    AddressTaken {
        /// The address in question.
        address: String,
    },
    /// The cluster has as many members as ballots can name.
    #[error("the cluster has the maximum number of members: remove one first (`kvctl leave-node`)")]
    TooManyMembers,
    /// Every slot that ballots can distinguish was assigned to a present or former member.
    #[error("no slot is left: 65,536 nodes have been members of this cluster")]
    NoSlotLeft,
    /// No transition runs that could be aborted or continue without a node.
    #[error("no transition is running: see `kvctl status`")]
    NoTransition,
    /// The abort would return data to a node that was declared dead. Let the transition end.
    #[error(
        "cannot abort, and nothing was changed: partitions have left node {node}, which was declared dead. Let the \
         transition end"
    )]
    CannotGoBack {
        /// The dead node.
        node: NodeId,
    },
    /// No partition can change like that.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// Fewer nodes than the requested replicas. Join further nodes first.
    #[error(
        "{asked} replicas need {asked} nodes, and the cluster has {active}. Nothing was changed: join {} more",
        usize::from(*asked).saturating_sub(*active)
    )]
    TooFewNodesFor {
        /// Requested number of replicas.
        asked: u8,
        /// Active members now.
        active: usize,
    },
    /// There is no namespace of this name.
    #[error("there is no namespace `{name}`: see `kvctl namespace list`")]
    UnknownNamespace {
        /// The name.
        name: String,
    },
    /// The default namespace cannot be dropped.
    #[error("the namespace `default` cannot be dropped: delete its keys instead")]
    DefaultStays,
    /// Altering the namespace changes others with it. Say that all of them may change.
    #[error(
        "the replicas of `{name}` cannot change alone: {} would change, too. Nothing was \
         changed: repeat this with `--with-all` to alter all of them",
        others.join(", ")
    )]
    NotAlone {
        /// The namespace.
        name: String,
        /// Those that change with it.
        others: Vec<String>,
    },
    /// A member was written off, so the placement of replicas without it is unknown. Remove or
    /// replace it first.
    #[error(
        "node {node} is written off: remove it (`kvctl leave-node {node} --dead`) or replace it, \
         then alter replicas"
    )]
    WrittenOff {
        /// The dead node.
        node: NodeId,
    },
    /// Every layer is in use with another number of replicas. Choose a number that a layer has.
    #[error(
        "the cluster cannot hold another replica count, such as {asked}. Nothing was changed: use one that a \
         namespace already has (see `kvctl namespace list`)"
    )]
    NoLayerLeft {
        /// Requested number of replicas.
        asked: u8,
    },
    /// There is a namespace of this name, with other settings or of its own records. Choose another name.
    #[error("there is a namespace `{name}` already, and nothing was changed: choose another name")]
    NamespaceExists {
        /// The name.
        name: String,
    },
    /// Another namespace waits for its first records, and will have this name.
    #[error(
        "generation {number} will create a namespace `{name}`: promote it, or drop it with `kvctl generation drop \
         {number}`"
    )]
    NamespaceIsComing {
        /// The name.
        name: String,
        /// The generation.
        number: u32,
    },
    /// Nodes fetch the first records of a namespace: a newcomer of a move would not get them.
    #[error(
        "nodes fetch the first records of a new namespace, and nothing was changed: promote generation {number}, or \
         drop it with `kvctl generation drop {number}`, then repeat this"
    )]
    IsCreating {
        /// The generation.
        number: u32,
    },
    /// Some partitions are in earlier epochs than the records.
    #[error(
        "the partitions of `{name}` are not above epoch {above} yet, and nothing was changed: raise their epoch first"
    )]
    EpochTooLow {
        /// The namespace.
        name: String,
        /// The epoch to leave behind.
        above: Epoch,
    },
    /// The cluster has the maximum number of namespaces.
    #[error("the cluster has {MAX_NAMESPACES} namespaces: use one of them")]
    TooManyNamespaces,
    /// Only static namespaces have generations.
    #[error(
        "`{name}` is not static, so it has no generations: create a namespace with `--mode static`; into a \
         linearizable one, rows can be merged (`kvctl load --merge`), and a new one can be built (`--create`)"
    )]
    NotStatic {
        /// The namespace.
        name: String,
    },
    /// Only linearizable namespaces take merges.
    #[error(
        "`{name}` is not linearizable, so nothing can be merged into it: build a generation for a static namespace, and load rows into an eventual one"
    )]
    NotLinearizable {
        /// The namespace.
        name: String,
    },
    /// The number is that of a merge, which has no content of its own.
    #[error(
        "{number} is a merge, not a generation: load its rows with `kvctl load --merge {number}`"
    )]
    IsMerge {
        /// The number.
        number: u32,
    },
    /// No generation has this number, or it was dropped.
    #[error("there is no generation {number}: see `kvctl generation list`")]
    UnknownGeneration {
        /// The number.
        number: u32,
    },
    /// The cluster has the maximum number of generations.
    #[error("the cluster has {MAX_GENERATIONS} generations: drop some first")]
    TooManyGenerations,
    /// Members tell two generations of a namespace apart by the digests of its keys.
    #[error(
        "generation {number} has the same digests, so its content cannot be restored beside it into the same \
         namespace: drop it first (`kvctl generation drop {number}`), or restore into another namespace"
    )]
    SameDigests {
        /// The generation.
        number: u32,
    },
    /// The generation is current, or is the previous one and can become current again.
    #[error("generation {number} is in use: see `kvctl generation list`")]
    GenerationInUse {
        /// The number.
        number: u32,
    },
    /// The content of a generation never changes.
    #[error("generation {number} was attached with other content: reserve another one")]
    OtherContent {
        /// The number.
        number: u32,
    },
    /// Only an attached generation becomes current.
    #[error("generation {number} is not attached: run `kvctl generation attach` first")]
    NotAttached {
        /// The number.
        number: u32,
    },
    /// Some members that should hold the generation do not hold all of it.
    #[error(
        "generation {number} is not on all of its nodes, and nothing was changed: wait for these nodes: {} \
         (see `kvctl generation list`)",
        nodes(waiting)
    )]
    NotReady {
        /// The number.
        number: u32,
        /// Those members.
        waiting: Vec<NodeId>,
    },
    /// No generation was current before.
    #[error("`{name}` has no previous generation to go back to")]
    NothingBefore {
        /// The namespace.
        name: String,
    },
    /// Some members may still answer from the previous generation.
    #[error(
        "these nodes may still answer from an older generation of `{name}`: {}. Nothing was changed: start them, or \
         remove those that are lost for good",
        nodes(waiting)
    )]
    Unconfirmed {
        /// The namespace.
        name: String,
        /// Those members.
        waiting: Vec<NodeId>,
    },
    /// The cluster has the maximum number of bearer tokens, or of bytes in their names and scopes.
    #[error(
        "there is no room for another token ({MAX_BEARER_TOKENS} at most, with a MiB of names and scopes): revoke some, \
         see `kvctl token list`"
    )]
    TooManyBearerTokens,
    /// No join token has this id and secret, or it was revoked. Create another one.
    #[error(
        "the join token is not known here or was revoked: create another one with `kvctl token create --join`"
    )]
    UnknownJoinToken,
    /// The join token has expired. Create another one.
    #[error("the join token {id} has expired: create another one with `kvctl token create --join`")]
    JoinTokenExpired {
        /// The token.
        id: BearerId,
    },
    /// The join token has admitted its maximum number of other nodes. Create another one.
    #[error(
        "the join token {id} was used by {most} other {}: create another one with `kvctl token create --join`",
        if *most == 1 { "node" } else { "nodes" }
    )]
    JoinTokenUsed {
        /// The token.
        id: BearerId,
        /// How many nodes it admits.
        most: u32,
    },
    /// A rotation of the authority is running, or another one has ended in the meantime.
    #[error(
        "another rotation of the authority is running, or ended a moment ago. Nothing was changed: see `kvctl ca show`"
    )]
    Rotating,
    /// No such rotation of the authority is running.
    #[error(
        "no rotation of the authority waits for that step, and nothing was changed: see `kvctl ca show`; `kvctl ca rotate` begins one"
    )]
    NoRotation,
    /// A step of a rotation was skipped.
    #[error(
        "the rotation of the authority is at the step {step}, so {to} is not next, and nothing was changed: see \
         `kvctl ca show`"
    )]
    RotationStep {
        /// The present step.
        step: RotationStep,
        /// The requested step.
        to: RotationStep,
    },
    /// Some members have not finished the present step of a rotation.
    #[error(
        "the rotation of the authority waits for these nodes: {}; start them, or remove those that are lost for good",
        nodes(waiting)
    )]
    RotationWaits {
        /// Those members.
        waiting: Vec<NodeId>,
    },
    /// Nodes have certificates of the new authority.
    #[error(
        "nodes issue by the new authority already, so the rotation cannot be aborted: finish it, then rotate again"
    )]
    RotationIssues,
    /// A setting is out of its range.
    #[error("invalid {setting}: use {allowed}. Nothing was changed")]
    Setting {
        /// Name of the setting.
        setting: String,
        /// What is allowed.
        allowed: String,
    },
    /// No positions could be allocated.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
}

fn nodes(nodes: &[NodeId]) -> String {
    let names: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    names.join(", ")
}

impl TopologyError {
    pub(super) fn setting(setting: &str, allowed: &str) -> Self {
        Self::Setting {
            setting: setting.to_owned(),
            allowed: allowed.to_owned(),
        }
    }
}
