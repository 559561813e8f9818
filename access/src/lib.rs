//! Who may do what at a node: the identity of callers, the audit log, the certificates of a secure node, and how a node
//! gets them.
//!
//! * [`caller`]: authentication and authorisation of one caller.
//! * [`audit`]: the log of changes and denials.
//! * [`tls_dir`]: the certificates and the authority of a secure node.
//! * [`enrolment`]: joining with a token; [`attempts`] limits the strangers that try.
//!
//! Absent on purpose: sockets, and the tokens that are valid now, which the topology has.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "tests count small numbers"
    )
)]

pub mod attempts;
pub mod audit;
pub mod caller;
pub mod enrolment;
pub mod tls_dir;
