//! What a node tells of itself: log lines, spans of single operations, times and faults of requests, and the clock that they are
//! stamped with.
//!
//! * [`log`]: logs on standard error.
//! * [`spans`]: traces, sent to a collector.
//! * [`latencies`]: a histogram of request times.
//! * [`operation`]: the kinds of requests that are timed, and their metrics; [`slow`]: the log of slow ones.
//! * [`clock`]: the wall clock.
//!
//! Absent on purpose: which other metrics a node has, and how they are served.

pub mod clock;
pub mod latencies;
pub mod log;
pub mod operation;
pub mod slow;
pub mod spans;
