//! `kvctl leave-node`: moves everything off a node and removes it.

use torc_client::GoOptions;
use torc_ring::NodeId;

use super::change::{self, ChangeArgs, DeadArgs};
use crate::cli::Global;
use crate::failure::Failure;
use crate::out::Out;

/// Move everything off a node, then remove it from the cluster.
///
/// Shows the plan, then the progress until every partition has moved; requests go on
/// meanwhile. The node's process can be stopped once this is done. A node that does not
/// answer has to be declared dead: on a terminal you are asked, scripts say `--dead`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node's id, as `status` shows it.
    #[arg(value_name = "ID")]
    node: NodeId,
    /// Even if fewer nodes than replicas stay: every partition has fewer replicas then. With
    /// `--dead` the node is written off: partitions of which no majority is left without it go on with
    /// the replicas that are left. What only the dead held is lost; `--plan` says how much that is.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    dead: DeadArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let options = GoOptions {
        parallel: args.change.parallel,
        force: args.force,
        dead: args
            .dead
            .is_dead(&client, args.node, args.change.plan)
            .await?,
    };
    if args.change.plan {
        let plan = client.plan_leave_with(args.node, options).await?;
        return change::show_plan(&plan, global, out);
    }
    let begun = client.leave_with(args.node, options).await?;
    change::follow(&client, &begun, &args.change, global, out).await
}
