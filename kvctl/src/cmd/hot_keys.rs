//! `kvctl hot-keys`: the most accessed keys, and their accesses over time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use torc_client::{HotHistory, HotKey, HotKeys, HotKeysOptions, HotNode, NodeId};

use torc_plot::{Axis, Plot};

use crate::args::positive_duration;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};
use crate::table::{Align, Table};
use crate::text;

/// Longest key in the table, characters.
const KEY_WIDTH: usize = 60;
/// Longest key in a legend.
const LEGEND_WIDTH: usize = 30;
/// Steps of a plot.
const STEPS: u32 = 60;
/// Keys in a plot, each in its own colour.
const DRAWN: usize = 6;

/// Show the most accessed keys of a namespace, over all nodes, in a window that ends now.
///
/// An access is a get, a put or a delete. A key is hot if it has a thousandth of the accesses to
/// its namespace (`kvd serve --hot-keys-k`). An estimate is never too low; it is too high
/// by more than the bound with probability 1/32 at most. A key is `new` if it was not hot in the
/// previous window; `-`: the counts do not go back that far. Nodes that did not answer are named on
/// stderr.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Length of the window, for example 60s; at most 24h.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_duration)]
    window: Duration,
    /// Number of keys to show.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    top: u32,
    /// Only accesses that the node with this id counted.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    node: Option<u64>,
    /// SVG file to draw: accesses over the window, of all keys and of the hottest.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let options = HotKeysOptions {
        window: Some(args.window),
        top: Some(args.top),
        node: args.node.map(NodeId),
        steps: args.plot.is_some().then_some(STEPS),
    };
    let hot = global.client()?.hot_keys(options).await?;
    if global.json() {
        out.json(&hot)?;
    } else {
        out.line(describe(&hot, args.top))?;
    }
    out.flush()?;
    missing(&hot.nodes).for_each(note);
    match args.plot {
        Some(path) => draw(&hot, global.namespace(), &path),
        None => Ok(()),
    }
}

fn draw(hot: &HotKeys, namespace: &str, path: &Path) -> Result<(), Failure> {
    let history = hot.history.as_ref().ok_or(Failure::NoHistory)?;
    let drawn = plot(hot, history, namespace).to_string();
    fs::write(path, drawn).map_err(|source| Failure::file("write", path, source))
}

/// Accesses per second in the middle of each step.
fn plot(hot: &HotKeys, history: &HotHistory, namespace: &str) -> Plot {
    let step_s = history.step_ms as f64 / 1_000.0;
    let points = |accesses: &[f64]| {
        let points = accesses.iter().zip(0_u32..);
        let point = |(count, at): (&f64, u32)| ((f64::from(at) + 0.5) * step_s, count / step_s);
        points.map(point).collect::<Vec<_>>()
    };
    let title = format!(
        "Hot keys of {namespace}, {} to {}",
        text::timestamp(hot.from_ms),
        text::timestamp(hot.to_ms)
    );
    let (x, y) = (Axis::linear("seconds"), Axis::linear("accesses per second"));
    let mut plot = Plot::new(title, x, y);
    plot.dashed("all keys", points(&history.accesses));
    for (key, accesses) in hot.keys.iter().zip(&history.keys).take(DRAWN) {
        plot.measured(name(key, LEGEND_WIDTH), points(accesses));
    }
    plot
}

fn missing(nodes: &[HotNode]) -> impl Iterator<Item = String> + '_ {
    nodes.iter().filter_map(|node| {
        let problem = text::one_line(node.problem.as_ref()?);
        Some(format!("without node {}: {problem}", node.node))
    })
}

/// A count that every key with as many accesses reached: those that `top` cut off have at most as many
/// as the last one that is shown.
fn complete_from(hot: &HotKeys, top: u32) -> u64 {
    let last = hot.keys.last().filter(|_| hot.keys.len() >= top as usize);
    last.map_or(hot.complete_from, |last| {
        hot.complete_from.max(last.estimate.saturating_add(1))
    })
}

fn describe(hot: &HotKeys, top: u32) -> String {
    let answered = hot.nodes.iter().filter(|node| node.problem.is_none());
    let nodes = match answered.count() {
        1 => "1 node".to_owned(),
        count => format!("{count} nodes"),
    };
    if hot.accesses == 0 {
        return format!("no accesses at {nodes} yet; nodes count in intervals of a few seconds");
    }
    let mut lines = vec![format!(
        "{} at {nodes}, {} to {}; lists every key with {} or more\n",
        text::accesses(hot.accesses),
        text::timestamp(hot.from_ms),
        text::timestamp(hot.to_ms),
        text::accesses(complete_from(hot, top)),
    )];
    lines.push(keys(hot).to_string());
    if let Some(line) = majority(hot) {
        lines.push(format!("\n{line}"));
    }
    lines.join("\n")
}

fn majority(hot: &HotKeys) -> Option<String> {
    let majority = hot.majority?;
    let key = hot.keys.iter().find(|key| key.digest == majority.digest);
    let named = key.map_or_else(|| majority.digest.to_string(), |key| name(key, KEY_WIDTH));
    let sure = if majority.certain {
        "has"
    } else {
        "seems to have"
    };
    Some(format!("{named} {sure} more than half of all accesses"))
}

