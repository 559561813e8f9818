//! Hot keys and searching scans, as clients see them: real nodes, real sockets.
#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;
use tonic::Code;
use tonic::transport::Channel;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::{
    BatchGetRequest, BatchPutRequest, CreateNamespaceRequest, ExplainRequest, GetRequest,
    GetResult, HotKeysRequest, HotKeysResponse, PutRequest, ScanRequest, SessionRequest,
    get_result, session_request, session_response,
};
use torc_proto::{Fault, Reason};
use torc_server::Node;
use torc_server::config::RawSettings;
use torc_testkit::until;

fn settings(dir: &Path) -> RawSettings {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    RawSettings {
        data_dir: Some(dir.to_owned()),
        grpc_addr: Some(any),
        http_addr: Some(any),
        worker_threads: Some(2),
        replicas: Some(1),
        hot_keys_interval_s: Some(1),
        ..RawSettings::default()
    }
}

/// Nodes that found a cluster, once all of them count.
async fn found(settings: impl IntoIterator<Item = RawSettings>) -> Vec<Node> {
    let nodes = crate::common::found(settings).await;
    for node in &nodes {
        until("the node counts", async || {
            let (status, _) = http(node, "/hot-keys").await;
            status == 200
        })
        .await;
    }
    nodes
}

async fn three(dir: &Path) -> Vec<Node> {
    found(["a", "b", "c"].map(|name| settings(&dir.join(name)))).await
}

async fn channel(node: &Node) -> Channel {
    let url = format!("http://{}", node.grpc_addr());
    Channel::from_shared(url).unwrap().connect().await.unwrap()
}

async fn kv(node: &Node) -> KvClient<Channel> {
    KvClient::new(channel(node).await)
}

async fn hot(node: &Node, request: HotKeysRequest) -> Result<HotKeysResponse, tonic::Status> {
    let mut cluster = ClusterClient::new(channel(node).await);
    cluster
        .hot_keys(request)
        .await
        .map(tonic::Response::into_inner)
}

/// The answer, once this many accesses are counted.
async fn counted(node: &Node, accesses: u64) -> HotKeysResponse {
    let mut answer = HotKeysResponse::default();
    until("all accesses are counted", async || {
        answer = hot(node, HotKeysRequest::default()).await.unwrap();
        answer.accesses >= accesses
    })
    .await;
    assert_eq!(answer.accesses, accesses, "each is counted once");
    answer
}

async fn http(node: &Node, path: &str) -> (u16, String) {
    torc_testkit::http_get(node.http_addr(), path)
        .await
        .unwrap()
}

async fn metric(node: &Node, name: &str) -> u64 {
    let (_, text) = http(node, "/metrics").await;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    number.trim().parse().unwrap()
}

fn get(key: &str) -> GetRequest {
    GetRequest {
        key: key.to_owned().into(),
        ..GetRequest::default()
    }
}

fn put(key: &str, value: impl Into<bytes::Bytes>) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: value.into(),
        ..PutRequest::default()
    }
}

async fn get_all(nodes: &[Node], gets: Vec<GetRequest>) {
    for (number, items) in gets.chunks(500).enumerate() {
        let mut kv = kv(&nodes[number % nodes.len()]).await;
        let items = items.to_vec();
        kv.batch_get(BatchGetRequest { items }).await.unwrap();
    }
}

/// Gets keys at the nodes that lead them: a node whose lead is late runs a get itself.
async fn get_all_at_leads(nodes: &[Node], gets: Vec<GetRequest>) {
    let mut cluster = ClusterClient::new(channel(&nodes[0]).await);
    let mut leads: BTreeMap<bytes::Bytes, u64> = BTreeMap::new();
    let mut by_lead: BTreeMap<u64, Vec<GetRequest>> = BTreeMap::new();
    for get in gets {
        if !leads.contains_key(&get.key) {
            let request = ExplainRequest {
                key: get.key.clone(),
                ..ExplainRequest::default()
            };
            let explained = cluster.explain(request).await.unwrap().into_inner();
            leads.insert(get.key.clone(), explained.partition.unwrap().lead);
        }
        let lead = leads[&get.key];
        by_lead.entry(lead).or_default().push(get);
    }
    for (lead, gets) in by_lead {
        get_all(&nodes[lead as usize - 1..][..1], gets).await;
    }
}

