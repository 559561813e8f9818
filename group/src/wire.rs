//! What a `RaftMessage` carries: JSON, in an envelope that names its cluster and recipient.
//!
//! An address can outlive the node that had it. A node that took a message meant for
//! another one would acknowledge log entries in that one's name, so every request says
//! for whom it is, and a node refuses what is not for it.
//!
//! JSON, because the topology changes seldom, and its messages are then readable in a
//! trace; the borders that are hot have their own encodings.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use torc_proto::v1::RaftMessage;
use torc_ring::NodeId;
use torc_ring::topology::{Boot, ClusterId, Command};

use crate::raft::Applied;

/// Largest `RaftMessage` that is sent or accepted, bytes.
pub(crate) const MAX_MESSAGE_LEN: usize = 32 << 20;

/// Largest command, bytes of JSON: it fits a message together with what surrounds it.
pub(crate) const MAX_COMMAND_LEN: usize = 8 << 20;

/// A request and whom it is for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope<T> {
    pub(crate) cluster: ClusterId,
    pub(crate) to: NodeId,
    /// The last confirmed start of that node, as far as the sender knows.
    pub(crate) known: Option<Boot>,
    pub(crate) from: NodeId,
    /// The sender's start.
    pub(crate) boot: Boot,
    pub(crate) body: T,
}

/// A question to the leader.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) ask: Ask,
    /// How long the sender waits, milliseconds.
    pub(crate) within_ms: u64,
    /// How often a node that does not lead may still hand this on.
    pub(crate) hops: u8,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Commit this command.
    Commit(Command),
    /// Which log index must a node have applied to see all that is committed by now?
    ReadIndex,
}

impl Ask {
    /// Whether a question that stays unanswered may have changed something.
    pub(crate) const fn changes(&self) -> bool {
        matches!(self, Self::Commit(_))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The command was committed, with this result.
    Applied(Applied),
    /// The index asked for; none when nothing was ever committed.
    ReadIndex(Option<u64>),
    /// Not here; perhaps there. Nothing was changed.
    NotLeader(Option<NodeId>),
    /// No majority answered in time; a command may still be committed.
    Open,
}

pub(crate) fn encode<T: Serialize>(message: &T) -> Result<RaftMessage, serde_json::Error> {
    Ok(RaftMessage {
        json: serde_json::to_vec(message)?.into(),
    })
}

pub(crate) fn decode<T: DeserializeOwned>(message: &RaftMessage) -> Result<T, serde_json::Error> {
    serde_json::from_slice(&message.json)
}

#[cfg(test)]
mod tests {
    use torc_ring::topology::{Outcome, TopologyError};

    use super::*;

    #[test]
    fn an_envelope_survives_the_way() {
        let sent = Envelope {
            cluster: ClusterId([7; 16]),
            to: NodeId(3),
            known: None,
            from: NodeId(1),
            boot: Boot::default(),
            body: Question {
                ask: Ask::ReadIndex,
                within_ms: 250,
                hops: 1,
            },
        };
        let got: Envelope<Question> = decode(&encode(&sent).unwrap()).unwrap();
        assert_eq!((got.cluster, got.to), (sent.cluster, sent.to));
        assert_eq!((got.body.within_ms, got.body.hops), (250, 1));
        assert!(matches!(got.body.ask, Ask::ReadIndex));
    }

    #[test]
    fn a_refusal_arrives_as_the_refusal_it_was() {
        let refused = TopologyError::UnknownNode { node: NodeId(4) };
        for result in [Ok(Outcome::Done), Err(refused)] {
            let wire = encode(&Answer::Applied(result.clone())).unwrap();
            let Answer::Applied(got) = decode(&wire).unwrap() else {
                panic!("another answer")
            };
            assert_eq!(got, result);
        }
    }

    #[test]
    fn garbage_is_an_error() {
        let message = RaftMessage {
            json: b"{\"to\":".to_vec().into(),
        };
        assert!(decode::<Envelope<Question>>(&message).is_err());
    }
}
