//! `kvctl login`: makes a cluster the default of all commands.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use torc_client::{Client, ClientTls};
use torc_tls::{AuthorityDigest, CertificateFacts, Introduction, PinnedToken, Trust};

use super::profile::Row;
use crate::args::{Address, Endpoint};
use crate::failure::Failure;
use crate::format::BASE64;
use crate::global::Global;
use crate::out::{Out, note};
use crate::profiles::{Profile, Profiles};

const CONNECT_TIME: Duration = Duration::from_secs(3);

/// Log in to a secure cluster and make it the default of all commands
///
/// Reads a token from `--token-file`, TORC_TOKEN, `--token` or standard input. Recognises the
/// cluster's authority by its digest, which the first token of a cluster contains. With other
/// tokens, pass `--ca-digest` (`kvctl ca show` prints it) or the file, `--tls-ca`. Stores token and
/// authority in a profile that only you can read: `torc/profiles.json` in $XDG_CONFIG_HOME or
/// ~/.config.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// gRPC address of a node, host:port. Default: the first --endpoint, or 127.0.0.1:7400.
    #[arg(value_name = "HOST:PORT")]
    address: Option<Address>,
    /// Name of the profile. Default: the address.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// SHA-256 of the authority's certificate, which the node must have.
    #[arg(long, value_name = "DIGEST", conflicts_with = "trust_on_first_use")]
    ca_digest: Option<AuthorityDigest>,
    /// Trust any authority that the node presents. An attacker on the network can then impersonate
    /// the node and get the token.
    #[arg(long)]
    trust_on_first_use: bool,
}

pub(crate) async fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let address = address(args, global)?;
    let given = match global.revealed_token()? {
        Some(token) => token,
        None => read_token()?,
    };
    let (token, pinned) = match given.parse::<PinnedToken>() {
        Ok(pinned) => (pinned.bearer.reveal(), Some(pinned.authority)),
        Err(_) => (given, None),
    };
    let authority = match global.tls_ca() {
        Some(file) => {
            std::fs::read_to_string(file).map_err(|source| Failure::file("read", file, source))?
        }
        None => meet(&address, trust(args, pinned)?).await?,
    };
    let profile = verified(&address, global, authority, token).await?;
    let name = args.name.clone().unwrap_or(address);
    let mut profiles = Profiles::read()?;
    profiles.put(name.clone(), profile.clone());
    profiles.write()?;
    let row = Row::new(&name, &profile, None);
    if global.json() {
        return out.json(&row);
    }
    out.line(format_args!(
        "commands now use the profile `{name}`; authority SHA-256 {}",
        row.sha256
    ))
}

/// The node to log in at.
fn address(args: &Args, global: &Global) -> Result<String, Failure> {
    if let Some(address) = &args.address {
        return Ok(address.0.clone());
    }
    let Some(endpoint) = global.endpoints().first().map(Endpoint::as_str) else {
        return Ok("127.0.0.1:7400".to_owned());
    };
    if endpoint.starts_with("http://") {
        let message = format!("{endpoint} would not be encrypted: remove `http://`");
        return Err(Failure::Usage(message));
    }
    let address = endpoint.strip_prefix("https://").unwrap_or(endpoint);
    Ok(address.to_owned())
}

/// Reads a token from standard input; on a terminal, without echo.
fn read_token() -> Result<String, Failure> {
    let failed = |source| Failure::File {
        action: "read the token from",
        path: "standard input".to_owned(),
        source,
    };
    let terminal = console::Term::stderr();
    let line = if std::io::stdin().is_terminal() && terminal.is_term() {
        note("token:");
        terminal.read_secure_line().map_err(failed)?
    } else {
        let mut line = String::new();
        std::io::stdin()
            .lock()
            .read_line(&mut line)
            .map_err(failed)?;
        line
    };
    match line.trim() {
        "" => Err(Failure::Usage(
            "no token: use --token-file FILE, TORC_TOKEN or standard input".to_owned(),
        )),
        token => Ok(token.to_owned()),
    }
}