/// The number of accesses to the key of a rank: Zipf with exponent 1.
fn zipf(rank: u64) -> u64 {
    2_000 / rank
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hottest_keys_of_three_nodes_come_in_order_and_within_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = three(dir.path()).await;
    let mut gets: Vec<GetRequest> = Vec::new();
    for rank in 1..=100 {
        let key = format!("key-{rank:03}");
        gets.extend((0..zipf(rank)).map(|_| get(&key)));
    }
    let total = gets.len() as u64;
    // Shuffled, so that every batch has all keys.
    let gets = (0..total as usize).map(|at| gets[at * 7_919 % gets.len()].clone());
    get_all_at_leads(&nodes, gets.collect()).await;
    let answer = counted(&nodes[1], total).await;
    assert_eq!(answer.keys.len(), 20, "unless asked for more");
    for (key, rank) in answer.keys.iter().zip(1..) {
        assert_eq!(key.key, format!("key-{rank:03}"), "the order is exact");
        let over = key.estimate.checked_sub(zipf(rank));
        let over = over.expect("an estimate is never too low");
        assert!(
            over <= answer.error_bound,
            "{over} of {}",
            answer.error_bound
        );
        assert_eq!(key.nodes.len(), 1, "one node leads it, and counts it once");
        assert_eq!(key.is_new, None, "nobody was there in the window before");
    }
    let busy = answer.nodes.iter().filter(|node| node.accesses > 0).count();
    assert_eq!((answer.nodes.len(), busy), (3, 3));
    assert!(answer.majority.is_none(), "20 % is no majority");

    let (status, body) = http(&nodes[2], "/hot-keys?window=10m&top=3").await;
    let json: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, json["keys"].as_array().unwrap().len()), (200, 3));
    assert_eq!(json["keys"][0]["key"], "key-001");
    assert_eq!(json["accesses"], total);
    for bad in [
        "window=1d",
        "window=25h",
        "top=1001",
        "node=9",
        "namespace=x",
        "a=b",
    ] {
        let (status, _) = http(&nodes[2], &format!("/hot-keys?{bad}")).await;
        assert!([400, 404].contains(&status), "{bad}: {status}");
    }
    let mut accesses = 0;
    for node in &nodes {
        accesses += metric(node, "torc_hot_keys_accesses_total").await;
        let (_, text) = http(node, "/metrics").await;
        assert!(!text.contains("key-0"), "no key material");
        assert!(metric(node, "torc_hot_keys_history_bytes").await > 0);
    }
    assert_eq!(accesses, total);

    let mut cluster = ClusterClient::new(channel(&nodes[0]).await);
    let explain = ExplainRequest {
        key: "key-002".into(),
        ..ExplainRequest::default()
    };
    let told = cluster.explain(explain).await.unwrap().into_inner().hot;
    assert_eq!(told.unwrap().estimate, answer.keys[1].estimate);

    let silent = nodes.into_iter().collect::<Vec<_>>();
    let mut nodes = silent;
    nodes.pop().unwrap().stop().await.unwrap();
    let partial = hot(&nodes[0], HotKeysRequest::default()).await.unwrap();
    let missing: Vec<_> = partial
        .nodes
        .iter()
        .filter(|node| !node.problem.is_empty())
        .collect();
    assert_eq!(missing.len(), 1, "{:?}", partial.nodes);
    let rest: u64 = answer
        .nodes
        .iter()
        .filter(|node| node.node != missing[0].node)
        .map(|node| node.accesses)
        .sum();
    assert_eq!(partial.accesses, rest, "the others are still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_namespace_shows_its_own_hot_keys_and_their_course() {
    let dir = tempfile::tempdir().unwrap();
    let fine = |name| RawSettings {
        hot_keys_k: Some(10),
        hot_keys_epsilon: Some(0.001),
        hot_keys_delta: Some(0.01),
        ..settings(&dir.path().join(name))
    };
    let nodes = found(["a", "b"].map(fine)).await;
    let mut cluster = ClusterClient::new(channel(&nodes[0]).await);
    let quiet = CreateNamespaceRequest {
        name: "quiet".to_owned(),
        ..CreateNamespaceRequest::default()
    };
    cluster.create_namespace(quiet).await.unwrap();
    let of_quiet = |key: &str| GetRequest {
        namespace: "quiet".to_owned(),
        ..get(key)
    };
    get_all(&nodes, vec![get("busy"); 5_000]).await;
    let mut gets = vec![of_quiet("mine"); 30];
    gets.extend((0..20).map(|number| of_quiet(&format!("rare-{number}"))));
    get_all(&nodes, gets).await;
    counted(&nodes[0], 5_000).await;
    let asked = HotKeysRequest {
        namespace: "quiet".to_owned(),
        steps: 7,
        ..HotKeysRequest::default()
    };
    let mut answer = HotKeysResponse::default();
    until("the quiet one is counted", async || {
        answer = hot(&nodes[1], asked.clone()).await.unwrap();
        answer.accesses == 50
    })
    .await;
    let keys: Vec<_> = answer.keys.iter().map(|key| &key.key[..]).collect();
    assert_eq!(keys, [b"mine"], "30 of 50; one of 50 is less than a tenth");
    assert_eq!((answer.complete_from, answer.error_bound), (5, 1));
    assert!((answer.keys[0].share - 0.6).abs() < 1e-9);
    assert!(answer.majority.unwrap().certain);
    assert!(answer.delta <= 0.01);
    let history = answer.history.unwrap();
    let sums = history.series.iter().map(|it| {
        assert_eq!(it.accesses.len(), 7);
        it.accesses.iter().sum::<f64>().round()
    });
    assert_eq!(sums.collect::<Vec<_>>(), [50.0, 30.0], "all, and the key");
    let (_, body) = http(&nodes[0], "/hot-keys?namespace=quiet&steps=7").await;
    let json: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["history"]["keys"][0].as_array().unwrap().len(), 7);
    let many = HotKeysRequest {
        steps: 241,
        ..asked
    };
    let refused = hot(&nodes[0], many).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_outlives_a_restart_and_damage_costs_history_only() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = found([settings(dir.path())]).await;
    let mut kv = kv(&nodes[0]).await;
    kv.put(put("key", "value")).await.unwrap();
    get_all(&nodes, vec![get("key"); 40]).await;
    drop(kv);
    counted(&nodes[0], 41).await;
    for node in nodes {
        node.stop().await.unwrap();
    }

    let nodes = found([settings(dir.path())]).await;
    let answer = counted(&nodes[0], 41).await;
    assert_eq!(answer.keys[0].key, "key", "a put is an access as well");
    let majority = answer.majority.unwrap();
    assert_eq!(majority.digest, answer.keys[0].digest);
    for node in nodes {
        node.stop().await.unwrap();
    }

    for entry in std::fs::read_dir(dir.path().join("scratch")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let len = std::fs::metadata(&path).unwrap().len() as usize;
            std::fs::write(&path, vec![0xa5; len]).unwrap();
        }
    }
    let nodes = found([settings(dir.path())]).await;
    let mut kv = self::kv(&nodes[0]).await;
    assert!(kv.get(get("key")).await.unwrap().into_inner().found);
    until("the loss is counted", async || {
        metric(&nodes[0], "torc_scratch_losses_total").await == 1
    })
    .await;
    // Counts from before the loss was detected may be lost with it.
    until("accesses are counted again", async || {
        assert!(kv.get(get("key")).await.unwrap().into_inner().found);
        let answer = hot(&nodes[0], HotKeysRequest::default()).await;
        answer.unwrap().accesses > 0
    })
    .await;
}

