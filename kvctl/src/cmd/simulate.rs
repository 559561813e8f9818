//! `kvctl ring simulate`: shows how evenly a ring would share the load.

mod compare;

use torc_ring::{DEFAULT_POSITIONS, DEFAULT_REPLICAS, Growth, Partitions, Row, Weight, simulate};

use self::compare::Method;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::table::{Align, Table};
use crate::text;

/// Grow a ring one node at a time and show how even it is; works offline.
///
/// For every size from 1 to --nodes: the load of the busiest node over the mean, by
/// partitions led and by replicas held, and what the last join moved over the minimum.
/// Other columns show the same for random positions, which most rings use. With
/// weights, load is relative to a node's fair share.
///
/// With --compare: compare Torc's planned positions with other ways to place keys on --nodes nodes,
/// one replica each. Shows four figures: balance, keys moved per join and leave against the minimum,
/// lookup time, memory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Grow the ring to this many nodes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: u32,
    /// Ring positions of a node of normal weight.
    #[arg(long, value_name = "T", default_value_t = DEFAULT_POSITIONS, value_parser = clap::value_parser!(u16).range(1..))]
    positions: u16,
    /// Replicas of each partition.
    #[arg(long, value_name = "R", default_value_t = DEFAULT_REPLICAS, value_parser = clap::value_parser!(u8).range(1..))]
    replicas: u8,
    /// Number of partitions, a power of two.
    #[arg(long, value_name = "P", default_value_t = Partitions::DEFAULT, value_parser = partitions)]
    partitions: Partitions,
    /// Weights of the nodes in percent of a normal one, separated by commas; the list
    /// repeats if there are more nodes.
    #[arg(long, value_name = "W", value_delimiter = ',', default_value = "100", value_parser = weight)]
    weights: Vec<Weight>,
    /// Number of zones; nodes are assigned to them in turn.
    #[arg(long, value_name = "Z", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    zones: u32,
    /// Placement methods to compare with, separated by commas.
    #[arg(long, value_enum, value_name = "METHOD", value_delimiter = ',', conflicts_with_all = ["replicas", "weights", "zones"])]
    compare: Vec<Method>,
    /// Seed of the random positions.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

pub(super) fn partitions(text: &str) -> Result<Partitions, String> {
    let count = text.parse::<u32>().map_err(|error| error.to_string())?;
    Partitions::new(count).map_err(|error| error.to_string())
}

fn weight(text: &str) -> Result<Weight, String> {
    let percent = text
        .trim()
        .parse::<u32>()
        .map_err(|error| error.to_string())?;
    Weight::new(percent).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if args.compare.is_empty() {
        return grow(args, global, out);
    }
    let size = compare::Size {
        nodes: args.nodes,
        positions: args.positions,
        partitions: args.partitions,
        seed: args.seed,
        keys: KEYS,
    };
    if size.nodes < 2 {
        return Err(Failure::Usage(
            "compare 2 nodes or more, because one leaves".to_owned(),
        ));
    }
    let begun = std::time::Instant::now();
    let mut rows = compare::rows(&size, &args.compare, || begun.elapsed())?;
    if global.json() {
        return rows.try_for_each(|row| out.json(&row));
    }
    out.line(comparison(rows))?;
    out.line(COMPARED)
}

/// Keys to compare methods with.
const KEYS: u32 = 1 << 20;
const COMPARED: &str = "\nPeak: keys of the busiest node over the mean. Moved: share of a million keys, and the minimum.";

fn comparison(rows: impl Iterator<Item = compare::Row>) -> Table {
    let mut table = Table::new(&[
        ("method", Align::Left),
        ("peak", Align::Right),
        ("moved by a join", Align::Right),
        ("least", Align::Right),
        ("moved by a leave", Align::Right),
        ("least", Align::Right),
        ("lookup", Align::Right),
        ("memory", Align::Right),
    ]);
    for row in rows {
        table.row([
            row.method.to_owned(),
            format!("{:.3}", row.peak_to_mean),
            text::percent(row.moved_by_join),
            text::percent(row.least_by_join),
            text::percent(row.moved_by_leave),
            text::percent(row.least_by_leave),
            format!("{:.0} ns", row.lookup_ns),
            text::bytes(row.bytes),
        ]);
    }
    table
}

fn grow(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let mut worst = None;
    if !global.json() {
        out.line(HEADER)?;
    }
    for row in simulate(growth(args)) {
        let row = row.map_err(|error| Failure::Usage(error.to_string()))?;
        if global.json() {
            out.json(&row)?;
        } else {
            out.line(line(&row))?;
        }
        // Up to as many nodes as replicas, every node holds everything.
        if row.nodes > u32::from(args.replicas) {
            worst = Some(worse(worst.unwrap_or(row), &row));
        }
        if out.screen().terminal {
            out.flush()?;
        }
    }
    match worst {
        Some(worst) if !global.json() => out.line(conclusion(&worst, args.replicas)),
        _ => Ok(()),
    }
}

