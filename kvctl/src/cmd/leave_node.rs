//! `kvctl leave-node`: moves everything off a node and removes it.

use torc_client::GoOptions;
use torc_ring::NodeId;

use super::change::{self, ChangeArgs, DeadArgs};
use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};

/// Move all data off a node, then remove it from the cluster.
///
/// Shows the plan, then the progress until every partition has moved; the cluster keeps
/// serving. Then stop the node's process: until you do, it may answer gets of static namespaces
/// from an old generation. A node that does not answer must be declared dead: kvctl asks on a
/// terminal; scripts pass `--dead`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the node, as `status` shows it.
    #[arg(value_name = "ID")]
    node: NodeId,
    /// Leave even if fewer nodes than replicas remain; every partition then has fewer replicas. With
    /// `--dead`: partitions that lose their majority with this node continue with the remaining
    /// replicas. Data that only dead nodes held is lost; `--plan` shows how much.
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
    let answers = !options.dead;
    let begun = client.leave_with(args.node, options).await?;
    change::follow(&client, &begun, &args.change, global, out).await?;
    if answers && !args.change.no_wait {
        note(format_args!(
            "node {} is no longer a member: stop its process",
            args.node
        ));
    }
    Ok(())
}
