//! The content of `top` at one moment, as data, text and JSON.

use std::cmp::Ordering;

use serde::Serialize;
use torc_client::{ClusterStatus, HotKeys, LoadSample, MemberState, NodeId, NodeStatus};

use crate::progress::{self, ProgressRate};
use crate::table::{Align, Table};
use crate::text;

/// The operations of a node in its last five seconds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Load {
    from_ms: u64,
    gets_per_s: f64,
    writes_per_s: f64,
    batches_per_s: f64,
    scans_per_s: f64,
    redis_per_s: f64,
    faults_per_s: f64,
    received_bytes_per_s: f64,
    get_p50_us: Option<u64>,
    get_p99_us: Option<u64>,
    write_p50_us: Option<u64>,
    write_p99_us: Option<u64>,
}

impl Load {
    fn of(sample: &LoadSample) -> Self {
        let [gets, puts, deletes, batch_gets, batch_puts, scans, redis] = sample.requests;
        let get = |share| LoadSample::percentile_us(&sample.get_times, share);
        let write = |share| LoadSample::percentile_us(&sample.write_times, share);
        Self {
            from_ms: sample.from_ms,
            gets_per_s: per_s(gets),
            writes_per_s: per_s(puts.saturating_add(deletes)),
            batches_per_s: per_s(batch_gets.saturating_add(batch_puts)),
            scans_per_s: per_s(scans),
            redis_per_s: per_s(redis),
            faults_per_s: per_s(sample.faults),
            received_bytes_per_s: per_s(sample.received_bytes),
            get_p50_us: get(0.5),
            get_p99_us: get(0.99),
            write_p50_us: write(0.5),
            write_p99_us: write(0.99),
        }
    }

    fn requests_per_s(&self) -> f64 {
        self.gets_per_s
            + self.writes_per_s
            + self.batches_per_s
            + self.scans_per_s
            + self.redis_per_s
    }
}

fn per_s(count: u64) -> f64 {
    count as f64 / LoadSample::LENGTH.as_secs_f64()
}

#[derive(Debug, Clone, Serialize)]
struct NodeLoad {
    node: NodeId,
    load: Option<Load>,
}

/// Everything on the screen.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Frame {
    at_ms: u64,
    requests_per_s: f64,
    faults_per_s: f64,
    nodes: Vec<NodeLoad>,
    pub(super) hot: Option<HotKeys>,
    /// Why there are no hot keys.
    #[serde(skip)]
    pub(super) hot_problem: Option<String>,
    pub(super) status: ClusterStatus,
    /// Requests per second of the cluster, oldest first.
    #[serde(skip)]
    pub(super) past: Vec<u64>,
}

/// A column of the table of nodes, to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Column {
    Node,
    Zone,
    State,
    Requests,
    Get99,
    Write99,
    Records,
    Data,
    Memory,
    BitsPerKey,
    Slices,
    Memtable,
    FreeDisk,
}

/// A node, and its load if known.
type Row<'a> = (&'a NodeStatus, Option<&'a Load>);

