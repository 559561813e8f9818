//! Nodes as the ring sees them: an id, a failure zone and a weight.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Identity of a node, never reused: a node that lost its disk returns under a new id.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Text that is not a node id. Use the decimal number that `status` shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a node id: use the decimal number that `status` shows")]
pub struct ParseNodeIdError {
    /// The refused text.
    pub text: String,
}

impl FromStr for NodeId {
    type Err = ParseNodeIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |_| ParseNodeIdError { text: text.into() };
        text.parse().map(Self).map_err(refused)
    }
}

/// A failure domain: replicas are spread over as many zones as possible.
///
/// Nodes of a cluster without zones are all in the zone `default`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Zone(String);

/// Text that is not a zone name. Nothing was changed; use 1 to 64 ASCII letters,
/// digits, `.`, `_` or `-`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not a zone: use 1 to {} ASCII letters, digits, `.`, `_` or `-`",
    Zone::MAX_LEN
)]
pub struct ZoneError {
    /// The refused text, shortened to [`Zone::MAX_LEN`] characters.
    pub name: String,
}

impl Zone {
    /// Longest name, bytes.
    pub const MAX_LEN: usize = 64;

    /// Checks a name.
    ///
    /// # Errors
    /// [`ZoneError`] unless `name` is 1 to [`Zone::MAX_LEN`] ASCII letters, digits,
    /// `.`, `_` or `-`.
    pub fn new(name: impl Into<String>) -> Result<Self, ZoneError> {
        let name = name.into();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=Self::MAX_LEN).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name))
        } else {
            Err(ZoneError {
                name: name.chars().take(Self::MAX_LEN).collect(),
            })
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self("default".into())
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.0
    }
}

impl TryFrom<String> for Zone {
    type Error = ZoneError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl FromStr for Zone {
    type Err = ZoneError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}

/// A node's share of data and leads, in percent of a normal node: 1 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub struct Weight(u32);

/// A number that is not a weight. Nothing was changed; a normal node has 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{percent} is not a weight: choose 1 to {}; a normal node has 100", Weight::MAX.percent())]
pub struct WeightError {
    /// The refused weight.
    pub percent: u32,
}

impl Weight {
    /// A normal node: 100 %.
    pub const NORMAL: Self = Self(100);
    /// The heaviest node: a hundred times a normal one.
    pub const MAX: Self = Self(10_000);

    /// Checks a weight in percent of a normal node.
    ///
    /// # Errors
    /// [`WeightError`] unless `percent` is 1 to 10,000.
    pub const fn new(percent: u32) -> Result<Self, WeightError> {
        if 1 <= percent && percent <= Self::MAX.0 {
            Ok(Self(percent))
        } else {
            Err(WeightError { percent })
        }
    }

    /// In percent of a normal node.
    #[must_use]
    pub const fn percent(self) -> u32 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Weight> for u32 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

impl TryFrom<u32> for Weight {
    type Error = WeightError;

    fn try_from(percent: u32) -> Result<Self, Self::Error> {
        Self::new(percent)
    }
}

/// A node as the ring sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Which node.
    pub id: NodeId,
    /// Its failure domain.
    #[serde(default)]
    pub zone: Zone,
    /// Its share of data and leads.
    #[serde(default)]
    pub weight: Weight,
}

impl NodeSpec {
    /// A node of normal weight in the zone `default`.
    #[must_use]
    pub fn normal(id: NodeId) -> Self {
        Self {
            id,
            zone: Zone::default(),
            weight: Weight::NORMAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_short_plain_names() {
        assert!(Zone::new("eu-west.1_a").is_ok());
        for name in ["", "a b", "\u{e9}", &"z".repeat(65)] {
            assert!(Zone::new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn weights_are_1_to_10000_percent() {
        assert_eq!(Weight::new(0), Err(WeightError { percent: 0 }));
        assert_eq!(Weight::new(10_000), Ok(Weight::MAX));
        assert!(Weight::new(10_001).is_err());
        assert!(serde_json::from_str::<Weight>("0").is_err());
    }

    #[test]
    fn a_spec_may_leave_zone_and_weight_to_their_defaults() {
        let spec: NodeSpec = serde_json::from_str(r#"{"id":7}"#).unwrap();
        assert_eq!(spec, NodeSpec::normal(NodeId(7)));
    }

    #[test]
    fn a_node_id_reads_what_it_prints() {
        assert_eq!("17".parse(), Ok(NodeId(17)));
        assert!("n17".parse::<NodeId>().is_err());
    }
}
