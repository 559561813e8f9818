//! `kvctl replace-node`: puts a new node in the place of another.

use torc_client::GoOptions;
use torc_ring::NodeId;

use super::change::{self, ChangeArgs, DeadArgs};
use crate::args::Address;
use crate::cli::Global;
use crate::failure::Failure;
use crate::out::Out;

/// Put a running, empty node in the place of another, dead or alive.
///
/// The new node takes exactly the partitions of OLD, which is no member when this is done;
/// requests go on meanwhile. An OLD that does not answer has to be declared dead: on a
/// terminal you are asked, scripts say `--dead`. Asking again is harmless and shows how far
/// it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The id of the node that goes, as `status` shows it.
    #[arg(value_name = "OLD")]
    old: NodeId,
    /// The new node: host:port of its gRPC address.
    #[arg(value_name = "ADDR")]
    address: Address,
    /// With `--dead`: write OLD off. Partitions of which no majority is left without it go on with
    /// the replicas that are left; what only the dead held is lost, and `--plan` says how much that is.
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
