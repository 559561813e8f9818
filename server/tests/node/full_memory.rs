//! Nodes that take writes faster than they flush.

use std::path::Path;

use torc_proto::v1::PutRequest;
use torc_server::config::RawSettings;

use crate::common::{Servers, timed, until};

/// The first series in an alert's expression: its name, and its matchers without the braces.
fn series_of(alert: &str) -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/alerts.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, own) = text.split_once(&format!("- alert: {alert}\n")).unwrap();
    let series = &own[own.find("torc_").unwrap()..];
    let (series, _) = series.split_once('[').unwrap();
    let (name, matchers) = series.split_once('{').unwrap_or((series, "}"));
    (name.to_owned(), matchers.trim_end_matches('}').to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_alert_on_writes_that_find_no_memory_sees_them() {
    let servers = Servers::start_with(tempfile::tempdir().unwrap(), |settings| RawSettings {
        memtable_limit_mib: Some(1),
        flush_mib_per_s: Some(1),
        ..settings
    });
    let servers = servers.await;
    let (name, matchers) = series_of("TorcWritesWait");
    let declined = async || {
        let metrics = servers.metrics(0).await;
        let own = |line: &&str| line.starts_with(&name) && line.contains(&matchers);
        let values = metrics.lines().filter(own);
        let values = values.map(|line| line.rsplit(' ').next().unwrap());
        values
            .map(|value| value.parse::<u64>().unwrap())
            .sum::<u64>()
    };
    assert_eq!(declined().await, 0);
    let kv = servers.kv(0).await;
    let mut number = 0_u32;
    until("a replica declines writes", async || {
        // 4 MiB, while a second's flushes free 1 MiB.
        let puts = (0..64).map(|_| {
            number += 1;
            let request = PutRequest {
                key: number.to_be_bytes().to_vec().into(),
                value: vec![7; 64 << 10].into(),
                ..PutRequest::default()
            };
            let mut kv = kv.clone();
            async move { kv.put(timed(request)).await }
        });
        // Some fail at their deadline.
        futures::future::join_all(puts).await;
        declined().await > 0
    })
    .await;
    for node in servers.nodes {
        node.stop().await.unwrap();
    }
}
