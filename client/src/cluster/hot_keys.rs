//! Hot keys as the cluster counted them.
//!
//! In JSON, a key is text, or base64 if it is not UTF-8, or missing if nodes redact keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use torc_proto::{digest_from_wire, v1};
use torc_record::Digest;
use torc_ring::NodeId;

use super::{Checked, missing};
use crate::Error;
use crate::answers::moment;

/// The hot keys of a window, from [`Client::hot_keys`](crate::Client::hot_keys).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotKeys {
    /// The node that added up the counts.
    pub answered_by: NodeId,
    /// Start of the counts, Unix milliseconds; may be slightly before the window.
    pub from_ms: u64,
    /// End of the counts: at most some seconds ago, unless there were no accesses since.
    pub to_ms: u64,
    /// Accesses to all keys of the namespace.
    pub accesses: u64,
    /// An estimate is never below the truth, and exceeds it by more than this with a
    /// probability of at most [`HotKeys::delta`].
    pub error_bound: u64,
    /// See [`HotKeys::error_bound`].
    pub delta: f64,
    /// The answer lists every key with at least this many accesses, within the requested number of
    /// keys.
    pub complete_from: u64,
    /// The most accessed first.
    pub keys: Vec<HotKey>,
    /// The key with more than half of all accesses, if any.
    pub majority: Option<HotMajority>,
    /// Every node that was asked.
    pub nodes: Vec<HotNode>,
    /// Accesses over time, if requested and if all nodes that count sent them.
    pub history: Option<HotHistory>,
}

/// Accesses in successive steps of equal length. Accesses of an interval that covers several steps
/// are spread by time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotHistory {
    /// Start of the first step, Unix milliseconds.
    pub from_ms: u64,
    /// Length of a step.
    pub step_ms: u64,
    /// Accesses to all keys of the namespace.
    pub accesses: Vec<f64>,
    /// The estimates of each of the first 20 keys, in the order of [`HotKeys::keys`].
    pub keys: Vec<Vec<f64>>,
}

/// A key that is hot.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// Its digest.
    pub digest: Digest,
    /// Its namespace.
    pub namespace: String,
    /// Its bytes; `None` if nodes redact keys.
    pub key: Option<Bytes>,
    /// Its accesses, see [`HotKeys::error_bound`].
    pub estimate: u64,
    /// Share of all accesses to its namespace.
    pub share: f64,
    /// Nodes where it is hot, the one with the most accesses first.
    pub nodes: Vec<HotKeyNode>,
    /// Whether it was not hot in the previous window, if known.
    pub is_new: Option<bool>,
}

/// A hot key's accesses at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HotKeyNode {
    /// The node.
    pub node: NodeId,
    /// Accesses there.
    pub estimate: u64,
}

/// A key with more than half of all accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HotMajority {
    /// The key's digest.
    #[serde(serialize_with = "super::as_text")]
    pub digest: Digest,
    /// It has more than half even if its estimate is too high by the error bound.
    pub certain: bool,
}

/// A node's contribution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HotNode {
    /// The node.
    pub node: NodeId,
    /// Accesses to all keys.
    pub accesses: u64,
    /// Start of its counts, Unix milliseconds; `None` without counts.
    pub from_ms: Option<u64>,
    /// End of its counts, Unix milliseconds; `None` without counts.
    pub to_ms: Option<u64>,
    /// Why it is missing from the answer; `None` if it is not.
    pub problem: Option<String>,
}

/// How often one key was accessed at a node, by its sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HotEstimate {
    /// Start of the counts, Unix milliseconds.
    pub from_ms: u64,
    /// End of the counts, Unix milliseconds.
    pub to_ms: u64,
    /// Accesses to all keys of its namespace.
    pub accesses: u64,
    /// The estimate; never below the truth.
    pub estimate: u64,
    /// The estimate exceeds the truth by more than this with a probability of at most 1/32.
    pub error_bound: u64,
}

/// The key as in records: text if it is UTF-8, else base64.
#[derive(Serialize)]
struct Row<'a> {
    digest: String,
    namespace: &'a str,
    key: Option<&'a str>,
    key_base64: Option<String>,
    estimate: u64,
    share: f64,
    nodes: &'a [HotKeyNode],
    new: Option<bool>,
}

