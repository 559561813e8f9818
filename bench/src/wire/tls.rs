//! The cost of TLS and of authorization: one node without TLS beside one with it.
//!
//! Two clients measure the secure node: one with a certificate and one with a token. All subjects
//! take turns within a round, and ratios are of the same round. The servers share one core, the
//! client has another.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use tonic::transport::Channel;
use torc_client::{Client, ClientTls, NewToken, Role};
use torc_testkit::Kvd;
use torc_tls::{Authority, Identity};

use super::closed_loop::closed_loop;
use super::unary::{CHANNELS, GET, Gets, IN_FLIGHT, key, measured};
use super::{CLIENT_CORE, RATE, SERVER, SERVER_CORE};
use crate::kvd;
use crate::machine;
use crate::options::Options;
use crate::report::{Metric, Prediction, Report, TORC};

const KEYS: u64 = 50_000;
const VALUE_BYTES: u32 = 100;
/// Puts in flight while the keys are stored.
const STORING: usize = 256;
const UNARY: &str = "unary get, 64 in flight";
const STREAM: &str = "streamed get, 64 in flight";
const RATIO: Metric = Metric::new("cpu_to_plain", "ratio");
const CERTIFICATE: &str = "TLS, certificate";
const TOKEN: &str = "TLS, token";

const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: UNARY,
        metric: RATIO.name,
        expected: "at most 1.15",
    },
    Prediction {
        case: STREAM,
        metric: RATIO.name,
        expected: "at most 1.10",
    },
];

/// A node and a way to authenticate to it.
struct Subject<'a> {
    name: &'static str,
    node: &'a Kvd,
    tls: Option<ClientTls>,
    token: Option<String>,
    client: Client,
}

/// Measures gets.
///
/// # Errors
/// kvd does not build or start, an operation fails, or there are not two cores.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let program = kvd::program(options)?;
    ensure!(machine::cores() > 1, "this suite needs two cores");
    let mut report = Report::new("tls", PREDICTIONS);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let measuring = measure(&program, options, &mut report);
    let outcome = machine::on_core(CLIENT_CORE, || runtime.block_on(measuring))?;
    report.ended(outcome);
    report.note("torc: one node without TLS; the others: one node with TLS 1.3");
    report.note(format!(
        "{} keys with values of {VALUE_BYTES} bytes; unary: without digest and route; streamed: by the client library",
        options.records_or(KEYS)
    ));
    Ok(report)
}

async fn measure(program: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let scratch = options.scratch()?;
    let files = Files::issue(scratch.path())?;
    let start = async |name: &str, extra: &[String]| {
        let mut node = kvd::alone(program, &scratch.path().join(name), extra)?;
        machine::on_core(SERVER_CORE, || node.start())??;
        node.listens().await?;
        anyhow::Ok(node)
    };
    let plain = start("plain", &[]).await?;
    let secure = start("secure", &files.settings()).await?;
    let keys = options.records_or(KEYS);
    let tls = files.client()?;
    let admin = client(&secure, Some(&tls), None)?;
    let without = client(&plain, None, None)?;
    for client in [&admin, &without] {
        store(client, keys).await?;
    }
    let new = NewToken {
        name: "bench".to_owned(),
        roles: [Role::Read].into_iter().collect(),
        scopes: Vec::new(),
        lifetime: None,
    };
    let token = admin.create_token(&new).await?.reveal();
    let trusting = files.trusting()?;
    let subjects = [
        Subject {
            name: TORC,
            node: &plain,
            tls: None,
            token: None,
            client: without,
        },
        Subject {
            name: CERTIFICATE,
            node: &secure,
            tls: Some(tls),
            token: None,
            client: admin,
        },
        Subject {
            name: TOKEN,
            node: &secure,
            client: client(&secure, Some(&trusting), Some(&token))?,
            tls: Some(trusting),
            token: Some(token),
        },
    ];
    let time = Duration::from_millis(if options.quick { 200 } else { 3_000 });
    for _ in 0..options.rounds_or(5) {
        round(&subjects, keys, time, report).await?;
    }
    Ok(())
}

