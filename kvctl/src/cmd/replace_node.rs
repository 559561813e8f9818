//! `kvctl replace-node`: replaces a node by a new one.

use torc_client::GoOptions;
use torc_ring::NodeId;

use super::change::{self, ChangeArgs, DeadArgs};
use crate::args::Address;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;

/// Replace a node, dead or alive, by a running, empty one.
///
/// The new node takes over exactly the partitions of OLD, which then leaves the cluster;
/// the cluster keeps serving. If OLD does not answer, it must be declared dead: kvctl asks
/// on a terminal; scripts pass `--dead`. Repeating the command is harmless and shows the
/// progress.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the node to replace, as `status` shows it.
    #[arg(value_name = "OLD")]
    old: NodeId,
    /// Address of the new node, host:port: its gRPC or peer address, as nodes of the cluster reach it.
    #[arg(value_name = "ADDR")]
    address: Address,
    /// With `--dead`: let partitions that lose their majority with OLD continue with the remaining
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
    let address = args.address.0.as_str();
    let options = GoOptions {
        parallel: args.change.parallel,
        force: args.force,
        dead: args
            .dead
            .is_dead(&client, args.old, args.change.plan)
            .await?,
    };
    if args.change.plan {
        let plan = client.plan_replace(args.old, address, options).await?;
        return change::show_plan(&plan, global, out);
    }
    let begun = client.replace(args.old, address, options).await?;
    change::follow(&client, &begun, &args.change, global, out).await
}
