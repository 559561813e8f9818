//! The options of every command, and the client that they describe.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use torc_client::{Client, ClientTls};

use crate::args::{self, Endpoint};
use crate::failure::Failure;
use crate::out;
use crate::profiles::{Profile, Profiles};

/// Options of every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Nodes to contact first: repeat the option or separate them with commas. kvctl learns
    /// the other nodes from the first that answers. [default: the nodes of the current
    /// profile, else 127.0.0.1:7400,127.0.0.1:7401]
    #[arg(
        long = "endpoint",
        global = true,
        value_name = "URL",
        env = "TORC_ENDPOINTS",
        value_delimiter = ','
    )]
    endpoints: Vec<Endpoint>,
    /// Profile of the cluster to use (see `kvctl login`). Other options override the profile's
    /// settings. Default: the current profile, unless you give endpoints or certificates.
    #[arg(long, global = true, value_name = "NAME", env = "TORC_PROFILE")]
    profile: Option<String>,
    /// Namespace to work in. [default: default]
    #[arg(long, global = true, value_name = "NS")]
    namespace: Option<String>,
    /// Output format.
    #[arg(long, global = true, value_enum, value_name = "FORM", default_value_t = Output::Text)]
    output: Output,
    /// Time limit of one operation, retries included, for example 500ms or 30s. Default:
    /// 10s, but 1.5s if no node answers at all.
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        value_parser = args::positive_duration
    )]
    timeout: Option<Duration>,
    /// PEM file of certificate authorities: encrypt every connection and trust the nodes that
    /// they certify.
    #[arg(long, global = true, value_name = "FILE", env = "TORC_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// With --tls-ca: PEM file of the client certificate.
    #[arg(long, global = true, value_name = "FILE", env = "TORC_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// With --tls-cert: PEM file of its private key.
    #[arg(long, global = true, value_name = "FILE", env = "TORC_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// With --tls-ca: a token (see `kvctl token`) instead of a client certificate. Other users of
    /// this machine can see the command line, so prefer TORC_TOKEN or --token-file.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "TORC_TOKEN",
        hide_env_values = true
    )]
    token: Option<Secret>,
    /// File that holds the token; overrides --token.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The name of the profile in use, and its client.
    #[arg(skip)]
    of_profile: OnceLock<(String, Client)>,
}

/// A token. Never printed.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.trim().to_owned())
    }
}

/// Default endpoints without a profile.
const USUAL: [&str; 2] = ["127.0.0.1:7400", "127.0.0.1:7401"];
const TIMEOUT: Duration = Duration::from_secs(10);
/// Without --timeout: give up after this time if no node answers at all.
const FIRST_CONTACT: Duration = Duration::from_millis(1_500);

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people; may change in any release.
    Text,
    /// For programs: stable, one JSON object per line.
    Json,
}

impl Global {
    /// Whether output is for programs.
    pub(crate) fn json(&self) -> bool {
        self.output == Output::Json
    }

    /// The time limit of one operation.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }

    /// Namespace to work in.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Fails if the user gave a namespace to a command that has another option for it.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub(crate) fn refuse_namespace(&self, instead: &str) -> Result<(), Failure> {
        match &self.namespace {
            Some(_) => Err(Failure::Usage(format!(
                "this command does not use --namespace: use {instead}"
            ))),
            None => Ok(()),
        }
    }

    /// The endpoints that the user gave.
    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// A client of the cluster in the chosen namespace. Does not connect yet.
    ///
    /// # Errors
    /// [`Failure::Cluster`] for options that the client library refuses.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.client_within(TIMEOUT)
    }

    /// As [`client`](Self::client), with this timeout if the user gave none.
    pub(crate) fn client_within(&self, usual: Duration) -> Result<Client, Failure> {
        let profile = self.profile()?;
        let of_profile = profile.as_ref().map(|(_, profile)| profile);
        let named = self.endpoints.iter().map(|it| it.as_str().to_owned());
        let mut endpoints: Vec<String> = named.collect();
        if endpoints.is_empty() {
            let usual = || USUAL.map(str::to_owned).to_vec();
            endpoints = of_profile.map_or_else(usual, |profile| profile.endpoints.clone());
        }
        let mut builder = Client::builder()
            .endpoints(endpoints)
            .namespace(self.namespace())
            .first_contact(self.timeout.unwrap_or(FIRST_CONTACT))
            .deadline(self.timeout.unwrap_or(usual));
        let tls = match of_profile.filter(|_| self.tls_ca.is_none()) {
            Some(profile) => Some(profile.tls()?),
            None => self.tls()?,
        };
        if let Some(tls) = tls {
            builder = builder.tls(tls);
        }
        if let Some(token) = self.token()? {
            builder = builder.token(token.0);
        } else if let Some(profile) = of_profile.filter(|_| self.tls_cert.is_none()) {
            builder = builder.token(profile.token.as_str());
        }
        let client = builder.connect_lazy()?;
        if let Some((name, _)) = profile.filter(|_| self.tls_ca.is_none()) {
            self.of_profile.get_or_init(|| (name, client.clone()));
        }
        Ok(client)
    }

    /// A client of these nodes; ignores endpoint options and profiles' endpoints.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub(crate) fn client_at(&self, endpoints: Vec<String>) -> Result<Client, Failure> {
        let mut builder = Client::builder()
            .endpoints(endpoints)
            .first_contact(self.timeout.unwrap_or(FIRST_CONTACT))
            .deadline(self.timeout());
        if let Some(tls) = self.tls()? {
            builder = builder.tls(tls);
        }
        if let Some(token) = self.token()? {
            builder = builder.token(token.0);
        }
        Ok(builder.connect_lazy()?)
    }

    /// While a cluster rotates its authority, saves the new authorities in the profile: otherwise
    /// the profile could not connect after the rotation.
    pub(crate) fn learn_authorities(&self) {
        let Some((name, client)) = self.of_profile.get() else {
            return;
        };
        let trusted = client.known_topology().map(|it| it.authorities.concat());
        let trusted = trusted.filter(|it| !it.is_empty());
        let learned = trusted.map_or(Ok(()), |trusted| Profiles::learn(name, trusted));
        if let Err(failure) = learned {
            out::note(format_args!(
                "could not save the cluster's authorities in the profile `{name}`: {failure}"
            ));
        }
    }

    /// Whether kvctl has a token or certificate to identify itself with.
    ///
    /// # Errors
    /// When the profile or the token's file cannot be read.
    pub(crate) fn says_who_asks(&self) -> Result<bool, Failure> {
        let given = self.token()?.is_some() || self.tls_cert.is_some();
        Ok(given || self.profile()?.is_some())
    }

    /// The profile to use, if any, and its name.
    ///
    /// # Errors
    /// When the profile cannot be read or does not exist.
    pub(crate) fn profile(&self) -> Result<Option<(String, Profile)>, Failure> {
        let says_nothing =
            self.endpoints.is_empty() && self.tls_ca.is_none() && self.tls_cert.is_none();
        match &self.profile {
            Some(name) => Profiles::read()?.named(name).map(Some),
            None if says_nothing => Ok(Profiles::read()?.current()),
            None => Ok(None),
        }
    }

    /// The file of --tls-ca.
    pub(crate) fn tls_ca(&self) -> Option<&Path> {
        self.tls_ca.as_deref()
    }

    /// The user's token.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub(crate) fn revealed_token(&self) -> Result<Option<String>, Failure> {
        Ok(self.token()?.map(|token| token.0))
    }

    fn token(&self) -> Result<Option<Secret>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(self.token.clone());
        };
        let read =
            std::fs::read_to_string(path).map_err(|source| Failure::file("read", path, source));
        Ok(Some(Secret::from(&*read?)))
    }

    fn tls(&self) -> Result<Option<ClientTls>, Failure> {
        let needs = |what: &str, other: &str| Err(Failure::Usage(format!("{what} needs {other}")));
        let own = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
            (None, None) => None,
            (Some(_), None) => return needs("--tls-cert", "--tls-key"),
            (None, Some(_)) => return needs("--tls-key", "--tls-cert"),
        };
        let of_scheme = |scheme: &str| {
            let mut endpoints = self.endpoints.iter().map(Endpoint::as_str);
            endpoints.find(|endpoint| endpoint.starts_with(scheme))
        };
        let Some(authorities) = &self.tls_ca else {
            return match (own, of_scheme("https://")) {
                (Some(_), _) => needs("--tls-cert", "--tls-ca"),
                (None, Some(endpoint)) => needs(endpoint, "--tls-ca"),
                (None, None) => Ok(None),
            };
        };
        if let Some(endpoint) = of_scheme("http://") {
            let message = format!("{endpoint} would not be encrypted: remove `http://`");
            return Err(Failure::Usage(message));
        }
        let opened = ClientTls::open(authorities, own);
        let opened = opened.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Some(opened))
    }
}
