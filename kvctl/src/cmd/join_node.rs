//! `kvctl join-node`: adds a running, empty node to the cluster.

use super::change::{self, ChangeArgs};
use crate::args::Address;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;

/// Add a running, empty node to the cluster.
///
/// Shows the plan, then the progress until every partition has moved; the cluster keeps
/// serving. Repeating the command is harmless and shows the progress. Endpoints are
/// nodes of the cluster; ADDR is the new node's gRPC or peer address, as nodes of the cluster reach
/// it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of the new node, host:port.
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
