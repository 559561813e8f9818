//! `kvctl leave-node`: moves everything off a node and removes it.

use torc_ring::NodeId;

use super::change::{self, ChangeArgs};
use crate::cli::Global;
use crate::failure::Failure;
use crate::out::Out;

/// Move everything off a node, then remove it from the cluster.
///
/// Shows the plan, then the progress until every partition has moved; requests go on
/// meanwhile. The node's process can be stopped once this is done.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node's id, as `status` shows it.
    #[arg(value_name = "ID")]
    node: NodeId,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    if args.change.plan {
        let plan = client.plan_leave(args.node).await?;
        return change::show_plan(&plan, global, out);
    }
    let begun = client.leave(args.node, args.change.parallel).await?;
    change::follow(&client, &begun, &args.change, global, out).await
}
