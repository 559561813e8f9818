//! Nodes that are down, and nodes whose address is unreachable from here.

use std::time::Duration;

use torc_client::{Client, ErrorKind};
use torc_proto::{Fault, Reason};

use crate::SOON;
use crate::cluster::Cluster;
use crate::node::Trouble;
use crate::proxy::Proxy;

/// An address that refuses connections, for as long as the proxy lives.
fn nowhere() -> (Proxy, String) {
    let proxy = Proxy::closed("127.0.0.1:1".parse().unwrap());
    let address = proxy.address.to_string();
    (proxy, address)
}

#[tokio::test]
async fn one_endpoint_that_answers_is_enough() {
    let cluster = Cluster::formed(1).await;
    let (_proxy, address) = nowhere();
    let endpoints = [address, cluster.endpoint(0)];
    let client = Client::connect(endpoints).await.unwrap();
    assert_eq!(client.get("key").await, Ok(None));
}

#[tokio::test]
async fn no_endpoint_that_answers_is_unavailable() {
    let (_proxy, address) = nowhere();
    let builder = Client::builder()
        .endpoints([address.clone()])
        .deadline(SOON);
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains(&address), "{error}");
}

#[tokio::test]
async fn a_node_whose_address_leads_nowhere_is_reached_through_the_endpoint() {
    let cluster = Cluster::formed(2).await;
    let (_proxy, address) = nowhere();
    cluster.advertise(1, &address);
    let client = cluster.client().await;
    for key in cluster.keys_of(1, 5) {
        client.put(key.clone(), "value").await.unwrap();
        assert_eq!(client.get(key).await.unwrap().unwrap().value, "value");
    }
    assert_eq!(cluster.nodes[0].seen("forwarded"), 10);
    assert_eq!(cluster.nodes[0].seen("routed"), 0);

    let mine = cluster.key_of(0);
    client.put(mine, "value").await.unwrap();
    assert_eq!(
        cluster.nodes[0].seen("routed"),
        1,
        "other nodes are unaffected"
    );
}

#[tokio::test]
async fn an_address_that_is_none_is_worked_around_too() {
    let cluster = Cluster::formed(2).await;
    cluster.advertise(1, "not an address");
    let client = cluster.client().await;
    let key = cluster.key_of(1);
    client.put(key.clone(), "value").await.unwrap();
    let got = client.batch_get([key]).await.unwrap().remove(0);
    assert_eq!(got.unwrap().unwrap().value, "value");
}

#[tokio::test]
async fn all_addresses_may_lead_nowhere_as_long_as_an_endpoint_answers() {
    let cluster = Cluster::formed(3).await;
    let proxies = [nowhere(), nowhere(), nowhere()];
    for (node, (_, address)) in proxies.iter().enumerate() {
        cluster.advertise(node, address);
    }
    let client = cluster.client().await;
    for node in 0..3 {
        client.put(cluster.key_of(node), "value").await.unwrap();
    }
    assert_eq!(cluster.nodes[0].seen("forwarded"), 3);
}

#[tokio::test]
async fn a_node_that_is_down_is_unavailable() {
    let cluster = Cluster::formed(2).await;
    cluster.nodes[1].set_up(false);
    cluster.nodes[1].proxy.close().await;
    let client = cluster.client().await;
    let theirs = client.with_deadline(SOON).get(cluster.key_of(1)).await;
    assert_eq!(theirs.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(client.get(cluster.key_of(0)).await, Ok(None));
}

#[tokio::test]
async fn a_put_that_nobody_could_forward_was_not_stored() {
    let cluster = Cluster::formed(2).await;
    cluster.nodes[1].proxy.close().await;
    let unreachable = Fault::new(Reason::OwnerUnreachable, "node 2 cannot be reached");
    let for_long = unreachable.clone().retry_after(Duration::from_secs(3_600));
    // Another node is asked after the first one that says so.
    for fault in [unreachable.clone(), unreachable, for_long.clone(), for_long] {
        cluster.nodes[0].trouble("put", Trouble::Fault(fault));
    }
    let client = cluster.client().await;
    let error = client.put(cluster.key_of(1), "value").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.maybe_applied());
    assert_eq!(
        cluster.nodes[0].seen("put"),
        4,
        "it was tried as long as that made sense"
    );
}

#[tokio::test]
async fn a_node_that_comes_back_serves_those_who_waited() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let key = cluster.key_of(1);
    client.get(key.clone()).await.unwrap();
    cluster.nodes[1].set_up(false);
    cluster.nodes[1].proxy.close().await;
    let (outcome, ()) = tokio::join!(client.get(key), async {
        while cluster.nodes[0].seen("forwarded") < 2 {
            tokio::task::yield_now().await;
        }
        cluster.nodes[1].set_up(true);
        cluster.nodes[1].proxy.open().await;
    });
    assert_eq!(outcome, Ok(None));
}

#[tokio::test]
async fn the_only_node_may_restart() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    client.put("key", "value").await.unwrap();
    cluster.nodes[0].proxy.close().await;
    let (value, ()) = tokio::join!(client.get("key"), async {
        tokio::task::yield_now().await;
        cluster.nodes[0].proxy.open().await;
    });
    assert_eq!(value.unwrap().unwrap().value, "value");
}

#[tokio::test]
async fn a_lead_that_died_is_replaced_by_the_one_of_a_newer_topology() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let key = cluster.key_of(1);
    cluster.nodes[1].proxy.close().await;
    cluster.hand_all(1, 0);
    client.put(key, "value").await.unwrap();
    assert_eq!(cluster.nodes[0].seen("routed"), 1);
    assert_eq!(cluster.nodes[0].seen("forwarded"), 0);
}

#[tokio::test]
async fn a_node_that_moved_to_another_address_is_found_there() {
    let cluster = Cluster::formed(2).await;
    let (proxy, old) = nowhere();
    let address = cluster.nodes[1].proxy.address.to_string();
    cluster.advertise(1, &old);
    let client = cluster.client().await;
    cluster.advertise(1, &address);
    client.put(cluster.key_of(1), "value").await.unwrap();
    assert_eq!(cluster.nodes[1].seen("routed"), 1);
    drop(proxy);
}

#[tokio::test]
async fn connections_are_made_again_after_they_broke() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    for _ in 0..3 {
        client.get("key").await.unwrap();
        cluster.nodes[0].proxy.cut();
    }
    let refused = Fault::new(Reason::NotServing, "starting");
    cluster.nodes[0].trouble("get", Trouble::Fault(refused));
    client.get("key").await.unwrap();
}
