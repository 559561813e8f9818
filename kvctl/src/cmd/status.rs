//! `kvctl status`: shows the state of the cluster.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use torc_client::{
    ClusterStatus, Generation, GenerationState, LayerStatus, MemberState, NodeStatus,
};

use crate::args::positive_duration;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::progress::{self, ProgressRate};
use crate::table::{Align, Table};
use crate::text;

/// Show the nodes, what they hold, and the progress of a join or leave.
///
/// Also lists unreachable nodes, with the reason; they do not make the command fail.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Repeat every 2 s, or at the interval of `--watch=TIME`.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2s",
        value_parser = positive_duration
    )]
    watch: Option<Duration>,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let Some(pause) = args.watch else {
        let status = client.status().await?;
        return show(&status, &ProgressRate::default(), global, out);
    };
    let started = std::time::Instant::now();
    let mut rate = ProgressRate::default();
    loop {
        match client.status().await {
            Ok(status) => {
                match &status.transition {
                    Some(transition) => rate.note(started.elapsed(), transition),
                    None => rate = ProgressRate::default(),
                }
                if out.screen().terminal && !global.json() {
                    // Cursor home, then clear the rest of the screen.
                    out.raw(b"\x1b[H\x1b[2J")?;
                }
                show(&status, &rate, global, out)?;
            }
            // Keep watching while the cluster is down.
            Err(error) => crate::out::note(Failure::from(error).line()),
        }
        out.flush()?;
        tokio::time::sleep(pause).await;
    }
}

fn show(
    status: &ClusterStatus,
    rate: &ProgressRate,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    if global.json() {
        out.json(status)
    } else {
        out.line(describe(status, rate))
    }
}

fn describe(status: &ClusterStatus, rate: &ProgressRate) -> String {
    let mut lines = vec![
        format!(
            "cluster {}, epoch {}, feature level {}, {}\n",
            status.cluster_id,
            status.epoch,
            status.feature_level,
            partitions(status),
        ),
        nodes(status).to_string(),
    ];
    let mut remarks = remarks(status, rate);
    if !remarks.is_empty() {
        lines.push(String::new());
        lines.append(&mut remarks);
    }
    lines.join("\n")
}

/// The partitions by their number of replicas: `4,096 partitions x 3 replicas, 4,096 x 1 replica`.
fn partitions(status: &ClusterStatus) -> String {
    let of_layer = |(index, layer): (usize, &LayerStatus)| {
        let what = if index == 0 { " partitions" } else { "" };
        let (count, replicas) = (
            text::count(layer.partitions.into()),
            text::replicas(layer.replicas),
        );
        format!("{count}{what} x {replicas}")
    };
    let layers = status.layers.iter().enumerate().map(of_layer);
    layers.collect::<Vec<_>>().join(", ")
}

/// Remarks below the table, a line each.
fn remarks(status: &ClusterStatus, rate: &ProgressRate) -> Vec<String> {
    let problem = |node: &NodeStatus| {
        let problem = text::one_line(node.problem.as_ref()?);
        Some(format!("node {}: {problem}", node.member.id))
    };
    let mut remarks: Vec<String> = status.nodes.iter().filter_map(problem).collect();
    if status.topology_leader.is_none() {
        remarks.push(format!(
            "node {} sees no leader of the topology group: joins and leaves wait for one",
            status.answered_by
        ));
    }
    remarks.extend(short(status));
    remarks.extend(status.nodes.iter().filter_map(fullness));
    remarks.extend(status.nodes.iter().filter_map(damage));
    remarks.extend(status.nodes.iter().filter_map(certificate));
    remarks.extend(status.generations.iter().map(generation));
    let backing_up = status.nodes.iter().filter(|node| node.backing_up);
    let backing_up: Vec<_> = backing_up.map(|node| node.member.id).collect();
    if !backing_up.is_empty() {
        remarks.push(format!(
            "a backup is running on {}",
            text::nodes(&backing_up)
        ));
    }
    if let Some(running) = &status.transition {
        let name = progress::name(running.kind);
        let figures = progress::figures(running, rate);
        let dead = running
            .dead
            .iter()
            .map(|node| format!(", node {node} declared dead"));
        let dead: String = dead.collect();
        remarks.push(format!(
            "{name} of {}: {figures}{dead}",
            progress::who(running)
        ));
    }
    if let Some(last) = &status.last_transition {
        let when = last
            .ended_at_ms
            .map_or_else(String::new, |at| format!(", {}", text::timestamp(at)));
        remarks.push(format!("last: {}{when}", progress::ended(last)));
    }
    remarks
}

