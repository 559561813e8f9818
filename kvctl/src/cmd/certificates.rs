//! `kvctl ca` and `kvctl cert`: create and show certificates on this machine. Only `kvctl ca show`
//! contacts nodes.

use std::path::{Path, PathBuf};

use serde::Serialize;
use torc_client::{Authorities, ErrorKind};
use torc_tls::{Authority, CertificateFacts, Identity, Issued, Role};

use super::rotate;
use crate::failure::Failure;
use crate::files;
use crate::global::Global;
use crate::out::{Out, note};

/// File names of an authority.
const AUTHORITY: &str = "ca";

/// Create, show or rotate the authority that issues a cluster's certificates
#[derive(Debug, clap::Args)]
pub(crate) struct AuthorityArgs {
    #[command(subcommand)]
    command: AuthorityCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuthorityCommand {
    /// Create an authority: DIR/ca.pem, for every node and client, and DIR/ca-key.pem, to keep
    /// secret.
    ///
    /// With ca-key.pem, anyone can impersonate any node and any client: store it away from the
    /// cluster.
    Create {
        /// Directory for the two files; created if missing.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Show the certificates of a file: names, validity and SHA-256.
    ///
    /// Without a file: show the authorities that the nodes of a secure cluster trust, and the
    /// progress of a rotation on each node.
    Show {
        /// A PEM file. Default: ask the cluster; if it has no authorities of its own, show that of
        /// --tls-ca or of the current profile.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Print the certificates in PEM, for use as --tls-ca.
        #[arg(long)]
        pem: bool,
    },
    Rotate(rotate::Args),
}

/// A certificate, as JSON.
#[derive(Debug, Serialize)]
struct Shown {
    subject: String,
    identity: Option<String>,
    names: Vec<String>,
    is_authority: bool,
    sha256: String,
    not_before: String,
    not_after: String,
}

impl From<CertificateFacts> for Shown {
    fn from(facts: CertificateFacts) -> Self {
        let date = |time| humantime::format_rfc3339_seconds(time).to_string();
        Self {
            subject: facts.subject,
            identity: facts.identity.map(|it| it.to_string()),
            names: facts.names,
            is_authority: facts.is_authority,
            sha256: facts.digest.to_string(),
            not_before: date(facts.not_before),
            not_after: date(facts.not_after),
        }
    }
}

/// The PEM certificates of a file, or those that commands trust, and their origin.
fn known(file: Option<&Path>, global: &Global) -> Result<(String, PathBuf), Failure> {
    let named = file.or(global.tls_ca());
    let profile = if named.is_some() {
        None
    } else {
        global.profile()?
    };
    match (named, profile) {
        (Some(file), _) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| Failure::file("read", file, error))?;
            Ok((text, file.to_owned()))
        }
        (None, Some((name, profile))) => Ok((profile.authority, PathBuf::from(name))),
        (None, None) => {
            let message =
                "name a file: there is no current profile (`kvctl login`) and no --tls-ca";
            Err(Failure::Usage(message.to_owned()))
        }
    }
}

/// The authorities that nodes trust; `None` if nodes have none of their own, or if kvctl has no
/// identity.
async fn agreed(global: &Global) -> Result<Option<Authorities>, Failure> {
    if !global.says_who_asks()? {
        return Ok(None);
    }
    let client = global.client()?;
    match client.authorities().await {
        Ok(authorities) => {
            // Also update the profile.
            client.topology().await?;
            Ok(Some(authorities))
        }
        Err(error) if error.kind() == ErrorKind::Refused => Ok(None),
        Err(error) => {
            note(format_args!(
                "showing what this machine knows, because the cluster did not answer: {error}"
            ));
            Ok(None)
        }
    }
}

async fn show(
    file: Option<&Path>,
    pem: bool,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let agreed = match file {
        Some(_) => None,
        None => agreed(global).await?,
    };
    let (text, label) = match &agreed {
        Some(agreed) => (agreed.trusted.concat(), PathBuf::from("the cluster")),
        None => known(file, global)?,
    };
    if pem {
        return out.line(text.trim_end());
    }
    let facts = CertificateFacts::of_pem(&text, &label).map_err(refused)?;
    print(facts, global, out)?;
    agreed.map_or(Ok(()), |agreed| rotate::show(&agreed, global, out))
}

fn print(facts: Vec<CertificateFacts>, global: &Global, out: &mut Out) -> Result<(), Failure> {
    for shown in facts.into_iter().map(Shown::from) {
        if global.json() {
            out.json(&shown)?;
            continue;
        }
        let what = if shown.is_authority {
            "authority"
        } else {
            "certificate"
        };
        let whose = shown.identity.as_deref().unwrap_or(&shown.subject);
        out.line(format_args!("{what}  {whose}"))?;
        if !shown.names.is_empty() {
            out.line(format_args!("  names   {}", shown.names.join(", ")))?;
        }
        out.line(format_args!("  SHA-256 {}", shown.sha256))?;
        out.line(format_args!(
            "  valid   {} to {}",
            shown.not_before, shown.not_after
        ))?;
    }
    Ok(())
}

