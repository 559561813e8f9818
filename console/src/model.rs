//! The content of the console as JSON, made only from the members' answers.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use torc_proto::load::percentile_us;
use torc_proto::v1::{LoadSample, StatusResponse, Transition};

use super::history::{EVERY_MS, MOST_BYTES, MOST_SAMPLES};
use crate::status;

/// Samples by their begin, added up over nodes.
pub(super) fn added_up<'a>(
    samples: impl IntoIterator<Item = &'a LoadSample>,
) -> BTreeMap<u64, LoadSample> {
    let mut sums = BTreeMap::<u64, LoadSample>::new();
    for sample in samples {
        let sum = sums.entry(sample.from_ms).or_default();
        sum.from_ms = sample.from_ms;
        sum.faults = sum.faults.saturating_add(sample.faults);
        sum.received_bytes = sum.received_bytes.saturating_add(sample.received_bytes);
        add(&mut sum.requests, &sample.requests);
        add(&mut sum.get_times, &sample.get_times);
        add(&mut sum.write_times, &sample.write_times);
    }
    sums
}

fn add(sum: &mut Vec<u64>, counts: &[u64]) {
    if sum.len() < counts.len() {
        sum.resize(counts.len(), 0);
    }
    for (sum, count) in sum.iter_mut().zip(counts) {
        *sum = sum.saturating_add(*count);
    }
}

/// Rates and percentiles of one sample.
pub(super) fn sample_json(sample: &LoadSample) -> Value {
    let per_s = |count: u64| count as f64 * 1e3 / EVERY_MS as f64;
    let requests = |kind: usize| per_s(sample.requests.get(kind).copied().unwrap_or(0));
    let get = |share| percentile_us(&sample.get_times, share);
    let write = |share| percentile_us(&sample.write_times, share);
    json!({
        "from_ms": sample.from_ms,
        "gets_per_s": requests(0),
        "writes_per_s": requests(1) + requests(2),
        "batches_per_s": requests(3) + requests(4),
        "scans_per_s": requests(5),
        "redis_per_s": requests(6),
        "faults_per_s": per_s(sample.faults),
        "received_bytes_per_s": per_s(sample.received_bytes),
        "get_p50_us": get(0.5),
        "get_p99_us": get(0.99),
        "get_p999_us": get(0.999),
        "write_p50_us": write(0.5),
        "write_p99_us": write(0.99),
        "write_p999_us": write(0.999),
    })
}

/// The samples of all nodes or of one, with their interval.
pub(super) fn history_json(status: &StatusResponse, node: Option<u64>) -> Value {
    let is_meant = |id: u64| node.is_none_or(|node| node == id);
    let nodes = status.nodes.iter();
    let meant = nodes.filter(|it| it.member.as_ref().is_some_and(|it| is_meant(it.id)));
    let samples = added_up(meant.flat_map(|node| &node.load));
    json!({
        "every_ms": EVERY_MS,
        "most_samples": MOST_SAMPLES,
        "most_bytes": MOST_BYTES,
        "node": node,
        "samples": samples.values().map(sample_json).collect::<Vec<_>>(),
    })
}

/// Everything on the page except the history of the last hour, the ring, hot keys and explanations.
pub(super) fn state_json(status: &StatusResponse, now_ms: u64) -> Value {
    let samples = added_up(status.nodes.iter().flat_map(|node| &node.load));
    let nodes = status.nodes.iter().filter_map(|node| {
        let last = node.load.last()?;
        let id = node.member.as_ref()?.id;
        Some(json!({ "node": id, "load": sample_json(last) }))
    });
    let most = status.nodes.iter().map(|node| node.heat.len()).max();
    let mut heat = vec![0_u64; most.unwrap_or(0)];
    for node in &status.nodes {
        let counted = heat.iter_mut().zip(&node.heat);
        counted.for_each(|(sum, heat)| *sum += u64::from(*heat));
    }
    json!({
        "at_ms": now_ms,
        "status": status::to_json(status),
        "progress": status.transition.as_ref().map(|it| progress(it, now_ms)),
        "samples": samples.values().map(sample_json).collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
        "heat_milli_per_s": heat,
    })
}

