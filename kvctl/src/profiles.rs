//! Clusters that the user has logged in to: one file in the user's configuration directory,
//! readable only by its owner.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use torc_client::ClientTls;
use torc_tls::CertificateFacts;

use crate::failure::Failure;

/// A cluster and the client's identity. Without `Debug`, because the token is a secret.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// Nodes, as host:port.
    pub(crate) endpoints: Vec<String>,
    /// The authority of the nodes, in PEM.
    pub(crate) authority: String,
    /// `id.secret`.
    pub(crate) token: String,
}

impl Profile {
    /// The settings to connect with.
    ///
    /// # Errors
    /// [`Failure::Usage`] if someone has edited the file.
    pub(crate) fn tls(&self) -> Result<ClientTls, Failure> {
        let tls = ClientTls::trusting(&self.authority, &path()?);
        tls.map_err(|error| Failure::Usage(error.to_string()))
    }
}

/// All of them.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profiles {
    current: Option<String>,
    profiles: BTreeMap<String, Profile>,
}

impl Profiles {
    /// Reads the file; no profiles if it does not exist.
    ///
    /// # Errors
    /// [`Failure::File`] when it cannot be read, [`Failure::Usage`] when it is malformed.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Ok(path) = path() else {
            return Ok(Self::default());
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::file("read", &path, error)),
        };
        serde_json::from_slice(&text).map_err(|error| {
            let path = path.display();
            Failure::Usage(format!(
                "{path}: {error}: correct the file, or remove it and log in again"
            ))
        })
    }

    /// Replaces the file as a whole.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let path = path()?;
        let failed = |error| Failure::file("write", &path, error);
        let dir = path.parent().unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(failed)?;
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let mut file = file.open(&beside).map_err(failed)?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|error| failed(error.into()))?;
        let written = file.write_all(b"\n").and_then(|()| file.sync_all());
        written.map_err(failed)?;
        std::fs::rename(&beside, &path).map_err(failed)
    }

    /// The profiles with their names, and whether each is the current one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Profile, bool)> {
        let of = |name: &String| self.current.as_ref() == Some(name);
        self.profiles
            .iter()
            .map(move |(name, profile)| (name, profile, of(name)))
    }

    /// The profile that commands use.
    pub(crate) fn current(mut self) -> Option<(String, Profile)> {
        self.profiles.remove_entry(&self.current?)
    }

    /// The profile of this name.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub(crate) fn named(mut self, name: &str) -> Result<(String, Profile), Failure> {
        self.profiles
            .remove_entry(name)
            .ok_or_else(|| unknown(name))
    }

    /// Adds or replaces a profile and makes it the current one.
    pub(crate) fn put(&mut self, name: String, profile: Profile) {
        self.current = Some(name.clone());
        self.profiles.insert(name, profile);
    }

    /// Makes a profile trust these authorities, in PEM, which a cluster that it trusts has sent.
    ///
    /// # Errors
    /// [`Failure::File`] when the file cannot be read or written; [`Failure::Usage`] if they are
    /// not authorities.
    pub(crate) fn learn(name: &str, authorities: String) -> Result<(), Failure> {
        let mut all = Self::read()?;
        let known = all.profiles.get_mut(name);
        let Some(profile) = known.filter(|profile| profile.authority != authorities) else {
            return Ok(());
        };
        let facts = CertificateFacts::of_pem(&authorities, Path::new("the cluster's answer"));
        let facts = facts.map_err(|error| Failure::Usage(error.to_string()))?;
        if !facts.iter().all(|it| it.is_authority) {
            let message = "the cluster sent a certificate that is not an authority's";
            return Err(Failure::Usage(message.to_owned()));
        }
        profile.authority = authorities;
        all.write()
    }

    /// Makes a profile the current one.
    ///
    /// # Errors
    /// [`Failure::Usage`] if it does not exist.
    pub(crate) fn choose(&mut self, name: &str) -> Result<(), Failure> {
        if !self.profiles.contains_key(name) {
            return Err(unknown(name));
        }
        self.current = Some(name.to_owned());
        Ok(())
    }

    /// Removes a profile. Its token stays valid until it is revoked or expires.
    ///
    /// # Errors
    /// [`Failure::Usage`] if it does not exist.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Failure> {
        self.profiles.remove(name).ok_or_else(|| unknown(name))?;
        self.current.take_if(|current| current == name);
        Ok(())
    }
}

fn unknown(name: &str) -> Failure {
    Failure::Usage(format!(
        "no profile `{name}`: see `kvctl profile list`, or log in with `kvctl login`"
    ))
}

/// `$XDG_CONFIG_HOME/torc/profiles.json`, by default in `~/.config`.
fn path() -> Result<PathBuf, Failure> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || Some(PathBuf::from(of("HOME")?).join(".config"));
    let dir = of("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let dir = dir.ok_or_else(|| {
        let message = "no directory for profiles: set HOME or XDG_CONFIG_HOME";
        Failure::Usage(message.to_owned())
    })?;
    Ok(dir.join("torc").join("profiles.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile {
            endpoints: vec!["a:1".to_owned()],
            authority: String::new(),
            token: "id.secret".to_owned(),
        }
    }

    #[test]
    fn the_last_login_is_current_until_another_is_chosen_or_it_is_removed() {
        let mut profiles = Profiles::default();
        profiles.put("one".to_owned(), profile());
        profiles.put("two".to_owned(), profile());
        let current = |profiles: &Profiles| {
            let mut all = profiles.iter();
            all.find(|(_, _, is)| *is).map(|(name, _, _)| name.clone())
        };
        assert_eq!(current(&profiles).as_deref(), Some("two"));
        profiles.choose("one").unwrap();
        assert_eq!(current(&profiles).as_deref(), Some("one"));
        assert!(profiles.choose("three").is_err() && profiles.remove("three").is_err());
        profiles.remove("one").unwrap();
        assert_eq!(current(&profiles), None, "no other takes its place");
        assert!(profiles.named("one").is_err());
    }
}