/// Issue certificates to nodes and clients
#[derive(Debug, clap::Args)]
pub(crate) struct CertificateArgs {
    #[command(subcommand)]
    command: CertificateCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CertificateCommand {
    Issue(IssueArgs),
}

/// Issue a certificate: PREFIX.pem and its key, PREFIX-key.pem.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("holder").required(true)))]
struct IssueArgs {
    /// For a node of the cluster.
    #[arg(long, group = "holder")]
    node: bool,
    /// For a client of this name; logs show it.
    #[arg(long, value_name = "NAME", group = "holder", requires = "roles")]
    client: Option<String>,
    /// Roles of the client, separated by commas: read, write, observe, or admin, which
    /// includes the others.
    #[arg(
        long = "role",
        value_name = "ROLE",
        value_delimiter = ',',
        conflicts_with = "node"
    )]
    roles: Vec<Role>,
    /// With --node: hostnames or IP addresses by which clients reach the node. Repeat the
    /// option or separate them with commas. `localhost`, 127.0.0.1 and ::1 are always included.
    #[arg(
        long = "name",
        value_name = "HOST",
        value_delimiter = ',',
        conflicts_with = "client"
    )]
    names: Vec<String>,
    /// Validity, days.
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Directory of the authority.
    #[arg(long, value_name = "DIR", default_value = ".")]
    ca: PathBuf,
    /// Prefix of the two files: `certs/node-1` makes certs/node-1.pem and certs/node-1-key.pem.
    #[arg(value_name = "PREFIX")]
    prefix: PathBuf,
}

/// The files that were written, as JSON.
#[derive(Debug, Serialize)]
struct Written {
    certificate: String,
    key: String,
    /// The identity in the certificate; `None` for an authority.
    identity: Option<String>,
}

pub(crate) async fn authority(
    args: &AuthorityArgs,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let dir = match &args.command {
        AuthorityCommand::Create { dir } => dir,
        AuthorityCommand::Show { file, pem } => {
            return show(file.as_deref(), *pem, global, out).await;
        }
        AuthorityCommand::Rotate(args) => return rotate::run(args, global, out).await,
    };
    let authority = Authority::new().map_err(refused)?;
    std::fs::create_dir_all(dir).map_err(|error| Failure::file("make", dir, error))?;
    let issued = Issued {
        certificate: authority.certificate().to_owned(),
        key: authority.key(),
    };
    write(&dir.join(AUTHORITY), &issued, None, global, out)
}

pub(crate) fn certificate(
    args: &CertificateArgs,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let CertificateCommand::Issue(args) = &args.command;
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path);
        text.map_err(|error| Failure::file("read", &path, error))
    };
    let [certificate, key] = paths(&args.ca.join(AUTHORITY));
    let authority = Authority::open(&read(certificate)?, &read(key)?).map_err(refused)?;
    let (identity, names) = if let Some(name) = &args.client {
        let client = Identity::client(name, args.roles.iter().copied().collect());
        (client.map_err(refused)?, Vec::new())
    } else {
        let node = Identity::Node {
            cluster: None,
            node: None,
        };
        let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        (node, local.into_iter().chain(args.names.clone()).collect())
    };
    let issued = authority.issue(&identity, &names, args.days);
    let issued = issued.map_err(refused)?;
    write(&args.prefix, &issued, Some(&identity), global, out)
}

/// The certificate's file and the key's.
fn paths(prefix: &Path) -> [PathBuf; 2] {
    ["", "-key"].map(|kind| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(format!("{kind}.pem"));
        name.into()
    })
}

/// Writes the files, but never over an existing one: a lost key cannot be made again.
fn write(
    prefix: &Path,
    issued: &Issued,
    identity: Option<&Identity>,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let [certificate, key] = paths(prefix);
    write_new(&key, &issued.key, 0o600)?;
    if let Err(failure) = write_new(&certificate, &issued.certificate, 0o644) {
        // A key without its certificate is useless.
        let _ = std::fs::remove_file(&key);
        return Err(failure);
    }
    let written = Written {
        certificate: certificate.display().to_string(),
        key: key.display().to_string(),
        identity: identity.map(ToString::to_string),
    };
    if global.json() {
        return out.json(&written);
    }
    let whose = written.identity.map(|who| format!(" for {who}"));
    let whose = whose.unwrap_or_default();
    out.line(format_args!(
        "wrote {}{whose} and its key {}",
        written.certificate, written.key
    ))
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut file = files::create(path, mode)?;
    files::write(&mut file, text.as_bytes()).map_err(|error| {
        // A part of it would stop the next attempt.
        let _ = std::fs::remove_file(path);
        Failure::file("write", path, error)
    })
}

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_documented() {
        let authority = Authority::new().unwrap();
        let facts = CertificateFacts::of_pem(authority.certificate(), Path::new("ca.pem"));
        let shown = Shown::from(facts.unwrap().remove(0));
        assert!(shown.is_authority && shown.identity.is_none());
        crate::out::assert_documented(&shown);
    }

    #[test]
    fn what_is_printed_is_documented() {
        crate::out::assert_documented(&Written {
            certificate: String::new(),
            key: String::new(),
            identity: None,
        });
    }

    #[test]
    fn a_prefix_may_hold_dots() {
        let files = paths(Path::new("certs/db.example"));
        let names = files.map(|file| file.display().to_string());
        assert_eq!(names, ["certs/db.example.pem", "certs/db.example-key.pem"]);
    }
}
