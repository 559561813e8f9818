//! Recovery of a group that lost its majority for good.

use std::collections::BTreeSet;
use std::path::Path;

use openraft::{CommittedLeaderId, Membership};
use torc_ring::NodeId;
use torc_ring::topology::{Command, Epoch, Topology};

use super::cluster::Cluster;
use super::fixture::founding;
use crate::identity::Claim;
use crate::raft::LogId;
use crate::storage::Store;
use crate::{GroupError, RecoverError, Recovery, TopologyGroup};

/// The time of the recovery.
const NOW_MS: u64 = 1_800_000_000_000;

fn nodes(of: &[u64]) -> BTreeSet<NodeId> {
    of.iter().copied().map(NodeId).collect()
}

/// The store of a stopped node with five members, all of them voters.
fn stopped(dir: &Path, node: u64) {
    let (members, at) = (founding(5), LogId::new(CommittedLeaderId::new(4, 1), 57));
    let store = Store::open(dir).unwrap();
    let claim = Claim::Member(NodeId(node), members.cluster);
    let identity = claim.first(members.members[0].incarnation);
    store.set_identity(identity).unwrap();
    let voters = Membership::new(vec![(1..=5).collect()], ());
    let topology = Topology::found(members).unwrap();
    store.begin_again(at, voters, &topology).unwrap();
    store.close();
}

/// The result of a preview, after a check that it changed no byte.
fn preview(dir: &Path, keep: &[u64]) -> Result<Recovery, RecoverError> {
    let files = || {
        let files = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
        let read = |file: std::fs::DirEntry| (file.path(), std::fs::read(file.path()).unwrap());
        files.map(read).collect::<BTreeSet<_>>()
    };
    let before = files();
    let told = TopologyGroup::preview_recovery(dir, &nodes(keep), NOW_MS);
    assert!(files() == before, "a preview changes nothing");
    told
}

#[test]
fn a_preview_says_what_is_kept_and_what_may_be_lost_and_changes_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    stopped(dir.path(), 4);
    let recovery = preview(dir.path(), &[5]).unwrap();
    let expected = "\
Node 4 founds the topology group of cluster 09090909090909090909090909090909 again, as its only voter.
  voters before:    1, 2, 3, 4, 5
  kept:             4, 5
  written off:      1, 2, 3
  epoch:            1 now, 1048581 afterwards
  log of this node: ends with term 4, entry 57

What may be lost:
  partitions with 1 replica: 7 keep a majority, 0 keep a minority, 9 keep none
  Majority kept: no acknowledged write is lost.
  Minority kept: writes that only the written-off nodes had acknowledged are lost.
  None kept: all keys are lost. Requests fail until a written-off node is replaced or removed.
  This node knows the topology of epoch 1. If only written-off nodes know a later one, it is
  lost: namespaces and members since then, and the writes of partitions that moved since then.

Check first:
  Stop all kept nodes, and show this on each of them. Recover the one whose log ends last: the
  highest term, then the highest entry. Recover only one node.
  A written-off node must never start again with its data directory.
";
    assert_eq!(recovery.to_string(), expected);
    TopologyGroup::recover(dir.path(), &recovery, NOW_MS).unwrap();
    let again = TopologyGroup::recover(dir.path(), &recovery, NOW_MS);
    assert!(
        again.is_err(),
        "what was shown is not what is there any more"
    );
    let store = Store::open(dir.path()).unwrap();
    let topology = store.topology().unwrap();
    assert_eq!(topology.epoch(), recovery.next_epoch);
    assert_eq!(topology.written_off(), &recovery.written_off);
}

#[test]
fn a_refusal_says_why_and_changes_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let no_topology = |told| matches!(told, Err(RecoverError::NoTopology { .. }));
    assert!(no_topology(preview(dir.path(), &[])), "an empty directory");
    let store = Store::open(dir.path()).unwrap();
    let told = preview(dir.path(), &[]);
    assert!(
        matches!(told, Err(RecoverError::Group(GroupError::Locked { .. }))),
        "{told:?}"
    );
    store.close();
    assert!(no_topology(preview(dir.path(), &[])), "no member yet");
    stopped(dir.path(), 9);
    let told = preview(dir.path(), &[]);
    let stranger = matches!(
        told,
        Err(RecoverError::NoMember {
            node: NodeId(9),
            ..
        })
    );
    assert!(stranger, "{told:?}");
    stopped(dir.path(), 4);
    let told = preview(dir.path(), &[6]).unwrap_err().to_string();
    assert!(told.contains("The members are 1, 2, 3, 4, 5"), "{told}");
    let told = preview(dir.path(), &[1, 2]).unwrap_err().to_string();
    assert!(told.contains("is not lost"), "three of five: {told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_node_follows_the_recovered_one_even_if_its_log_has_more() {
    let mut cluster = Cluster::founded(5).await;
    cluster.membership_becomes(&[1, 2, 3, 4, 5], &[]).await;
    cluster.crash(4);
    cluster.grow().await;
    cluster.enrol(5, 6).await;
    let enrolled = |t: &Topology| t.members().len() == 6;
    cluster
        .all_have("the member that was enrolled", enrolled)
        .await;
    // A change of every partition, which node 4 misses.
    let (namespace, above) = ("default".to_owned(), Epoch(100));
    let raise = Command::RaiseEpoch { namespace, above };
    cluster.propose(5, raise).await;
    let lowest = |t: &Topology| {
        let configs = t.partitions_in_use().map(|it| t.config(it).unwrap().epoch);
        configs.min().unwrap()
    };
    let raised = |t: &Topology| lowest(t) > Epoch(100);
    cluster.all_have("the raised epochs", raised).await;
    let lost = cluster.group(5).topology().unwrap().epoch();
    for number in [1, 2, 3, 6] {
        cluster.stop(number).await;
    }
    let recovery = preview(cluster.dir(4), &[5]).unwrap();
    assert_eq!(recovery.written_off, nodes(&[1, 2, 3]));
    TopologyGroup::recover(cluster.dir(4), &recovery, NOW_MS).unwrap();
    cluster.restart(4).await;
    let recovered = |t: &Topology| t.epoch() >= recovery.next_epoch;
    cluster.all_have("the recovery", recovered).await;
    cluster.membership_becomes(&[4], &[5]).await;
    assert_eq!(cluster.group(4).topology(), cluster.group(5).topology());
    let members = cluster.group(5).topology().unwrap().members().len();
    assert_eq!(members, 5, "what only the lost and node 5 knew is lost");
    let lowest = lowest(&cluster.group(5).topology().unwrap());
    assert!(
        lowest > lost,
        "replicas of node 5 are in {lost} and ignore {lowest}"
    );
    cluster.enrol(5, 6).await;
    cluster.all_have("a change since", enrolled).await;
}
