//! `kvctl`, the command line of Torc.
//!
//! Each command is one file under `cmd`. What a command computes or draws is a pure
//! function beside it (or in `format`, `loading`, `ring_view`, `progress`), which tests
//! run without a cluster. The commands themselves only call the client library and
//! write the results.
//!
//! Contracts of every command:
//! * Data goes to stdout, everything else to stderr; `--output json` is stable
//!   (`OUTPUT.md`).
//! * A failure is one line on stderr and one of the exit codes of [`failure`].
//! * A write of unknown outcome is never resent unless the user asks for it.
//!
//! Absent on purpose: the wire protocol and routing (`torc-client`), and configuration files,
//! except the profiles of `kvctl login`: without one, endpoints come from flags or
//! `TORC_ENDPOINTS`.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people; `as` saturates"
)]

mod args;
mod cli;
mod cmd;
mod failure;
mod files;
mod format;
mod global;
mod input;
mod loading;
mod out;
mod profiles;
mod progress;
mod ring_view;
mod table;
mod text;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main(std::env::args_os())
}
