//! The content of a `RaftMessage`: JSON, in an envelope that names its cluster and recipient.
//!
//! A new node can get the address of an old one. If it accepted messages for the old
//! one, it would acknowledge log entries in its name. So every request names its
//! recipient, and a node refuses requests for others.
//!
//! JSON, because the topology changes rarely, and its messages are then readable in a
//! trace; hot paths have their own encodings.

use std::fmt;

use openraft::raft::AppendEntriesRequest;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use torc_proto::v1::RaftMessage;
use torc_ring::NodeId;
use torc_ring::topology::{Boot, ClusterId, Command};

use crate::raft::{Applied, Entry, LogId, TypeConfig, Vote};

/// Limit of a sent or accepted `RaftMessage`, bytes.
pub(crate) const MAX_MESSAGE_LEN: usize = 32 << 20;

/// Limit of a command, bytes of JSON: with its envelope, it fits a message.
pub(crate) const MAX_COMMAND_LEN: usize = 8 << 20;

/// Limit of the entries in a message.
pub(crate) const MAX_ENTRIES: usize = 300;

/// A request and its recipient.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope<T> {
    pub(crate) cluster: ClusterId,
    pub(crate) to: NodeId,
    /// The last confirmed start of that node, as far as the sender knows.
    pub(crate) known: Option<Boot>,
    pub(crate) from: NodeId,
    /// The sender's start.
    pub(crate) boot: Boot,
    /// Where the sender serves other nodes; empty if it does not say.
    #[serde(default)]
    pub(crate) at: String,
    pub(crate) body: T,
}

/// An [`AppendEntriesRequest`], refused at its first entry beyond the limit.
#[derive(Debug, Deserialize)]
pub(crate) struct Append {
    pub(crate) vote: Vote,
    prev_log_id: Option<LogId>,
    #[serde(deserialize_with = "few_entries")]
    entries: Vec<Entry>,
    leader_commit: Option<LogId>,
}

impl From<Append> for AppendEntriesRequest<TypeConfig> {
    fn from(append: Append) -> Self {
        Self {
            vote: append.vote,
            prev_log_id: append.prev_log_id,
            entries: append.entries,
            leader_commit: append.leader_commit,
        }
    }
}

fn few_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
    struct Few;

    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Entry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX_ENTRIES} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Entry>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = seq.next_element()? {
                if entries.len() == MAX_ENTRIES {
                    return Err(A::Error::invalid_length(MAX_ENTRIES + 1, &self));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_seq(Few)
}

/// A question to the leader.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) ask: Ask,
    /// How long the sender waits, milliseconds.
    pub(crate) within_ms: u64,
    /// How often a node that does not lead may still forward this.
    pub(crate) hops: u8,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Commit this command.
    Commit(Command),
    /// Asks for the log index that a node must have applied to see everything committed by now.
    ReadIndex,
}

impl Ask {
    /// Whether an unanswered question may have changed something.
    pub(crate) const fn changes(&self) -> bool {
        matches!(self, Self::Commit(_))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The command was committed, with this result.
    Applied(Applied),
    /// The requested index; `None` if nothing was ever committed.
    ReadIndex(Option<u64>),
    /// This node does not lead; perhaps that one does. Nothing was changed.
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
            at: String::new(),
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
    fn a_message_with_too_many_entries_is_refused() {
        let message = |count| {
            let entry = Entry {
                log_id: LogId::default(),
                payload: openraft::EntryPayload::Blank,
            };
            let request = AppendEntriesRequest::<TypeConfig> {
                vote: Vote::default(),
                prev_log_id: None,
                entries: vec![entry; count],
                leader_commit: None,
            };
            encode(&request).unwrap()
        };
        let most: Append = decode(&message(MAX_ENTRIES)).unwrap();
        assert_eq!(AppendEntriesRequest::from(most).entries.len(), MAX_ENTRIES);
        let refused = decode::<Append>(&message(MAX_ENTRIES + 1)).unwrap_err();
        assert!(
            refused.to_string().contains("at most 300 entries"),
            "{refused}"
        );
    }

    #[test]
    fn a_deep_message_is_refused_before_it_takes_the_stack() {
        let message = |depth: usize| {
            let once = r#"{"Once":{"request":1,"command":"#.repeat(depth);
            let command = format!(r#"{once}{{"Retreat":{{"node":1}}}}{}"#, "}}".repeat(depth));
            let question = format!(r#"{{"ask":{{"Commit":{command}}},"within_ms":1,"hops":1}}"#);
            RaftMessage {
                json: question.into_bytes().into(),
            }
        };
        assert!(decode::<Question>(&message(1)).is_ok());
        let refused = decode::<Question>(&message(100_000)).unwrap_err();
        assert!(refused.to_string().contains("recursion limit"), "{refused}");
    }

    #[test]
    fn garbage_is_an_error() {
        let message = RaftMessage {
            json: b"{\"to\":".to_vec().into(),
        };
        assert!(decode::<Envelope<Question>>(&message).is_err());
    }
}
