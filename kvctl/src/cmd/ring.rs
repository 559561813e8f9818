//! `kvctl ring`: draws the ring.

use crate::cli::Global;
use crate::failure::Failure;
use crate::out::Out;
use crate::ring_view::{RingView, describe};

/// Draw the ring: who owns which arc, how evenly, and what moves.
///
/// The circle is the whole of the tokens, clockwise from 0 at the top; an arc has the
/// letter of the node that is first in the preference lists of its partitions.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let table = global.client()?.topology().await?;
    let view = RingView::of(&table);
    if global.json() {
        out.json(&view)
    } else {
        let picture = describe(&view, out.screen());
        out.line(picture.trim_end())
    }
}
