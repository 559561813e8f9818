//! The columns of `top`'s tables.
//!
//! A column is a name for `--sort`, a title and a function from a row to a cell. A row is about a
//! node, a key, a change, a generation or a partition. It has no cell for facts that are unknown, such
//! as the load of an unreachable node.

use std::time::Duration;

use torc_client::{
    Generation, GenerationState, HotKey, MemberState, NodeId, NodeStatus, Transition,
};

use super::frame::{self, Frame, Load};
use crate::cmd::generation;
use crate::table::Align;
use crate::{progress, text};

/// A fact about each row.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// As `--sort` takes it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Text is left-aligned and may be shortened; figures are neither.
    pub(super) align: Align,
    /// Whether the lowest comes first, unless the order is reversed.
    pub(super) is_ascending: bool,
    pub(super) cell: fn(&Row<'_>) -> Option<Cell>,
}

/// A fact as text, and its rank. Facts of equal rank are sorted by their text.
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) rank: f64,
}

/// What a row is about.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) frame: &'a Frame,
    pub(super) node: Option<&'a NodeStatus>,
    pub(super) load: Option<&'a Load>,
    pub(super) key: Option<&'a HotKey>,
    pub(super) change: Option<&'a Transition>,
    pub(super) generation: Option<&'a Generation>,
    pub(super) heat: Option<Heat>,
}

/// The accesses of a partition; of several neighbours if the cluster has more than 4,096 partitions.
#[derive(Clone, Copy)]
pub(super) struct Heat {
    pub(super) partition: u64,
    pub(super) accesses_per_s: f64,
    pub(super) share: f64,
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

pub(super) const NODES: [Column; 15] = [
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

pub(super) const MEMORY: [Column; 15] = [
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

pub(super) const HEALTH: [Column; 19] = [
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

pub(super) const KEYS: [Column; 6] = [
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

pub(super) const CHANGES: [Column; 8] = [
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

pub(super) const PARTITIONS: [Column; 8] = [
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

pub(super) const HEAT: [Column; 3] = [
    figure("partition", "partition", |it| count(it.heat?.partition)).ascending(),
    figure("accesses", "accesses/s", |it| rate(it.heat?.accesses_per_s)),
    figure("share", "share", |it| {
        let share = it.heat?.share;
        ranked(text::percent(share), share)
    }),
];

impl<'a> Row<'a> {
    pub(super) const fn new(frame: &'a Frame) -> Self {
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

pub(super) fn is_well(node: &NodeStatus) -> bool {
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
    ranked(frame::rate(per_s), per_s)
}

/// Bits of memory per sealed key.
fn bits(node: &NodeStatus, bytes: fn(&NodeStatus) -> u64) -> Option<Cell> {
    let bits = bytes(node) as f64 * 8.0 / node.sealed_keys as f64;
    (node.sealed_keys > 0)
        .then(|| ranked(format!("{bits:.1}"), bits))
        .flatten()
}