impl Serialize for HotKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.key.as_deref();
        let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let other = bytes.filter(|_| text.is_none());
        let row = Row {
            digest: self.digest.to_string(),
            namespace: &self.namespace,
            key: text,
            key_base64: other.map(|bytes| STANDARD.encode(bytes)),
            estimate: self.estimate,
            share: self.share,
            nodes: &self.nodes,
            new: self.is_new,
        };
        row.serialize(serializer)
    }
}

impl HotKeys {
    pub(crate) fn from_wire(wire: v1::HotKeysResponse) -> Result<Self, Error> {
        hot_keys(wire).map_err(|error| Error::malformed(error, false))
    }
}

fn hot_keys(wire: v1::HotKeysResponse) -> Checked<HotKeys> {
    Ok(HotKeys {
        answered_by: NodeId(wire.answered_by),
        from_ms: wire.from_ms,
        to_ms: wire.to_ms,
        accesses: wire.accesses,
        error_bound: wire.error_bound,
        delta: wire.delta,
        complete_from: wire.complete_from,
        keys: wire.keys.into_iter().map(hot_key).collect::<Checked<_>>()?,
        majority: wire.majority.as_ref().map(majority).transpose()?,
        nodes: wire.nodes.into_iter().map(hot_node).collect(),
        history: wire.history.map(history).transpose()?,
    })
}

fn history(wire: v1::HotHistory) -> Checked<HotHistory> {
    let mut series = wire.series.into_iter().map(|it| it.accesses);
    Ok(HotHistory {
        from_ms: wire.from_ms,
        step_ms: wire.step_ms,
        accesses: series.next().ok_or(missing("series"))?,
        keys: series.collect(),
    })
}

fn digest(bytes: &Bytes) -> Checked<Digest> {
    digest_from_wire(bytes)?.ok_or(missing("digest"))
}

fn hot_key(wire: v1::HotKey) -> Checked<HotKey> {
    let node = |it: v1::HotKeyNode| HotKeyNode {
        node: NodeId(it.node),
        estimate: it.estimate,
    };
    Ok(HotKey {
        digest: digest(&wire.digest)?,
        namespace: wire.namespace,
        key: Some(wire.key).filter(|key| !key.is_empty()),
        estimate: wire.estimate,
        share: wire.share,
        nodes: wire.nodes.into_iter().map(node).collect(),
        is_new: wire.is_new,
    })
}

fn majority(wire: &v1::HotMajority) -> Checked<HotMajority> {
    Ok(HotMajority {
        digest: digest(&wire.digest)?,
        certain: wire.certain,
    })
}

fn hot_node(wire: v1::HotNode) -> HotNode {
    HotNode {
        node: NodeId(wire.node),
        accesses: wire.accesses,
        from_ms: moment(wire.from_ms),
        to_ms: moment(wire.to_ms),
        problem: Some(wire.problem).filter(|problem| !problem.is_empty()),
    }
}

impl From<v1::HotEstimate> for HotEstimate {
    fn from(wire: v1::HotEstimate) -> Self {
        Self {
            from_ms: wire.from_ms,
            to_ms: wire.to_ms,
            accesses: wire.accesses,
            estimate: wire.estimate,
            error_bound: wire.error_bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire_key(key: &'static [u8]) -> v1::HotKey {
        v1::HotKey {
            digest: vec![0xab; 16].into(),
            key: key.into(),
            ..v1::HotKey::default()
        }
    }

    #[test]
    fn a_key_is_text_or_base64_or_not_told() {
        let json = |key| serde_json::to_value(hot_key(wire_key(key)).unwrap()).unwrap();
        assert_eq!(json(b"k")["key"], "k");
        assert_eq!(json(b"\xff")["key_base64"], "/w==");
        let redacted = json(b"");
        assert!(redacted["key"].is_null() && redacted["key_base64"].is_null());
        assert_eq!(redacted["digest"], "ab".repeat(16));
    }

    #[test]
    fn an_answer_without_a_digest_is_malformed() {
        let nameless = v1::HotKeysResponse {
            keys: vec![v1::HotKey::default()],
            ..v1::HotKeysResponse::default()
        };
        assert!(HotKeys::from_wire(nameless).is_err());
        assert!(HotKeys::from_wire(v1::HotKeysResponse::default()).is_ok());
    }
}