impl Column {
    pub(super) const ALL: [Self; 13] = [
        Self::Node,
        Self::Zone,
        Self::State,
        Self::Requests,
        Self::Get99,
        Self::Write99,
        Self::Records,
        Self::Data,
        Self::Memory,
        Self::BitsPerKey,
        Self::Slices,
        Self::Memtable,
        Self::FreeDisk,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Zone => "zone",
            Self::State => "state",
            Self::Requests => "requests/s",
            Self::Get99 => "get 99 %",
            Self::Write99 => "write 99 %",
            Self::Records => "records",
            Self::Data => "data",
            Self::Memory => "memory",
            Self::BitsPerKey => "bits/key",
            Self::Slices => "slices",
            Self::Memtable => "memtable",
            Self::FreeDisk => "free disk",
        }
    }

    pub(super) const fn align(self) -> Align {
        match self {
            Self::Zone | Self::State => Align::Left,
            _ => Align::Right,
        }
    }

    fn cell(self, (node, load): Row<'_>) -> String {
        let micros = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), text::latency_us);
        let is_of_the_node = matches!(self, Self::Node | Self::Zone | Self::State);
        if !node.reachable && !is_of_the_node {
            return "-".to_owned();
        }
        match self {
            Self::Node => node.member.id.to_string(),
            Self::Zone => node.member.zone.to_string(),
            Self::State => state(node).to_owned(),
            Self::Requests => {
                load.map_or_else(|| "-".to_owned(), |load| rate(load.requests_per_s()))
            }
            Self::Get99 => micros(load.and_then(|load| load.get_p99_us)),
            Self::Write99 => micros(load.and_then(|load| load.write_p99_us)),
            Self::Records => text::count(node.records),
            Self::Data => text::bytes(node.payload_bytes),
            Self::Memory => text::bytes(node.rss_bytes),
            Self::BitsPerKey => bits(node).map_or_else(|| "-".to_owned(), |it| format!("{it:.1}")),
            Self::Slices => text::count(node.slices),
            Self::Memtable => text::bytes(node.memtable_bytes),
            Self::FreeDisk => node.free_bytes.map_or_else(|| "-".to_owned(), text::bytes),
        }
    }

    /// The sort key of a number column; text columns sort by their text.
    fn weight(self, (node, load): Row<'_>) -> f64 {
        let of_load = |of: fn(&Load) -> f64| load.map_or(-1.0, of);
        let us = |of: Option<u64>| of.map_or(-1.0, |us| us as f64);
        match self {
            Self::Zone | Self::State => 0.0,
            Self::Node => node.member.id.0 as f64,
            Self::Requests => of_load(Load::requests_per_s),
            Self::Get99 => us(load.and_then(|load| load.get_p99_us)),
            Self::Write99 => us(load.and_then(|load| load.write_p99_us)),
            Self::Records => node.records as f64,
            Self::Data => node.payload_bytes as f64,
            Self::Memory => node.rss_bytes as f64,
            Self::BitsPerKey => bits(node).unwrap_or(-1.0),
            Self::Slices => node.slices as f64,
            Self::Memtable => node.memtable_bytes as f64,
            Self::FreeDisk => node.free_bytes.map_or(-1.0, |bytes| bytes as f64),
        }
    }

    fn order(self, one: Row<'_>, other: Row<'_>) -> Ordering {
        match self {
            Self::Zone | Self::State => self.cell(one).cmp(&self.cell(other)),
            _ => self.weight(one).total_cmp(&self.weight(other)),
        }
    }
}

fn bits(node: &NodeStatus) -> Option<f64> {
    let keys = node.sealed_keys;
    (keys > 0).then(|| node.index_bytes as f64 * 8.0 / keys as f64)
}

