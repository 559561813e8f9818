//! An authority that issues certificates to nodes and clients.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::{Identity, TlsError};

/// Clocks differ: a certificate is valid from this long before it was issued.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);
const AUTHORITY_DAYS: u32 = 3650;

/// An authority: its certificate and its key.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    key: KeyPair,
}

/// A certificate and its key, both in PEM.
#[derive(Debug, Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its private key: for its holder alone.
    pub key: String,
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err gives")]
fn failed(error: rcgen::Error) -> TlsError {
    TlsError::Issue(error.to_string())
}

impl Authority {
    /// A new one, valid for ten years.
    ///
    /// # Errors
    /// [`TlsError::Issue`] where the system has no random numbers.
    pub fn new() -> Result<Self, TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Two authorities have two names, so that errors tell which one is missing.
        let mut common_name = "Torc authority ".to_owned();
        for byte in params.key_identifier(&key).iter().take(4) {
            // Writing to a string does not fail.
            let _ = write!(common_name, "{byte:02x}");
        }
        let name = &mut params.distinguished_name;
        name.push(DnType::OrganizationName, "Torc");
        name.push(DnType::CommonName, common_name);
        valid_for(&mut params, AUTHORITY_DAYS);
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self { certificate, key })
    }

    /// One from its files.
    ///
    /// # Errors
    /// [`TlsError::Issue`] when they are not an authority's, or not of one.
    pub fn open(certificate: &str, key: &str) -> Result<Self, TlsError> {
        let key = KeyPair::from_pem(key).map_err(failed)?;
        let (_, block) = x509_parser::pem::parse_x509_pem(certificate.as_bytes())
            .map_err(|error| TlsError::Issue(error.to_string()))?;
        let parsed = block.parse_x509();
        let parsed = parsed.map_err(|error| TlsError::Issue(error.to_string()))?;
        if !parsed.is_ca() {
            let message = "the certificate is not an authority's".to_owned();
            return Err(TlsError::Issue(message));
        }
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            let message = "the key is not the authority's".to_owned();
            return Err(TlsError::Issue(message));
        }
        Ok(Self {
            certificate: certificate.to_owned(),
            key,
        })
    }

    /// Its certificate in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its private key in PEM: whoever has it can be any node and any client.
    #[must_use]
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// A certificate for somebody, with the hostnames and addresses that a client may reach it by.
    ///
    /// # Errors
    /// [`TlsError::Issue`] when a name is none.
    pub fn issue(
        &self,
        identity: &Identity,
        names: &[String],
        days: u32,
    ) -> Result<Issued, TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(names).map_err(failed)?;
        let uri = identity.to_string();
        let uri = uri.as_str().try_into().map_err(failed)?;
        params.subject_alt_names.push(SanType::URI(uri));
        let (name, usages) = match identity {
            Identity::Node { .. } => (
                "Torc node".to_owned(),
                vec![
                    ExtendedKeyUsagePurpose::ServerAuth,
                    ExtendedKeyUsagePurpose::ClientAuth,
                ],
            ),
            Identity::Client { name, .. } => {
                (name.clone(), vec![ExtendedKeyUsagePurpose::ClientAuth])
            }
        };
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, days);
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, &self.key).map_err(failed)?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn valid_for(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + Duration::from_secs(u64::from(days) * 24 * 3600)).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_opened_from_its_own_files_only() {
        let [one, other] = [(); 2].map(|()| Authority::new().unwrap());
        assert!(Authority::open(one.certificate(), &one.key()).is_ok());
        assert!(Authority::open(one.certificate(), &other.key()).is_err());
        assert!(Authority::open("no PEM", &one.key()).is_err());
        let node: Identity = "torc://any/node/1".parse().unwrap();
        let leaf = one.issue(&node, &["localhost".into()], 1).unwrap();
        let refused = Authority::open(&leaf.certificate, &leaf.key).unwrap_err();
        assert!(
            refused.to_string().contains("not an authority's"),
            "{refused}"
        );
    }
}
