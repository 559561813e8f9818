//! The group's gRPC service.
//!
//! It answers `NOT_SERVING` before the group is started, and to messages for another
//! node or cluster: their sender then looks for the right one.

use openraft::error::RaftError;
use openraft::raft::{InstallSnapshotRequest, VoteRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::{Request, Response, Status};
use torc_proto::v1::RaftMessage;
use torc_proto::{Fault, Reason, v1};
use torc_ring::NodeId;

use crate::raft::{RaftFatal, TypeConfig, Vote};
use crate::running::Running;
use crate::wire::{Append, Envelope, Question, decode, encode};
use crate::{GroupError, TopologyGroup};

/// No group reaches this by elections, even at one per millisecond. A term near the largest number
/// would be the last: there could never be another election.
const MAX_TERM: u64 = 1 << 48;

/// The server side of the group's messages, from [`TopologyGroup::service`].
pub struct GroupService {
    group: TopologyGroup,
}

impl GroupService {
    pub(crate) const fn new(group: TopologyGroup) -> Self {
        Self { group }
    }

    /// Opens an envelope, if it is for this node.
    fn accept<T: DeserializeOwned>(
        &self,
        request: &Request<RaftMessage>,
    ) -> Result<(&Running, NodeId, T), Status> {
        let running = self.group.running().map_err(Fault::from)?;
        let envelope: Envelope<T> = decode(request.get_ref()).map_err(|error| {
            Fault::new(
                Reason::Invalid,
                format!("not a message of the topology group: {error}"),
            )
        })?;
        if envelope.to != running.node {
            let message = format!("this is node {}, not node {}", running.node, envelope.to);
            return Err(Fault::new(Reason::NotServing, message).into());
        }
        if running.peers.cluster() != Some(envelope.cluster) {
            let message = format!("this node does not belong to cluster {}", envelope.cluster);
            return Err(Fault::new(Reason::NotServing, message).into());
        }
        running.peers.check_boots(&envelope)?;
        running.peers.serves_at(envelope.from, &envelope.at);
        Ok((running, envelope.from, envelope.body))
    }
}

#[tonic::async_trait]
impl v1::topology_group_server::TopologyGroup for GroupService {
    async fn append_entries(
        &self,
        request: Request<RaftMessage>,
    ) -> Result<Response<RaftMessage>, Status> {
        let (running, from, body) = self.accept::<Append>(&request)?;
        check_vote(&body.vote, from, running.node)?;
        let answer = running.raft.append_entries(body.into()).await;
        reply(&answer.map_err(not_serving)?)
    }

    async fn install_snapshot(
        &self,
        request: Request<RaftMessage>,
    ) -> Result<Response<RaftMessage>, Status> {
        let (running, from, body) = self.accept::<InstallSnapshotRequest<TypeConfig>>(&request)?;
        check_vote(&body.vote, from, running.node)?;
        match running.raft.install_snapshot(body).await {
            Ok(answer) => reply(&Ok::<_, ()>(answer)),
            Err(RaftError::APIError(refused)) => reply(&Err::<(), _>(refused)),
            Err(RaftError::Fatal(fatal)) => Err(stopped(&fatal)),
        }
    }

    async fn vote(&self, request: Request<RaftMessage>) -> Result<Response<RaftMessage>, Status> {
        let (running, from, body) = self.accept::<VoteRequest<u64>>(&request)?;
        check_vote(&body.vote, from, running.node)?;
        let answer = running.raft.vote(body).await;
        reply(&answer.map_err(not_serving)?)
    }

    async fn propose(
        &self,
        request: Request<RaftMessage>,
    ) -> Result<Response<RaftMessage>, Status> {
        let (_, _, question) = self.accept::<Question>(&request)?;
        let answer = self.group.answer(question).await.map_err(Fault::from)?;
        reply(&answer)
    }
}

/// Leaders and candidates send in their own name. openraft would panic on a message in the
/// receiver's own name.
fn check_vote(vote: &Vote, from: NodeId, me: NodeId) -> Result<(), Status> {
    let leader = vote.leader_id();
    if leader.node_id != from.0 || from == me {
        let message = format!(
            "node {from} sent node {me} a message in the name of node {}: it may be forged",
            leader.node_id
        );
        return Err(Fault::new(Reason::Invalid, message).into());
    }
    if leader.term <= MAX_TERM {
        return Ok(());
    }
    let message = format!(
        "term {} is impossible: the message may be forged",
        leader.term
    );
    Err(Fault::new(Reason::Invalid, message).into())
}

fn reply<T: Serialize>(answer: &T) -> Result<Response<RaftMessage>, Status> {
    let message = encode(answer).map_err(|error| {
        Fault::new(
            Reason::Internal,
            format!("cannot encode the answer: {error}"),
        )
    })?;
    Ok(Response::new(message))
}

fn not_serving(error: RaftError<u64>) -> Status {
    match error {
        RaftError::APIError(never) => match never {},
        RaftError::Fatal(fatal) => stopped(&fatal),
    }
}

fn stopped(fatal: &RaftFatal) -> Status {
    let failed = match fatal {
        RaftFatal::Stopped => GroupError::Stopped,
        other => GroupError::Failed {
            reason: other.to_string(),
        },
    };
    Fault::from(failed).into()
}
