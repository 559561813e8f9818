//! An authority, which issues certificates to nodes and clients.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::facts::BACKDATED;
use crate::pem::blocks;
use crate::{AuthorityDigest, Identity, TlsError};

const DAY: Duration = Duration::from_secs(24 * 3600);
const AUTHORITY_DAYS: u32 = 3650;
/// Longest accepted signing request. One of ours has some 400 bytes.
const MAX_REQUEST_LEN: usize = 4 << 10;

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

/// The private key of a node, which never leaves it.
#[derive(Debug)]
pub struct Key(KeyPair);

impl Key {
    /// Generates a key.
    ///
    /// # Errors
    /// [`TlsError::Issue`] if the system has no random numbers.
    pub fn new() -> Result<Self, TlsError> {
        KeyPair::generate().map(Self).map_err(failed)
    }

    /// Reads a key in PEM.
    ///
    /// # Errors
    /// [`TlsError::Issue`] if the text is not a key.
    pub fn open(pem: &str) -> Result<Self, TlsError> {
        KeyPair::from_pem(pem).map(Self).map_err(failed)
    }

    /// The key in PEM: for its holder alone.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A signing request for this key, in PEM. It names nothing: the authority decides the
    /// certificate's content.
    ///
    /// # Errors
    /// [`TlsError::Issue`].
    pub fn request(&self) -> Result<String, TlsError> {
        let request = CertificateParams::default().serialize_request(&self.0);
        request.and_then(|it| it.pem()).map_err(failed)
    }
}

/// A request to certify a key that the sender has.
#[derive(Debug)]
pub struct SigningRequest(CertificateSigningRequestParams);

impl SigningRequest {
    /// Reads a request in PEM and verifies that its sender has the key. Ignores all other fields of
    /// the request.
    ///
    /// # Errors
    /// [`TlsError::Issue`].
    pub fn open(pem: &str) -> Result<Self, TlsError> {
        if pem.len() > MAX_REQUEST_LEN {
            let message = format!("the request is longer than {MAX_REQUEST_LEN} bytes");
            return Err(TlsError::Issue(message));
        }
        let request = CertificateSigningRequestParams::from_pem(pem);
        request.map(Self).map_err(failed)
    }

    /// SHA-256 of the key, which identifies the sender.
    #[must_use]
    pub fn key_digest(&self) -> [u8; 32] {
        let key = CertificateDer::from(self.0.public_key.der_bytes());
        *AuthorityDigest::of(&key).as_bytes()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err gives")]
fn failed(error: rcgen::Error) -> TlsError {
    TlsError::Issue(error.to_string())
}

impl Authority {
    /// Creates an authority, valid for ten years.
    ///
    /// # Errors
    /// [`TlsError::Issue`] if the system has no random numbers.
    pub fn new() -> Result<Self, TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params_of(&key).self_signed(&key).map_err(failed)?.pem();
        Ok(Self { certificate, key })
    }

    /// Reads an authority from the contents of its files. If they hold several, as during a
    /// rotation, reads the first.
    ///
    /// # Errors
    /// [`TlsError::Issue`] if certificate and key are not an authority's, or do not match.
    pub fn open(certificates: &str, keys: &str) -> Result<Self, TlsError> {
        let first = Self::open_all(certificates, keys).into_iter().next();
        first.map_or_else(|| Self::open_one(certificates, keys), Ok)
    }

    /// The authorities among `certificates` whose keys are given, in the order of the certificates.
    #[must_use]
    pub fn open_all(certificates: &str, keys: &str) -> Vec<Self> {
        let open = |certificate| {
            let mut keys = blocks(keys);
            keys.find_map(|key| Self::open_one(certificate, key).ok())
        };
        blocks(certificates).filter_map(open).collect()
    }

    /// This authority's key, certified by the authority that it replaces, in PEM: a peer that
    /// trusts only the old authority then also trusts certificates that this one issues. The
    /// reverse would keep the old authority trusted for as long as the new one is.
    ///
    /// # Errors
    /// [`TlsError::Issue`].
    pub fn certified_by(&self, predecessor: &Self) -> Result<String, TlsError> {
        let issuer = Issuer::from_ca_cert_pem(&predecessor.certificate, &predecessor.key);
        let issuer = issuer.map_err(failed)?;
        let certificate = params_of(&self.key).signed_by(&self.key, &issuer);
        Ok(certificate.map_err(failed)?.pem())
    }

    fn open_one(certificate: &str, key: &str) -> Result<Self, TlsError> {
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
        // Ends with a newline, so that another certificate can follow.
        let certificate = format!("{}\n", certificate.trim_end());
        Ok(Self { certificate, key })
    }

    /// Its certificate in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its private key in PEM: its holder can act as any node and any client.
    #[must_use]
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// The digest that identifies it.
    ///
    /// # Errors
    /// [`TlsError::Issue`] if the certificate is not in PEM.
    pub fn digest(&self) -> Result<AuthorityDigest, TlsError> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let certificate = certificate.map_err(|error| TlsError::Issue(error.to_string()))?;
        Ok(AuthorityDigest::of(&certificate))
    }

