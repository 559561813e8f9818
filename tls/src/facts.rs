//! The facts in a certificate.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use crate::pem::{self, TlsError};
use crate::{AuthorityDigest, Identity};

/// Certificates are valid from this long before they are issued, because clocks differ.
pub(crate) const BACKDATED: Duration = Duration::from_secs(24 * 3600);

/// The facts in a certificate, for display and renewal. Does not verify the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its subject.
    pub subject: String,
    /// Its identity, if Torc issued it.
    pub identity: Option<Identity>,
    /// The hostnames and addresses that it is for.
    pub names: Vec<String>,
    /// Whether it may issue certificates.
    pub is_authority: bool,
    /// From when it is valid.
    pub not_before: SystemTime,
    /// Until when.
    pub not_after: SystemTime,
    /// Its digest.
    pub digest: AuthorityDigest,
}

impl CertificateFacts {
    /// The facts in a certificate; `None` if it cannot be parsed.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let names = parsed.subject_alternative_name().ok()?;
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => ip(bytes).map(|ip| ip.to_string()),
            _ => None,
        });
        let time = |unix_s: i64| {
            let since = Duration::from_secs(u64::try_from(unix_s).ok()?);
            SystemTime::UNIX_EPOCH.checked_add(since)
        };
        Some(Self {
            subject: parsed.subject().to_string(),
            identity: Identity::of(certificate).ok(),
            names: names.collect(),
            is_authority: parsed.is_ca(),
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
            digest: AuthorityDigest::of(certificate),
        })
    }

    /// The facts in each certificate of a PEM text. `file` names its origin in errors.
    ///
    /// # Errors
    /// [`TlsError::Malformed`].
    pub fn of_pem(pem: &str, file: &Path) -> Result<Vec<Self>, TlsError> {
        let malformed = || TlsError::Malformed {
            file: file.to_owned(),
            what: "certificate",
        };
        let chain = pem::chain(file, pem.as_bytes())?;
        let facts = chain.iter().map(|it| Self::of(it).ok_or_else(malformed));
        facts.collect()
    }

    /// When to renew it: after two thirds of its life, counted from when it was issued.
    #[must_use]
    pub fn renew_at(&self) -> SystemTime {
        let issued = self.not_before + BACKDATED;
        let life = self.not_after.duration_since(issued).unwrap_or_default();
        issued + life * 2 / 3
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
