//! The limits of a node on what its callers consume at a time.
//!
//! * [`connections`]: connections, and the time that they may be silent.
//! * [`budget`]: bytes of requests and answers; [`meter`] charges them, around every service.
//! * [`admission`]: operations on keys; [`classes`]: requests that cost more.
//! * [`answers`]: answers in several messages, which end when the caller stops reading.
//!
//! Invariant: a permit or a charge is held until what it stands for is freed; dropping it gives it
//! back.
//!
//! Absent on purpose: who may do what (`torc-access`), and what the requests do.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "tests count small numbers"
    )
)]

pub mod admission;
pub mod answers;
pub mod budget;
pub mod classes;
pub mod connections;
pub mod meter;
