//! Settings of a node: from flags, `TORC_*` variables and a TOML file, in that order
//! of precedence.
//!
//! `check` turns [`RawSettings`], as given, into valid [`Settings`].

mod check;
mod error;
mod raw;
mod settings;
#[cfg(test)]
mod tests;

pub use error::ConfigError;
pub use raw::{RawSettings, Secret};
pub use settings::{Given, SecureSettings, Settings, TlsSettings};