/// A generation or a merge, and the nodes it waits for.
fn generation(generation: &Generation) -> String {
    let Generation {
        number, namespace, ..
    } = generation;
    let mut line = match generation.state {
        GenerationState::Merging => format!(
            "merge {number} into `{namespace}` is open: its deleted and expired keys stay on disk"
        ),
        state => format!(
            "generation {number} of `{namespace}`: {}, {}",
            super::generation::state(state),
            text::counted(generation.records, "record"),
        ),
    };
    let older = match generation.state {
        GenerationState::Merging => "may not know of it",
        _ => "may answer from an older one",
    };
    for (nodes, what) in [
        (&generation.not_ready, "fetch it"),
        (&generation.unconfirmed, older),
    ] {
        if !nodes.is_empty() {
            line.extend(["; ", &text::nodes(nodes), " ", what]);
        }
    }
    line
}

/// Partitions that lack live replicas.
fn short(status: &ClusterStatus) -> Option<String> {
    let under = status.under_replicated.filter(|count| *count > 0)?;
    let all = text::count(status.partitions.into());
    let line = format!(
        "{} of {all} partitions lack a replica: {}",
        text::count(under.into()),
        advice_on_few_replicas(status)
    );
    let without = status.without_quorum.filter(|count| *count > 0);
    let without = without.map_or_else(String::new, |count| {
        format!(
            "; {} have no quorum, so their keys cannot be read or written now",
            text::count(count.into())
        )
    });
    Some(line + &without)
}

/// What to do about partitions that lack replicas.
pub(super) fn advice_on_few_replicas(status: &ClusterStatus) -> String {
    let nodes = status.nodes.len() as u64;
    let all_answer = status.nodes.iter().all(|node| node.reachable);
    if all_answer && nodes < status.replicas.into() {
        let (nodes, replicas) = (text::counted(nodes, "node"), status.replicas);
        return format!("{nodes} cannot hold {replicas} replicas: add nodes");
    }
    "restart the nodes that are down, or replace them".to_owned()
}

fn fullness(node: &NodeStatus) -> Option<String> {
    node.disk_full.then(|| {
        format!(
            "node {}: its disk is full: it stores nothing and coordinates no reads or writes until there is \
             space; clients use other nodes",
            node.member.id
        )
    })
}

/// A certificate that has expired or expires within two weeks.
fn certificate(node: &NodeStatus) -> Option<String> {
    let end = UNIX_EPOCH + Duration::from_millis(node.certificate_ends_at_ms?);
    let left = end.duration_since(SystemTime::now()).unwrap_or_default();
    let days = left.as_secs() / (24 * 3600);
    (days < 14).then(|| {
        let id = node.member.id;
        let advice = text::RENEWAL;
        if left.is_zero() {
            format!("node {id}: its certificate has expired, so clients and nodes cannot connect: {advice}")
        } else {
            format!("node {id}: its certificate expires in {days} d: {advice}")
        }
    })
}

/// Damage that a node found on its disk, and what happens to it.
fn damage(node: &NodeStatus) -> Option<String> {
    let slices = match node.damaged_slices {
        0 => return None,
        1 => "1 slice is".to_owned(),
        count => format!("{} slices are", text::count(count)),
    };
    Some(format!(
        "node {}: {slices} damaged: check its disk. Lost records come back from other \
         replicas; keys with one replica stay unavailable until you write them again",
        node.member.id
    ))
}

