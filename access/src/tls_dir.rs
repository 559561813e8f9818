//! The directory `tls/` in a secure node's data directory, and the authority that the nodes of a
//! cluster share.
//!
//! | file | holds |
//! |---|---|
//! | `node-key.pem` | the node's private key, drawn here; it never leaves the node |
//! | `node.pem` | its certificate, and the authority's behind it; replaced as a whole |
//! | `ca-key.pem` | the authority's private key |
//! | `ca.pem` | the authority's certificate: written last, so the directory is complete if it is there |
//! | `first-use` | empty: the first tokens have not been printed yet |
//!
//! While the cluster rotates its authority, `ca.pem` holds both certificates, the issuing one
//! first, and `ca-key.pem` both keys. An authority counts only with certificate and key; keys are
//! written first, so any crash leaves at least one authority.
//!
//! Files are 0600 and the directory 0700. Writes are atomic per file. All functions block on the
//! disk.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use torc_ring::topology::RotationStep;
use torc_tls::{
    Authority, AuthorityDigest, CertificateFacts, Files, Identity, Key, SigningRequest, TlsError,
    blocks,
};

/// Limit on the stored keys of authorities: two in use, and those of rotations that did not start.
const MAX_KEYS: usize = 8;

const CA: &str = "ca.pem";
const CA_KEY: &str = "ca-key.pem";
const NODE: &str = "node.pem";
const NODE_KEY: &str = "node-key.pem";
const FIRST_USE: &str = "first-use";

/// Why the directory cannot be used. Its content was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsDirError {
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// The attempted action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not hold what it should, or a certificate cannot be issued.
    #[error("{}: {source}", .dir.display())]
    Tls {
        /// The directory.
        dir: PathBuf,
        /// The problem.
        source: TlsError,
    },
}

/// The files that an admitted node receives.
pub struct Admitted {
    /// Its certificate, in PEM.
    pub certificate: String,
    /// The certificate of the authority, in PEM.
    pub authority: String,
    /// The key of the authority, in PEM.
    pub authority_key: String,
}

/// `tls/` of a data directory.
#[derive(Debug, Clone)]
pub struct TlsDir(PathBuf);

impl TlsDir {
    /// The one in a data directory.
    #[must_use]
    pub fn of(data_dir: &Path) -> Self {
        Self(data_dir.join("tls"))
    }