fn rate(per_s: f64) -> String {
    if per_s >= 100.0 {
        text::count(per_s.round() as u64)
    } else {
        format!("{per_s:.1}")
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

impl Frame {
    pub(super) fn of(
        status: ClusterStatus,
        hot: Result<HotKeys, torc_client::Error>,
        at_ms: u64,
    ) -> Self {
        let load = |node: &NodeStatus| NodeLoad {
            node: node.member.id,
            load: node.load.last().map(Load::of),
        };
        let nodes: Vec<_> = status.nodes.iter().map(load).collect();
        let loads = || nodes.iter().filter_map(|node| node.load.as_ref());
        Self {
            at_ms,
            requests_per_s: loads().map(Load::requests_per_s).sum(),
            faults_per_s: loads().map(|load| load.faults_per_s).sum(),
            past: past(&status),
            nodes,
            hot_problem: hot
                .as_ref()
                .err()
                .map(|error| text::one_line(&error.to_string())),
            hot: hot.ok(),
            status,
        }
    }

    /// The sorted nodes, the highest number first.
    pub(super) fn rows(&self, by: Column, reverse: bool) -> Vec<Vec<String>> {
        let loads = self.nodes.iter().map(|node| node.load.as_ref());
        let mut rows: Vec<Row<'_>> = self.status.nodes.iter().zip(loads).collect();
        let is_ascending = matches!(by, Column::Node | Column::Zone | Column::State) != reverse;
        rows.sort_by(|one, other| {
            let order = by.order(*one, *other);
            if is_ascending { order } else { order.reverse() }
        });
        let cells = |row: Row<'_>| Column::ALL.iter().map(|it| it.cell(row)).collect();
        rows.into_iter().map(cells).collect()
    }

    /// The cluster in one line.
    pub(super) fn headline(&self) -> String {
        let status = &self.status;
        let ready = status.nodes.iter().filter(|node| node.ready).count();
        format!(
            "cluster {}, epoch {}: {ready} of {} nodes ready, {} requests/s, {} errors/s",
            &status.cluster_id.to_string()[..8],
            status.epoch,
            status.nodes.len(),
            rate(self.requests_per_s),
            rate(self.faults_per_s),
        )
    }

    /// The running change and its progress.
    pub(super) fn change(&self, rate: &ProgressRate) -> Option<String> {
        let running = self.status.transition.as_ref()?;
        let (name, who) = (progress::name(running.kind), progress::who(running));
        Some(format!(
            "{name} of {who}: {}",
            progress::figures(running, rate)
        ))
    }

    pub(super) fn text(&self, by: Column, reverse: bool) -> String {
        let columns = Column::ALL.map(|it| (it.title(), it.align()));
        let mut nodes = Table::new(&columns);
        self.rows(by, reverse)
            .into_iter()
            .for_each(|row| nodes.row(row));
        let mut parts = vec![self.headline()];
        parts.extend(self.change(&ProgressRate::default()));
        parts.extend([String::new(), nodes.to_string()]);
        if let Some(hot) = self.hot.as_ref().filter(|hot| !hot.keys.is_empty()) {
            let mut keys = Table::new(&HOT_COLUMNS);
            hot_rows(hot).for_each(|row| keys.row(row));
            parts.extend([String::new(), keys.to_string()]);
        }
        if let Some(problem) = &self.hot_problem {
            parts.extend([String::new(), format!("no hot keys: {problem}")]);
        }
        parts.join("\n")
    }
}

pub(super) const HOT_COLUMNS: [(&str, Align); 4] = [
    ("hot key, last minute", Align::Left),
    ("accesses", Align::Right),
    ("± at most", Align::Right),
    ("share", Align::Right),
];

pub(super) fn hot_rows(hot: &HotKeys) -> impl Iterator<Item = [String; 4]> + '_ {
    hot.keys.iter().map(|key| {
        [
            key.key.as_ref().map_or_else(
                || format!("digest {}", key.digest),
                |name| text::shortened(name, 60),
            ),
            text::count(key.estimate),
            text::count(hot.error_bound),
            text::percent(key.share),
        ]
    })
}

/// Requests per second of all nodes, sample by sample.
fn past(status: &ClusterStatus) -> Vec<u64> {
    let mut sums = std::collections::BTreeMap::<u64, u64>::new();
    for sample in status.nodes.iter().flat_map(|node| &node.load) {
        let sum = sums.entry(sample.from_ms).or_default();
        *sum = sample
            .requests
            .iter()
            .fold(*sum, |sum, it| sum.saturating_add(*it));
    }
    sums.into_values().map(|sum| per_s(sum) as u64).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cmd::status::tests::{node, status};
    use torc_client::{HotKey, HotKeyNode};
    use torc_record::Digest;

    pub(crate) fn frame() -> Frame {
        let mut status = status();
        status.nodes = vec![node(1, true), node(2, true), node(3, false)];
        let sample = |from_ms, gets, slow| LoadSample {
            from_ms,
            requests: [gets, 10, 0, 0, 0, 0, 0],
            get_times: vec![gets - slow, 0, 0, slow],
            write_times: vec![0, 10],
            ..LoadSample::default()
        };
        status.nodes[0].load = vec![sample(5_000, 50, 0), sample(10_000, 100, 0)];
        status.nodes[1].load = vec![sample(5_000, 10, 0), sample(10_000, 5_000, 400)];
        let key = HotKey {
            digest: Digest([0xab; 16]),
            namespace: "default".into(),
            key: Some("busy\n\u{1b}[2J".into()),
            estimate: 4_000,
            share: 0.8,
            nodes: vec![HotKeyNode {
                node: NodeId(2),
                estimate: 4_000,
            }],
            is_new: Some(true),
        };
        let hot = HotKeys {
            answered_by: NodeId(1),
            from_ms: 0,
            to_ms: 10_000,
            accesses: 5_000,
            error_bound: 2,
            delta: 0.03,
            complete_from: 5,
            keys: vec![key],
            majority: None,
            nodes: Vec::new(),
            history: None,
        };
        Frame::of(status, Ok(hot), 12_000)
    }

    #[test]
    fn a_frame_shows_rates_of_the_last_sample_and_the_busiest_first() {
        let text = frame().text(Column::Requests, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "cluster abababab, epoch 7: 2 of 3 nodes ready, 1,024 requests/s, 0.0 errors/s"
        );
        assert!(lines[1].starts_with("removal of node 2: 1,024 of 2,048 partitions"));
        let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            words(4)[..6],
            ["2", "default", "ready", "1,002", "80", "us"]
        );
        assert_eq!(words(5)[..4], ["1", "default", "ready", "22.0"]);
        assert_eq!(words(6)[..4], ["3", "default", "unreachable", "-"]);
        assert!(
            text.contains(r"busy\n\x1b[2J"),
            "nothing reaches the terminal raw: {text}"
        );
    }

    #[test]
    fn every_column_sorts_both_ways() {
        let frame = frame();
        let first = |by, reverse| frame.rows(by, reverse)[0][0].clone();
        assert_eq!(first(Column::Node, false), "1");
        assert_eq!(first(Column::Node, true), "3");
        assert_eq!(first(Column::Requests, true), "3");
        assert_eq!(first(Column::Get99, false), "2");
        for by in Column::ALL {
            let (one, other) = (frame.rows(by, false), frame.rows(by, true));
            assert_eq!((one.len(), other.len()), (3, 3), "{by:?}");
        }
        assert_eq!(frame.past, [16, 1_024]);
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&frame());
    }
}
