//! The messages that the service accepts, as bytes, for fuzzing.
//!
//! Compiled only with the feature `testing`.

use openraft::raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use torc_proto::v1::RaftMessage;

use crate::raft::TypeConfig;
use crate::wire::{self, Append, Envelope, Question, decode, encode};

/// Limit of the entries in a message.
pub const MAX_ENTRIES: usize = wire::MAX_ENTRIES;

/// A call of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Entries of the log.
    AppendEntries,
    /// A piece of a snapshot.
    InstallSnapshot,
    /// A candidate asks for a vote.
    Vote,
    /// A question to the leader.
    Propose,
}

/// Decodes the message of a call as the service does, and encodes it again. `None` if it is refused.
///
/// # Errors
/// A message was decoded and cannot be encoded.
pub fn reencode(call: Call, json: &[u8]) -> Result<Option<Vec<u8>>, serde_json::Error> {
    match call {
        Call::AppendEntries => again::<Append, AppendEntriesRequest<TypeConfig>>(json),
        Call::InstallSnapshot => {
            again::<InstallSnapshotRequest<TypeConfig>, InstallSnapshotRequest<TypeConfig>>(json)
        }
        Call::Vote => again::<VoteRequest<u64>, VoteRequest<u64>>(json),
        Call::Propose => again::<Question, Question>(json),
    }
}

fn again<T, S>(json: &[u8]) -> Result<Option<Vec<u8>>, serde_json::Error>
where
    T: DeserializeOwned + Into<S>,
    S: Serialize,
{
    let message = RaftMessage {
        json: json.to_vec().into(),
    };
    let Ok(envelope) = decode::<Envelope<T>>(&message) else {
        return Ok(None);
    };
    let sent = Envelope {
        cluster: envelope.cluster,
        to: envelope.to,
        known: envelope.known,
        from: envelope.from,
        boot: envelope.boot,
        at: envelope.at,
        body: envelope.body.into(),
    };
    encode(&sent).map(|message| Some(message.json.to_vec()))
}