/// Whether a file in this directory contains these bytes.
fn tells(dir: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return tells(&path, needle);
        }
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(needle.len()).any(|window| window == needle)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn redacted_keys_are_told_nowhere() {
    for redact in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let settings = RawSettings {
            hot_keys_redact: Some(redact),
            ..settings(dir.path())
        };
        let nodes = found([settings]).await;
        get_all(&nodes, vec![get("a-secret-key"); 30]).await;
        let answer = counted(&nodes[0], 30).await;
        assert_eq!(answer.keys[0].key.is_empty(), redact);
        assert_eq!(answer.keys[0].estimate, 30, "it is counted all the same");
        let (_, shown) = http(&nodes[0], "/hot-keys").await;
        assert_eq!(shown.contains("a-secret-key"), !redact);
        let (_, metrics) = http(&nodes[0], "/metrics").await;
        assert!(!metrics.contains("a-secret-key"));
        for node in nodes {
            node.stop().await.unwrap();
        }
        let told = tells(&dir.path().join("scratch"), b"a-secret-key");
        assert_eq!(told, !redact, "files of the history");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_nothing_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let founder = RawSettings {
        bootstrap: Some(true),
        hot_keys: Some(false),
        ..settings(dir.path())
    };
    let node = Node::start(founder.check().unwrap()).await.unwrap();
    until("it is ready", async || node.ready().is_ok()).await;
    let nodes = [node];
    get_all(&nodes, vec![get("a-secret-key"); 30]).await;
    let status = hot(&nodes[0], HotKeysRequest::default()).await.unwrap_err();
    let fault = Fault::from_status(&status);
    assert_eq!(fault.reason, Reason::Refused, "{fault}");
    assert!(fault.message.contains("--hot-keys"), "{fault}");
    let [node] = nodes;
    assert_eq!(metric(&node, "torc_hot_keys_accesses_total").await, 0);
    assert_eq!(metric(&node, "torc_hot_keys_history_bytes").await, 0);
    node.stop().await.unwrap();
    let told = tells(&dir.path().join("scratch"), b"a-secret-key");
    assert!(!told, "nothing was kept");
}

