//! Counters of Redis clients, while the processes that serve them are killed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use torc_testkit::redis::{Redis, Value};

use crate::processes::{Cluster, until};

const WANTED: u64 = 1_000;
const CLIENTS: usize = 24;

/// The answers to clients.
#[derive(Default)]
struct Told {
    done: AtomicU64,
    unknown: AtomicU64,
    /// Set once no more nodes are killed.
    is_over: AtomicBool,
}

impl Told {
    fn is_enough(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) && self.done.load(Ordering::Relaxed) >= WANTED
    }
}

/// Counts until the kills have ended and all together have enough answers; returns the numbers.
async fn count(nodes: Vec<SocketAddr>, told: Arc<Told>) -> Vec<i64> {
    let mut numbers = Vec::new();
    for turn in (0..nodes.len()).cycle() {
        if told.is_enough() {
            return numbers;
        }
        let Some(mut client) = connect(nodes[turn]).await else {
            continue;
        };
        while !told.is_enough() {
            if client.try_send(&[b"INCR", b"counter"]).await.is_none() {
                // A partly sent request is not executed.
                break;
            }
            match client.try_receive().await {
                Some(Value::Int(number)) => {
                    numbers.push(number);
                    told.done.fetch_add(1, Ordering::Relaxed);
                }
                Some(Value::Error(text)) if !text.starts_with("OUTCOMEUNKNOWN ") => {
                    let retried = ["UNAVAILABLE", "OVERLOADED", "TRYAGAIN"];
                    let kind = text.split(' ').next().unwrap();
                    assert!(retried.contains(&kind), "{text}");
                }
                Some(Value::Error(_)) => {
                    told.unknown.fetch_add(1, Ordering::Relaxed);
                }
                Some(other) => panic!("{other}"),
                None => {
                    told.unknown.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
    }
    numbers
}

/// `None` if no process listens there at present.
async fn connect(to: SocketAddr) -> Option<Redis> {
    if let Ok(stream) = tokio::net::TcpStream::connect(to).await {
        return Some(Redis::over(stream));
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_loses_nothing_that_was_told_while_its_nodes_are_killed() {
    let mut cluster = Cluster::start(3).await;
    let nodes: Vec<_> = cluster.nodes.iter().map(|node| node.resp).collect();
    let told = Arc::new(Told::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut nodes = nodes.clone();
            nodes.rotate_left(client % 3);
            tokio::spawn(count(nodes, Arc::clone(&told)))
        })
        .collect();
    for kill in 0..6 {
        let before = told.done.load(Ordering::Relaxed);
        until("it counts", async || {
            told.done.load(Ordering::Relaxed) >= before + 50
        })
        .await;
        let node = &mut cluster.nodes[kill % 3];
        node.kill_9();
        node.start().unwrap();
        node.ready().await.unwrap();
    }
    told.is_over.store(true, Ordering::Relaxed);
    let mut numbers = BTreeSet::new();
    let mut count = 0;
    for client in clients {
        for number in client.await.unwrap() {
            count += 1;
            assert!(numbers.insert(number), "{number} was told twice");
        }
    }
    let (done, unknown) = (
        told.done.load(Ordering::Relaxed),
        told.unknown.load(Ordering::Relaxed),
    );
    assert_eq!(count, done);
    eprintln!("{done} were told, {unknown} are unknown");
    let mut client = connect(nodes[0]).await.unwrap();
    let mut value = 0;
    until("the counter can be read", async || {
        match client.call("GET counter").await {
            Value::Bulk(text) => {
                value = String::from_utf8(text).unwrap().parse().unwrap();
                true
            }
            _ => false,
        }
    })
    .await;
    assert!(
        (done..=done + unknown).contains(&value),
        "{done} were told, {unknown} are unknown, and the counter is {value}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expiry_that_one_client_has_seen_is_never_undone_for_another() {
    let cluster = Cluster::with_a_clock_off_by("400").await;
    let mut exact = connect(cluster.nodes[0].resp).await.unwrap();
    let mut ahead = connect(cluster.nodes[2].resp).await.unwrap();
    // Most are led by nodes whose clocks are not ahead.
    for number in 0..8 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let at = since.as_millis() + 1_000;
        let set = exact.call(&format!("SET k{number} v PXAT {at}")).await;
        assert_eq!(set.to_string(), "+OK");
        let get = format!("GET k{number}");
        until("it expires", async || {
            ahead.call(&get).await.to_string() == "nil"
        })
        .await;
        // At once: by the exact clocks, it would be there for a while.
        assert_eq!(exact.call(&get).await.to_string(), "nil", "{get}");
        let replace = format!("SET k{number} w XX");
        assert_eq!(exact.call(&replace).await.to_string(), "nil");
    }
}
