//! The hot keys on a node and in the cluster, over any window.
//!
//! ```text
//! record … record ── snapshot ──▶ Interval ──▶ kept, thinned by Retention
//!                                    │ merge: a window of one node
//!                                    ▼
//!               Interval of each node ── hottest ──▶ HotAnswer
//! ```
//!
//! Each [`Interval`] is a separate stream with its count-min sketch and its heavy hitters. A
//! snapshot starts the next interval from zero; by linearity, that gives the same counters as
//! subtracting the previous snapshot from the next. A window is the sum of its intervals, the
//! cluster the sum of its nodes.
//!
//! [`HotNamespaces`] has one stream per namespace, so that a key is hot by its share of its own
//! namespace.
//!
//! *Recall is 1 over any window and any number of nodes*: let N be the accesses of all parts
//! together. A key with fewer than mᵢ/k accesses in each part i has fewer than N/k in total; so a
//! key with N/k is a candidate of some part, and all candidates are estimated again in the summed
//! sketch. For the same reason, parts can be merged permanently, and their candidates below the new
//! threshold dropped.
//!
//! *Error*: an estimate is never too low, and above the truth by at most εN with probability 1 - δ,
//! where N is that of the window.
//!
//! *Bytes*: the sketch, and candidates within a budget. If the budget does not suffice, the
//! lightest are dropped, and the answer states above which count it is complete
//! ([`Interval::missed`]).
//!
//! Absent on purpose: when snapshots are taken, and where they are stored and sent, which the
//! server decides.

mod answer;
mod by_namespace;
mod codec;
mod interval;
mod key_name;
mod retention;
mod tracker;

pub use answer::{HotAnswer, HotKey, Majority, NodeWindow, hottest};
pub use by_namespace::{HotNamespaces, MAX_STREAMS, NamespaceIntervals};
pub use codec::IntervalLimits;
pub use interval::{Candidate, Interval};
pub use key_name::KeyName;
pub use retention::{Retention, Span, ThinningStep, covering};
pub use tracker::{HotKeys, HotKeysOptions, MAX_STREAM_BYTES, OptionsError};
