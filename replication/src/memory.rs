//! The memory that a message takes, for queues that are bounded by bytes.

use bytes::Bytes;

use crate::{Content, Message};

/// Approximate size of a message without its keys and values, bytes.
const OVERHEAD_BYTES: usize = 256;

impl Message {
    /// Approximate size in memory, bytes.
    #[must_use]
    pub fn approximate_bytes(&self) -> usize {
        let payload = match self {
            Self::Read { at, .. } | Self::Prepare { at, .. } => at.key.as_bytes().len(),
            Self::Holding { held, .. } | Self::Promised { held, .. } => match &held.content {
                Content::Value {
                    value: Some(value), ..
                } => value.len(),
                Content::Value { value: None, .. } | Content::Absent | Content::Tombstone => 0,
            },
            Self::Accept { record, .. }
            | Self::Learn { record }
            | Self::Store { record, .. }
            | Self::Repair { record, .. } => record.payload_len(),
            Self::Page { records, .. } => records
                .iter()
                .map(|record| record.payload_len() + OVERHEAD_BYTES)
                .sum(),
            Self::Confirm { claims, .. } => claims
                .iter()
                .map(|claim| claim.at.key.as_bytes().len() + std::mem::size_of_val(claim))
                .sum(),
            Self::Compare { sums, .. } => std::mem::size_of_val(&sums[..]),
            Self::List { listing } => listing
                .entries
                .iter()
                .map(|(at, _)| at.key.as_bytes().len() + OVERHEAD_BYTES)
                .sum(),
            Self::Accepted { .. }
            | Self::Nack { .. }
            | Self::Abstain { .. }
            | Self::Confirmed { .. }
            | Self::Pull { .. }
            | Self::SamePage { .. }
            | Self::GcFloor { .. }
            | Self::GcSum { .. }
            | Self::GcPurge { .. }
            | Self::Epoch { .. } => 0,
        };
        payload + OVERHEAD_BYTES
    }

    /// The same message with its own copy of keys and values. It keeps no longer buffer in memory,
    /// such as the batch in which it came.
    #[must_use]
    pub fn detached(mut self) -> Self {
        match &mut self {
            Self::Read { at, .. } | Self::Prepare { at, .. } => *at = at.detached(),
            Self::Accept { record, .. }
            | Self::Learn { record }
            | Self::Store { record, .. }
            | Self::Repair { record, .. } => *record = record.clone().detached(),
            Self::Page { records, .. } => {
                for record in records {
                    *record = record.clone().detached();
                }
            }
            Self::Confirm { claims, .. } => {
                for claim in claims {
                    claim.at = claim.at.detached();
                }
            }
            Self::List { listing } => {
                for (at, _) in &mut listing.entries {
                    *at = at.detached();
                }
            }
            Self::Holding { held, .. } | Self::Promised { held, .. } => held.content.detach(),
            Self::Compare { .. }
            | Self::Accepted { .. }
            | Self::Nack { .. }
            | Self::Abstain { .. }
            | Self::Confirmed { .. }
            | Self::Pull { .. }
            | Self::SamePage { .. }
            | Self::GcFloor { .. }
            | Self::GcSum { .. }
            | Self::GcPurge { .. }
            | Self::Epoch { .. } => {}
        }
        self
    }
}

impl Content {
    fn detach(&mut self) {
        if let Self::Value {
            value: Some(value), ..
        } = self
        {
            *value = Bytes::copy_from_slice(value);
        }
    }
}
