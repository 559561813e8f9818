//! `kvctl join-node`: adds a running, empty node to the cluster.

use super::change::{self, ChangeArgs};
use crate::args::Address;
use crate::cli::Global;
use crate::failure::Failure;
use crate::out::Out;

/// Add a running, empty node to the cluster.
///
/// Shows the plan, then the progress until every partition has moved; requests go on
/// meanwhile. Joining the same node again is harmless and shows how far it is. The
/// endpoints are nodes of the cluster; ADDR is the new node as the others reach it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The new node: host:port of its gRPC address.
    #[arg(value_name = "ADDR")]
    address: Address,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let address = args.address.0.as_str();
    if args.change.plan {
        let plan = client.plan_join(address).await?;
        return change::show_plan(&plan, global, out);
    }
    let begun = client.join(address, args.change.parallel).await?;
    change::follow(&client, &begun, &args.change, global, out).await
}