/// The average rate of a transition, and when it will end at that rate; the slower of bytes and
/// partitions decides. Partitions complete in bursts, so the first few give no estimate.
fn progress(transition: &Transition, now_ms: u64) -> Value {
    let elapsed_s = now_ms.saturating_sub(transition.started_at_ms) as f64 / 1e3;
    let left = |done: u64, all: u64| match (done, all.saturating_sub(done)) {
        (_, 0) => Some(0.0),
        (0, _) => None,
        (done, left) => Some(elapsed_s * left as f64 / done as f64),
    };
    let partitions = left(
        transition.partitions_done.into(),
        transition.partitions_total.into(),
    );
    let bytes = left(transition.bytes_moved, transition.bytes_planned);
    let bytes_per_s = transition.bytes_moved as f64 / elapsed_s.max(0.001);
    let begun = transition.partitions_done >= transition.partitions_total.div_ceil(20);
    json!({
        "elapsed_s": elapsed_s,
        "bytes_per_s": bytes_per_s,
        "left_s": partitions.zip(bytes).filter(|_| begun).map(|(one, other)| one.max(other)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_proto::v1::{Member, NodeStatus};

    fn sample(from_ms: u64, gets: u64) -> LoadSample {
        LoadSample {
            from_ms,
            requests: vec![gets, 10, 5, 0, 0, 0, 20],
            get_times: vec![gets - 1, 0, 1],
            ..LoadSample::default()
        }
    }

    fn node(id: u64, load: Vec<LoadSample>, heat: Vec<u32>) -> NodeStatus {
        let member = Some(Member {
            id,
            ..Member::default()
        });
        NodeStatus {
            member,
            load,
            heat,
            ..NodeStatus::default()
        }
    }

    fn status() -> StatusResponse {
        let nodes = vec![
            node(
                1,
                vec![sample(5_000, 100), sample(10_000, 50)],
                vec![1_500, 0],
            ),
            node(2, vec![sample(10_000, 150)], vec![500, 250]),
        ];
        StatusResponse {
            nodes,
            ..StatusResponse::default()
        }
    }

    #[test]
    fn samples_of_one_time_are_added_up_and_percentiles_are_of_the_sum() {
        let history = history_json(&status(), None);
        let samples = history["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[1]["gets_per_s"], 40.0);
        assert_eq!(samples[1]["writes_per_s"], 6.0);
        assert_eq!(samples[1]["redis_per_s"], 8.0);
        assert_eq!(samples[1]["get_p50_us"], 10);
        assert_eq!(samples[1]["get_p99_us"], 10, "198 of 200");
        assert_eq!(samples[1]["get_p999_us"], 40);
        assert_eq!(
            samples[1]["write_p99_us"],
            Value::Null,
            "no times were told"
        );
        let of_two = history_json(&status(), Some(2));
        assert_eq!(of_two["samples"][0]["gets_per_s"], 30.0);
    }

    #[test]
    fn heat_is_the_sum_over_nodes_and_each_node_has_its_last_sample() {
        let state = state_json(&status(), 0);
        assert_eq!(state["heat_milli_per_s"], json!([2_000, 250]));
        assert_eq!(state["nodes"][0]["load"]["gets_per_s"], 10.0);
        assert_eq!(state["progress"], Value::Null);
    }

    #[test]
    fn the_slower_of_bytes_and_partitions_says_how_long_a_join_takes() {
        let transition = Transition {
            partitions_done: 10,
            partitions_total: 40,
            bytes_moved: 50,
            bytes_planned: 100,
            started_at_ms: 1_000,
            ..Transition::default()
        };
        let progress_of = |it: &Transition| progress(it, 11_000);
        assert_eq!(progress_of(&transition)["left_s"], 30.0);
        assert_eq!(progress_of(&transition)["bytes_per_s"], 5.0);
        let not_begun = Transition {
            partitions_done: 1,
            ..transition
        };
        assert_eq!(progress_of(&not_begun)["left_s"], Value::Null);
    }
}
