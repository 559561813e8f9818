//! `kvctl bench` against real nodes.

use std::time::Duration;

use serde_json::Value;

use crate::processes::{Cluster, Signal, http_get, until};

/// The reports, one per line.
fn reports(stdout: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(stdout).unwrap().lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn bench(cluster: &Cluster, args: &[&str]) -> Vec<Value> {
    let json = ["bench", "--output", "json"];
    let done = cluster.kvctl(&[&json[..], args].concat());
    assert!(done.status.success(), "{done:?}");
    reports(&done.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_core_workload_does_what_it_is_defined_by() {
    // Scans need several records in each partition.
    let cluster = Cluster::start_with(3, &["--partitions=256"]).await;
    let client = cluster.client().await;
    let workloads = [
        ("a", &["gets", "puts"][..]),
        ("b", &["gets", "puts"]),
        ("c", &["gets"]),
        ("d", &["gets", "inserts"]),
        ("e", &["scans", "inserts"]),
        ("f", &["gets", "read_modify_writes"]),
    ];
    for (name, kinds) in workloads {
        let args = ["--workload", name, "--operations", "400", "--keys", "1000"];
        let report = &bench(&cluster, &[&args[..], &["--concurrency", "8"]].concat())[0];
        assert_eq!(report["workload"], name);
        assert_eq!(report["value_bytes"], 1_000);
        assert_eq!(
            (&report["operations"], &report["failed"]),
            (&400.into(), &0.into()),
            "{name}: {report}"
        );
        let of = |kind: &str| report[kind]["operations"].as_u64().unwrap_or(0);
        for kind in ["gets", "puts", "inserts", "scans", "read_modify_writes"] {
            assert_eq!(of(kind) > 0, kinds.contains(&kind), "{name}: {report}");
        }
        assert_eq!(
            report["gets"]["not_found"], 0,
            "all were stored before: {report}"
        );
        if let Some(last @ 1..) = report["inserts"]["operations"].as_u64() {
            let key = format!("bench-{:012}", 1_000 + last - 1);
            assert!(client.get(key).await.unwrap().is_some(), "{name}: {report}");
        }
    }
    let report = &bench(
        &cluster,
        &[
            "--workload",
            "e",
            "--operations",
            "50",
            "--no-prepare",
            "--concurrency",
            "8",
        ],
    )[0];
    let (scans, records) = (&report["scans"]["operations"], &report["scans"]["records"]);
    // 50 on average, except for scans that begin at the end of the ring.
    assert!(records.as_u64() > scans.as_u64(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_rates_are_a_report_each_and_one_plot() {
    let cluster = Cluster::start(1).await;
    let file = cluster.dir.path().join("load.svg");
    let plot = ["--plot", file.to_str().unwrap(), "--keys", "100"];
    let reports = bench(
        &cluster,
        &[&["--rate", "50,100", "--duration", "1s"], &plot[..]].concat(),
    );
    let rates: Vec<&Value> = reports.iter().map(|report| &report["rate"]).collect();
    assert_eq!(rates, [50, 100]);
    for (report, rate) in reports.iter().zip([50, 100]) {
        let of = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(
            of("operations") + of("failed") + of("not_sent"),
            rate,
            "{report}"
        );
    }
    let drawn = std::fs::read_to_string(&file).unwrap();
    assert!(drawn.contains(">get p99.9</text>"), "{drawn}");
    assert_eq!(drawn.matches("<circle").count(), 2 * 2 * 3);

    bench(&cluster, &[&["--operations", "200"], &plot[..]].concat());
    let drawn = std::fs::read_to_string(&file).unwrap();
    assert!(drawn.contains("Latency by percentile"), "{drawn}");
}

/// A node that stalls for a second delays all operations that are due meanwhile, not only the two
/// that were under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_loop_shows_a_stall_in_full() {
    let cluster = Cluster::start(1).await;
    let args = [
        "bench",
        "--output",
        "json",
        "--rate",
        "100",
        "--operations",
        "400",
    ];
    let few = ["--concurrency", "2", "--keys", "100", "--mix", "1/0"];
    let bench = cluster.kvctl_spawned(&[&args[..], &few[..]].concat());
    let node = &cluster.nodes[0];
    until("fifty of its gets are answered", async || {
        let metrics = http_get(node.http, "/metrics").await.1;
        let count = "torc_operation_seconds_count{operation=\"get\"} ";
        let gets = metrics.lines().find_map(|line| line.strip_prefix(count));
        gets.is_some_and(|gets| gets.parse::<u64>().unwrap() >= 50)
    })
    .await;
    let client = cluster.client().await;
    let impatient = client.with_deadline(Duration::from_secs(1));
    node.signal(Signal::STOP).unwrap();
    let stalled = impatient.get("any").await;
    node.signal(Signal::CONT).unwrap();
    assert!(stalled.is_err(), "the node did not stall: {stalled:?}");
    let done = bench.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let report = &reports(&done.stdout)[0];
    assert_eq!(report["gets"]["requests"], 400, "{report}");
    // A hundred of four hundred were due meanwhile, and half of those waited for at least half a
    // second. A closed loop would show two slow requests, which are invisible in a p99 of 400.
    assert!(
        report["gets"]["p99_us"].as_u64() > Some(500_000),
        "{report}"
    );
}
