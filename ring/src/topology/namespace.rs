//! Namespaces, their modes and names.

use serde::{Deserialize, Serialize};
use torc_record::NamespaceId;

use super::TopologyError;

/// Limit on the bytes of a namespace's name.
const MAX_NAME_LEN: usize = 64;

/// First character of the names of dropped namespaces, and of no other's.
const DROPPED: char = '~';
/// First character of the names of namespaces that wait for their first records, and of no other's.
const NEW: char = '+';

/// The name of a dropped namespace.
#[must_use]
pub fn dropped_name(id: NamespaceId) -> String {
    format!("{DROPPED}{}", id.0)
}

/// Whether this is the name of a dropped namespace.
#[must_use]
pub fn is_dropped_name(name: &str) -> bool {
    name.starts_with(DROPPED)
}

/// The name of a namespace that waits for its first records.
pub(super) fn new_name(id: NamespaceId) -> String {
    format!("{NEW}{}", id.0)
}

/// Whether this is the name of a namespace that waits for its first records.
#[must_use]
pub fn is_new_name(name: &str) -> bool {
    name.starts_with(NEW)
}

/// Whether this is the name of a namespace that no request can use: a dropped one, or one that waits for its
/// first records.
#[must_use]
pub fn is_hidden_name(name: &str) -> bool {
    name.starts_with([DROPPED, NEW])
}

/// How the replicas of a key agree. A namespace never changes its mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// Every key is one register.
    #[default]
    Linearizable,
    /// The last writer wins, by hybrid clock.
    Eventual,
    /// Immutable, and replaced as a whole: see [`Generation`](super::Generation).
    Static,
}

impl std::fmt::Display for NamespaceMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Linearizable => "linearizable",
            Self::Eventual => "eventual",
            Self::Static => "static",
        })
    }
}

/// A namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its id, which is part of records and digests.
    pub id: NamespaceId,
    /// How the replicas of a key agree.
    pub mode: NamespaceMode,
    /// Replicas of each key, as in its layer; during an alteration, the number before it.
    pub replicas: u8,
}

/// A namespace to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNamespace {
    /// 1 to 64 of `a-z`, `0-9`, `-`, `_` and `.`.
    pub name: String,
    /// How the replicas of a key agree.
    pub mode: NamespaceMode,
    /// Replicas of each key; `None`: as many as the base layer.
    pub replicas: Option<u8>,
}

impl NewNamespace {
    pub(super) fn check_name(&self) -> Result<(), TopologyError> {
        let fits = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        if (1..=MAX_NAME_LEN).contains(&self.name.len()) && self.name.bytes().all(fits) {
            return Ok(());
        }
        Err(TopologyError::setting(
            "name",
            "1 to 64 of a-z, 0-9, `-`, `_` and `.`",
        ))
    }
}

/// Refuses a name longer than that of any namespace.
pub(super) fn check_name_len(name: &str) -> Result<(), TopologyError> {
    if name.len() <= MAX_NAME_LEN {
        return Ok(());
    }
    Err(TopologyError::setting(
        "namespace",
        "a name of 1 to 64 bytes",
    ))
}