async fn found_by_scan(node: &Node, request: ScanRequest) -> Vec<String> {
    let mut keys = Vec::new();
    let mut pages = kv(node).await.scan(request).await.unwrap().into_inner();
    while let Some(page) = pages.next().await {
        let entries = page.unwrap().entries.into_iter();
        keys.extend(entries.map(|entry| String::from_utf8(entry.key.to_vec()).unwrap()));
    }
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_finds_exactly_the_values_that_contain_a_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = three(dir.path()).await;
    let patterns: [&[u8]; 3] = [b"needle", b"\0\xff", b"thread"];
    let mut state = 7_u64;
    let mut random = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % bound
    };
    let mut expected = [Vec::new(), Vec::new(), Vec::new()];
    let mut items = Vec::new();
    for number in 0..240 {
        let mut value = vec![b'n'; random(9_000) as usize + 20];
        // Some cross the blocks of 4,096 bytes in which values are searched.
        if number % 3 > 0 {
            let at = match number % 7 {
                0 => 4_093.min(value.len() - 8),
                _ => random(value.len() as u64 - 8) as usize,
            };
            let pattern = patterns[random(3) as usize];
            value[at..at + pattern.len()].copy_from_slice(pattern);
        }
        let key = format!("k{number:03}");
        for (pattern, keys) in patterns.iter().zip(&mut expected) {
            if value
                .windows(pattern.len())
                .any(|window| window == *pattern)
            {
                keys.push(key.clone());
            }
        }
        items.push(put(&key, value));
    }
    kv(&nodes[0])
        .await
        .batch_put(BatchPutRequest { items })
        .await
        .unwrap();
    let wanting = |patterns: &[&[u8]]| ScanRequest {
        contains: patterns
            .iter()
            .map(|it| bytes::Bytes::copy_from_slice(it))
            .collect(),
        ..ScanRequest::default()
    };
    for (pattern, keys) in patterns.iter().zip(&expected) {
        assert!(keys.len() > 20, "there is something to find");
        assert_eq!(found_by_scan(&nodes[1], wanting(&[pattern])).await, *keys);
    }
    let mut either = [&expected[0][..], &expected[2]].concat();
    either.sort();
    either.dedup();
    let keys_only = ScanRequest {
        keys_only: true,
        ..wanting(&[patterns[0], patterns[2]])
    };
    assert_eq!(
        found_by_scan(&nodes[2], keys_only).await,
        either,
        "any of them"
    );
    let limited = ScanRequest {
        limit: 5,
        ..wanting(&[patterns[0]])
    };
    assert_eq!(found_by_scan(&nodes[0], limited).await.len(), 5);
    for refused in [
        wanting(&[&b""[..]]),
        wanting(&[&b"x"[..]; 65]),
        wanting(&[&vec![0; 65_537]]),
    ] {
        let status = kv(&nodes[0]).await.scan(refused).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_is_dropped_searches_no_further() {
    const VALUES: usize = 48;
    let dir = tempfile::tempdir().unwrap();
    let nodes = found([settings(dir.path())]).await;
    let mut kv = kv(&nodes[0]).await;
    for number in 0..VALUES {
        let value = vec![b'.'; 1 << 20];
        kv.put(put(&format!("k{number}"), value)).await.unwrap();
    }
    // Each length has the same additional cost.
    let contains = (1..=64).map(|len| vec![b'x'; len].into()).collect();
    let request = ScanRequest {
        contains,
        ..ScanRequest::default()
    };
    let pages = kv.scan(request).await.unwrap().into_inner();
    let searched = async || metric(&nodes[0], "torc_scan_searched_bytes_total").await;
    until("the search has begun", async || searched().await > 0).await;
    drop(pages);
    let mut before = u64::MAX;
    until("the search has ended", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = searched().await;
        std::mem::replace(&mut before, now) == now
    })
    .await;
    assert!(before < (VALUES as u64) << 20, "it went on to the end");
}

