//! The target of a build: the namespace, the digest key and the partitions.

use std::path::Path;

use serde::{Deserialize, Serialize};
use torc_record::{Ballot, Digest, DigestKey, Locator, NamespaceId};
use torc_ring::{Partition, Partitions, Token};

use crate::BuildError;
use crate::sums::hex32;

/// The target of a generation, or of the first records of an ordinary namespace: the digests of the keys, and the
/// partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The id under which its records are stored.
    pub namespace: NamespaceId,
    /// The key of its digests: its own, not the cluster's. That of an ordinary namespace is the cluster's.
    #[serde(with = "hex32")]
    pub digest_key: [u8; 32],
    /// Partitions of the cluster.
    pub partitions: Partitions,
    /// The version of all of its records.
    pub ballot: Ballot,
}

impl Target {
    /// For use without a cluster: 4,096 partitions, the first version.
    #[must_use]
    pub fn offline(digest_key: [u8; 32]) -> Self {
        Self {
            namespace: NamespaceId::DEFAULT,
            digest_key,
            partitions: Partitions::DEFAULT,
            ballot: Ballot::default(),
        }
    }

    /// Reads the output of `kvctl generation reserve`.
    ///
    /// # Errors
    /// [`BuildError::NoReservation`], [`BuildError::Io`].
    pub fn read(path: &Path) -> Result<Self, BuildError> {
        let bytes = std::fs::read(path).map_err(BuildError::io("read", path))?;
        serde_json::from_slice(&bytes).map_err(|error| BuildError::NoReservation {
            path: path.to_owned(),
            what: error.to_string(),
        })
    }

    /// Whether it is of no cluster.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.ballot == Ballot::default()
    }

    /// The digest of a key.
    #[must_use]
    pub fn digest(&self, key: &[u8]) -> Digest {
        Digest::with(&DigestKey(self.digest_key), self.namespace, key)
    }

    pub(crate) fn locator<'a>(&self, key: &'a [u8]) -> Locator<&'a [u8]> {
        Locator {
            digest: self.digest(key),
            namespace: self.namespace,
            key,
        }
    }

    pub(crate) fn partition(&self, digest: &Digest) -> Partition {
        self.partitions.holding(self.namespace, Token::of(digest))
    }
}