async fn round(
    subjects: &[Subject<'_>],
    keys: u64,
    time: Duration,
    report: &mut Report,
) -> Result<()> {
    for case in [UNARY, STREAM] {
        let mut of_plain = None;
        for subject in subjects {
            let (sample, cost) = if case == UNARY {
                subject.unary(keys).await?.measure(time).await?
            } else {
                subject.streamed(keys, time).await?
            };
            let rate = sample.operations as f64 / sample.took.as_secs_f64();
            report.add(case, SERVER, subject.name, cost);
            report.add(case, RATE, subject.name, rate);
            let plain = *of_plain.get_or_insert(cost);
            if subject.name != TORC {
                report.add(case, RATIO, subject.name, cost / plain.max(1e-9));
            }
        }
    }
    Ok(())
}

impl Subject<'_> {
    async fn unary(&self, keys: u64) -> Result<Gets> {
        let connector = self.tls.as_ref().map(ClientTls::connector);
        let endpoint = torc_tls::endpoint(&self.node.grpc.to_string(), connector.as_ref())?;
        let mut channels: Vec<Channel> = Vec::new();
        for _ in 0..CHANNELS {
            channels.push(torc_tls::connect(&endpoint, connector.as_ref()).await?);
        }
        let token = self.token.as_ref();
        let token = token.map(|token| format!("Bearer {token}").parse());
        Ok(Gets {
            process: self.node.pid()?,
            channels,
            path: GET,
            token: token.transpose()?,
            keys,
            value_bytes: VALUE_BYTES,
        })
    }

    async fn streamed(
        &self,
        keys: u64,
        time: Duration,
    ) -> Result<(super::closed_loop::Sample, f64)> {
        measured(self.node.pid()?, time, async |time| {
            closed_loop(0..IN_FLIGHT, 1, time, async |_, random| {
                let found = self.client.get(key(random.below(keys))).await?;
                ensure!(found.is_some(), "a key was not found");
                Ok(())
            })
            .await
        })
        .await
    }
}

fn client(node: &Kvd, tls: Option<&ClientTls>, token: Option<&str>) -> Result<Client> {
    let mut builder = Client::builder().endpoints([node.grpc.to_string()]);
    if let Some(tls) = tls {
        builder = builder.tls(tls.clone());
    }
    if let Some(token) = token {
        builder = builder.token(token);
    }
    let builder = builder.deadline(Duration::from_secs(30));
    Ok(builder.connect_lazy()?)
}

async fn store(client: &Client, keys: u64) -> Result<()> {
    let value = vec![b'v'; VALUE_BYTES as usize];
    let puts = futures::stream::iter(0..keys).map(|number| {
        let value = value.clone();
        async move { client.put(key(number), value).await }
    });
    let puts = puts.buffer_unordered(STORING);
    puts.try_for_each(async |_| Ok(())).await?;
    Ok(())
}

/// An authority, a node's certificate and an administrator's, in files.
struct Files {
    ca: std::path::PathBuf,
    node: [std::path::PathBuf; 2],
    admin: [std::path::PathBuf; 2],
}

impl Files {
    fn issue(dir: &Path) -> Result<Self> {
        let authority = Authority::new()?;
        let write = |name: &str, text: &str| {
            let file = dir.join(name);
            std::fs::write(&file, text)?;
            anyhow::Ok(file)
        };
        let issue = |name: &str, identity: &Identity, names: &[String]| {
            let issued = authority.issue(identity, names, 1)?;
            let certificate = write(&format!("{name}.pem"), &issued.certificate)?;
            let key = write(&format!("{name}-key.pem"), &issued.key)?;
            anyhow::Ok([certificate, key])
        };
        let of_node: Identity = "torc://any/node/any".parse()?;
        let of_admin = Identity::client("bench", [Role::Admin].into_iter().collect())?;
        Ok(Self {
            ca: write("ca.pem", authority.certificate())?,
            node: issue("node", &of_node, &["127.0.0.1".to_owned()])?,
            admin: issue("admin", &of_admin, &[])?,
        })
    }

    fn settings(&self) -> Vec<String> {
        let [certificate, key] = &self.node;
        let setting = |name: &str, file: &Path| format!("--{name}={}", file.display());
        vec![
            setting("tls-ca", &self.ca),
            setting("tls-cert", certificate),
            setting("tls-key", key),
        ]
    }

    fn client(&self) -> Result<ClientTls> {
        let [certificate, key] = &self.admin;
        Ok(ClientTls::open(&self.ca, Some((certificate, key)))?)
    }

    fn trusting(&self) -> Result<ClientTls> {
        Ok(ClientTls::open(&self.ca, None)?)
    }
}