fn trust(args: &Args, pinned: Option<AuthorityDigest>) -> Result<Trust, Failure> {
    let usage = |message: &str| Err(Failure::Usage(message.to_owned()));
    match (pinned, args.ca_digest) {
        (Some(pinned), Some(given)) if pinned != given => {
            usage("the token is for a cluster with a different authority than --ca-digest")
        }
        (Some(digest), _) | (_, Some(digest)) => Ok(Trust::Digest(digest)),
        (None, None) if args.trust_on_first_use => Ok(Trust::FirstUse),
        (None, None) => usage(
            "no authority to trust: pass its digest (--ca-digest) or its file (--tls-ca); `kvctl ca show` on a node \
             or a client that has it prints the digest",
        ),
    }
}

/// The authority that a node presents, if `trust` accepts it.
async fn meet(address: &str, trust: Trust) -> Result<String, Failure> {
    let (_, authority) = Introduction::meet(address, trust, CONNECT_TIME).await?;
    if trust == Trust::FirstUse {
        let digest = AuthorityDigest::of(&authority);
        note(format_args!(
            "trusting the authority that {address} presents, SHA-256 {digest}"
        ));
    }
    Ok(pem(&authority))
}

fn pem(certificate: &[u8]) -> String {
    let text = BASE64.encode(certificate);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    let lines = lines.join("\n");
    format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n")
}

/// The profile, once the cluster has accepted the token on an ordinary connection.
async fn verified(
    address: &str,
    global: &Global,
    authority: String,
    token: String,
) -> Result<Profile, Failure> {
    let label = global.tls_ca().unwrap_or(Path::new("the authority"));
    let tls = ClientTls::trusting(&authority, label);
    let tls = tls.map_err(|error| Failure::Usage(error.to_string()))?;
    let facts = CertificateFacts::of_pem(&authority, label);
    let facts = facts.map_err(|error| Failure::Usage(error.to_string()))?;
    if !facts.iter().all(|it| it.is_authority) {
        let label = label.display();
        return Err(Failure::Usage(format!(
            "{label} holds a certificate that is not an authority's"
        )));
    }
    let client = Client::builder()
        .endpoints([address])
        .deadline(global.timeout())
        .tls(tls)
        .token(token.as_str())
        .connect_lazy()?;
    let table = client.topology().await?;
    let mut endpoints = vec![address.to_owned()];
    let members = table
        .members
        .values()
        .map(|member| &member.identity.address);
    endpoints.extend(members.filter(|it| *it != address).cloned());
    Ok(Profile {
        endpoints,
        authority,
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(ca_digest: Option<u8>, trust_on_first_use: bool) -> Args {
        Args {
            address: None,
            name: None,
            ca_digest: ca_digest.map(|byte| [byte; 32].into()),
            trust_on_first_use,
        }
    }

    #[test]
    fn nobody_is_trusted_unless_that_was_asked_for() {
        let digest = |byte: u8| AuthorityDigest::from([byte; 32]);
        let known = Some(Trust::Digest(digest(1)));
        assert_eq!(trust(&args(None, false), Some(digest(1))).ok(), known);
        assert_eq!(trust(&args(Some(1), false), None).ok(), known);
        assert_eq!(trust(&args(Some(1), false), Some(digest(1))).ok(), known);
        assert_eq!(trust(&args(None, true), Some(digest(1))).ok(), known);
        assert_eq!(trust(&args(None, true), None).ok(), Some(Trust::FirstUse));
        assert!(trust(&args(None, false), None).is_err());
        assert!(trust(&args(Some(2), false), Some(digest(1))).is_err());
    }

    #[test]
    fn a_certificate_is_written_as_it_is_read() {
        let authority = torc_tls::Authority::new().unwrap();
        let facts = |pem: &str| CertificateFacts::of_pem(pem, Path::new("p")).unwrap();
        let certificate = authority.certificate().replace("\r\n", "\n");
        let inner: String = certificate
            .lines()
            .filter(|line| !line.starts_with('-'))
            .collect();
        let again = pem(&BASE64.decode(inner).unwrap());
        assert_eq!(facts(&again), facts(authority.certificate()));
    }
}
