//! Members of a cluster and their identifiers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use torc_record::NodeSlot;

use super::{Release, TopologyError};
use crate::{NodeId, NodeSpec, Weight, Zone};

/// Text that is not 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 32 hexadecimal digits")]
pub struct ParseIdError;

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(ParseIdError);
                }
                let number = u128::from_str_radix(text, 16).map_err(|_| ParseIdError)?;
                Ok(Self(number.to_be_bytes()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(text: String) -> Result<Self, ParseIdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

random_id! {
    /// 128 random bits that name a cluster.
    ClusterId
}

random_id! {
    /// 128 random bits that name a data directory: a wiped disk gets another name.
    Incarnation
}

/// One start of a process with a data directory. The default is older than every other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// Grows with every confirmed start.
    pub number: u64,
    /// Random for this start: two copies of a directory that take the same number differ in it.
    pub draw: u64,
}

impl Boot {
    /// Whether the start `known` proves that this process has an older copy or a clone of
    /// the data directory.
    #[must_use]
    pub const fn is_superseded_by(self, known: Self) -> bool {
        known.number > self.number || (known.number == self.number && known.draw != self.draw)
    }
}

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// It has an id but no ring positions yet.
    Joining,
    /// It has ring positions.
    Active,
    /// It is handing over its partitions and will be removed.
    Leaving,
}

/// A node's description of itself when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMember {
    /// Name of its data directory.
    pub incarnation: Incarnation,
    /// host:port of gRPC, as clients reach it.
    pub address: String,
    /// host:port of its peer port, as other nodes reach it.
    pub peer_address: String,
    /// host:port of HTTP.
    pub http_address: String,
    /// Failure domain.
    pub zone: Zone,
    /// Share of the load, percent of a normal node.
    pub weight: Weight,
    /// Its release; for a member, that of its last confirmed start.
    pub release: Release,
}

impl NewMember {
    /// Longest address, bytes.
    pub const MAX_ADDRESS_LEN: usize = 256;

    pub(super) fn check(&self) -> Result<(), TopologyError> {
        self.release.check()?;
        Self::check_addresses(&self.address, &self.peer_address, &self.http_address)
    }

    pub(super) fn check_addresses(
        address: &str,
        peer_address: &str,
        http_address: &str,
    ) -> Result<(), TopologyError> {
        let fits = |text: &str| text.len() <= Self::MAX_ADDRESS_LEN;
        let are_there = !address.is_empty() && !peer_address.is_empty();
        if are_there && [address, peer_address, http_address].into_iter().all(fits) {
            return Ok(());
        }
        let allowed = "host:port, at most 256 bytes";
        Err(TopologyError::setting("address", allowed))
    }
}

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number in ballots.
    pub slot: NodeSlot,
    /// Its state.
    pub state: MemberState,
    /// Its description of itself.
    #[serde(flatten)]
    pub identity: NewMember,
}

impl Member {
    pub(super) fn spec(&self, id: NodeId) -> NodeSpec {
        NodeSpec {
            id,
            zone: self.identity.zone.clone(),
            weight: self.identity.weight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_form_and_other_text_is_refused() {
        let id = ClusterId([0xab; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        let long = "0".repeat(33);
        let sign = format!("+{}", "0".repeat(31));
        for text in ["", "xyz", long.as_str(), sign.as_str()] {
            assert_eq!(text.parse::<ClusterId>(), Err(ParseIdError), "{text:?}");
        }
    }
}
