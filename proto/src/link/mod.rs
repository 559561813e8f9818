//! Messages between replicas: converts [`Envelope`](torc_replication::Envelope) to the wire and
//! back.
//!
//! Envelopes travel in batches, each preceded by its length, so a receiver counts and bounds them
//! before it allocates memory for them. The same holds for the lists inside: the decoded form takes
//! at most a few times the received bytes.
//!
//! Values, keys and whole batches share the buffer in which they arrived: copy a small part before
//! keeping it for long.
//!
//! Checked here: every length and count, ballots, that the partition exists and that every key
//! belongs to it. Not checked: that a digest matches its key, which costs a hash and is up to the
//! coordinator; and whether the sender may send messages about the partition at all.

mod batch;
mod claims;
mod from_wire;
mod hello;
mod list;
mod parts;
mod to_wire;

#[cfg(test)]
mod strategies;
#[cfg(test)]
mod tests;

pub use batch::{envelope_from_bytes, push_envelope, split_batch};
pub use from_wire::envelope_from_wire;
pub use hello::{LinkHello, LinkWelcome};
pub use to_wire::envelope_to_wire;

/// Most envelopes of one batch.
pub const MAX_BATCH_ENVELOPES: usize = 256;
/// Longest accepted batch, bytes.
pub const MAX_BATCH_LEN: usize = 8 << 20;
/// Longest accepted envelope, bytes: the longest list of versions and the longest page fit.
pub const MAX_ENVELOPE_LEN: usize = 6 << 20;
/// Most records of one page of a copy.
pub const MAX_PAGE_RECORDS: usize = 1_024;
/// A page ends before the record that would make it longer than this, bytes; its first record is
/// always included.
pub const MAX_PAGE_LEN: usize = 4 << 20;
