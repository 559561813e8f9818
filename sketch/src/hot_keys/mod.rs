//! What is hot, on a node and in the cluster, over any window.
//!
//! ```text
//! record … record ── snapshot ──▶ Interval ──▶ kept, thinned by Retention
//!                                    │ merge: a window of one node
//!                                    ▼
//!               Interval of each node ── hottest ──▶ HotAnswer
//! ```
//!
//! Each [`Interval`] is a stream by itself: its count-min sketch, its heavy hitters. A snapshot starts the next from zero, which by
//! linearity gives the counters that subtracting the previous snapshot from the next would. A window is the sum of its intervals, the cluster the sum of its
//! nodes.
//!
//! [`HotNamespaces`] has a stream for each namespace, so that a key is hot by its share of its own.
//!
//! *Recall is 1 over any window and any number of nodes*: let N be the accesses of all parts together. A key with fewer than
//! mᵢ/k accesses in each part i has fewer than N/k in all; so a key with N/k is a candidate of some part,
//! and all candidates are asked of the summed sketch again. For the same reason parts can be merged for good and their candidates below the
//! new threshold dropped.
//!
//! *Error*: an estimate is never too low, and above the truth by at most εN with probability 1 - δ, N that of the window.
//!
//! *Bytes*: the sketch, and candidates within a budget. Where the budget does not suffice, the lightest are dropped, and the answer says above
//! which count it is complete ([`Interval::missed`]).
//!
//! Absent on purpose: when snapshots are cut, where they are kept, how they travel: the server.

mod answer;
mod by_namespace;
mod codec;
mod interval;
mod retention;
mod tracker;

pub use answer::{HotAnswer, HotKey, Majority, NodeWindow, hottest};
pub use by_namespace::{HotNamespaces, MAX_STREAMS, NamespaceIntervals};
pub use codec::IntervalLimits;
pub use interval::{Candidate, Interval};
pub use retention::{Retention, Span, ThinningStep, covering};
pub use tracker::{HotKeys, HotKeysOptions, KeyName, MAX_STREAM_BYTES, OptionsError};
