//! The checks: a pure function of the cluster's status.

use std::collections::BTreeSet;

use serde::Serialize;
use torc_client::{ClusterStatus, MemberState, Namespace, NodeId, NodeStatus};

use crate::cmd::status;
use crate::text;

/// Report clocks that differ by more. A node refuses to follow a clock that is 500 ms ahead.
const MOST_SKEW_MS: u64 = 250;
const MS_PER_DAY: u64 = 24 * 3_600_000;
/// Report a certificate that expires sooner.
const CERTIFICATE_DAYS: u64 = 14;
/// Report a disk with less free space, or with less than a tenth of the size of its slices.
const LEAST_FREE_BYTES: u64 = 1 << 30;
/// With this many replicas, a namespace survives the loss of a node.
const SAFE_REPLICAS: u32 = 3;

/// What is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// The node with the problem, if it is one node's.
    pub(super) node: Option<NodeId>,
    pub(super) what: String,
    pub(super) advice: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    /// Keys cannot be read or written, or soon cannot.
    Critical,
    /// The next failure may do more harm than necessary.
    Warning,
}

/// All problems, the worst first.
pub(super) fn examine(
    status: &ClusterStatus,
    namespaces: &[Namespace],
    skew_ms: u64,
    now_ms: u64,
) -> Vec<Finding> {
    let mut findings = of_cluster(status, skew_ms);
    findings.extend(of_replicas(status, namespaces));
    for node in &status.nodes {
        if node.reachable {
            findings.extend(of_node(node, status, now_ms));
        } else {
            findings.push(dead(node));
        }
    }
    findings.sort_by_key(|finding| (finding.level, finding.node));
    findings
}

fn finding(check: &'static str, level: Level, what: String, advice: &str) -> Finding {
    Finding {
        check,
        level,
        node: None,
        what,
        advice: advice.to_owned(),
    }
}

fn of_cluster(status: &ClusterStatus, skew_ms: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    if skew_ms > MOST_SKEW_MS {
        findings.push(finding(
            "clock_skew",
            Level::Warning,
            format!("the clocks of the nodes differ by {skew_ms} ms"),
            "run an NTP client on every node. Writes through a node that is 500 ms ahead fail, and in an \
             eventual namespace, clocks decide which write wins",
        ));
    }
    if status.topology_leader.is_none() {
        findings.push(finding(
            "no_topology_leader",
            Level::Critical,
            "the topology group has no leader: joins, leaves and replacements wait".to_owned(),
            "start a majority of its voters; if they are lost for good, see `kvd recover --help`",
        ));
    }
    let releases: BTreeSet<&str> = reachable(status).map(|node| &node.version[..]).collect();
    if releases.len() > 1 {
        let releases: Vec<_> = releases.into_iter().collect();
        findings.push(finding(
            "releases_differ",
            Level::Warning,
            format!("the nodes run different releases: {}", releases.join(", ")),
            "finish the upgrade, one node after the other; until then, the cluster uses the older release's features",
        ));
    }
    findings.extend(zones(status));
    findings
}

fn reachable(status: &ClusterStatus) -> impl Iterator<Item = &NodeStatus> {
    status.nodes.iter().filter(|node| node.reachable)
}

/// Members that stay.
fn staying(status: &ClusterStatus) -> impl Iterator<Item = &NodeStatus> {
    let nodes = status.nodes.iter();
    nodes.filter(|node| node.member.state != MemberState::Leaving)
}

fn zones(status: &ClusterStatus) -> Option<Finding> {
    let zones: BTreeSet<_> = staying(status).map(|node| &node.member.zone).collect();
    let nodes = staying(status).count();
    let wanted = nodes.min(status.replicas as usize);
    if wanted < 2 || zones.len() >= wanted {
        return None;
    }
    let what = match zones.first().filter(|_| zones.len() == 1) {
        Some(zone) => format!("all {nodes} nodes are in one zone, `{zone}`"),
        None => format!(
            "{} replicas of a key share {} zones",
            status.replicas,
            zones.len()
        ),
    };
    let advice = "replace nodes with nodes of another `--zone`, so that the failure of a rack or building takes down only \
                  one replica of each key";
    Some(finding("zones", Level::Warning, what, advice))
}

