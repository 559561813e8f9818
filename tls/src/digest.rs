//! Digests of authorities, and tokens that contain one, to recognise a cluster at the first
//! contact.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use torc_ring::topology::Bearer;

/// Longest hostname in DNS, with a port.
const MAX_ADDRESS_LEN: usize = 253 + 6;

/// SHA-256 of an authority's certificate in DER: what `openssl x509 -fingerprint -sha256` prints.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthorityDigest([u8; 32]);

/// Text that is not a digest of an authority, or not a token with one. Does not contain the text,
/// which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedToken {
    /// Not a SHA-256.
    #[error("the digest of an authority has 64 hexadecimal digits, as `kvctl ca show` prints it")]
    Digest,
    /// Not `ID.SECRET.DIGEST`.
    #[error("expected ID.SECRET.DIGEST, as the first node of a secure cluster prints it")]
    Pinned,
    /// Not `ID.SECRET.DIGEST@HOST:PORT`.
    #[error("expected ID.SECRET.DIGEST@HOST:PORT, as `kvctl token create --join` prints it")]
    Join,
}

impl AuthorityDigest {
    /// The digest of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// Its bytes, as on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for AuthorityDigest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for AuthorityDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AuthorityDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for AuthorityDigest {
    type Err = MalformedToken;

    /// Parses hexadecimal digits, with or without colons between the bytes and the prefix
    /// `sha256:`.
    fn from_str(text: &str) -> Result<Self, MalformedToken> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let mut nibbles = digits.chars().filter(|c| *c != ':');
        let mut nibble = || nibbles.next()?.to_digit(16)?.try_into().ok();
        let mut bytes = [0_u8; 32];
        for byte in &mut bytes {
            let pair: Option<(u8, u8)> = nibble().zip(nibble());
            let (high, low) = pair.ok_or(MalformedToken::Digest)?;
            *byte = high << 4 | low;
        }
        match nibbles.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(MalformedToken::Digest),
        }
    }
}

/// A bearer token with the digest of its cluster's authority: `ID.SECRET.DIGEST`. `Debug` hides the
/// secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedToken {
    /// The token.
    pub bearer: Bearer,
    /// The authority of its cluster.
    pub authority: AuthorityDigest,
}

impl PinnedToken {
    /// The whole token, secret included.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.bearer.reveal(), self.authority)
    }
}

impl FromStr for PinnedToken {
    type Err = MalformedToken;

    fn from_str(text: &str) -> Result<Self, MalformedToken> {
        let (bearer, digest) = text.rsplit_once('.').ok_or(MalformedToken::Pinned)?;
        Ok(Self {
            bearer: bearer.parse().map_err(|_| MalformedToken::Pinned)?,
            authority: digest.parse().map_err(|_| MalformedToken::Pinned)?,
        })
    }
}

/// Lets a node join a secure cluster: a token, the cluster's authority, and a node to contact.
/// `Debug` hides the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// The token, and the authority.
    pub token: PinnedToken,
    /// host:port of a node of the cluster.
    pub address: String,
}

impl JoinToken {
    /// The whole token, secret included, as `ID.SECRET.DIGEST@HOST:PORT`.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{}@{}", self.token.reveal(), self.address)
    }
}

impl FromStr for JoinToken {
    type Err = MalformedToken;

    fn from_str(text: &str) -> Result<Self, MalformedToken> {
        let (token, address) = text.trim().split_once('@').ok_or(MalformedToken::Join)?;
        let is_address = address.len() <= MAX_ADDRESS_LEN
            && address.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty()
                    && !host.contains('/')
                    && port.parse::<u16>().is_ok_and(|it| it != 0)
            });
        if !is_address {
            return Err(MalformedToken::Join);
        }
        Ok(Self {
            token: token.parse().map_err(|_| MalformedToken::Join)?,
            address: address.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_openssl_and_as_we_write_it() {
        let digest = AuthorityDigest::of(&CertificateDer::from(b"abc".to_vec()));
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text, "FIPS 180-2, appendix B.1");
        let upper = text.to_uppercase();
        let pairs: Vec<&str> = (0..32).map(|at| &upper[2 * at..2 * at + 2]).collect();
        for same in [text, &format!("sha256:{text}"), &pairs.join(":")] {
            assert_eq!(same.parse(), Ok(digest));
        }
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('b', "x")] {
            let parsed = wrong.parse::<AuthorityDigest>();
            assert_eq!(parsed, Err(MalformedToken::Digest), "{wrong}");
        }
    }

    #[test]
    fn a_join_token_is_read_as_it_is_written_and_does_not_show_its_secret() {
        let token = JoinToken {
            token: PinnedToken {
                bearer: Bearer::new(7, [0xc0; 32]),
                authority: [0xab; 32].into(),
            },
            address: "[::1]:7400".to_owned(),
        };
        let text = token.reveal();
        assert_eq!(text.parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains("c0c0"));
        let (start, _) = text.split_once('@').unwrap();
        for wrong in [
            "",
            start,
            &format!("{start}@"),
            &format!("{start}@host"),
            &format!("{start}@host:0"),
            &format!("{start}@http://host:1"),
            &text[1..],
            &text.replacen('.', "", 1),
        ] {
            let parsed = wrong.parse::<JoinToken>();
            assert_eq!(parsed, Err(MalformedToken::Join), "{wrong}");
        }
    }
}
