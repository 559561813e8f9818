//! The one hash of a key.
//!
//! The first 128 bits of keyed BLAKE3 over (namespace id as four little-endian bytes, key). The
//! 32-byte [`DigestKey`] is drawn when a cluster is founded, so outsiders cannot aim keys at one
//! partition. A generation has its own key, derived from the cluster's, so its
//! builder never learns the cluster's key. Every derived quantity (token, partition, gate
//! probes, sketch rows) comes from this digest; hashing a key a second time is a bug.

use serde::{Deserialize, Serialize};

use crate::NamespaceId;

/// Bytes of a digest.
pub const DIGEST_LEN: usize = 16;

/// Namespace and key up to this many bytes are hashed in one piece.
const SHORT_LEN: usize = 128;

/// The cluster's secret for keyed hashing, fixed when the cluster is created.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestKey(pub [u8; 32]);

impl DigestKey {
    /// Stands for a key that this client does not know. Its digests mean nothing to nodes.
    pub const WITHHELD: Self = Self([0; 32]);

    /// The key of a generation, with which its builder computes digests.
    #[must_use]
    pub fn of_generation(&self, id: NamespaceId) -> Self {
        let mut input = *b"torc generation\0\0\0\0\0";
        input[16..].copy_from_slice(&id.0.to_le_bytes());
        Self(*blake3::keyed_hash(&self.0, &input).as_bytes())
    }
}

impl std::fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

/// How the digests of a generation are computed. A generation without keys that was restored from a backup has
/// those of the generation in the backup: they can be computed only from the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationDigests {
    /// The digest key.
    pub key: DigestKey,
    /// The id that is hashed with each key.
    pub id: NamespaceId,
}

impl GenerationDigests {
    /// Those of a generation that was not restored, or of an ordinary namespace.
    #[must_use]
    pub fn derived(cluster: &DigestKey, id: NamespaceId) -> Self {
        let key = if id.is_generation() {
            cluster.of_generation(id)
        } else {
            *cluster
        };
        Self { key, id }
    }

    /// The digest of a key.
    #[must_use]
    pub fn digest(&self, key: &[u8]) -> Digest {
        Digest::with(&self.key, self.id, key)
    }
}

/// 128 bits of keyed BLAKE3 of (namespace id, key).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; DIGEST_LEN]);

impl Digest {
    /// Hashes a key. About 100 ns for keys up to 60 bytes, of a generation 160: call it once per
    /// operation.
    #[must_use]
    pub fn of(cluster: &DigestKey, namespace: NamespaceId, key: &[u8]) -> Self {
        GenerationDigests::derived(cluster, namespace).digest(key)
    }

    /// Hashes a key with the digest key of its namespace or generation itself.
    #[must_use]
    pub fn with(digest_key: &DigestKey, namespace: NamespaceId, key: &[u8]) -> Self {
        let prefix = namespace.0.to_le_bytes();
        let mut short = [0; SHORT_LEN];
        let input = short.get_mut(..prefix.len() + key.len());
        let full = if let Some(input) = input {
            // In one piece, because passing further pieces to the hasher costs the same again.
            let (start, rest) = input.split_at_mut(prefix.len());
            start.copy_from_slice(&prefix);
            rest.copy_from_slice(key);
            blake3::keyed_hash(&digest_key.0, input)
        } else {
            let mut hasher = blake3::Hasher::new_keyed(&digest_key.0);
            hasher.update(&prefix);
            hasher.update(key);
            hasher.finalize()
        };
        let mut out = [0; DIGEST_LEN];
        out.copy_from_slice(&full.as_bytes()[..DIGEST_LEN]);
        Self(out)
    }

    /// The first 64 bits, big-endian: the key's position on the ring.
    #[must_use]
    #[inline]
    pub fn high(&self) -> u64 {
        let mut half = [0; 8];
        half.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(half)
    }

    /// The last 64 bits, big-endian: independent of [`Digest::high`].
    #[must_use]
    #[inline]
    pub fn low(&self) -> u64 {
        let mut half = [0; 8];
        half.copy_from_slice(&self.0[8..]);
        u64::from_be_bytes(half)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: DigestKey = DigestKey([7; 32]);

    /// Can be recomputed with the Python package `blake3`:
    /// `blake3(b"\1\0\0\0" + key, key=b"\7" * 32).hexdigest()[:32]`.
    #[test]
    fn golden_digests_do_not_change() {
        let golden = [
            (&b"a"[..], "d0214ecda13452f79019a0709498cc2a"),
            (
                &b"https://example.org/"[..],
                "35766502bf7626f5d3beafcdc21e1d70",
            ),
            (&[0xff; 1024][..], "3233bdd5573d56570c3bfb851f9ec2e2"),
        ];
        for (key, hex) in golden {
            assert_eq!(Digest::of(&KEY, NamespaceId::DEFAULT, key).to_string(), hex);
        }
    }

    #[test]
    fn the_namespace_and_the_cluster_key_both_change_the_digest() {
        let base = Digest::of(&KEY, NamespaceId(1), b"k");
        assert_ne!(base, Digest::of(&KEY, NamespaceId(2), b"k"));
        assert_ne!(base, Digest::of(&DigestKey([8; 32]), NamespaceId(1), b"k"));
    }

    /// Can be recomputed with the Python package `blake3`, once for the key and once for the
    /// digest.
    #[test]
    fn a_generation_has_a_key_of_its_own() {
        let id = NamespaceId::generation(crate::Layer::BASE, 5);
        let own = KEY.of_generation(id);
        assert_eq!(Digest::of(&KEY, id, b"a"), Digest::with(&own, id, b"a"));
        assert_ne!(Digest::of(&KEY, id, b"a"), Digest::with(&KEY, id, b"a"));
        assert_eq!(
            Digest::of(&KEY, id, b"a").to_string(),
            "6ca3bffedcfde9f22a8f3d6674567aae"
        );
    }

    #[test]
    fn the_namespace_id_cannot_run_into_the_key() {
        let a = Digest::of(&KEY, NamespaceId(1), b"\0x");
        let b = Digest::of(&KEY, NamespaceId(1 << 8), b"x");
        assert_ne!(a, b, "a fixed-width prefix keeps (id, key) unambiguous");
    }

    #[test]
    fn halves_are_the_big_endian_words() {
        let digest = Digest([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(digest.high(), 0x0001_0203_0405_0607);
        assert_eq!(digest.low(), 0x0809_0a0b_0c0d_0e0f);
    }
}
