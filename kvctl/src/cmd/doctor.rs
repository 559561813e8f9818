//! `kvctl doctor`: finds common problems of a cluster, with advice.

mod examine;

use torc_client::{Client, ClusterStatus, Error};

use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::text;
use examine::{Finding, Level, examine};

/// Times to compare the clocks: one slow answer can look like a wrong clock, three rarely do.
const LOOKS: usize = 3;

/// Diagnose the cluster: current and imminent problems, with fixes.
///
/// Checks clocks, zones, disks, certificates, releases, nodes, links, replicas and ports open to
/// other machines. Changes nothing. Exit code 4 if there is a problem.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let (status, skew_ms) = look(&client).await?;
    let namespaces = client.namespaces().await?;
    let findings = examine(&status, &namespaces, skew_ms, text::now_ms());
    if global.json() {
        let json = serde_json::json!({ "nodes": status.nodes.len(), "findings": findings });
        out.json(&json)?;
    } else {
        out.line(describe(&status, &findings))?;
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::Unhealthy { count }),
    }
}

/// The status, and a lower bound on the largest difference between two nodes' clocks.
async fn look(client: &Client) -> Result<(ClusterStatus, u64), Error> {
    let mut status = client.status().await?;
    let mut skew_ms = skew_ms(&status);
    for _ in 1..LOOKS {
        status = client.status().await?;
        skew_ms = skew_ms.min(self::skew_ms(&status));
    }
    Ok((status, skew_ms))
}

fn skew_ms(status: &ClusterStatus) -> u64 {
    let clocks = status.nodes.iter().map(|node| node.clock_ms);
    let told: Vec<u64> = clocks.filter(|clock| *clock > 0).collect();
    let ends = told.iter().min().zip(told.iter().max());
    ends.map_or(0, |(first, last)| last - first)
}

fn describe(status: &ClusterStatus, findings: &[Finding]) -> String {
    let nodes = text::counted(status.nodes.len() as u64, "node");
    if findings.is_empty() {
        return format!("{nodes}: no problems found");
    }
    let line = |finding: &Finding| {
        let level = match finding.level {
            Level::Critical => "CRITICAL",
            Level::Warning => "warning ",
        };
        let (what, advice) = (text::one_line(&finding.what), &finding.advice);
        format!("{level}  {what}\n          {advice}")
    };
    let lines: Vec<_> = findings.iter().map(line).collect();
    lines.join("\n")
}
