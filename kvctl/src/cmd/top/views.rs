//! The views of `top`: sortable tables, each described by its columns.
//!
//! A column is a name for `--sort`, a title and a function from a row to a cell. A row is about a
//! node, a key, a change or a generation. It has no cell for facts that are unknown, such as the
//! load of an unreachable node: the table shows `-`, and ranks it below every other cell.

use std::cmp::Ordering;
use std::time::Duration;

use torc_client::{
    Generation, GenerationState, HotKey, MemberState, NodeId, NodeStatus, Transition,
};

use super::frame::{Frame, Load};
use crate::cmd::generation;
use crate::progress::ProgressRate;
use crate::table::{self, Align};
use crate::{progress, text};

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

/// A fact about each row.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// As `--sort` takes it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Text is left-aligned and may be shortened; figures are neither.
    pub(super) align: Align,
    /// Whether the lowest comes first, unless the order is reversed.
    is_ascending: bool,
    cell: fn(&Row<'_>) -> Option<Cell>,
}

/// A fact as text, and its rank. Facts of equal rank are sorted by their text.
struct Cell {
    text: String,
    rank: f64,
}

/// What a row is about.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    frame: &'a Frame,
    node: Option<&'a NodeStatus>,
    load: Option<&'a Load>,
    key: Option<&'a HotKey>,
    change: Option<&'a Transition>,
    generation: Option<&'a Generation>,
    heat: Option<Heat>,
}

