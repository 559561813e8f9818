//! Scans: every record once, whatever happens to the nodes meanwhile.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use torc_client::{Client, ErrorKind, Partition, Scan, ScanCursor, ScanOptions};
use torc_proto::{Fault, Reason};

use crate::SOON;
use crate::cluster::Cluster;
use crate::node::Trouble;
use crate::proxy::Proxy;

const RECORDS: usize = 60;

async fn filled(cluster: &Cluster) -> (Client, BTreeSet<Bytes>) {
    let client = cluster.client().await;
    let keys: BTreeSet<Bytes> = (0..RECORDS).map(|n| format!("key-{n}").into()).collect();
    let records = keys.iter().map(|key| (key.clone(), key.clone()));
    let stored = client.batch_put(records).await.unwrap();
    assert!(stored.iter().all(Result::is_ok));
    (client, keys)
}

/// The keys of a scan; fails if a key occurs twice.
async fn keys(scan: Scan) -> BTreeSet<Bytes> {
    let entries: Vec<_> = scan.try_collect().await.unwrap();
    let keys: BTreeSet<_> = entries.iter().map(|entry| entry.key.clone()).collect();
    assert_eq!(keys.len(), entries.len(), "no record is given twice");
    keys
}

/// The next `count` keys.
async fn some(scan: &mut Scan, count: usize) -> Vec<Bytes> {
    let entries: Vec<_> = scan.take(count).try_collect().await.unwrap();
    entries.into_iter().map(|entry| entry.key).collect()
}

#[tokio::test]
async fn a_scan_gives_every_record_of_every_node_once() {
    let cluster = Cluster::formed(3).await;
    let (client, expected) = filled(&cluster).await;
    let mut scan = client.scan(ScanOptions::default());
    let mut found = BTreeSet::new();
    while let Some(entry) = scan.next().await {
        let entry = entry.unwrap();
        assert_eq!(entry.key, entry.value);
        assert!(found.insert(entry.key));
    }
    assert_eq!(found, expected);
    assert!(scan.next().await.is_none(), "it stays at its end");
    assert_eq!(
        cluster.nodes[0].seen("forwarded"),
        0,
        "each node gives its own"
    );
}

#[tokio::test]
async fn a_scan_of_nothing_ends() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    assert!(keys(client.scan(ScanOptions::default())).await.is_empty());
}

#[tokio::test]
async fn a_scan_may_leave_values_out() {
    let cluster = Cluster::formed(2).await;
    let (client, _) = filled(&cluster).await;
    let options = ScanOptions {
        keys_only: true,
        ..ScanOptions::default()
    };
    let entries: Vec<_> = client.scan(options).try_collect().await.unwrap();
    assert_eq!(entries.len(), RECORDS);
    assert!(entries.iter().all(|entry| entry.value.is_empty()));
}

#[tokio::test]
async fn a_limit_is_kept_across_nodes() {
    let cluster = Cluster::formed(3).await;
    let (client, _) = filled(&cluster).await;
    for limit in [0, 1, 17, 59, 60, 1_000] {
        let options = ScanOptions {
            limit: Some(limit),
            ..ScanOptions::default()
        };
        let found = keys(client.scan(options)).await;
        assert_eq!(found.len() as u64, limit.min(RECORDS as u64));
    }
}

#[tokio::test]
async fn a_cursor_goes_on_where_any_record_left_off() {
    let cluster = Cluster::formed(2).await;
    let (client, expected) = filled(&cluster).await;
    for count in [0, 1, 2, 3, 31, RECORDS] {
        let mut scan = client.scan(ScanOptions::default());
        let first = some(&mut scan, count).await;
        let bytes = scan.cursor().as_bytes().to_vec();
        let options = ScanOptions {
            after: Some(ScanCursor::from_bytes(&bytes).unwrap()),
            ..ScanOptions::default()
        };
        let rest = keys(client.scan(options)).await;
        assert_eq!(first.len() + rest.len(), RECORDS);
        let all: BTreeSet<_> = first.into_iter().chain(rest).collect();
        assert_eq!(all, expected, "after {count}");
    }
}

