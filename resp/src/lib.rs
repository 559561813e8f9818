//! The protocol of Redis clients, RESP2 and RESP3.
//!
//! * [`Parser`]: parses requests, and checks limits before it allocates.
//! * [`Reply`]: replies, in both versions of the protocol.
//! * [`Spec`], [`SPECS`]: the table of commands: arity, flags, keys, and what each takes.
//! * [`Command`]: a parsed request; errors have Redis' words ([`CommandError`]).
//! * [`KeyOp`], [`Entry`]: a command's operation on one key. Pure: value and time in, value and
//!   reply out.
//! * [`Pattern`]: globs of `SCAN`; [`key_slot`]: slots of `CLUSTER`.
//!
//! Absent on purpose: sockets, a runtime, a clock, namespaces, and reading and writing values. The
//! crate supports only strings, so no command ever answers WRONGTYPE.
//!
//! Source: the Redis serialization protocol specification, RESP2 and RESP3; replies and errors are those of Redis 7.2.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "tests count small numbers"
    )
)]

mod args;
mod command;
mod connection;
mod decimal;
mod error;
mod glob;
mod inline;
mod keyop;
mod number;
mod parser;
mod refused;
mod reply;
mod slot;
mod spec;

pub use command::{Command, Join, Parsed};
pub use connection::{ClientCommand, ClusterCommand, CommandCommand, ConfigCommand, Hello, Secret};
pub use error::{CommandError, ProtocolError};
pub use glob::Pattern;
pub use keyop::{Entry, Expiry, ExpiryIf, KeyOp, KeyState, SetIf, SetOp, Unit};
pub use parser::{Limits, Parser, Request};
pub use reply::{Reply, Version};
pub use slot::{SLOTS, key_slot};
pub use spec::{Access, SPECS, Spec};
