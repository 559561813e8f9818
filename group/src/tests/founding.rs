//! Founding a cluster, with a crash at every step.

use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, Founding, Topology, TopologyError};

use super::cluster::{Cluster, TIMEOUT, options};
use super::fixture::founding;
use crate::storage::Store;
use crate::storage::crash_disk::CrashDisk;
use crate::{GroupError, GroupOptions, TopologyGroup};

const FOUNDER: NodeId = NodeId(1);

fn on(disk: &CrashDisk) -> Result<TopologyGroup, GroupError> {
    let quick = GroupOptions {
        heartbeat_ms: 10,
        election_timeout_ms: (30, 60),
        ..GroupOptions::default()
    };
    let cannot = |error: redb::DatabaseError| GroupError::Failed {
        reason: error.to_string(),
    };
    Ok(TopologyGroup::over(
        Store::over(disk.database().map_err(cannot)?)?,
        quick,
    ))
}

async fn found(disk: &CrashDisk, founding: Founding) -> Result<TopologyGroup, GroupError> {
    let group = on(disk)?;
    let founded = group.found(FOUNDER, founding).await;
    if founded.is_err() {
        group.shutdown().await;
    }
    founded.map(|()| group)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn founding_can_be_repeated_after_a_crash_at_any_write() {
    let empty = CrashDisk::immortal();
    drop(on(&empty).unwrap());
    let again = Founding {
        cluster: ClusterId([8; 16]),
        ..founding(1)
    };
    let mut crashes = 0;
    loop {
        let disk = CrashDisk::new(empty.written(), crashes);
        let first = found(&disk, founding(1)).await;
        if let Ok(group) = first {
            group.shutdown().await;
            break;
        }
        assert!(disk.is_dead(), "after {crashes} syncs: {:?}", first.err());
        for image in [disk.synced(), disk.written()] {
            let disk = CrashDisk::new(image, usize::MAX);
            let group = found(&disk, again.clone()).await.unwrap();
            let topology = group.topology().unwrap();
            let clusters = [founding(1).cluster, again.cluster];
            assert!(
                clusters.contains(&topology.cluster()),
                "one of the two attempts counts"
            );
            assert_eq!(topology.epoch().0, 1);
            assert_eq!(group.read_current(TIMEOUT).await, Ok(topology));
            group.shutdown().await;
        }
        crashes += 1;
    }
    assert!(
        crashes >= 8,
        "identity, log, vote and state are synced one after the other"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founder_alone_elects_itself_and_is_founded_once() {
    let cluster = Cluster::founded(1).await;
    let group = cluster.group(1);
    assert!(group.is_leader());
    assert_eq!(group.leader(), Some(FOUNDER));
    assert_eq!(group.voters(), [FOUNDER].into());
    let expected = Topology::found(cluster.founding(1)).unwrap();
    assert_eq!(group.topology().as_deref(), Some(&expected));
    assert_eq!(group.failed(), None);
    assert_eq!(cluster.found(1).await, Ok(()), "the same again is harmless");
    let others = Founding {
        members: founding(3).members.split_off(2),
        ..founding(1)
    };
    let refused = group.found(FOUNDER, others).await;
    assert_eq!(
        refused,
        Err(GroupError::Refused(TopologyError::AlreadyFounded))
    );
}

#[tokio::test]
async fn a_founding_that_is_refused_leaves_nothing_behind() {
    let group = on(&CrashDisk::immortal()).unwrap();
    let nobody = Founding {
        members: Vec::new(),
        ..founding(1)
    };
    let refused = group.found(FOUNDER, nobody).await;
    assert!(matches!(
        refused,
        Err(GroupError::Refused(TopologyError::Setting { .. }))
    ));
    let stranger = group.found(NodeId(2), founding(1)).await;
    let unknown = TopologyError::UnknownNode { node: NodeId(2) };
    assert_eq!(stranger, Err(GroupError::Refused(unknown)));
    assert_eq!(
        group.start(NodeId(7), ClusterId([3; 16])).await,
        Ok(()),
        "it is still nobody's"
    );
    group.shutdown().await;
}

#[tokio::test]
async fn a_member_founds_no_second_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let group = TopologyGroup::open(options(dir.path())).unwrap();
    group.start(FOUNDER, ClusterId([3; 16])).await.unwrap();
    assert_eq!(
        group.start(FOUNDER, ClusterId([3; 16])).await,
        Ok(()),
        "again is harmless"
    );
    let refused = group.found(FOUNDER, founding(1)).await;
    assert!(
        matches!(refused, Err(GroupError::OtherIdentity { .. })),
        "{refused:?}"
    );
    group.shutdown().await;
    assert_eq!(
        group.start(FOUNDER, ClusterId([3; 16])).await,
        Err(GroupError::Stopped)
    );
    assert!(
        TopologyGroup::open(options(dir.path())).is_ok(),
        "a shutdown lets the store go"
    );
}

#[tokio::test]
async fn settings_that_do_not_fit_together_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let hasty = GroupOptions {
        election_timeout_ms: (50, 100),
        ..options(dir.path())
    };
    let refused = TopologyGroup::open(hasty).err();
    assert!(
        matches!(refused, Some(GroupError::Options { .. })),
        "{refused:?}"
    );
}
