//! The ring: balance, movement, and the time of lookups and plans.
//!
//! Balance is compared with two peers. `random` has as many positions as Torc, at random tokens,
//! placed by Torc's own walk. `pingora-ketama` (Cloudflare's port of the nginx ring) has its own
//! 160 points per node. In a ring without leads, the first replica counts as the lead.
//!
//! `access` measures bearer tokens: the cost of checking an operation.
//!
//! Balance and movement are the same in every round, so they are computed once; lookups and plans
//! are timed in each.

mod access;
mod balance;
mod ketama;
mod timing;

use anyhow::Result;

use crate::options::Options;
use crate::report::{Prediction, Report};

/// Replicas of every partition.
const REPLICAS: u8 = 3;
/// Positions of a node.
const POSITIONS: u16 = 32;

const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: "worst, from 4 nodes on",
        metric: "replica_peak_to_mean",
        expected: "at most 1.03; random 1.2 to 1.4 at 16 positions",
    },
    Prediction {
        case: "worst, from 4 nodes on",
        metric: "lead_peak_to_mean",
        expected: "at most 1.05",
    },
    Prediction {
        case: "worst, from 4 nodes on",
        metric: "moved_to_minimum",
        expected: "at most 1.05",
    },
    Prediction {
        case: "worst, from 4 nodes on",
        metric: "primary_peak_to_mean",
        expected: "1.2 to 1.5 by greedy choice; random 1.2 to 1.7",
    },
    Prediction {
        case: "scopes of an operation, 16",
        metric: "lookup",
        expected: "at most 100 ns",
    },
];

/// Measures the ring.
///
/// # Errors
/// A ring cannot be allocated.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("ring", PREDICTIONS);
    let nodes = if options.quick { 12 } else { 100 };
    balance::measure(&mut report, nodes, options.quick)?;
    let rings = timing::Rings::grow(nodes)?;
    let tokens = access::Tokens::all()?;
    for _ in 0..options.rounds() {
        rings.measure(&mut report, options.quick)?;
        tokens.measure(&mut report, options.quick);
    }
    report.note(format!(
        "{REPLICAS} replicas, 4,096 partitions, {POSITIONS} positions a node (torc, random); pingora-ketama \
         has 160 points a node, and its balance is counted over random keys"
    ));
    Ok(report)
}
