//! The views of `top`: sortable tables, each described by its columns. A fact that is unknown shows as
//! `-`, and ranks below every other cell.

use std::cmp::Ordering;

use super::columns::{
    CHANGES, Cell, Column, HEALTH, HEAT, Heat, KEYS, MEMORY, NODES, PARTITIONS, Row, is_well,
};
use super::frame::Frame;
use crate::progress::ProgressRate;
use crate::table;

/// A table of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum View {
    /// Load, latencies, records and disk of each node.
    Nodes,
    /// Memory of each node by part, with bits per sealed key.
    Memory,
    /// Links, certificates, damage, slices, compactions and clocks of each node.
    Health,
    /// The most accessed keys of the last minute.
    Keys,
    /// Joins, leaves and other changes; backups; generations.
    Changes,
    /// Each node's share of the partitions.
    Partitions,
    /// The most accessed partitions.
    Heat,
}

/// The busiest partitions that are shown.
const MOST_HOT: usize = 100;

/// The columns of a view, the most important first, and where its rows come from.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
    /// The column that it is sorted by at first.
    pub(super) sort: usize,
    /// Shown instead of no rows.
    pub(super) empty: &'static str,
    rows: fn(&Frame) -> Vec<Row<'_>>,
}

/// A row as text.
pub(super) struct Line {
    pub(super) cells: Vec<String>,
    pub(super) is_well: bool,
}

impl View {
    pub(super) const COUNT: usize = 7;
    pub(super) const ALL: [Self; Self::COUNT] = [
        Self::Nodes,
        Self::Memory,
        Self::Health,
        Self::Keys,
        Self::Changes,
        Self::Partitions,
        Self::Heat,
    ];

    pub(super) const fn table(self) -> Table {
        let (name, columns, sort): (_, &[Column], _) = match self {
            Self::Nodes => ("nodes", &NODES, 0),
            Self::Memory => ("memory", &MEMORY, 0),
            Self::Health => ("health", &HEALTH, 0),
            Self::Keys => ("keys", &KEYS, 1),
            Self::Changes => ("changes", &CHANGES, 0),
            Self::Partitions => ("partitions", &PARTITIONS, 0),
            Self::Heat => ("heat", &HEAT, 1),
        };
        let (empty, rows): (_, fn(&Frame) -> Vec<Row<'_>>) = match self {
            Self::Keys => ("no accesses in the last minute", keys),
            Self::Changes => ("no changes, backups or generations", changes),
            Self::Heat => ("no accesses at present", heat),
            _ => ("no nodes", nodes),
        };
        Table {
            name,
            columns,
            sort,
            empty,
            rows,
        }
    }

    /// The next view, or with `back` the previous one.
    pub(super) const fn next(self, back: bool) -> Self {
        let step = if back { Self::COUNT - 1 } else { 1 };
        Self::ALL[(self as usize + step) % Self::COUNT]
    }
}

/// The names of all columns, each once.
pub(super) fn column_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for column in View::ALL.iter().flat_map(|view| view.table().columns) {
        if !names.contains(&column.name) {
            names.push(column.name);
        }
    }
    names
}

impl Table {
    /// The index of a column.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The sorted rows; of figures the highest first, of text the first in the alphabet.
    pub(super) fn lines(&self, frame: &Frame, sort: usize, reverse: bool) -> Vec<Line> {
        let by = &self.columns[sort];
        let mut rows: Vec<_> = (self.rows)(frame)
            .into_iter()
            .map(|row| (row, (by.cell)(&row)))
            .collect();
        rows.sort_by(|(_, one), (_, other)| {
            let order = order(one.as_ref(), other.as_ref());
            if by.is_ascending == reverse {
                order.reverse()
            } else {
                order
            }
        });
        rows.iter().map(|(row, _)| self.line(row)).collect()
    }

    fn line(&self, row: &Row<'_>) -> Line {
        let cell = |column: &Column| {
            let cell = (column.cell)(row);
            cell.map_or_else(|| "-".to_owned(), |cell| cell.text)
        };
        Line {
            cells: self.columns.iter().map(cell).collect(),
            is_well: row.node.is_none_or(is_well),
        }
    }
}

/// The views as text, each sorted by a column.
pub(super) fn text_of(frame: &Frame, views: &[(View, usize)], reverse: bool) -> String {
    let mut parts = vec![frame.headline()];
    parts.extend(frame.warning());
    parts.extend(frame.change(&ProgressRate::default()));
    for (view, sort) in views {
        let described = view.table();
        let columns = described.columns.iter().map(|it| (it.title, it.align));
        let mut table = table::Table::new(&columns.collect::<Vec<_>>());
        let lines = described.lines(frame, *sort, reverse);
        let title = format!("\n{}", described.name);
        if lines.is_empty() {
            parts.push(format!("{title}: {}", without_rows(frame, *view)));
            continue;
        }
        for line in lines {
            table.row(line.cells);
        }
        parts.extend([title, table.to_string()]);
    }
    parts.join("\n")
}

