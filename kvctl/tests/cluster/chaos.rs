//! Alternating joins and leaves; during each, a random process is killed at a random moment.
//!
//! `TORC_CHAOS_ROUNDS` sets their number (default 1), `TORC_CHAOS_SEED` the seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::join::{fill, some_traffic, transition_ended};
use crate::processes::{Cluster, until};
use crate::traffic::Traffic;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_whenever_nothing_acknowledged_is_lost_and_the_change_completes() {
    let seed = setting("TORC_CHAOS_SEED", 1);
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    fill(&client, 2_000).await;
    let traffic = Traffic::start(&client, "t", 400);
    for round in 0..setting("TORC_CHAOS_ROUNDS", 1) {
        let name = format!("spare-{round}");
        let spare = cluster.spare(&name).await;
        let address = cluster.nodes[spare].grpc.to_string();
        client.join(&address, None).await.unwrap();
        die_and_return(&mut cluster, &mut random).await;
        transition_ended(&client, 4).await;
        some_traffic(&traffic).await;

        let status = client.status().await.unwrap();
        let joined = status
            .nodes
            .iter()
            .find(|node| node.member.address == address)
            .unwrap();
        let id = joined.member.id;
        // A lost answer leaves it unknown whether the leave has begun; a retry is harmless.
        until("the leave has begun", async || {
            client.leave(id, None).await.is_ok()
        })
        .await;
        die_and_return(&mut cluster, &mut random).await;
        transition_ended(&client, 3).await;
        some_traffic(&traffic).await;
        cluster.nodes.truncate(3);
        eprintln!(
            "round {round} of seed {seed}: {} operations so far",
            traffic.done()
        );
    }
    traffic.stop(&client).await.assert_nothing_lost();
}

/// Kills one of the nodes at some moment of the change, and restarts it.
async fn die_and_return(cluster: &mut Cluster, random: &mut StdRng) {
    let victim = random.random_range(0..cluster.nodes.len());
    tokio::time::sleep(Duration::from_millis(random.random_range(0..2_500))).await;
    cluster.nodes[victim].kill_9();
    tokio::time::sleep(Duration::from_millis(random.random_range(0..1_000))).await;
    cluster.nodes[victim].start().unwrap();
    // A node that has left meanwhile never becomes ready again.
    if victim < 3 {
        cluster.nodes[victim].ready().await.unwrap();
    }
}