fn nodes(status: &ClusterStatus) -> Table {
    let mut table = Table::new(&[
        ("node", Align::Right),
        ("address", Align::Left),
        ("zone", Align::Left),
        ("weight", Align::Right),
        ("release", Align::Left),
        ("state", Align::Left),
        ("topology", Align::Left),
        ("partitions", Align::Right),
        ("leads", Align::Right),
        ("records", Align::Right),
        ("data", Align::Right),
        ("log", Align::Right),
        ("memory", Align::Right),
        ("bits/key", Align::Right),
        ("up", Align::Right),
    ]);
    for node in &status.nodes {
        let who = [
            node.member.id.to_string(),
            node.member.address.clone(),
            node.member.zone.to_string(),
            format!("{} %", node.member.weight_percent),
            node.member.release.clone(),
            state(node).to_owned(),
        ];
        let what = if node.reachable {
            held(node, role(node, status)).to_vec()
        } else {
            Vec::new()
        };
        table.row(who.into_iter().chain(what));
    }
    table
}

fn held(node: &NodeStatus, role: &str) -> [String; 9] {
    [
        role.to_owned(),
        text::count(node.partitions.into()),
        text::count(node.leads.into()),
        text::count(node.records),
        text::bytes(node.payload_bytes),
        text::bytes(node.log_bytes),
        text::bytes(node.rss_bytes),
        bits_of_a_key(node),
        text::duration(Duration::from_millis(node.uptime_ms)),
    ]
}