/// Why a view has no rows.
pub(super) fn without_rows(frame: &Frame, view: View) -> String {
    match &frame.hot_problem {
        Some(problem) if view == View::Keys => format!("no hot keys: {problem}"),
        _ => view.table().empty.to_owned(),
    }
}

fn order(one: Option<&Cell>, other: Option<&Cell>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => {
            let ranks = one.rank.total_cmp(&other.rank);
            ranks.then_with(|| one.text.cmp(&other.text))
        }
        _ => one.is_some().cmp(&other.is_some()),
    }
}

fn nodes(frame: &Frame) -> Vec<Row<'_>> {
    let loads = frame.nodes.iter().map(|node| node.load.as_ref());
    let rows = frame.status.nodes.iter().zip(loads);
    rows.map(|(node, load)| Row {
        node: Some(node),
        load: load.filter(|_| node.reachable),
        ..Row::new(frame)
    })
    .collect()
}

fn keys(frame: &Frame) -> Vec<Row<'_>> {
    let keys = frame.hot.iter().flat_map(|hot| &hot.keys);
    keys.map(|key| Row {
        key: Some(key),
        ..Row::new(frame)
    })
    .collect()
}

fn changes(frame: &Frame) -> Vec<Row<'_>> {
    let (status, row) = (&frame.status, Row::new(frame));
    let changes = status.transition.iter().chain(&status.last_transition);
    let changes = changes.map(|change| Row {
        change: Some(change),
        ..row
    });
    let writing = status.nodes.iter().filter(|node| node.backing_up);
    let backups = writing.map(|node| Row {
        node: Some(node),
        ..row
    });
    let generations = status.generations.iter().map(|generation| Row {
        generation: Some(generation),
        ..row
    });
    changes.chain(backups).chain(generations).collect()
}

