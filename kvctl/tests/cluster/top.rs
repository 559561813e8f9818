//! `kvctl top` with real processes.

use crate::processes::{Cluster, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_shows_the_rates_of_real_requests() {
    let cluster = Cluster::start_with(2, &["--partitions=64", "--hot-keys-interval-s=1"]).await;
    let client = cluster.client().await;
    let json = |args: &[&str]| -> serde_json::Value {
        let output = cluster.kvctl(&[&["top", "--once", "--output", "json"], args].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    until(
        "gets and puts are told, with how long they took",
        async || {
            for _ in 0..20 {
                client.put("busy", "v").await.unwrap();
                client.get("busy").await.unwrap();
            }
            let frame = json(&[]);
            let nodes = frame["nodes"].as_array().unwrap().clone();
            let mut loads = nodes.iter().map(|it| &it["load"]);
            frame["requests_per_s"].as_f64() > Some(0.0)
                && frame["hot"]["keys"][0]["key"] == "busy"
                && loads.any(|load| load["get_p99_us"].is_u64() && load["write_p99_us"].is_u64())
        },
    )
    .await;
    // Without a terminal, it prints one frame as text.
    let text = cluster.kvctl(&["top", "--sort", "requests"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("2 of 2 nodes ready"), "{text}");
    assert!(text.contains("busy"), "{text}");
    assert!(text.contains("\nhealth\n"), "every view is there: {text}");
    let text = cluster.kvctl(&["top", "--view", "memory", "--sort", "mphf"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("MPHF bits") && !text.contains("busy"),
        "{text}"
    );
    let elsewhere = cluster.kvctl(&["top", "--view", "keys", "--sort", "mphf"]);
    assert_eq!(elsewhere.status.code(), Some(2), "{elsewhere:?}");
    assert_eq!(
        cluster.kvctl(&["top", "--sort", "luck"]).status.code(),
        Some(2)
    );
}
