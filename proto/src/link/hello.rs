//! The first message in each direction: sender and recipient.

use bytes::Bytes;
use torc_record::HybridTime;
use torc_ring::NodeId;
use torc_ring::topology::{Boot, ClusterId, Incarnation, Levels};

use crate::{WireError, v1};

/// Opens a stream: names the sender and the intended recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkHello {
    /// The cluster of both.
    pub cluster: ClusterId,
    /// The sender.
    pub node: NodeId,
    /// The sender's data directory.
    pub incarnation: Incarnation,
    /// The intended recipient.
    pub target: NodeId,
    /// The sender's start.
    pub boot: Boot,
    /// The feature levels that the sender supports.
    pub levels: Levels,
    /// No earlier process of the data directory has used a clock reading above this one.
    pub ceiling: HybridTime,
}

impl LinkHello {
    /// Its form on the wire.
    #[must_use]
    pub fn to_wire(self) -> v1::LinkRequest {
        v1::LinkRequest {
            hello: Some(v1::LinkHello {
                cluster_id: Bytes::copy_from_slice(&self.cluster.0),
                node: self.node.0,
                incarnation: Bytes::copy_from_slice(&self.incarnation.0),
                target: self.target.0,
                boot: Some(self.boot.into()),
                oldest_level: self.levels.oldest,
                newest_level: self.levels.newest,
                ceiling: self.ceiling.0,
            }),
            envelopes: Bytes::new(),
        }
    }

    /// Reads the first message of a stream.
    ///
    /// # Errors
    /// [`WireError::Field`] if it is another message, or an id does not have 16 bytes.
    pub fn from_wire(wire: &v1::LinkRequest) -> Result<Self, WireError> {
        let hello = wire
            .hello
            .as_ref()
            .ok_or(WireError::Field { field: "hello" })?;
        Ok(Self {
            cluster: ClusterId(id(&hello.cluster_id, "cluster_id")?),
            node: NodeId(hello.node),
            incarnation: Incarnation(id(&hello.incarnation, "incarnation")?),
            target: NodeId(hello.target),
            boot: hello.boot.map(Boot::from).unwrap_or_default(),
            levels: Levels {
                oldest: hello.oldest_level,
                newest: hello.newest_level,
            },
            ceiling: HybridTime(hello.ceiling),
        })
    }
}

/// Accepts a stream: names the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkWelcome {
    /// The listener.
    pub node: NodeId,
    /// The listener's data directory.
    pub incarnation: Incarnation,
    /// The listener's start.
    pub boot: Boot,
    /// The feature levels that the listener supports.
    pub levels: Levels,
}

impl LinkWelcome {
    /// Its form on the wire.
    #[must_use]
    pub fn to_wire(self) -> v1::LinkResponse {
        v1::LinkResponse {
            welcome: Some(v1::LinkWelcome {
                node: self.node.0,
                incarnation: Bytes::copy_from_slice(&self.incarnation.0),
                boot: Some(self.boot.into()),
                oldest_level: self.levels.oldest,
                newest_level: self.levels.newest,
            }),
            leaving: false,
        }
    }

    /// Reads the first answer of a stream.
    ///
    /// # Errors
    /// [`WireError::Field`] if it is another message, or the incarnation does not have 16 bytes.
    pub fn from_wire(wire: &v1::LinkResponse) -> Result<Self, WireError> {
        let welcome = wire
            .welcome
            .as_ref()
            .ok_or(WireError::Field { field: "welcome" })?;
        Ok(Self {
            node: NodeId(welcome.node),
            incarnation: Incarnation(id(&welcome.incarnation, "incarnation")?),
            boot: welcome.boot.map(Boot::from).unwrap_or_default(),
            levels: Levels {
                oldest: welcome.oldest_level,
                newest: welcome.newest_level,
            },
        })
    }
}

impl From<Boot> for v1::Boot {
    fn from(boot: Boot) -> Self {
        Self {
            number: boot.number,
            draw: boot.draw,
        }
    }
}

impl From<v1::Boot> for Boot {
    fn from(wire: v1::Boot) -> Self {
        Self {
            number: wire.number,
            draw: wire.draw,
        }
    }
}

fn id(bytes: &[u8], field: &'static str) -> Result<[u8; 16], WireError> {
    <[u8; 16]>::try_from(bytes).map_err(|_| WireError::Field { field })
}