fn growth(args: &Args) -> Growth {
    Growth {
        nodes: args.nodes,
        positions: args.positions,
        replicas: args.replicas,
        partitions: args.partitions,
        weights: args.weights.clone(),
        zones: args.zones,
        seed: args.seed,
    }
}

const HEADER: &str = concat!(
    "              allocated positions               random positions\n",
    "nodes   replica    lead primary moved   replica    lead primary moved",
);

fn line(row: &Row) -> String {
    format!(
        "{:>5}   {}   {}",
        row.nodes,
        figures([
            row.replica_peak_to_mean,
            row.lead_peak_to_mean,
            row.primary_peak_to_mean,
            row.moved_to_minimum,
        ]),
        figures([
            row.random_replica_peak_to_mean,
            row.random_lead_peak_to_mean,
            row.random_primary_peak_to_mean,
            row.random_moved_to_minimum,
        ]),
    )
}

fn figures([replica, lead, primary, moved]: [f64; 4]) -> String {
    format!("{replica:>7.3} {lead:>7.3} {primary:>7.3} {moved:>5.2}")
}

/// The larger value of every figure.
fn worse(a: Row, b: &Row) -> Row {
    Row {
        nodes: a.nodes.min(b.nodes),
        replica_peak_to_mean: a.replica_peak_to_mean.max(b.replica_peak_to_mean),
        lead_peak_to_mean: a.lead_peak_to_mean.max(b.lead_peak_to_mean),
        primary_peak_to_mean: a.primary_peak_to_mean.max(b.primary_peak_to_mean),
        moved_to_minimum: a.moved_to_minimum.max(b.moved_to_minimum),
        random_replica_peak_to_mean: a
            .random_replica_peak_to_mean
            .max(b.random_replica_peak_to_mean),
        random_lead_peak_to_mean: a.random_lead_peak_to_mean.max(b.random_lead_peak_to_mean),
        random_primary_peak_to_mean: a
            .random_primary_peak_to_mean
            .max(b.random_primary_peak_to_mean),
        random_moved_to_minimum: a.random_moved_to_minimum.max(b.random_moved_to_minimum),
    }
}

fn conclusion(worst: &Row, replicas: u8) -> String {
    let columns = line(worst).split_off(5);
    format!(
        "\nworst{columns}\n\nLoad of the busiest node over its fair share, and moves of the last \
         join over the\nminimum; worst: over all sizes above {replicas}.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row = Row {
        nodes: 12,
        replica_peak_to_mean: 1.004,
        lead_peak_to_mean: 1.0004,
        primary_peak_to_mean: 1.001,
        moved_to_minimum: 1.0,
        random_replica_peak_to_mean: 1.25,
        random_lead_peak_to_mean: 1.001,
        random_primary_peak_to_mean: 1.5,
        random_moved_to_minimum: 0.88,
    };

    #[test]
    fn a_row_stands_under_its_header() {
        let columns = HEADER.lines().nth(1);
        assert_eq!(
            columns,
            Some("nodes   replica    lead primary moved   replica    lead primary moved")
        );
        assert_eq!(
            line(&ROW),
            "   12     1.004   1.000   1.001  1.00     1.250   1.001   1.500  0.88"
        );
        let conclusion = conclusion(&ROW, 3);
        assert!(conclusion.starts_with("\nworst     1.004   1.000   1.001  1.00     1.250"));
    }

    #[test]
    fn the_json_of_a_row_does_not_change() {
        let expected = concat!(
            r#"{"nodes":12,"replica_peak_to_mean":1.004,"lead_peak_to_mean":1.0004,"#,
            r#""primary_peak_to_mean":1.001,"moved_to_minimum":1.0,"#,
            r#""random_replica_peak_to_mean":1.25,"random_lead_peak_to_mean":1.001,"#,
            r#""random_primary_peak_to_mean":1.5,"random_moved_to_minimum":0.88}"#,
        );
        assert_eq!(serde_json::to_string(&ROW).unwrap(), expected);
        crate::out::assert_documented_under("`ring simulate`", &ROW);
    }

    #[test]
    fn the_worst_row_has_the_larger_of_every_figure() {
        let other = Row {
            nodes: 13,
            lead_peak_to_mean: 1.5,
            replica_peak_to_mean: 1.0,
            ..ROW
        };
        let expected = Row {
            lead_peak_to_mean: 1.5,
            ..ROW
        };
        assert_eq!(worse(ROW, &other), expected);
        assert_eq!(worse(other, &ROW), expected);
    }

    #[test]
    fn counts_and_weights_are_checked_before_anything_is_computed() {
        assert!(
            partitions("4096").is_ok() && partitions("100").is_err() && partitions("x").is_err()
        );
        assert!(weight("200").is_ok() && weight(" 50").is_ok());
        assert!(weight("0").is_err() && weight("-1").is_err());
    }
}
