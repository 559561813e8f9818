//! A join that moves a gibibyte: the cost of moving slices beyond copying them.
//!
//! One node holds sealed records and a second one joins, without other traffic. The copying stage
//! lasts from the request to the last byte that the newcomer counts as received, polled in steps of
//! [`LOOK`]; the join lasts until the cluster reports its end. The peer is a copy of the same
//! number of bytes over a loopback connection, into a file that is synced.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use torc_client::Client;
use torc_testkit::Kvd;

use super::{MIB, RATIO, cluster, copy};
use crate::kvd::{self, Readings, Replicas};
use crate::options::Options;
use crate::process;
use crate::report::{Metric, Report, TORC};

pub(super) const CASE: &str = "bulk join";
pub(super) const NOTES: &[&str] = &[
    "bulk join: one node of sealed records, a second one joins and takes all of them, half with one replica; no traffic; --transfer-mib-per-s raised beyond reach",
    "rate: bytes of slices by the time of the copying stage; *_cpu: processor seconds a gibibyte of a whole process, join and all",
    "tcp copy: from memory to memory; to file: into a file; to disk: with an fdatasync at the end",
];
/// Interval at which the newcomer's received bytes are polled.
const LOOK: Duration = Duration::from_millis(50);
const RECORDS: u64 = 12_000_000;

/// When the copy ended, and its amount.
struct Copied {
    seconds: f64,
    bytes: f64,
}

pub(super) async fn round(
    report: &mut Report,
    options: &Options,
    program: &Path,
    replicas: Replicas,
) -> Result<()> {
    let records = options.records_or(RECORDS);
    let scratch = options.scratch()?;
    let mut settings = kvd::SETTLING.map(str::to_owned).to_vec();
    settings.push("--transfer-mib-per-s=1000000".to_owned());
    let newcomer = scratch.path().join("newcomer");
    let mut newcomer = kvd::prepare(program, newcomer, &settings)?;
    settings.extend(replicas.settings());
    let founders = kvd::found(program, scratch.path(), 1, &settings).await?;
    let founder = founders.first().context("no node")?;
    let builder = Client::builder().endpoints([founder.endpoint()]);
    let client = builder.deadline(Duration::from_secs(30)).connect().await?;
    kvd::load(&client, records).await?;
    kvd::settled(founder, records).await?;
    newcomer.start()?;
    newcomer.listens().await?;
    let copied = join(report, replicas, &client, founder, &newcomer).await?;
    kvd::check(&client, records).await?;
    drop((client, founders, newcomer));
    if replicas == Replicas::One {
        return Ok(());
    }
    let plain = copy::measure(report, CASE, copied.bytes as u64, &options.scratch()?)?;
    let ratio = plain.as_secs_f64() / copied.seconds;
    report.add(
        CASE,
        Metric::new("copying_to_copy_to_disk", RATIO),
        TORC,
        ratio,
    );
    Ok(())
}

async fn join(
    report: &mut Report,
    replicas: Replicas,
    client: &Client,
    founder: &Kvd,
    newcomer: &Kvd,
) -> Result<Copied> {
    let (sender, receiver) = (founder.pid()?, newcomer.pid()?);
    let before = (process::cpu_time(sender)?, process::cpu_time(receiver)?);
    let started = Instant::now();
    let change = client.join(newcomer.grpc.to_string(), None).await?;
    let number = change.transition.context("nothing to join")?;
    let (copied, done) = tokio::join!(watch(newcomer, started), cluster::finished(client, number));
    let (done, took, copied) = (done?, started.elapsed().as_secs_f64(), copied?);
    let mut add =
        |name, unit, value| report.add(CASE, Metric::new(name, unit), replicas.subject(), value);
    let mib = copied.bytes / MIB;
    add("time", "s", copied.seconds);
    add("rate", "MiB/s", mib / copied.seconds);
    add("join_time", "s", took);
    add("join_rate", "MiB/s", mib / took);
    add("moved", "MiB", mib);
    add(
        "moved_partitions",
        "partitions",
        f64::from(done.partitions_total),
    );
    let after = (process::cpu_time(sender)?, process::cpu_time(receiver)?);
    let per_gib = |spent: Duration| spent.as_secs_f64() * 1024.0 / mib;
    add(
        "sender_cpu",
        "s/GiB",
        per_gib(after.0.saturating_sub(before.0)),
    );
    add(
        "receiver_cpu",
        "s/GiB",
        per_gib(after.1.saturating_sub(before.1)),
    );
    Ok(copied)
}

/// Polls the newcomer until it receives no more data.
async fn watch(newcomer: &Kvd, started: Instant) -> Result<Copied> {
    const QUIET: Duration = Duration::from_secs(3);
    let mut last = Copied {
        seconds: 0.0,
        bytes: 0.0,
    };
    loop {
        let readings = Readings::of(newcomer).await?;
        let bytes = readings.value("transfer_received_bytes")?;
        let seconds = started.elapsed().as_secs_f64();
        if bytes > last.bytes {
            last = Copied { seconds, bytes };
        }
        if last.bytes > 0.0 && seconds - last.seconds > QUIET.as_secs_f64() {
            return Ok(last);
        }
        tokio::time::sleep(LOOK).await;
    }
}
