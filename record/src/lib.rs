//! Records and the order of their versions.
//!
//! The vocabulary of every other crate: a [`Key`] and its [`Digest`], the [`Ballot`] that versions
//! a [`Record`], and the [`HybridClock`] that issues ballots. This crate is pure: it reads no
//! clock, opens no file and draws no random number; callers pass them in.
//!
//! Invariants:
//! * A key is hashed once per operation; token, partition and every sketch or gate
//!   row derive from that one [`Digest`].
//! * Versions are ordered by [`Ballot`] alone, in one place: [`Record::supersedes`].
//!
//! Absent on purpose: where a record lives (`torc-ring`), how it is stored
//! (`torc-store`), how it travels (`torc-proto`).

mod ballot;
mod clock;
mod collected;
mod condition;
mod digest;
mod key;
mod locator;
mod record;
mod replica;
mod stored;
mod sum;
mod width;

pub use ballot::{Ballot, Epoch, HybridTime, NodeSlot, ParseBallotError};
pub use clock::{ClockError, HybridClock, MAX_CLOCK_SKEW_MS};
pub use condition::Condition;
pub use digest::{DIGEST_LEN, Digest, DigestKey, GenerationDigests};
pub use key::{Key, KeyError, Layer, MAX_KEY_LEN, NamespaceId};
pub use locator::{KeyId, Locator};
pub use record::{MAX_VALUE_LEN, Record, RecordError, State};
pub use replica::{ReplicaBatch, ReplicaFacts};
pub use stored::{StoredVersion, StoredVersions};
pub use sum::{PageSum, entry_sum};
pub use width::{to_millis, to_usize};
