//! What a command did.

use serde::{Deserialize, Serialize};
use torc_record::NodeSlot;

use crate::NodeId;

/// What a committed command did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Applied; there is nothing to report.
    Done,
    /// The node has this id and slot.
    Enrolled {
        /// Its id.
        node: NodeId,
        /// Its number in ballots.
        slot: NodeSlot,
    },
    /// A generation can be built.
    Reserved {
        /// Its number.
        number: u32,
    },
    /// The transition runs, or had nothing to do.
    Begun {
        /// Its number.
        transition: u64,
    },
}
