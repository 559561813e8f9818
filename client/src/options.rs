//! Settings of a client, and options of operations.

use std::time::Duration;

use bytes::Bytes;
use torc_proto::v1;
use torc_record::Condition;
use torc_ring::NodeId;
use torc_ring::topology::Bearer;
use torc_tls::Connector;

use crate::{Error, ErrorKind, ScanCursor};

/// Longer times would overflow clocks.
pub(crate) const LONGEST_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Settings of all operations of a client.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// `host:port` of the nodes to contact first.
    pub(crate) seeds: Vec<String>,
    /// Longest wait for a connection.
    pub(crate) connect_timeout: Duration,
    /// Connections to a node.
    pub(crate) channels: usize,
    /// Longest wait for the first answer from any node.
    pub(crate) first_contact: Duration,
    /// Whether gets of hot keys are spread and coalesced.
    pub(crate) hot_keys: bool,
    /// `None`: no encryption.
    pub(crate) tls: Option<Connector>,
    /// Only with TLS.
    pub(crate) token: Option<Bearer>,
}

/// How fresh a read must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// As the namespace promises: the newest acknowledged value in a linearizable one; the
    /// newest of [`QuorumSize`] replicas in an eventual one. The default.
    #[default]
    Namespace,
    /// The newest acknowledged value; not available in eventual namespaces.
    Linearizable,
    /// Any node that has the record answers; the value may be old.
    Stale,
}

impl Consistency {
    pub(crate) const fn to_wire(self) -> v1::Consistency {
        match self {
            Self::Namespace => v1::Consistency::Unspecified,
            Self::Linearizable => v1::Consistency::Linearizable,
            Self::Stale => v1::Consistency::Stale,
        }
    }
}

/// The number of replicas that must answer an operation in an eventual namespace, see
/// [`Client::with_quorum`](crate::Client::with_quorum).
///
/// Write and read with a majority, or write to all and read one: reads then see every
/// completed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuorumSize {
    /// One.
    One,
    /// More than half.
    Majority,
    /// All.
    All,
}

impl QuorumSize {
    pub(crate) const fn to_wire(self) -> v1::Quorum {
        match self {
            Self::One => v1::Quorum::One,
            Self::Majority => v1::Quorum::Majority,
            Self::All => v1::Quorum::All,
        }
    }
}

/// Options of [`Client::get_with`](crate::Client::get_with).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// How fresh the value must be.
    pub consistency: Consistency,
}

/// Options of [`Client::put_with`](crate::Client::put_with).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Write only if this holds.
    pub condition: Option<Condition>,
    /// Time until the value expires; at least a millisecond. `None`: never.
    pub ttl: Option<Duration>,
    /// Instead of `ttl`: when the value expires, Unix milliseconds. If this is in the past, the key
    /// becomes absent.
    pub expires_at_ms: Option<u64>,
}

/// When a value expires, as on the wire, where 0 means never. At most one is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) ttl_ms: u64,
    pub(crate) expires_at_ms: u64,
}

impl PutOptions {
    pub(crate) fn expiry(&self) -> Result<Expiry, Error> {
        let refused = |message| Error::new(ErrorKind::Invalid, message);
        let mut ttl_ms = 0;
        if let Some(ttl) = self.ttl {
            let ms = u64::try_from(ttl.as_millis()).ok().filter(|ms| *ms > 0);
            ttl_ms = ms.ok_or_else(|| {
                refused(format!(
                    "a time to live of {ttl:?}: use 1 ms or more, or no time to live"
                ))
            })?;
            if self.expires_at_ms.is_some() {
                let message = "both ttl and expires_at_ms are set: set one";
                return Err(refused(message.to_owned()));
            }
        }
        Ok(Expiry {
            ttl_ms,
            // Not 0, which means never.
            expires_at_ms: self.expires_at_ms.map_or(0, |at_ms| at_ms.max(1)),
        })
    }
}

/// Options of [`Client::scan`](crate::Client::scan).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Most records to return; `None`: all.
    pub limit: Option<u64>,
    /// Continue after this position; `None`: from the start of the ring.
    pub after: Option<ScanCursor>,
    /// Return no values.
    pub keys_only: bool,
    /// Return only records whose value contains at least one of these byte strings; empty: all
    /// records. At most 64, of 1 to 65,536 bytes each. Nodes search and send only matching records.
    pub contains: Vec<Bytes>,
}

/// Options of [`Client::hot_keys`](crate::Client::hot_keys).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotKeysOptions {
    /// Length of the window until now, at most 24 hours; `None`: 60 s.
    pub window: Option<Duration>,
    /// Number of keys to return, at most 1,000; `None`: 20.
    pub top: Option<u32>,
    /// Only accesses that this node counted; `None`: all nodes.
    pub node: Option<NodeId>,
    /// Also return the accesses over time in this many steps, at most 240; `None`: do not.
    pub steps: Option<u32>,
}

/// Options of [`Client::overlap`](crate::Client::overlap).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverlapOptions {
    /// How far back accesses count, at most 24 hours; `None`: 24 hours.
    pub window: Option<Duration>,
}

/// How to alter the number of replicas, see
/// [`Client::alter_namespace`](crate::Client::alter_namespace).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlterOptions {
    /// Partitions that move at a time; `None`: the cluster's default.
    pub parallel: Option<u32>,
    /// Whether to proceed if other namespaces share the partitions: they get the same number.
    pub with_all: bool,
}

/// How a node leaves or is replaced, see [`Client::leave_with`](crate::Client::leave_with) and
/// [`Client::replace`](crate::Client::replace).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GoOptions {
    /// Partitions that move at a time; `None`: the cluster's default.
    pub parallel: Option<u32>,
    /// Whether to proceed if fewer nodes than replicas stay: every partition then has fewer
    /// replicas. With `dead`, also if the replicas of some keys have no majority without the node:
    /// data that only the node held is lost.
    pub force: bool,
    /// Whether the node is dead for good: nothing waits for it, and it has no vote while it leaves.
    /// It must not return.
    pub dead: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_that_would_mean_never_is_refused_or_in_the_past() {
        let expiry = |ttl, expires_at_ms| {
            let options = PutOptions {
                ttl,
                expires_at_ms,
                condition: None,
            };
            let expiry = options.expiry()?;
            Ok::<_, Error>((expiry.ttl_ms, expiry.expires_at_ms))
        };
        let ms = Some(Duration::from_millis(1));
        assert_eq!(expiry(None, None), Ok((0, 0)));
        assert_eq!(expiry(ms, None), Ok((1, 0)));
        assert_eq!(expiry(None, Some(7)), Ok((0, 7)));
        assert_eq!(expiry(None, Some(0)), Ok((0, 1)));
        for ttl in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
            let refused = expiry(Some(ttl), None).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{ttl:?}");
        }
        let both = expiry(ms, Some(7)).unwrap_err();
        assert_eq!(both.kind(), ErrorKind::Invalid);
    }
}