fn of_replicas(status: &ClusterStatus, namespaces: &[Namespace]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let told = |count: Option<u32>| count.filter(|count| *count > 0).map(u64::from);
    if let Some(count) = told(status.without_quorum) {
        findings.push(finding(
            "without_quorum",
            Level::Critical,
            format!(
                "{} no quorum: their keys cannot be read or written",
                partitions_have(count)
            ),
            "start the nodes that are down; for a node lost for good, see `kvctl replace-node --help`",
        ));
    }
    if let Some(count) = told(status.under_replicated) {
        findings.push(finding(
            "under_replicated",
            Level::Warning,
            format!("{} too few live replicas", partitions_have(count)),
            &status::advice_on_few_replicas(status),
        ));
    }
    let nodes = staying(status).count();
    for namespace in namespaces.iter().filter(|it| !it.is_dropped) {
        let Namespace { name, replicas, .. } = namespace;
        let what = match *replicas {
            1 => format!("namespace `{name}` has one replica: if a node is lost, so are its keys"),
            // A write needs a majority, which is both of two.
            2 if nodes >= SAFE_REPLICAS as usize => {
                format!(
                    "namespace `{name}` has two replicas: while a node is down, its keys cannot be read or written"
                )
            }
            _ => continue,
        };
        let replicas = SAFE_REPLICAS.min(nodes as u32);
        let advice = if nodes >= SAFE_REPLICAS as usize {
            format!("run `kvctl namespace alter {name} --replicas {replicas}`, first with `--plan`")
        } else {
            format!(
                "add nodes until there are {SAFE_REPLICAS}, then alter the namespace; or keep backups"
            )
        };
        findings.push(finding("few_replicas", Level::Warning, what, &advice));
    }
    findings
}

fn partitions_have(count: u64) -> String {
    let verb = if count == 1 { "has" } else { "have" };
    format!("{} {verb}", text::counted(count, "partition"))
}

fn dead(node: &NodeStatus) -> Finding {
    let (id, why) = (
        node.member.id,
        node.problem.as_deref().unwrap_or("no answer"),
    );
    let advice = format!(
        "restart it; if it is lost for good, run `kvctl replace-node {id} HOST:PORT --dead` or \
         `kvctl leave-node {id} --dead`"
    );
    Finding {
        node: Some(id),
        ..finding(
            "dead_node",
            Level::Critical,
            format!("node {id} ({}) does not answer: {why}", node.member.address),
            &advice,
        )
    }
}

fn of_node(node: &NodeStatus, status: &ClusterStatus, now_ms: u64) -> Vec<Finding> {
    let id = node.member.id;
    let mut findings: Vec<Finding> = [disk(node), certificate(node, now_ms), links(node, status)]
        .into_iter()
        .flatten()
        .collect();
    if !node.ready && node.member.state == MemberState::Active {
        let why = node.problem.as_deref().unwrap_or("it gives no reason");
        findings.push(finding(
            "not_ready",
            Level::Critical,
            format!("node {id} does not serve its partitions: {why}"),
            "`/readyz` of the node says why; it usually waits for other nodes",
        ));
    }
    if node.damaged_slices > 0 {
        let slices = text::counted(node.damaged_slices, "damaged slice");
        findings.push(finding(
            "damaged",
            Level::Warning,
            format!("node {id} has {slices}"),
            "check its disk; if the number grows, replace the node. Lost records come back from other replicas",
        ));
    }
    if !node.exposed.is_empty() {
        let doors = node.exposed.join(", ");
        findings.push(finding(
            "exposed",
            Level::Warning,
            format!("node {id} serves {doors} to other machines without TLS: anyone who reaches it may do everything"),
            "give it certificates (--tls-cert, --tls-key and --tls-ca), or bind 127.0.0.1; a new cluster can be founded \
             with --secure",
        ));
    }
    let of_it = |finding| Finding {
        node: Some(id),
        ..finding
    };
    findings.into_iter().map(of_it).collect()
}

fn disk(node: &NodeStatus) -> Option<Finding> {
    let id = node.member.id;
    if node.disk_full {
        let what = format!(
            "the disk of node {id} is full: it stores nothing, and coordinates no reads or writes"
        );
        let advice = "free some space; it resumes by itself";
        return Some(finding("disk", Level::Critical, what, advice));
    }
    let free = node.free_bytes?;
    (free < LEAST_FREE_BYTES.max(node.slice_bytes / 10)).then(|| {
        let what = format!("the disk of node {id} has {} left", text::bytes(free));
        let advice =
            "free some space or add nodes: a full node refuses writes, and compaction needs space";
        finding("disk", Level::Warning, what, advice)
    })
}

fn certificate(node: &NodeStatus, now_ms: u64) -> Option<Finding> {
    let id = node.member.id;
    let left_ms = node.certificate_ends_at_ms?.saturating_sub(now_ms);
    let days = left_ms / MS_PER_DAY;
    let advice = text::RENEWAL;
    match (left_ms, days) {
        (0, _) => {
            let what = format!(
                "the certificate of node {id} has expired: clients and nodes cannot connect"
            );
            Some(finding("certificate", Level::Critical, what, advice))
        }
        (_, 0..CERTIFICATE_DAYS) => {
            let what = format!("the certificate of node {id} expires in {days} d");
            Some(finding("certificate", Level::Warning, what, advice))
        }
        _ => None,
    }
}

