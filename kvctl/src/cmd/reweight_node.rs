//! `kvctl reweight-node`: gives a node another share.

use torc_ring::NodeId;

use super::change::{self, ChangeArgs};
use crate::cli::Global;
use crate::failure::Failure;
use crate::out::Out;

/// Give a node another share of the load.
///
/// Shows the plan, then the progress until every partition has moved; requests go on
/// meanwhile. The weight the node itself was started with does not matter any more.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node's id, as `status` shows it.
    #[arg(value_name = "ID")]
    node: NodeId,
    /// Its weight in percent of a normal node, 1 to 10,000.
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
