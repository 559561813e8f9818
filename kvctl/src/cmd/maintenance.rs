//! `kvctl flush` and `kvctl compact`: start at once what nodes also do by themselves.

use serde::Serialize;
use torc_client::{NodeId, NodeMaintenance};

use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};
use crate::text;

/// A large node may take much longer than a get.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(600);

/// Arguments of `flush` and `compact`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the node. Default: all nodes.
    #[arg(long, value_name = "NODE_ID")]
    node: Option<NodeId>,
}

/// Flush or compaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Maintenance {
    Flush,
    Compact,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Outcome {
    nodes: Vec<NodeMaintenance>,
}

pub(crate) async fn run(
    work: Maintenance,
    args: Args,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let client = global.client_within(TIMEOUT)?;
    let nodes = match work {
        Maintenance::Flush => client.flush(args.node).await?,
        Maintenance::Compact => client.compact(args.node).await?,
    };
    let missing = nodes.iter().filter(|node| node.problem.is_some()).count();
    if global.json() {
        out.json(&Outcome {
            nodes: nodes.clone(),
        })?;
    } else {
        for node in &nodes {
            match &node.problem {
                None => out.line(line(work, node))?,
                Some(problem) => note(format!("node {}: {problem}", node.node)),
            }
        }
    }
    if missing > 0 {
        return Err(Failure::NotEverywhere {
            missing,
            asked: nodes.len(),
        });
    }
    Ok(())
}

fn line(work: Maintenance, node: &NodeMaintenance) -> String {
    let (to_do, done) = match work {
        Maintenance::Flush => ("flush", "flushed"),
        Maintenance::Compact => ("compact", "compacted"),
    };
    if node.records == 0 {
        return format!("node {}: nothing to {to_do}", node.node);
    }
    format!(
        "node {}: {done} {} into {} ({}) in {:.1} s",
        node.node,
        text::counted(node.records, "record"),
        text::counted(node.slices, "slice"),
        text::bytes(node.bytes),
        node.seconds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: NodeMaintenance = NodeMaintenance {
        node: NodeId(2),
        records: 1_234,
        slices: 1,
        bytes: 166_912,
        seconds: 0.25,
        problem: None,
    };

    #[test]
    fn a_line_says_what_was_written() {
        let expected = "node 2: flushed 1,234 records into 1 slice (163 KiB) in 0.2 s";
        assert_eq!(line(Maintenance::Flush, &DONE), expected);
        let nothing = NodeMaintenance { records: 0, ..DONE };
        assert_eq!(
            line(Maintenance::Compact, &nothing),
            "node 2: nothing to compact"
        );
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&Outcome { nodes: vec![DONE] });
    }
}