/// Nodes that others reach but this one does not.
fn links(node: &NodeStatus, status: &ClusterStatus) -> Option<Finding> {
    let id = node.member.id;
    let lives = |node: &&NodeId| reachable(status).any(|other| other.member.id == **node);
    let cut: Vec<_> = node.out_of_reach.iter().filter(lives).collect();
    if cut.is_empty() {
        return None;
    }
    let others: Vec<_> = cut.iter().map(ToString::to_string).collect();
    let what = format!(
        "node {id} does not reach node {}, which is up",
        others.join(", ")
    );
    let advice = "check firewalls and routes between them, and the addresses in `kvctl status`";
    Some(finding("link", Level::Warning, what, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::status::tests::{node, status};
    use torc_client::NamespaceMode;
    use torc_record::NamespaceId;
    use torc_ring::Zone;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn healthy() -> ClusterStatus {
        let nodes = (1..=3).map(|id| {
            let mut node = node(id, true);
            node.member.zone = Zone::new(format!("z{id}")).unwrap();
            node
        });
        ClusterStatus {
            replicas: 3,
            under_replicated: Some(0),
            without_quorum: Some(0),
            nodes: nodes.collect(),
            transition: None,
            ..status()
        }
    }

    fn namespace(replicas: u32) -> Namespace {
        Namespace {
            name: "default".into(),
            id: NamespaceId(1),
            mode: NamespaceMode::Linearizable,
            replicas,
            is_dropped: false,
        }
    }

    fn checks(change: impl FnOnce(&mut ClusterStatus)) -> Vec<(&'static str, Option<u64>)> {
        let mut status = healthy();
        change(&mut status);
        let findings = examine(&status, &[namespace(3)], 0, NOW_MS);
        let named = findings
            .iter()
            .map(|it| (it.check, it.node.map(|node| node.0)));
        named.collect()
    }

    #[test]
    fn a_healthy_cluster_has_no_findings() {
        assert_eq!(checks(|_| {}), []);
    }

    #[test]
    fn each_thing_that_is_wrong_is_found_and_nothing_else() {
        let second = |change: fn(&mut NodeStatus)| checks(|status| change(&mut status.nodes[1]));
        assert_eq!(second(|it| it.disk_full = true), [("disk", Some(2))]);
        assert_eq!(
            second(|it| it.free_bytes = Some(1 << 29)),
            [("disk", Some(2))]
        );
        assert_eq!(second(|it| it.free_bytes = None), []);
        assert_eq!(second(|it| it.damaged_slices = 1), [("damaged", Some(2))]);
        assert_eq!(
            second(|it| it.exposed = vec!["resp".into()]),
            [("exposed", Some(2))]
        );
        assert_eq!(
            second(|it| it.version = "0.3.0".into()),
            [("releases_differ", None)]
        );
        assert_eq!(second(|it| it.reachable = false), [("dead_node", Some(2))]);
        assert_eq!(second(|it| it.ready = false), [("not_ready", Some(2))]);
        assert_eq!(
            second(|it| it.out_of_reach = vec![NodeId(3)]),
            [("link", Some(2))]
        );
        let ends = |days: u64| {
            checks(|status| {
                status.nodes[1].certificate_ends_at_ms = Some(NOW_MS + days * MS_PER_DAY);
            })
        };
        assert_eq!(ends(14), []);
        assert_eq!(ends(13), [("certificate", Some(2))]);
        assert_eq!(ends(0), [("certificate", Some(2))]);
        assert_eq!(
            checks(|it| it.topology_leader = None),
            [("no_topology_leader", None)]
        );
        assert_eq!(
            checks(|it| it.without_quorum = Some(1)),
            [("without_quorum", None)]
        );
        assert_eq!(
            checks(|it| it.under_replicated = Some(1)),
            [("under_replicated", None)]
        );
    }

    #[test]
    fn replicas_that_share_a_zone_are_found() {
        let zone = |status: &mut ClusterStatus, index: usize| {
            status.nodes[index].member.zone = Zone::new("z1".to_owned()).unwrap();
        };
        let two = checks(|status| zone(status, 1));
        assert_eq!(two, [("zones", None)], "three replicas, two zones");
        let alone = checks(|status| status.nodes.truncate(1));
        assert_eq!(alone, [], "one node has no other zone to be in");
        let mut one = healthy();
        (1..3).for_each(|index| zone(&mut one, index));
        let findings = examine(&one, &[], 0, NOW_MS);
        assert_eq!(findings[0].what, "all 3 nodes are in one zone, `z1`");
    }

    #[test]
    fn clocks_and_replicas_have_bounds_and_the_worst_comes_first() {
        let of = |replicas, skew_ms| {
            let findings = examine(&healthy(), &[namespace(replicas)], skew_ms, NOW_MS);
            findings.iter().map(|it| it.check).collect::<Vec<_>>()
        };
        assert_eq!(of(3, 250), Vec::<&str>::new());
        assert_eq!(of(3, 251), ["clock_skew"]);
        assert_eq!(of(1, 0), ["few_replicas"]);
        assert_eq!(of(2, 0), ["few_replicas"]);
        let mut status = healthy();
        status.nodes[2].reachable = false;
        let findings = examine(&status, &[namespace(1)], 300, NOW_MS);
        assert_eq!(findings[0].check, "dead_node");
        assert_eq!(findings.len(), 3);
        crate::out::assert_documented(&serde_json::json!({ "nodes": 3, "findings": findings }));
    }
}
