//! Settings of a node: from flags, `TORC_*` variables and a TOML file, in that order
//! of precedence.
//!
//! `check` turns [`RawSettings`], as given, into valid [`Settings`]. [`variables`] refuses misspelt
//! variables. Nothing is started or bound here.

mod check;
mod error;
mod raw;
mod settings;
#[cfg(test)]
mod tests;
pub mod variables;

pub use error::ConfigError;
pub use raw::{RawSettings, Secret};
pub use settings::{Given, SecureSettings, Settings, TlsSettings, TransferRates};
