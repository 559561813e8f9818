//! Why a stored configuration is refused.

/// An impossible configuration. No part of it is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an impossible configuration: {0}")]
pub struct MalformedConfig(pub(super) &'static str);