fn keys(hot: &HotKeys) -> Table {
    let mut table = Table::new(&[
        ("key", Align::Left),
        ("accesses", Align::Right),
        ("± at most", Align::Right),
        ("share", Align::Right),
        ("nodes", Align::Left),
        ("new", Align::Left),
    ]);
    for key in &hot.keys {
        let new = match key.is_new {
            Some(true) => "new",
            Some(false) => "",
            None => "-",
        };
        table.row([
            name(key, KEY_WIDTH),
            text::count(key.estimate),
            text::count(hot.error_bound),
            text::percent(key.share),
            nodes(key),
            new.to_owned(),
        ]);
    }
    table
}

/// The key, or its digest where keys are redacted.
fn name(key: &HotKey, width: usize) -> String {
    match &key.key {
        Some(bytes) => text::shortened(bytes, width),
        None => key.digest.to_string(),
    }
}

/// The nodes where the key is hot; if several, with the accesses at each.
fn nodes(key: &HotKey) -> String {
    match &key.nodes[..] {
        [only] => only.node.to_string(),
        several => {
            let one = |it: &torc_client::HotKeyNode| {
                format!("{} ({})", it.node, text::count(it.estimate))
            };
            several.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_client::{HotKeyNode, HotMajority};
    use torc_record::Digest;

    fn key(byte: u8, estimate: u64, key: Option<&'static [u8]>, new: Option<bool>) -> HotKey {
        HotKey {
            digest: Digest([byte; 16]),
            namespace: "default".into(),
            key: key.map(bytes::Bytes::from_static),
            estimate,
            share: estimate as f64 / 10_000.0,
            nodes: vec![HotKeyNode {
                node: NodeId(2),
                estimate,
            }],
            is_new: new,
        }
    }

    fn hot() -> HotKeys {
        let mut keys = vec![
            key(1, 6_000, Some(b"a\tb"), Some(false)),
            key(2, 1_500, None, Some(true)),
            key(3, 300, Some(b"\xff"), None),
        ];
        keys[1].nodes.push(HotKeyNode {
            node: NodeId(3),
            estimate: 200,
        });
        HotKeys {
            answered_by: NodeId(1),
            from_ms: 0,
            to_ms: 60_000,
            accesses: 10_000,
            error_bound: 5,
            delta: 1.0 / 32.0,
            complete_from: 10,
            keys,
            majority: Some(HotMajority {
                digest: Digest([1; 16]),
                certain: true,
            }),
            history: Some(HotHistory {
                from_ms: 0,
                step_ms: 30_000,
                accesses: vec![9_000.0, 1_000.0],
                keys: vec![vec![6_000.0, 0.0], vec![1_500.0, 0.0], vec![0.0, 300.0]],
            }),
            nodes: vec![
                HotNode {
                    node: NodeId(2),
                    accesses: 10_000,
                    from_ms: Some(0),
                    to_ms: Some(60_000),
                    problem: None,
                },
                HotNode {
                    node: NodeId(4),
                    accesses: 0,
                    from_ms: None,
                    to_ms: None,
                    problem: Some("connection\nrefused".into()),
                },
            ],
        }
    }

    #[test]
    fn the_hottest_come_with_bound_share_nodes_and_news() {
        let expected = "\
10,000 accesses at 1 node, 1970-01-01T00:00:00.000Z to 1970-01-01T00:01:00.000Z; lists every key with 10 accesses or more

key                               accesses  ± at most   share  nodes               new
a\\tb                                 6,000          5  60.0 %  2
02020202020202020202020202020202     1,500          5  15.0 %  2 (1,500), 3 (200)  new
\\xff                                   300          5   3.0 %  2                   -

a\\tb has more than half of all accesses";
        assert_eq!(describe(&hot(), 20), expected);
        let cut = describe(&hot(), 3);
        assert!(cut.contains("every key with 301 accesses or more"), "{cut}");
        let missing: Vec<_> = missing(&hot().nodes).collect();
        assert_eq!(missing, ["without node 4: connection refused"]);
    }

    #[test]
    fn a_majority_within_the_error_is_not_certain_and_quiet_clusters_say_so() {
        let mut hot = hot();
        hot.majority = Some(HotMajority {
            digest: Digest([2; 16]),
            certain: false,
        });
        assert!(describe(&hot, 20).ends_with("02 seems to have more than half of all accesses"));
        hot.accesses = 0;
        let told = describe(&hot, 20);
        assert!(told.starts_with("no accesses at 1 node yet"), "{told}");
    }

    #[test]
    fn a_plot_has_all_accesses_and_the_hottest_keys() {
        let hot = hot();
        let history = hot.history.as_ref().unwrap();
        let drawn = plot(&hot, history, "a<b").to_string();
        assert!(drawn.contains("Hot keys of a&lt;b, 1970"), "{drawn}");
        for name in ["all keys", "a\\tb", "\\xff", "accesses per second"] {
            assert!(drawn.contains(name), "{name} in {drawn}");
        }
        assert_eq!(
            drawn.matches("<circle").count(),
            6,
            "two steps of three keys"
        );
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented_under("`hot-keys`", &hot());
    }
}
