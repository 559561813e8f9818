//! `kvctl ring`: draws the ring; `kvctl ring simulate` plans one without a cluster.

use super::simulate;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::ring_view::{RingView, describe};

/// Draw the ring: which node owns which arc, how evenly, and what moves.
///
/// The circle shows all tokens, clockwise from 0 at the top. The letter of an arc is
/// its primary: the first node in the preference lists of its partitions.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Simulate(simulate::Args),
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if let Some(Action::Simulate(args)) = args.action {
        return simulate::run(&args, global, out);
    }
    let table = global.client()?.topology().await?;
    let view = RingView::of(&table);
    if global.json() {
        out.json(&view)
    } else {
        let picture = describe(&view, out.screen());
        out.line(picture.trim_end())
    }
}