/// The accesses of a partition; of several neighbours if the cluster has more than 4,096 partitions.
#[derive(Clone, Copy)]
struct Heat {
    partition: u64,
    accesses_per_s: f64,
    share: f64,
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

const fn text(
    name: &'static str,
    title: &'static str,
    cell: fn(&Row<'_>) -> Option<Cell>,
) -> Column {
    Column {
        name,
        title,
        align: Align::Left,
        is_ascending: true,
        cell,
    }
}

const fn figure(
    name: &'static str,
    title: &'static str,
    cell: fn(&Row<'_>) -> Option<Cell>,
) -> Column {
    Column {
        align: Align::Right,
        is_ascending: false,
        ..text(name, title, cell)
    }
}

impl Column {
    const fn ascending(self) -> Self {
        Self {
            is_ascending: true,
            ..self
        }
    }
}

const NODE: Column = figure("node", "node", |it| {
    let id = it.node?.member.id;
    ranked(id.to_string(), id.0 as f64)
})
.ascending();
const ZONE: Column = text("zone", "zone", |it| words(it.node?.member.zone.as_str()));
const STATE: Column = text("state", "state", |it| words(state(it.node?)));
const FREE_DISK: Column = figure("free-disk", "free disk", |it| match it.up()? {
    node if node.disk_full => ranked("full".to_owned(), 0.0),
    node => bytes(node.free_bytes?),
});

const NODES: [Column; 15] = [
    NODE,
    ZONE,
    STATE,
    figure("requests", "requests/s", |it| {
        rate(it.load?.requests_per_s())
    }),
    figure("get99", "get 99 %", |it| micros(it.load?.get_p99_us?)),
    figure("write99", "write 99 %", |it| micros(it.load?.write_p99_us?)),
    figure("records", "records", |it| count(it.up()?.records)),
    figure("data", "data", |it| bytes(it.up()?.payload_bytes)),
    figure("memory", "memory", |it| bytes(it.up()?.rss_bytes)),
    FREE_DISK,
    figure("errors", "errors/s", |it| rate(it.load?.faults_per_s)),
    figure("get50", "get 50 %", |it| micros(it.load?.get_p50_us?)),
    figure("get999", "get 99.9 %", |it| micros(it.load?.get_p999_us?)),
    figure("write50", "write 50 %", |it| micros(it.load?.write_p50_us?)),
    figure("write999", "write 99.9 %", |it| {
        micros(it.load?.write_p999_us?)
    }),
];

const MEMORY: [Column; 15] = [
    NODE,
    figure("sealed-keys", "sealed keys", |it| {
        count(it.up()?.sealed_keys)
    }),
    figure("bits-per-key", "bits/key", |it| {
        bits(it.up()?, |node| node.index_bytes)
    }),
    figure("mphf-bits", "MPHF bits", |it| {
        bits(it.up()?, |node| node.mphf_bytes)
    }),
    figure("gate-bits", "gate bits", |it| {
        bits(it.up()?, |node| node.gate_bytes)
    }),
    figure("offset-bits", "offset bits", |it| {
        bits(it.up()?, |node| node.offset_bytes)
    }),
    figure("header-bits", "header bits", |it| {
        bits(it.up()?, |node| node.header_bytes)
    }),
    figure("mphf", "MPHF", |it| bytes(it.up()?.mphf_bytes)),
    figure("gates", "gates", |it| bytes(it.up()?.gate_bytes)),
    figure("offsets", "offsets", |it| bytes(it.up()?.offset_bytes)),
    figure("headers", "headers", |it| bytes(it.up()?.header_bytes)),
    figure("index", "index", |it| bytes(it.up()?.index_bytes)),
    figure("memtable", "memtable", |it| bytes(it.up()?.memtable_bytes)),
    figure("memtable-limit", "limit", |it| {
        bytes(it.up()?.memtable_limit_bytes)
    }),
    figure("memory", "process", |it| bytes(it.up()?.rss_bytes)),
];

const HEALTH: [Column; 19] = [
    NODE,
    STATE,
    text("links", "links", |it| {
        match it.up()?.out_of_reach.as_slice() {
            [] => words("all"),
            lost => words(format!("not to {}", text::nodes(lost))),
        }
    }),
    figure("certificate", "certificate", |it| {
        certificate_left(it, it.up()?)
    })
    .ascending(),
    figure("damaged", "damaged", |it| count(it.up()?.damaged_slices)),
    figure("slices", "slices", |it| count(it.up()?.slices)),
    figure("most-slices", "most", |it| count(it.up()?.most_slices)),
    figure("flushes", "flushes", |it| count(it.up()?.flushes)),
    figure("compactions", "compactions", |it| {
        count(it.up()?.compactions)
    }),
    figure("disk", "on disk", |it| bytes(it.up()?.slice_bytes)),
    figure("log", "log", |it| bytes(it.up()?.log_bytes)),
    FREE_DISK,
    figure("clock", "clock", clock),
    text("exposed", "exposed", |it| {
        match it.up()?.exposed.as_slice() {
            [] => words("none"),
            exposed => words(exposed.join(", ")),
        }
    }),
    text("role", "topology", role),
    figure("up", "up", |it| span(it.up()?.uptime_ms)),
    text("release", "release", |it| {
        words(it.node?.member.release.as_str())
    }),
    text("address", "address", |it| {
        words(it.node?.member.address.as_str())
    }),
    text("problem", "problem", |it| {
        words(text::one_line(it.node?.problem.as_ref()?))
    }),
];

const KEYS: [Column; 6] = [
    text("key", "hot key, last minute", |it| words(key(it.key?))),
    figure("accesses", "accesses", |it| count(it.key?.estimate)),
    figure("error", "± at most", |it| {
        count(it.key.and(it.frame.hot.as_ref())?.error_bound)
    }),
    figure("share", "share", |it| {
        let share = it.key?.share;
        ranked(text::percent(share), share)
    }),
    text("nodes", "on", |it| {
        let nodes: Vec<_> = it.key?.nodes.iter().map(|of| of.node).collect();
        words(text::nodes(&nodes))
    }),
    text("new", "new", |it| {
        words(if it.key?.is_new? { "new" } else { "no" })
    }),
];

const CHANGES: [Column; 8] = [
    text("what", "what", what),
    text("progress", "state", stage),
    figure("moved", "partitions", |it| {
        let change = it.change?;
        let done = text::count(change.partitions_done.into());
        let all = text::count(change.partitions_total.into());
        ranked(format!("{done} of {all}"), change.partitions_done.into())
    }),
    figure("records", "records", |it| {
        match (it.change, it.generation) {
            (Some(change), _) => count(change.records_moved),
            (None, generation) => count(generation?.records),
        }
    }),
    figure("data", "data", |it| match (it.change, it.generation) {
        (Some(change), _) => bytes(change.bytes_moved),
        (None, generation) => bytes(generation?.payload_bytes),
    }),
    figure("began", "began ago", |it| {
        span(it.frame.at_ms.saturating_sub(it.change?.started_at_ms))
    }),
    figure("took", "took", |it| {
        let change = it.change?;
        span(change.ended_at_ms?.saturating_sub(change.started_at_ms))
    }),
    text("waits", "waits for", waits_for),
];

const PARTITIONS: [Column; 8] = [
    NODE,
    ZONE,
    STATE,
    figure("partitions", "partitions", |it| {
        count(it.up()?.partitions.into())
    }),
    figure("share", "share", |it| {
        let status = &it.frame.status;
        let all: u64 = status.nodes.iter().map(|it| u64::from(it.partitions)).sum();
        let share = f64::from(it.up()?.partitions) / all as f64;
        ranked(text::percent(share), share)
    }),
    figure("leads", "leads", |it| count(it.up()?.leads.into())),
    figure("weight", "weight", |it| {
        let percent = it.node?.member.weight_percent;
        ranked(format!("{percent} %"), percent.into())
    }),
    figure("tombstones", "tombstones", |it| count(it.up()?.tombstones)),
];

const HEAT: [Column; 3] = [
    figure("partition", "partition", |it| count(it.heat?.partition)).ascending(),
    figure("accesses", "accesses/s", |it| rate(it.heat?.accesses_per_s)),
    figure("share", "share", |it| {
        let share = it.heat?.share;
        ranked(text::percent(share), share)
    }),
];

impl<'a> Row<'a> {
    const fn new(frame: &'a Frame) -> Self {
        Self {
            frame,
            node: None,
            load: None,
            key: None,
            change: None,
            generation: None,
            heat: None,
        }
    }

    /// The node, if the rest of its status is known.
    fn up(&self) -> Option<&'a NodeStatus> {
        self.node.filter(|node| node.reachable)
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

fn role(row: &Row<'_>) -> Option<Cell> {
    let (node, leader) = (row.up()?, row.frame.status.topology_leader);
    words(match node.voter {
        _ if leader == Some(node.member.id) => "leader",
        true => "voter",
        false => "learner",
    })
}

/// The time until a certificate expires.
fn certificate_left(row: &Row<'_>, node: &NodeStatus) -> Option<Cell> {
    let Some(end_ms) = node.certificate_ends_at_ms else {
        return ranked("no TLS".to_owned(), f64::INFINITY);
    };
    match end_ms.saturating_sub(row.frame.at_ms) {
        0 => ranked("expired".to_owned(), 0.0),
        left_ms => span(left_ms),
    }
}

/// The difference from the clock of the answering node. The largest ranks first.
fn clock(row: &Row<'_>) -> Option<Cell> {
    let status = &row.frame.status;
    let mut nodes = status.nodes.iter();
    let own = nodes.find(|node| node.member.id == status.answered_by)?;
    let known = |node: &NodeStatus| (node.clock_ms > 0).then_some(node.clock_ms as f64);
    let ahead_s = (known(row.up()?)? - known(own)?) / 1e3;
    ranked(format!("{ahead_s:+.2} s"), ahead_s.abs())
}

fn what(row: &Row<'_>) -> Option<Cell> {
    if let Some(change) = row.change {
        let (name, who) = (progress::name(change.kind), progress::who(change));
        return words(format!("{name} of {who}"));
    }
    if let Some(node) = row.node {
        return words(format!("backup on node {}", node.member.id));
    }
    let generation = row.generation?;
    let (number, namespace) = (generation.number, &generation.namespace);
    words(match generation.state {
        GenerationState::Merging => format!("merge {number} into `{namespace}`"),
        _ => format!("generation {number} of `{namespace}`"),
    })
}

fn stage(row: &Row<'_>) -> Option<Cell> {
    let of_change = |change: &Transition| match (change.ended_at_ms, change.aborted) {
        (None, false) => "running",
        (None, true) => "rolling back",
        (Some(_), false) => "done",
        (Some(_), true) => "aborted",
    };
    words(match (row.change, row.generation) {
        (Some(change), _) => of_change(change),
        (None, Some(generation)) => generation::state(generation.state),
        (None, None) => "running",
    })
}

/// The nodes that a generation waits for, or that a change goes on without.
fn waits_for(row: &Row<'_>) -> Option<Cell> {
    let parts: [(&[NodeId], _); 2] = match (row.change, row.generation) {
        (Some(change), _) => [(&change.dead, "declared dead"), (&[], "")],
        (None, generation) => [
            (&generation?.not_ready, "fetching"),
            (&generation?.unconfirmed, "unconfirmed"),
        ],
    };
    let parts = parts.iter().filter(|(nodes, _)| !nodes.is_empty());
    let parts: Vec<_> = parts
        .map(|(nodes, why)| format!("{} ({why})", text::nodes(nodes)))
        .collect();
    (!parts.is_empty())
        .then(|| words(parts.join("; ")))
        .flatten()
}

/// A key as text; its digest if nodes redact keys.
fn key(hot: &HotKey) -> String {
    match &hot.key {
        Some(key) => text::shortened(key, 60),
        None => format!("digest {}", hot.digest),
    }
}

const fn state(node: &NodeStatus) -> &'static str {
    match (node.reachable, node.ready, node.member.state) {
        (false, _, _) => "unreachable",
        (true, _, MemberState::Joining) => "joining",
        (true, _, MemberState::Leaving) => "leaving",
        (true, false, MemberState::Active) => "not ready",
        (true, true, MemberState::Active) => "ready",
    }
}

fn is_well(node: &NodeStatus) -> bool {
    let is_whole = node.damaged_slices == 0 && !node.disk_full;
    state(node) == "ready" && is_whole && node.out_of_reach.is_empty()
}

#[expect(clippy::unnecessary_wraps, reason = "the end of a column's function")]
const fn ranked(text: String, rank: f64) -> Option<Cell> {
    Some(Cell { text, rank })
}

fn words(text: impl Into<String>) -> Option<Cell> {
    ranked(text.into(), 0.0)
}

fn count(number: u64) -> Option<Cell> {
    ranked(text::count(number), number as f64)
}

fn bytes(number: u64) -> Option<Cell> {
    ranked(text::bytes(number), number as f64)
}

fn micros(us: u64) -> Option<Cell> {
    ranked(text::latency_us(us), us as f64)
}

fn span(ms: u64) -> Option<Cell> {
    ranked(text::duration(Duration::from_millis(ms)), ms as f64)
}

fn rate(per_s: f64) -> Option<Cell> {
    ranked(super::frame::rate(per_s), per_s)
}

/// Bits of memory per sealed key.
fn bits(node: &NodeStatus, bytes: fn(&NodeStatus) -> u64) -> Option<Cell> {
    let bits = bytes(node) as f64 * 8.0 / node.sealed_keys as f64;
    (node.sealed_keys > 0)
        .then(|| ranked(format!("{bits:.1}"), bits))
        .flatten()
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
