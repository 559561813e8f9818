//! `kvctl abort`: undoes the running transition.

use serde::Serialize;
use torc_client::{ChangeKind, Transition};

use super::change;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};
use crate::progress;

/// Undo the join, leave, replacement, re-weighting or alteration that is running.
///
/// Moved partitions move back while the cluster keeps serving. Shows the progress until
/// every partition is back. A node that was joining stays a member without partitions:
/// join it again, or remove it with `leave-node`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Return as soon as the nodes have agreed to abort; the cluster continues by itself.
    #[arg(long)]
    no_wait: bool,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Outcome {
    /// `started` or `done`.
    state: &'static str,
    /// Its last known figures.
    transition: Option<Transition>,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let status = client.status().await?;
    let running = status.transition.ok_or(Failure::NothingRuns)?;
    let aborted = client.abort(running.id).await?;
    let (state, transition) = if args.no_wait {
        ("started", Some(aborted.clone()))
    } else {
        note("(interrupting this command does not stop it)");
        let timeout = global.timeout();
        let last = change::watch(&client, running.id, running.kind, timeout).await?;
        ("done", last)
    };
    if global.json() {
        return out.json(&Outcome { state, transition });
    }
    let name = progress::name(running.kind);
    match (state, &transition) {
        ("started", _) => out.line(format_args!(
            "undoing the {name}: watch it with `kvctl status --watch`"
        ))?,
        (_, Some(last)) => out.line(progress::ended(last))?,
        (_, None) => out.line(format_args!("{name} aborted"))?,
    }
    match advice(&aborted) {
        Some(advice) => out.line(advice),
        None => Ok(()),
    }
}

/// What to do about the node that was joining.
fn advice(aborted: &Transition) -> Option<String> {
    match aborted.kind {
        ChangeKind::Join | ChangeKind::Replace => aborted.node.map(|node| {
            format!(
                "node {node} stays a member without partitions: join it again, or remove it with \
                 `kvctl leave-node {node}`"
            )
        }),
        ChangeKind::Leave | ChangeKind::Reweight | ChangeKind::Alter => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_documented_and_who_was_to_come_is_not_forgotten() {
        let join = Transition {
            aborted: true,
            ..progress::tests::transition(7, 3, 100)
        };
        assert!(advice(&join).unwrap().contains("kvctl leave-node 4"));
        let leave = Transition {
            kind: ChangeKind::Leave,
            ..join.clone()
        };
        assert_eq!(advice(&leave), None);
        crate::out::assert_documented(&Outcome {
            state: "done",
            transition: Some(join),
        });
    }
}
