//! The name under which an access is counted.

use torc_record::{Digest, NamespaceId};

/// The name of a hot key: its namespace, and its bytes unless they are withheld.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName {
    /// The key's namespace.
    pub namespace: NamespaceId,
    /// Its bytes; `None` if keys must not be shown.
    pub key: Option<Box<[u8]>>,
}

impl KeyName {
    /// Bytes of memory, including its digest.
    pub(super) fn cost(&self) -> usize {
        size_of::<(Digest, Self)>() + self.key.as_ref().map_or(0, |key| key.len())
    }
}