/// Whether answers to gets of `busy` (single, in a batch and on a session) report it as hot; and
/// whether one to a get of `calm` does.
async fn hints(node: &Node) -> ([bool; 3], bool) {
    let mut kv = kv(node).await;
    let one = kv.get(get("busy")).await.unwrap().into_inner().hot;
    let items = vec![get("calm"), get("busy")];
    let batch = kv.batch_get(BatchGetRequest { items }).await.unwrap();
    let hot = |result: &GetResult| match &result.outcome {
        Some(get_result::Outcome::Ok(answer)) => answer.hot,
        other => panic!("{other:?}"),
    };
    let results = batch.into_inner().results;
    let operation = Some(session_request::Operation::Get(get("busy")));
    let request = SessionRequest {
        id: 1,
        operation,
        ..SessionRequest::default()
    };
    let session = kv.session(futures::stream::iter([request])).await.unwrap();
    let answer = session.into_inner().message().await.unwrap().unwrap();
    let Some(session_response::Outcome::Get(of_session)) = answer.outcome else {
        panic!("{answer:?}");
    };
    ([one, hot(&results[1]), of_session.hot], hot(&results[0]))
}

async fn get_often(node: &Node) {
    let mut kv = kv(node).await;
    let items = vec![get("busy"); 1_000];
    kv.batch_get(BatchGetRequest { items }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_call_a_hot_key_hot_and_count_that_unless_accesses_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = found([settings(&dir.path().join("a"))]).await;
    let node = &nodes[0];
    assert_eq!(hints(node).await, ([false; 3], false));
    until("all answers call it hot", async || {
        get_often(node).await;
        let (busy, is_calm_hot) = hints(node).await;
        assert!(!is_calm_hot, "a thousandth of the gets");
        busy == [true; 3]
    })
    .await;
    assert!(metric(node, "torc_hot_keys_hints_total").await >= 3);
    until(
        "it is forgotten when it is not wanted any more",
        async || hints(node).await == ([false; 3], false),
    )
    .await;

    let without = RawSettings {
        hot_keys: Some(false),
        bootstrap: Some(true),
        ..settings(&dir.path().join("b"))
    };
    let silent = Node::start(without.check().unwrap()).await.unwrap();
    until("it serves", async || silent.ready().is_ok()).await;
    for _ in 0..3 {
        get_often(&silent).await;
        assert_eq!(hints(&silent).await, ([false; 3], false));
    }
    assert_eq!(metric(&silent, "torc_hot_keys_hints_total").await, 0);
}
