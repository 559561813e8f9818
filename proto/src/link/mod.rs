//! Messages between replicas: [`Envelope`](torc_replication::Envelope) to wire and back.
//!
//! Envelopes travel in batches, each after its length, so that a receiver counts and
//! bounds what came before it makes room for it. The same holds for the lists inside:
//! what is decoded takes at most a few times the bytes that came.
//!
//! Values, keys and whole batches share the buffer they arrived in: who keeps a small
//! part for long should copy it.
//!
//! Checked here: every length and count, ballots, that the partition exists and that every
//! key lies in it. Not checked: that a digest is its key's, which costs a hash and is
//! the coordinator's to say; whether the sender may speak of the partition at all.

mod batch;
mod claims;
mod from_wire;
mod hello;
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
/// Longest batch that is accepted, bytes.
pub const MAX_BATCH_LEN: usize = 8 << 20;
/// Longest envelope that is accepted, bytes: the longest list of versions and the
/// longest page fit.
pub const MAX_ENVELOPE_LEN: usize = 6 << 20;
/// Most records of one page of a copy.
pub const MAX_PAGE_RECORDS: usize = 1_024;
/// A page is cut before the record that would make it longer than this, bytes; its first
/// record always travels.
pub const MAX_PAGE_LEN: usize = 4 << 20;