/// Bits of index in memory per sealed key.
fn bits_of_a_key(node: &NodeStatus) -> String {
    if node.sealed_keys == 0 {
        return "-".to_owned();
    }
    let bits = node.index_bytes as f64 * 8.0 / node.sealed_keys as f64;
    format!("{bits:.1}")
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

fn role(node: &NodeStatus, status: &ClusterStatus) -> &'static str {
    match (status.topology_leader, node.voter) {
        (Some(leader), _) if leader == node.member.id => "leader",
        (_, true) => "voter",
        (_, false) => "learner",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use torc_client::{ChangeKind, Member, Transition};
    use torc_record::{Epoch, NodeSlot};
    use torc_ring::topology::ClusterId;
    use torc_ring::{NodeId, Zone};

    pub(crate) fn node(id: u64, reachable: bool) -> NodeStatus {
        NodeStatus {
            member: Member {
                id: NodeId(id),
                slot: NodeSlot(id as u16),
                address: format!("127.0.0.1:740{id}"),
                peer_address: format!("127.0.0.1:750{id}"),
                http_address: format!("127.0.0.1:748{id}"),
                zone: Zone::default(),
                weight_percent: 100,
                state: MemberState::Active,
                release: "0.2.0".into(),
                oldest_level: 1,
                newest_level: 1,
            },
            reachable,
            ready: reachable,
            voter: true,
            version: "0.2.0".into(),
            uptime_ms: 65_000,
            epoch: Epoch(7),
            partitions: 2048,
            leads: 2048,
            records: 1_000_000,
            tombstones: 0,
            payload_bytes: 132_000_000,
            log_bytes: 1 << 28,
            rss_bytes: 1 << 27,
            problem: (!reachable).then(|| "connection refused".into()),
            damaged_slices: 0,
            disk_full: false,
            sealed_keys: 500_000,
            index_bytes: 1_500_000,
            certificate_ends_at_ms: None,
            clock_ms: 1_700_000_000_000,
            free_bytes: Some(1 << 38),
            memtable_bytes: 1 << 20,
            memtable_limit_bytes: 1 << 26,
            mphf_bytes: 140_000,
            gate_bytes: 700_000,
            offset_bytes: 600_000,
            header_bytes: 60_000,
            slices: 2048,
            most_slices: 2,
            slice_bytes: 66_000_000,
            flushes: 3,
            compactions: 1,
            exposed: Vec::new(),
            out_of_reach: Vec::new(),
            backing_up: false,
            missing_slices: Vec::new(),
            load: Vec::new(),
            heat: Vec::new(),
        }
    }

    pub(crate) fn status() -> ClusterStatus {
        ClusterStatus {
            cluster_id: ClusterId([0xab; 16]),
            epoch: Epoch(7),
            feature_level: 1,
            answered_by: NodeId(1),
            topology_leader: Some(NodeId(1)),
            partitions: 8192,
            replicas: 3,
            layers: vec![
                LayerStatus {
                    partitions: 4096,
                    replicas: 3,
                },
                LayerStatus {
                    partitions: 4096,
                    replicas: 1,
                },
            ],
            under_replicated: Some(2048),
            without_quorum: Some(2048),
            generations: Vec::new(),
            nodes: vec![node(1, true), node(2, false)],
            transition: Some(Transition {
                id: 3,
                kind: ChangeKind::Leave,
                node: Some(NodeId(2)),
                replaced: None,
                namespaces: Vec::new(),
                replicas_after: None,
                aborted: false,
                dead: vec![NodeId(2)],
                partitions_total: 2048,
                partitions_done: 1024,
                partitions_active: 8,
                bytes_moved: 1 << 20,
                records_moved: 8_000,
                bytes_planned: 2 << 20,
                records_planned: 16_000,
                started_at_ms: 0,
                ended_at_ms: None,
            }),
            last_transition: None,
        }
    }

    #[test]
    fn a_status_shows_nodes_problems_and_progress() {
        let expected = "\
cluster abababababababababababababababab, epoch 7, feature level 1, 4,096 partitions x 3 replicas, 4,096 x 1 replica

node  address         zone     weight  release  state        topology  partitions  leads    records     data      log   memory  bits/key         up
   1  127.0.0.1:7401  default   100 %  0.2.0    ready        leader         2,048  2,048  1,000,000  126 MiB  256 MiB  128 MiB      24.0  1 min 5 s
   2  127.0.0.1:7402  default   100 %  0.2.0    unreachable

node 2: connection refused
2,048 of 8,192 partitions lack a replica: restart the nodes that are down, or replace them; 2,048 have no quorum, so their keys cannot be read or written now
removal of node 2: 1,024 of 2,048 partitions, 1.00 MiB of 2.00 MiB, node 2 declared dead";
        assert_eq!(describe(&status(), &ProgressRate::default()), expected);
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&status());
    }

    #[test]
    fn a_group_without_a_leader_is_said_and_quiet_clusters_end_with_the_table() {
        let mut status = status();
        status.transition = None;
        status.nodes.pop();
        (status.under_replicated, status.without_quorum) = (Some(0), Some(0));
        assert!(describe(&status, &ProgressRate::default()).ends_with("1 min 5 s"));
        status.topology_leader = None;
        assert!(describe(&status, &ProgressRate::default()).contains("joins and leaves wait"));
    }

    #[test]
    fn a_cluster_that_is_too_small_is_told_to_grow_and_not_to_restart_nodes() {
        let mut status = status();
        status.nodes.pop();
        (status.replicas, status.without_quorum) = (3, Some(0));
        let told = describe(&status, &ProgressRate::default());
        let expected =
            "2,048 of 8,192 partitions lack a replica: 1 node cannot hold 3 replicas: add nodes\n";
        assert!(told.contains(expected), "{told}");
    }

    #[test]
    fn a_certificate_is_told_of_two_weeks_before_it_ends_and_after() {
        let told = |days: i64| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let end = now.as_millis() as i64 + (days * 24 + 1) * 3_600_000;
            let mut status = status();
            status.nodes[0].certificate_ends_at_ms = Some(end as u64);
            describe(&status, &ProgressRate::default())
        };
        assert!(told(13).contains("node 1: its certificate expires in 13 d: if the certificate"));
        assert!(told(-2).contains("node 1: its certificate has expired"));
        assert!(!told(14).contains("certificate"));
    }

    #[test]
    fn damage_and_a_full_disk_are_told_of_the_node_that_has_them() {
        let mut status = status();
        status.nodes[1].damaged_slices = 1_200;
        let told = describe(&status, &ProgressRate::default());
        assert!(
            told.contains("node 2: 1,200 slices are damaged: check its disk."),
            "{told}"
        );
        assert!(!told.contains("node 1: "), "{told}");
        status.nodes[1].damaged_slices = 1;
        status.nodes[0].disk_full = true;
        let told = describe(&status, &ProgressRate::default());
        assert!(told.contains("node 1: its disk is full"), "{told}");
        assert!(told.contains("node 2: 1 slice is damaged"), "{told}");
    }
}
