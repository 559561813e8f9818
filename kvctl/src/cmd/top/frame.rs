//! The content of `top` at one moment, as data, text and JSON.

use serde::Serialize;
use torc_client::{ClusterStatus, HotKeys, LoadSample, NodeId, NodeStatus};

use crate::progress::{self, ProgressRate};
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
    pub(super) faults_per_s: f64,
    received_bytes_per_s: f64,
    pub(super) get_p50_us: Option<u64>,
    pub(super) get_p99_us: Option<u64>,
    pub(super) get_p999_us: Option<u64>,
    pub(super) write_p50_us: Option<u64>,
    pub(super) write_p99_us: Option<u64>,
    pub(super) write_p999_us: Option<u64>,
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
            get_p999_us: get(0.999),
            write_p50_us: write(0.5),
            write_p99_us: write(0.99),
            write_p999_us: write(0.999),
        }
    }

    pub(super) fn requests_per_s(&self) -> f64 {
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
pub(super) struct NodeLoad {
    node: NodeId,
    pub(super) load: Option<Load>,
}

/// Everything on the screen.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Frame {
    pub(super) at_ms: u64,
    requests_per_s: f64,
    faults_per_s: f64,
    pub(super) nodes: Vec<NodeLoad>,
    pub(super) hot: Option<HotKeys>,
    /// Why there are no hot keys.
    #[serde(skip)]
    pub(super) hot_problem: Option<String>,
    pub(super) status: ClusterStatus,
    /// The operations of all nodes.
    #[serde(skip)]
    total: Load,
    /// Requests per second of the cluster, oldest first.
    #[serde(skip)]
    pub(super) past: Vec<u64>,
}

pub(super) fn rate(per_s: f64) -> String {
    if per_s >= 100.0 {
        text::count(per_s.round() as u64)
    } else {
        format!("{per_s:.1}")
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
        let total = Load::of(&last(&status));
        Self {
            at_ms,
            requests_per_s: total.requests_per_s(),
            faults_per_s: total.faults_per_s,
            total,
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

    /// The cluster in one line, the most important first.
    pub(super) fn headline(&self) -> String {
        let status = &self.status;
        let ready = status.nodes.iter().filter(|node| node.ready).count();
        let micros = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), text::latency_us);
        format!(
            "{ready} of {} nodes ready, {} requests/s, {} errors/s, get 99 % {}, write 99 % {}, \
             epoch {}, cluster {}",
            status.nodes.len(),
            rate(self.requests_per_s),
            rate(self.faults_per_s),
            micros(self.total.get_p99_us),
            micros(self.total.write_p99_us),
            status.epoch,
            &status.cluster_id.to_string()[..8],
        )
    }

    /// What is wrong with the cluster as a whole, in one line.
    pub(super) fn warning(&self) -> Option<String> {
        let status = &self.status;
        let some = |count: Option<u32>| {
            let count = count.filter(|count| *count > 0)?;
            Some(text::count(count.into()))
        };
        let all = text::count(status.partitions.into());
        let parts = [
            some(status.without_quorum).map(|it| format!("{it} partitions have no quorum")),
            some(status.under_replicated)
                .map(|it| format!("{it} of {all} partitions lack a replica")),
            (status.topology_leader.is_none())
                .then(|| "joins and leaves wait for a leader".to_owned()),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
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
}

/// The last samples of all nodes, added up.
fn last(status: &ClusterStatus) -> LoadSample {
    let mut sum = LoadSample::default();
    for sample in status.nodes.iter().filter_map(|node| node.load.last()) {
        add(&mut sum.requests, &sample.requests);
        add_times(&mut sum.get_times, &sample.get_times);
        add_times(&mut sum.write_times, &sample.write_times);
        sum.faults = sum.faults.saturating_add(sample.faults);
    }
    sum
}

fn add_times(sums: &mut Vec<u64>, counts: &[u64]) {
    sums.resize(sums.len().max(counts.len()), 0);
    add(sums, counts);
}

fn add(sums: &mut [u64], counts: &[u64]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum = sum.saturating_add(*count);
    }
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
    use torc_client::{Generation, GenerationState, HotKey, HotKeyNode};
    use torc_record::{Digest, NamespaceId};

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
        status.nodes[1].heat = vec![0, 1_500];
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

    /// A frame with figures as wide as they get.
    pub(crate) fn large() -> Frame {
        let mut status = status();
        status.nodes = (1_001..=1_003).map(|id| node(id, true)).collect();
        for node in &mut status.nodes {
            node.records = 1_234_567_890_123 + node.member.id.0;
            node.tombstones = 987_654_321;
            (node.sealed_keys, node.index_bytes) = (1_234_567_890_123, 5 << 40);
            (node.payload_bytes, node.slice_bytes) = (1_010 << 40, 1_011 << 40);
            (node.rss_bytes, node.log_bytes) = (1_012 << 30, 1_013 << 30);
            (node.memtable_bytes, node.mphf_bytes) = (1_014 << 20, 1_015 << 30);
            (node.slices, node.most_slices, node.flushes) = (1_234_567, 1_234, 7_654_321);
            node.compactions = 1_234_567_890;
            node.clock_ms += node.member.id.0 * 1_234;
            node.certificate_ends_at_ms = Some(13_000_000_000);
            node.out_of_reach = vec![NodeId(1_002), NodeId(1_003), NodeId(1_004)];
            node.exposed = vec!["grpc".into(), "http".into(), "resp".into()];
            node.backing_up = node.member.id.0 == 1_002;
            node.heat = vec![u32::MAX; 3];
            node.load = vec![LoadSample {
                from_ms: 5_000,
                requests: [123_456_789; 7],
                faults: 12_345_678,
                get_times: [vec![0; 12], vec![1_000; 8]].concat(),
                write_times: vec![1; 20],
                received_bytes: 0,
            }];
        }
        let mut ended = status.transition.clone().unwrap();
        (ended.ended_at_ms, ended.records_moved) = (Some(7_654_321_000), 1_234_567_890_123);
        status.last_transition = Some(ended);
        status.generations = vec![generation()];
        let mut hot = frame().hot.unwrap();
        (hot.keys[0].estimate, hot.error_bound) = (1_234_567_890_123, 12_345_678_901);
        hot.keys[0].key = Some("a key that is longer than forty columns 1234567890".into());
        Frame::of(status, Ok(hot), 12_000_000_000)
    }

    pub(crate) fn generation() -> Generation {
        Generation {
            number: 12,
            namespace: "urls".into(),
            id: NamespaceId(5),
            version: torc_client::Version::default(),
            state: GenerationState::Attached,
            creates: false,
            shape: None,
            false_positive_rate: 0.0,
            manifest: String::new(),
            source: String::new(),
            records: 987_654_321_098,
            payload_bytes: 1_017 << 40,
            not_ready: vec![NodeId(1_001), NodeId(1_002)],
            unconfirmed: vec![NodeId(1_003)],
        }
    }

    #[test]
    fn the_chart_adds_up_the_nodes() {
        assert_eq!(frame().past, [16, 1_024]);
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&frame());
    }
}
