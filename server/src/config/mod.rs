//! Settings of a node: from flags, `TORC_*` variables and a TOML file, in that order
//! of precedence.
//!
//! [`RawSettings`] is what was given, [`Settings`] what was found good; `check` leads from one to the other.

mod check;
mod error;
mod raw;
mod settings;
#[cfg(test)]
mod tests;

pub use error::ConfigError;
pub use raw::{RawSettings, Secret};
pub use settings::{Given, SecureSettings, Settings, TlsSettings};