    /// Issues a certificate for an identity, with the hostnames and addresses at which clients may
    /// reach it.
    ///
    /// # Errors
    /// [`TlsError::Issue`] if a name is invalid.
    pub fn issue(
        &self,
        identity: &Identity,
        names: &[String],
        days: u32,
    ) -> Result<Issued, TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        Ok(Issued {
            certificate: self.certify(&key, identity, names, days * DAY)?,
            key: key.serialize_pem(),
        })
    }

    /// Issues a certificate for another party's key, in PEM.
    ///
    /// # Errors
    /// [`TlsError::Issue`] if a name is invalid.
    pub fn sign(
        &self,
        request: &SigningRequest,
        identity: &Identity,
        names: &[String],
        life: Duration,
    ) -> Result<String, TlsError> {
        self.certify(&request.0.public_key, identity, names, life)
    }

    fn certify(
        &self,
        key: &impl PublicKeyData,
        identity: &Identity,
        names: &[String],
        life: Duration,
    ) -> Result<String, TlsError> {
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
        valid_for(&mut params, life);
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, &self.key).map_err(failed)?;
        let certificate = params.signed_by(key, &issuer).map_err(failed)?;
        Ok(certificate.pem())
    }
}

/// The content of the certificate of an authority with this key.
fn params_of(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    // Authorities have distinct names, so that errors tell which one is missing.
    let mut common_name = "Torc authority ".to_owned();
    for byte in params.key_identifier(key).iter().take(4) {
        // Writing to a string cannot fail.
        let _ = write!(common_name, "{byte:02x}");
    }
    let name = &mut params.distinguished_name;
    name.push(DnType::OrganizationName, "Torc");
    name.push(DnType::CommonName, common_name);
    valid_for(&mut params, AUTHORITY_DAYS * DAY);
    params
}

fn valid_for(params: &mut CertificateParams, life: Duration) {
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + life).into();
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::CertificateFacts;

    #[test]
    fn of_files_that_hold_several_authorities_those_with_keys_are_opened_in_order() {
        let [old, new, other] = [(); 3].map(|()| Authority::new().unwrap());
        let certificates =
            [&old, &new, &other].map(|it| format!("what it is\n{}", it.certificate()));
        let keys = new.key() + &old.key();
        let all = Authority::open_all(&certificates.concat(), &keys);
        let digests = |of: &[Authority]| of.iter().map(|it| it.digest().ok()).collect::<Vec<_>>();
        assert_eq!(digests(&all), digests(&[old, new]));
        assert!(Authority::open_all(&certificates.concat(), "").is_empty());
        assert!(Authority::open_all("-----BEGIN", &keys).is_empty());
    }

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
    #[test]
    fn a_request_gets_a_certificate_of_what_the_authority_says_and_of_nothing_that_it_asks() {
        let authority = Authority::new().unwrap();
        let key = Key::new().unwrap();
        assert_eq!(Key::open(&key.pem()).unwrap().pem(), key.pem());
        let mut greedy = CertificateParams::new(["bank.example".to_owned()]).unwrap();
        greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let greedy = greedy.serialize_request(&key.0).unwrap().pem().unwrap();
        let requests =
            [greedy, key.request().unwrap()].map(|it| SigningRequest::open(&it).unwrap());
        assert_eq!(requests[0].key_digest(), requests[1].key_digest());
        let node: Identity = "torc://any/node/any".parse().unwrap();
        let names = ["10.0.0.1".to_owned(), "db-1.example".to_owned()];
        let life = Duration::from_secs(90);
        for request in requests {
            let leaf = authority.sign(&request, &node, &names, life).unwrap();
            let facts = CertificateFacts::of_pem(&leaf, Path::new("leaf")).unwrap();
            let [facts] = &facts[..] else {
                panic!("one certificate")
            };
            assert!(!facts.is_authority);
            assert_eq!(facts.identity.as_ref(), Some(&node));
            assert_eq!(facts.names, names);
            let left = facts.renew_at().duration_since(SystemTime::now()).unwrap();
            assert!(
                (58..=60).contains(&left.as_secs()),
                "two thirds of its life: {left:?}"
            );
        }
        let other = Key::new().unwrap().request().unwrap();
        let other = SigningRequest::open(&other).unwrap().key_digest();
        let mine = SigningRequest::open(&key.request().unwrap()).unwrap();
        assert_ne!(mine.key_digest(), other);
        for wrong in ["", "no PEM", authority.certificate(), &" ".repeat(5_000)] {
            assert!(SigningRequest::open(wrong).is_err());
        }
    }
}