/// The busiest partitions, summed over their nodes.
fn heat(frame: &Frame) -> Vec<Row<'_>> {
    let nodes = || frame.status.nodes.iter().map(|node| &node.heat);
    let parts = nodes().map(Vec::len).max().unwrap_or(0);
    let sum = |part: usize| {
        nodes()
            .filter_map(|heat| heat.get(part))
            .map(|it| u64::from(*it))
            .sum()
    };
    let mut busiest: Vec<(usize, u64)> = (0..parts).map(|part| (part, sum(part))).collect();
    let all: u64 = busiest.iter().map(|(_, heat)| heat).sum();
    busiest.retain(|(_, heat)| *heat > 0);
    busiest.sort_by_key(|(_, heat)| std::cmp::Reverse(*heat));
    busiest.truncate(MOST_HOT);
    let in_part = u64::from(frame.status.partitions).div_ceil(parts.max(1) as u64);
    let row = |(part, heat): (usize, u64)| Row {
        heat: Some(Heat {
            partition: part as u64 * in_part,
            accesses_per_s: heat as f64 / 1e3,
            share: heat as f64 / all as f64,
        }),
        ..Row::new(frame)
    };
    busiest.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::{frame, large};
    use super::*;
    use clap::ValueEnum as _;

    /// The cells of a column, in a view that is sorted by this column.
    fn column(frame: &Frame, view: View, name: &str, reverse: bool) -> Vec<String> {
        let table = view.table();
        let at = table.position(name).unwrap();
        let lines = table.lines(frame, at, reverse);
        lines
            .into_iter()
            .map(|line| line.cells[at].clone())
            .collect()
    }

    #[test]
    fn every_view_is_named_as_its_option_and_its_columns_differ() {
        for view in View::ALL {
            let table = view.table();
            let option = view.to_possible_value().unwrap();
            assert_eq!(option.get_name(), table.name);
            for (at, column) in table.columns.iter().enumerate() {
                assert_eq!(table.position(column.name), Some(at), "{}", column.name);
            }
        }
        assert_eq!(View::value_variants(), View::ALL);
        assert_eq!(View::Heat.next(false), View::Nodes);
        assert_eq!(View::Nodes.next(true), View::Heat);
    }

    #[test]
    fn every_column_sorts_both_ways_and_unknown_facts_are_the_lowest() {
        for view in View::ALL {
            for name in view.table().columns.iter().map(|it| it.name) {
                for frame in [frame(), large()] {
                    let sorted = column(&frame, view, name, false);
                    let mut reversed = column(&frame, view, name, true);
                    reversed.reverse();
                    assert_eq!(sorted, reversed, "{name}");
                }
            }
        }
        let nodes = |name| column(&frame(), View::Nodes, name, false);
        assert_eq!(nodes("node"), ["1", "2", "3"]);
        assert_eq!(nodes("requests"), ["1,002", "22.0", "-"]);
        assert_eq!(nodes("get999"), ["80 us", "10 us", "-"]);
        assert_eq!(nodes("state"), ["ready", "ready", "unreachable"]);
    }

    #[test]
    fn a_frame_shows_rates_of_the_last_sample_and_the_busiest_first() {
        let by_requests = View::Nodes.table().position("requests").unwrap();
        let text = text_of(&frame(), &[(View::Nodes, by_requests)], false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "2 of 3 nodes ready, 1,024 requests/s, 0.0 errors/s, get 99 % 80 us, write 99 % 20 us, \
             epoch 7, cluster abababab",
        );
        assert_eq!(
            lines[1],
            "2,048 partitions have no quorum, 2,048 of 8,192 partitions lack a replica"
        );
        assert!(lines[2].starts_with("removal of node 2: 1,024 of 2,048 partitions"));
        let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            words(6)[..8],
            ["2", "default", "ready", "1,002", "80", "us", "20", "us"]
        );
        assert_eq!(words(7)[..4], ["1", "default", "ready", "22.0"]);
        assert_eq!(words(8)[..4], ["3", "default", "unreachable", "-"]);
    }

    #[test]
    fn text_has_every_view_and_says_why_one_is_empty() {
        let mut frame = frame();
        let views = View::ALL.map(|view| (view, view.table().sort));
        let text = text_of(&frame, &views, false);
        for view in View::ALL {
            assert!(
                text.contains(&format!("\n{}\n", view.table().name)),
                "{text}"
            );
        }
        assert!(
            text.contains(r"busy\n\x1b[2J"),
            "nothing reaches the terminal raw: {text}"
        );
        frame.hot = None;
        frame.hot_problem = Some("nodes do not count".into());
        (frame.status.transition, frame.status.generations) = (None, Vec::new());
        frame.status.topology_leader = None;
        let text = text_of(&frame, &views, false);
        for part in [
            "joins and leaves wait for a leader",
            "keys: no hot keys: nodes do not count",
            "changes: no changes, backups or generations",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn memory_is_divided_into_parts_with_bits_per_sealed_key() {
        let first = |name| column(&frame(), View::Memory, name, false).remove(0);
        assert_eq!(first("mphf"), "137 KiB");
        assert_eq!(first("mphf-bits"), "2.2");
        assert_eq!(first("header-bits"), "1.0");
        assert_eq!(first("bits-per-key"), "24.0");
        assert_eq!(first("memtable"), "1.00 MiB");
    }

    #[test]
    fn health_says_who_reaches_whom_and_which_certificates_end() {
        let mut frame = frame();
        frame.at_ms = 1_000;
        let nodes = &mut frame.status.nodes;
        nodes[0].certificate_ends_at_ms = Some(500);
        nodes[1].certificate_ends_at_ms = Some(1_000 + 90_000_000);
        nodes[1].out_of_reach = vec![nodes[2].member.id];
        nodes[1].clock_ms -= 1_500;
        nodes[1].disk_full = true;
        let health = |name| column(&frame, View::Health, name, false);
        assert_eq!(health("certificate"), ["-", "expired", "1 d 1 h"]);
        assert_eq!(health("links"), ["-", "all", "not to node 3"]);
        assert_eq!(health("clock"), ["-1.50 s", "+0.00 s", "-"]);
        assert_eq!(health("free-disk"), ["256 GiB", "full", "-"]);
        assert_eq!(health("role"), ["-", "leader", "voter"]);
        assert_eq!(health("problem"), ["-", "-", "connection refused"]);
        let lines = View::Health.table().lines(&frame, 0, false);
        let are_well: Vec<bool> = lines.iter().map(|line| line.is_well).collect();
        assert_eq!(are_well, [true, false, false]);
    }

    #[test]
    fn changes_backups_and_generations_are_in_one_table() {
        let changes = |name| column(&large(), View::Changes, name, false);
        let what = [
            "backup on node 1002",
            "generation 12 of `urls`",
            "removal of node 2",
            "removal of node 2",
        ];
        assert_eq!(changes("what"), what);
        assert_eq!(
            changes("progress"),
            ["attached", "done", "running", "running"]
        );
        assert_eq!(changes("moved")[0], "1,024 of 2,048");
        assert_eq!(changes("took")[0], "88 d 14 h");
        let waits = "nodes 1001, 1002 (fetching); node 1003 (unconfirmed)";
        assert!(changes("waits").contains(&waits.to_owned()));
        assert!(changes("waits").contains(&"node 2 (declared dead)".to_owned()));
    }

    #[test]
    fn heat_is_summed_over_nodes_and_the_busiest_comes_first() {
        let mut frame = frame();
        frame.status.nodes[0].heat = vec![0, 500, 1_000];
        frame.status.nodes[1].heat = vec![0, 500, 2_000];
        frame.status.nodes[2].heat = Vec::new();
        let heat = |name| column(&frame, View::Heat, name, false);
        assert_eq!(heat("accesses"), ["3.0", "1.0"]);
        assert_eq!(heat("share"), ["75.0 %", "25.0 %"]);
        assert_eq!(heat("partition").len(), 2, "one is idle");
    }

    #[test]
    fn keys_and_partitions_have_their_shares() {
        assert_eq!(column(&frame(), View::Keys, "share", false), ["80.0 %"]);
        assert_eq!(column(&frame(), View::Keys, "nodes", false), ["node 2"]);
        let shares = column(&frame(), View::Partitions, "share", false);
        assert_eq!(shares, ["33.3 %", "33.3 %", "-"]);
    }
}
