//! `kvctl reweight-node`: changes a node's share of the load.

use torc_ring::NodeId;

use super::change::{self, ChangeArgs};
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;

/// Change a node's share of the load.
///
/// Shows the plan, then the progress until every partition has moved; the cluster keeps
/// serving. Overrides the node's own setting, `kvd serve --weight`, for good.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the node, as `status` shows it.
    #[arg(value_name = "ID")]
    node: NodeId,
    /// New weight in percent of a normal node, 1 to 10,000.
    #[arg(value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    percent: u32,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    if args.change.plan {
        let plan = client.plan_reweight(args.node, args.percent).await?;
        return change::show_plan(&plan, global, out);
    }
    let begun = client
        .reweight(args.node, args.percent, args.change.parallel)
        .await?;
    change::follow(&client, &begun, &args.change, global, out).await
}