    /// A directory that contains only an authority.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self(dir.to_owned())
    }

    /// Whether the node has its authority.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.path(CA).exists()
    }

    /// The files that a node serves with.
    #[must_use]
    pub fn files(&self) -> Files {
        Files {
            certificate: self.path(NODE),
            key: self.path(NODE_KEY),
            authorities: self.path(CA),
        }
    }

    /// Founds a cluster: creates an authority.
    pub fn found(&self) -> Result<(), TlsDirError> {
        let authority = Authority::new().map_err(|source| self.failed(source))?;
        self.write(CA_KEY, &authority.key())?;
        self.write(FIRST_USE, "")?;
        self.write(CA, authority.certificate())
    }

    /// Stores what another node issued, after checking that certificate, key and authority match.
    pub fn accept(&self, admitted: &Admitted) -> Result<(), TlsDirError> {
        Authority::open(&admitted.authority, &admitted.authority_key)
            .map_err(|source| self.failed(source))?;
        self.write(CA_KEY, &admitted.authority_key)?;
        self.write(NODE, &admitted.certificate)?;
        self.write(CA, &admitted.authority)
    }

    /// The node's key, generated if there is none. A node that was killed during its admission
    /// retries with the same key.
    pub fn key(&self) -> Result<Key, TlsDirError> {
        if let Some(pem) = self.read(NODE_KEY)? {
            return Key::open(&pem).map_err(|source| self.failed(source));
        }
        let key = Key::new().map_err(|source| self.failed(source))?;
        self.write(NODE_KEY, &key.pem())?;
        Ok(key)
    }

    /// Opens the complete directory, and renews the node's certificate if necessary.
    pub fn open(
        &self,
        mut names: Vec<String>,
        life: Duration,
    ) -> Result<OwnAuthority, TlsDirError> {
        let (certificates, keys) = (self.required(CA)?, self.required(CA_KEY)?);
        // Without one, this returns the reason.
        Authority::open(&certificates, &keys).map_err(|source| self.failed(source))?;
        let authorities = Authority::open_all(&certificates, &keys);
        let shown = self.shown()?;
        let issuer = authorities.first().map(Authority::certificate);
        let is_current = shown.last().map(String::as_str) == issuer;
        let chain = if is_current {
            shown.concat()
        } else {
            issuer.unwrap_or_default().to_owned()
        };
        names.sort_unstable();
        names.dedup();
        let own = OwnAuthority {
            dir: self.clone(),
            held: Mutex::new(Held { authorities, chain }),
            names,
            life,
        };
        if !is_current || own.leaf()?.is_none_or(|leaf| own.is_due(&leaf)) {
            own.renew()?;
        }
        Ok(own)
    }

    /// The certificates that follow the node's own in its chain.
    fn shown(&self) -> Result<Vec<String>, TlsDirError> {
        let pem = self.read(NODE)?.unwrap_or_default();
        let behind = blocks(&pem).skip(1);
        Ok(behind.map(|it| format!("{}\n", it.trim_end())).collect())
    }

    /// Whether the first tokens have not been shown yet.
    #[must_use]
    pub fn is_first_use(&self) -> bool {
        self.path(FIRST_USE).exists()
    }

    /// Records that the first tokens were shown.
    pub fn end_first_use(&self) -> Result<(), TlsDirError> {
        let path = self.path(FIRST_USE);
        fs::remove_file(&path).map_err(|source| file("remove", path, source))
    }

    /// Copies this authority to another data directory.
    pub fn share(&self, with: &Self) -> Result<(), TlsDirError> {
        for name in [CA_KEY, CA] {
            with.write(name, &self.required(name)?)?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn failed(&self, source: TlsError) -> TlsDirError {
        let dir = self.0.clone();
        TlsDirError::Tls { dir, source }
    }

    fn read(&self, name: &str) -> Result<Option<String>, TlsDirError> {
        match fs::read_to_string(self.path(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(file("read", self.path(name), source)),
        }
    }

    fn required(&self, name: &str) -> Result<String, TlsDirError> {
        let missing = || file("read", self.path(name), io::ErrorKind::NotFound.into());
        self.read(name)?.ok_or_else(missing)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), TlsDirError> {
        let failed = |source| file("write", self.path(name), source);
        let parent = self.0.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(failed)?;
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        // Readable only by its owner.
        let mut written = tempfile::NamedTempFile::new_in(&self.0).map_err(failed)?;
        written.write_all(text.as_bytes()).map_err(failed)?;
        written.as_file().sync_all().map_err(failed)?;
        let kept = written.persist(self.path(name));
        kept.map_err(|error| failed(error.error))?;
        File::open(&self.0)
            .and_then(|dir| dir.sync_all())
            .map_err(failed)
    }
}

fn file(action: &'static str, path: PathBuf, source: io::Error) -> TlsDirError {
    TlsDirError::File {
        action,
        path,
        source,
    }
}

/// The cluster's authority as this node has it, and the content of the node's own certificate.
#[derive(Debug)]
pub struct OwnAuthority {
    /// Where its files are.
    pub dir: TlsDir,
    held: Mutex<Held>,
    names: Vec<String>,
    life: Duration,
}

#[derive(Debug)]
struct Held {
    /// The authorities that the node trusts. The first issues certificates; during a rotation there
    /// are two.
    authorities: Vec<Authority>,
    /// The certificates in PEM that follow each issued one in its chain, the authority's own last.
    chain: String,
}

impl Held {
    /// There always is one: opening requires one, and `follow` keeps all trusted ones.
    fn issuer(&self) -> Result<&Authority, TlsError> {
        let none = || TlsError::Issue("this node has no authority".to_owned());
        self.authorities.first().ok_or_else(none)
    }

    fn sign(
        &self,
        request: &SigningRequest,
        names: &[String],
        life: Duration,
    ) -> Result<String, TlsError> {
        let leaf = self.issuer()?.sign(request, &any_node(), names, life)?;
        Ok(leaf + &self.chain)
    }

    fn certificates(&self) -> impl Iterator<Item = &str> {
        self.authorities.iter().map(Authority::certificate)
    }
}

fn keys_of(authorities: &[Authority]) -> String {
    authorities.iter().map(Authority::key).collect()
}

/// The chain of issued certificates in a step of a rotation. It cross-signs the new authority, so
/// nodes that trust only the old one accept what the new one issues.
fn chain(authorities: &[Authority], step: RotationStep) -> Result<String, TlsError> {
    let Some((issuer, others)) = authorities.split_first() else {
        return Ok(String::new());
    };
    let mut chain = String::new();
    if step == RotationStep::Issue {
        for old in others {
            chain += &issuer.certified_by(old)?;
            chain += old.certificate();
        }
    }
    Ok(chain + issuer.certificate())
}

impl OwnAuthority {
    /// The digest by which joining nodes recognise the authority.
    pub fn digest(&self) -> Result<AuthorityDigest, TlsError> {
        self.held.lock().issuer()?.digest()
    }

    /// The certificates of the trusted authorities in PEM. The first issues certificates.
    pub fn trusted(&self) -> Vec<String> {
        let held = self.held.lock();
        held.certificates().map(str::to_owned).collect()
    }

    /// Issues a certificate to another node.
    pub fn admit(&self, request: &SigningRequest, names: &[String]) -> Result<Admitted, TlsError> {
        let held = self.held.lock();
        Ok(Admitted {
            certificate: held.sign(request, names, self.life)?,
            authority: held.certificates().collect(),
            authority_key: keys_of(&held.authorities),
        })
    }

    /// Creates an authority to succeed this one, and stores its key. Returns its certificate;
    /// `None` if the node does not trust exactly `current`.
    pub fn draft(&self, current: &[String]) -> Result<Option<String>, TlsDirError> {
        let held = self.held.lock();
        if !held.certificates().eq(current.iter().map(String::as_str)) {
            return Ok(None);
        }
        let new = Authority::new().map_err(|source| self.dir.failed(source))?;
        let own = keys_of(&held.authorities);
        let known = self.dir.required(CA_KEY)?;
        let new_key = new.key();
        let first: Vec<&str> = blocks(&own).chain([&*new_key]).collect();
        // Keys of earlier attempts whose outcome is unknown.
        let others = blocks(&known).filter(|key| !first.contains(key));
        let keys: String = first.iter().copied().chain(others).take(MAX_KEYS).collect();
        self.dir.write(CA_KEY, &keys)?;
        Ok(Some(new.certificate().to_owned()))
    }

    /// The key of an authority that the node trusts.
    pub fn key_of(&self, digest: AuthorityDigest) -> Option<String> {
        let held = self.held.lock();
        let mut all = held.authorities.iter();
        let it = all.find(|it| it.digest().is_ok_and(|it| it == digest))?;
        Some(it.key())
    }

    /// The certificates in `trusted` whose keys this node lacks.
    pub fn lacking(&self, trusted: &[String]) -> Result<Vec<String>, TlsDirError> {
        let keys = self.dir.required(CA_KEY)?;
        let lacks = |it: &&String| Authority::open_all(it, &keys).is_empty();
        Ok(trusted.iter().filter(lacks).cloned().collect())
    }

    /// Puts a step of a rotation into effect: all of `trusted` are trusted, and the first one
    /// issues. `keys` are those received from other nodes. Returns false if keys are missing; then
    /// nothing was changed.
    pub fn follow(
        &self,
        trusted: &[String],
        step: RotationStep,
        keys: &[String],
    ) -> Result<bool, TlsDirError> {
        let failed = |source| self.dir.failed(source);
        let mut held = self.held.lock();
        let bundle = trusted.concat();
        let keys = self.dir.required(CA_KEY)? + &keys.concat();
        let authorities = Authority::open_all(&bundle, &keys);
        if authorities.is_empty() || authorities.len() != trusted.len() {
            return Ok(false);
        }
        if self.dir.required(CA)? != bundle {
            self.dir.write(CA_KEY, &keys_of(&authorities))?;
            self.dir.write(CA, &bundle)?;
        }
        let chain = chain(&authorities, step).map_err(failed)?;
        let shown = self.dir.shown()?;
        // The cross-signed certificate differs each time it is issued, so compares only the number
        // of certificates and the last one.
        let is_shown = shown.len() == blocks(&chain).count()
            && shown.last().map(String::as_str) == authorities.first().map(Authority::certificate);
        let chain = if is_shown { shown.concat() } else { chain };
        *held = Held { authorities, chain };
        if !is_shown {
            self.renew_by(&held)?;
        }
        Ok(true)
    }

    /// The time until the node's certificate must be renewed.
    pub fn fresh_for(&self) -> Result<Duration, TlsDirError> {
        Ok(self.leaf()?.as_ref().map(fresh_for).unwrap_or_default())
    }

    /// Replaces the node's certificate.
    pub fn renew(&self) -> Result<(), TlsDirError> {
        self.renew_by(&self.held.lock())
    }

    fn renew_by(&self, held: &Held) -> Result<(), TlsDirError> {
        let failed = |source| self.dir.failed(source);
        let request = self.dir.key()?.request().map_err(failed)?;
        let request = SigningRequest::open(&request).map_err(failed)?;
        let certificate = held.sign(&request, &self.names, self.life);
        self.dir.write(NODE, &certificate.map_err(failed)?)
    }

    fn leaf(&self) -> Result<Option<CertificateFacts>, TlsDirError> {
        let Some(pem) = self.dir.read(NODE)? else {
            return Ok(None);
        };
        let facts = CertificateFacts::of_pem(&pem, &self.dir.path(NODE));
        let facts = facts.map_err(|source| self.dir.failed(source))?;
        Ok(facts.into_iter().next())
    }

    /// Whether a certificate of the node must be renewed, or is for other names.
    fn is_due(&self, leaf: &CertificateFacts) -> bool {
        let mut names = leaf.names.clone();
        names.sort_unstable();
        names != self.names || fresh_for(leaf).is_zero()
    }
}

/// The time until a certificate must be renewed. Zero if it is not valid yet, as after the clock
/// was ahead when it was issued: no peer accepts it.
fn fresh_for(leaf: &CertificateFacts) -> Duration {
    let now = SystemTime::now();
    if leaf.not_before > now {
        return Duration::ZERO;
    }
    leaf.renew_at().duration_since(now).unwrap_or_default()
}

/// The cluster has its own authority, so certificates need not name the cluster. A node gets its id
/// later, when it joins.
const fn any_node() -> Identity {
    Identity::Node {
        cluster: None,
        node: None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const LIFE: Duration = Duration::from_secs(3_600);

    fn names() -> Vec<String> {
        vec!["localhost".to_owned(), "127.0.0.1".to_owned()]
    }

    #[test]
    fn a_new_authority_is_for_its_owner_alone_and_the_same_after_a_restart() {
        let data = tempfile::tempdir().unwrap();
        let dir = TlsDir::of(data.path());
        assert!(!dir.is_complete());
        dir.found().unwrap();
        assert!(dir.is_complete() && dir.is_first_use());
        let own = dir.open(names(), LIFE).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.0), 0o700);
        for entry in fs::read_dir(&dir.0).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        let leaf = own.leaf().unwrap();
        dir.end_first_use().unwrap();
        let again = dir.open(names(), LIFE).unwrap();
        assert_eq!(again.trusted(), own.trusted());
        assert_eq!(again.leaf().unwrap(), leaf, "nothing was due");
        assert!(!dir.is_first_use());
        let elsewhere = dir.open(vec!["db-1.example".to_owned()], LIFE).unwrap();
        let names = elsewhere.leaf().unwrap().unwrap().names;
        assert_eq!(names, ["db-1.example"], "it is reached by another name now");
    }

    #[test]
    fn a_directory_that_a_crash_left_half_done_is_begun_again() {
        let data = tempfile::tempdir().unwrap();
        let dir = TlsDir::of(data.path());
        dir.found().unwrap();
        fs::remove_file(dir.path(CA)).unwrap();
        assert!(!dir.is_complete());
        dir.found().unwrap();
        dir.open(names(), LIFE).unwrap();
        fs::remove_file(dir.path(NODE)).unwrap();
        dir.open(names(), LIFE).unwrap();
        fs::remove_file(dir.path(CA_KEY)).unwrap();
        let lost = dir.open(names(), LIFE).unwrap_err().to_string();
        assert!(lost.contains("ca-key.pem"), "{lost}");
    }

    /// A directory in the middle of a rotation, and the certificates of the old and the new
    /// authority.
    fn rotating(data: &tempfile::TempDir) -> (OwnAuthority, Vec<String>) {
        let dir = TlsDir::of(data.path());
        dir.found().unwrap();
        let own = dir.open(names(), LIFE).unwrap();
        let mut both = own.trusted();
        assert_eq!(own.draft(&[]).unwrap(), None, "another one than is here");
        both.push(own.draft(&both).unwrap().unwrap());
        (own, both)
    }

    #[test]
    fn each_step_of_a_rotation_is_on_disk_and_nobody_is_vouched_for_who_goes() {
        let data = tempfile::tempdir().unwrap();
        let (own, mut trusted) = rotating(&data);
        let reopened = || own.dir.open(names(), LIFE).unwrap().trusted();
        assert_eq!(reopened(), trusted[..1], "a draft is nothing yet");
        let shown = || own.dir.shown().unwrap();
        for (step, behind) in [
            (RotationStep::Trust, 1),
            (RotationStep::Issue, 3),
            (RotationStep::Finished, 1),
        ] {
            if step == RotationStep::Issue {
                trusted.reverse();
            }
            trusted.truncate(if step == RotationStep::Finished { 1 } else { 2 });
            assert!(own.follow(&trusted, step, &[]).unwrap());
            assert_eq!(reopened(), trusted, "{step}");
            assert_eq!((shown().len(), shown().last()), (behind, trusted.first()));
            let certificate = own.dir.read(NODE).unwrap();
            assert!(own.follow(&trusted, step, &[]).unwrap());
            assert_eq!(own.dir.read(NODE).unwrap(), certificate, "done once");
        }
        let keys = own.dir.required(CA_KEY).unwrap();
        assert_eq!(blocks(&keys).count(), 1, "the old key is gone");
    }

    #[test]
    fn a_kill_between_two_files_leaves_an_authority_and_the_step_is_done_again() {
        for step in [
            RotationStep::Trust,
            RotationStep::Issue,
            RotationStep::Finished,
        ] {
            let data = tempfile::tempdir().unwrap();
            let (own, both) = rotating(&data);
            let reversed: Vec<_> = both.iter().rev().cloned().collect();
            let steps = [
                (RotationStep::Trust, both.clone()),
                (RotationStep::Issue, reversed.clone()),
                (RotationStep::Finished, reversed[..1].to_vec()),
            ];
            let at = steps.iter().position(|(it, _)| *it == step).unwrap();
            for (step, trusted) in &steps[..at] {
                assert!(own.follow(trusted, *step, &[]).unwrap());
            }
            let files = [CA_KEY, CA, NODE];
            let before = files.map(|it| own.dir.required(it).unwrap());
            let trusted = &steps[at].1;
            assert!(own.follow(trusted, step, &[]).unwrap());
            let after = files.map(|it| own.dir.required(it).unwrap());
            // In the order in which they are written.
            for written in 0..=files.len() {
                for (at, file) in files.iter().enumerate() {
                    let text = if at < written {
                        &after[at]
                    } else {
                        &before[at]
                    };
                    own.dir.write(file, text).unwrap();
                }
                let again = own.dir.open(names(), LIFE).unwrap();
                assert!(
                    again.follow(trusted, step, &[]).unwrap(),
                    "{step} {written}"
                );
                assert_eq!(again.trusted(), *trusted, "{step} {written}");
            }
        }
    }

    #[test]
    fn a_node_follows_once_it_has_the_key_and_changes_nothing_before() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (own, both) = rotating(&here);
        assert!(own.follow(&both, RotationStep::Trust, &[]).unwrap());
        let other = TlsDir::of(there.path());
        own.dir.share(&other).unwrap();
        other.write(CA, &both[0]).unwrap();
        other
            .write(
                CA_KEY,
                blocks(&own.dir.required(CA_KEY).unwrap()).next().unwrap(),
            )
            .unwrap();
        let other = other.open(names(), LIFE).unwrap();
        assert!(!other.follow(&both, RotationStep::Trust, &[]).unwrap());
        assert_eq!(other.trusted(), both[..1]);
        let lacking = other.lacking(&both).unwrap();
        assert_eq!(lacking, both[1..]);
        let new = Authority::open(&both[1], &own.dir.required(CA_KEY).unwrap()).unwrap();
        let key = own.key_of(new.digest().unwrap()).unwrap();
        assert!(other.follow(&both, RotationStep::Trust, &[key]).unwrap());
        assert_eq!(other.trusted(), both);
    }

    #[test]
    fn a_certificate_that_is_not_valid_yet_is_replaced() {
        const DAY: Duration = Duration::from_secs(24 * 3_600);
        let data = tempfile::tempdir().unwrap();
        let dir = TlsDir::of(data.path());
        dir.found().unwrap();
        let own = dir.open(names(), LIFE).unwrap();
        let key_of = |file| rcgen::KeyPair::from_pem(&dir.required(file).unwrap()).unwrap();
        let authority = dir.required(CA).unwrap();
        let issuer = rcgen::Issuer::from_ca_cert_pem(&authority, key_of(CA_KEY)).unwrap();
        let mut early = rcgen::CertificateParams::new(names()).unwrap();
        let now = SystemTime::now();
        early.not_before = (now + DAY).into();
        early.not_after = (now + 90 * DAY).into();
        let early = early.signed_by(&key_of(NODE_KEY), &issuer).unwrap().pem();
        dir.write(NODE, &(early.clone() + &authority)).unwrap();
        assert_eq!(own.fresh_for().unwrap(), Duration::ZERO, "while it runs");
        let leaf = dir.open(names(), LIFE).unwrap().leaf().unwrap();
        assert!(leaf.unwrap().not_before <= now, "after a restart");
        assert!(own.fresh_for().unwrap() > Duration::ZERO);
    }

    #[test]
    fn what_does_not_fit_is_not_accepted() {
        let data = tempfile::tempdir().unwrap();
        let dir = TlsDir::of(&data.path().join("one"));
        let [one, other] = [(); 2].map(|()| Authority::new().unwrap());
        let mixed = Admitted {
            certificate: String::new(),
            authority: one.certificate().to_owned(),
            authority_key: other.key(),
        };
        assert!(dir.accept(&mixed).is_err() && !dir.is_complete());
    }
}