#[tokio::test]
async fn partitions_may_move_during_a_scan() {
    for (from, to) in [(0, 1), (1, 0)] {
        let cluster = Cluster::formed(2).await;
        let (client, expected) = filled(&cluster).await;
        let mut scan = client.scan(ScanOptions::default());
        let mut found = Vec::new();
        for partition in (0..8).map(Partition) {
            found.extend(some(&mut scan, 5).await);
            let lead = cluster.table().states[partition.index()].lead;
            if lead == cluster.nodes[from].id {
                cluster.hand(partition, to);
            }
        }
        found.extend(keys(scan).await);
        assert_eq!(found.len(), RECORDS, "no record is given twice");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

#[tokio::test]
async fn a_scan_that_begins_with_a_stale_topology_finds_everything() {
    let cluster = Cluster::formed(2).await;
    let (client, expected) = filled(&cluster).await;
    cluster.hand_all(0, 1);
    assert_eq!(keys(client.scan(ScanOptions::default())).await, expected);
}

#[tokio::test]
async fn a_scan_that_breaks_off_goes_on() {
    let cluster = Cluster::formed(2).await;
    let (client, expected) = filled(&cluster).await;
    for messages in [0, 1, 2, 3, 5] {
        cluster.nodes[0].trouble("scan", Trouble::BreakOff(messages));
        cluster.nodes[1].trouble("scan", Trouble::BreakOff(messages));
    }
    assert_eq!(keys(client.scan(ScanOptions::default())).await, expected);
}

#[tokio::test]
async fn connections_may_break_during_a_scan() {
    let cluster = Cluster::formed(2).await;
    let (client, expected) = filled(&cluster).await;
    let mut scan = client.scan(ScanOptions::default());
    let mut found = Vec::new();
    for _ in 0..6 {
        found.extend(some(&mut scan, 5).await);
        cluster.nodes[0].proxy.cut();
        cluster.nodes[1].proxy.cut();
    }
    found.extend(keys(scan).await);
    assert_eq!(found.len(), RECORDS, "no record is given twice");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[tokio::test]
async fn a_node_whose_address_leads_nowhere_is_scanned_through_another() {
    let cluster = Cluster::formed(2).await;
    let (_, expected) = filled(&cluster).await;
    let proxy = Proxy::closed("127.0.0.1:1".parse().unwrap());
    cluster.advertise(1, &proxy.address.to_string());
    let client = cluster.client().await;
    let before = cluster.nodes[0].seen("forwarded");
    assert_eq!(keys(client.scan(ScanOptions::default())).await, expected);
    assert_eq!(cluster.nodes[0].seen("forwarded"), before + 1);
}

#[tokio::test]
async fn a_scan_ends_with_its_first_error_and_can_be_taken_up_again() {
    let cluster = Cluster::formed(2).await;
    let (client, expected) = filled(&cluster).await;
    let corrupt = Fault::new(Reason::Corrupt, "a checksum does not match");
    let mut scan = client.scan(ScanOptions::default());
    let mut found = some(&mut scan, 1).await;
    cluster.nodes[1].trouble("scan", Trouble::Fault(corrupt));
    let error = loop {
        match scan.next().await.unwrap() {
            Ok(entry) => found.push(entry.key),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(scan.next().await.is_none());
    let options = ScanOptions {
        after: Some(scan.cursor()),
        ..ScanOptions::default()
    };
    found.extend(keys(client.scan(options)).await);
    assert_eq!(found.len(), RECORDS);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[tokio::test]
async fn a_scan_of_a_node_that_is_down_ends_unavailable() {
    let cluster = Cluster::formed(2).await;
    let (client, _) = filled(&cluster).await;
    cluster.nodes[1].set_up(false);
    cluster.nodes[1].proxy.close().await;
    let scan = client.with_deadline(SOON).scan(ScanOptions::default());
    let outcome: Result<Vec<_>, _> = scan.try_collect().await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
}
