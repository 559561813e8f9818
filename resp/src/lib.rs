//! The protocol of Redis clients, RESP2 and RESP3.
//!
//! * [`Parser`]: requests out of bytes, with bounds before memory.
//! * [`Reply`]: what is answered, in both versions of the protocol.
//! * [`Spec`], [`SPECS`]: the table of commands: arity, flags, keys, and what each takes.
//! * [`Command`]: a request that was understood; a wrong one is refused in Redis' words ([`CommandError`]).
//! * [`KeyOp`], [`Entry`]: what a command does to one key. Pure: value and time come in, value and reply go out.
//! * [`Pattern`]: globs of `SCAN`; [`key_slot`]: slots of `CLUSTER`.
//!
//! Absent on purpose: sockets, a runtime, a clock, namespaces, and how a key's value is read and written. The crate
//! knows strings alone, so no command ever answers WRONGTYPE.
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
