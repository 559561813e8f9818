//! Reads certificates and keys from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::IdentityError;

/// Largest accepted file.
const MOST_BYTES: u64 = 1 << 20;

/// Why certificates or keys cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file has no PEM block of this kind, or a broken one.
    #[error("{} has no readable {what} in PEM", .file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The expected kind of block.
        what: &'static str,
    },
    /// The certificate has no identity that Torc knows.
    #[error("{}: {source}; issue a valid one with `kvctl cert issue`", .file.display())]
    Identity {
        /// The certificate's file.
        file: PathBuf,
        /// The error in its identity.
        source: IdentityError,
    },
    /// The certificate is a client's, where a node's is needed.
    #[error("{} is the certificate of {found}, not of a node: issue one with `kvctl cert issue --node`", .file.display())]
    NotANode {
        /// The certificate's file.
        file: PathBuf,
        /// The identity found.
        found: String,
    },
    /// rustls refused certificate, key or authority.
    #[error("{}: {source}", .file.display())]
    Refused {
        /// The file in question.
        file: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The authority cannot issue.
    #[error("cannot issue a certificate: {0}")]
    Issue(String),
}

/// Reads a file of certificates or keys.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable {
        file: file.to_owned(),
        source,
    };
    let length = std::fs::metadata(file).map_err(unreadable)?.len();
    if length > MOST_BYTES {
        return Err(unreadable(std::io::ErrorKind::FileTooLarge.into()));
    }
    std::fs::read(file).map_err(unreadable)
}

/// Most blocks of a text that are examined.
const MOST_BLOCKS: usize = 16;

/// The PEM blocks of a text, without the text between them.
pub fn blocks(text: &str) -> impl Iterator<Item = &str> {
    const END: &str = "-----END ";
    let mut left = text;
    let next = move || {
        let block = &left[left.find("-----BEGIN ")?..];
        let end = block.find(END)? + END.len();
        let end = end
            + block[end..]
                .find('\n')
                .map_or(block.len() - end, |at| at + 1);
        let (block, after) = block.split_at(end);
        left = after;
        Some(block)
    };
    std::iter::from_fn(next).take(MOST_BLOCKS)
}

/// A certificate chain, the holder's certificate first.
pub(crate) fn chain(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let malformed = || TlsError::Malformed {
        file: file.to_owned(),
        what: "certificate",
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|_| malformed())?;
    if chain.is_empty() {
        return Err(malformed());
    }
    Ok(chain)
}

/// The first private key.
pub(crate) fn key(file: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|_| TlsError::Malformed {
        file: file.to_owned(),
        what: "private key",
    })
}

/// The trusted authorities: all in the file, so that one can replace another.
pub(crate) fn roots(file: &Path, text: &[u8]) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(file, text)? {
        let added = roots.add(certificate);
        added.map_err(|source| TlsError::Refused {
            file: file.to_owned(),
            source,
        })?;
    }
    Ok(Arc::new(roots))
}
