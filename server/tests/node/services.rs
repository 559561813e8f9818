//! The gRPC services as clients in any language see them: real nodes, real sockets, handwritten
//! requests.
#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt as _;
use tonic::Code;
use tonic::transport::Channel;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::farewell::Stage;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::{
    BatchGetRequest, BatchPutRequest, DeleteRequest, GetRequest, GetTopologyRequest, PutRequest,
    Route, ScanRequest, SessionRequest, SessionResponse, StatusRequest, Topology, condition,
    get_result, put_result, session_request, session_response,
};
use torc_proto::v1::{Condition, Version};
use torc_proto::{Fault, Reason};
use torc_server::Node;
use torc_server::config::RawSettings;

use crate::common::{found, until};

struct Servers {
    nodes: Vec<Node>,
    _dir: tempfile::TempDir,
}

fn settings(dir: &std::path::Path) -> RawSettings {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    RawSettings {
        replicas: Some(1),
        data_dir: Some(dir.to_owned()),
        grpc_addr: Some(any),
        http_addr: Some(any),
        ..RawSettings::default()
    }
}

/// A cluster of this many nodes in this process.
async fn servers(count: usize) -> Servers {
    let dir = tempfile::tempdir().unwrap();
    let settings = |number: usize| settings(&dir.path().join(number.to_string()));
    let nodes = found((0..count).map(settings)).await;
    Servers { nodes, _dir: dir }
}

impl Servers {
    async fn channel(&self, index: usize) -> Channel {
        let url = format!("http://{}", self.nodes[index].grpc_addr());
        Channel::from_shared(url).unwrap().connect().await.unwrap()
    }

    async fn kv(&self, index: usize) -> KvClient<Channel> {
        KvClient::new(self.channel(index).await)
    }

    async fn topology(&self) -> Topology {
        let mut cluster = ClusterClient::new(self.channel(0).await);
        let answer = cluster
            .get_topology(GetTopologyRequest::default())
            .await
            .unwrap();
        answer.into_inner().topology.unwrap()
    }
}

fn get(key: &str) -> GetRequest {
    GetRequest {
        key: key.to_owned().into(),
        ..GetRequest::default()
    }
}

fn put(key: &str, value: &str) -> PutRequest {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    PutRequest {
        key,
        value,
        ..PutRequest::default()
    }
}

#[tokio::test]
async fn any_node_answers_any_request() {
    let servers = servers(3).await;
    let mut clients = Vec::new();
    for index in 0..3 {
        clients.push(servers.kv(index).await);
    }
    for number in 0..60 {
        let key = format!("k{number}");
        clients[number % 3].put(put(&key, "v")).await.unwrap();
        let got = clients[(number + 1) % 3]
            .get(get(&key))
            .await
            .unwrap()
            .into_inner();
        assert_eq!((got.found, &got.value[..]), (true, &b"v"[..]));
        let delete = DeleteRequest {
            want_existed: true,
            key: key.clone().into(),
            ..DeleteRequest::default()
        };
        let deleted = clients[(number + 2) % 3]
            .delete(delete)
            .await
            .unwrap()
            .into_inner();
        assert!(deleted.existed);
        assert!(
            !clients[number % 3]
                .get(get(&key))
                .await
                .unwrap()
                .into_inner()
                .found
        );
    }
}

#[tokio::test]
async fn any_node_coordinates_and_one_that_does_not_lead_tells_of_a_newer_epoch() {
    let servers = servers(2).await;
    let topology = servers.topology().await;
    let key = b"key";
    let digest_key = torc_record::DigestKey(topology.digest_key[..].try_into().unwrap());
    let digest = torc_record::Digest::of(&digest_key, torc_record::NamespaceId(1), key);
    let index = (digest.high() >> (64 - topology.partitions.ilog2())) as usize;
    let state = &topology.changed[index];
    let routed = |epoch| GetRequest {
        route: Some(Route {
            partition: index as u32,
            epoch,
        }),
        ..get("key")
    };
    for (node, member) in topology.members.iter().enumerate() {
        let mut kv = servers.kv(node).await;
        let current = kv.get(routed(state.epoch)).await;
        assert!(current.is_ok(), "any node coordinates: {current:?}");
        let old = kv.get(routed(state.epoch - 1)).await;
        if member.id == state.lead {
            assert!(old.is_ok(), "it is the lead still: {old:?}");
            continue;
        }
        let old = Fault::from_status(&old.unwrap_err());
        assert_eq!(old.reason, Reason::StaleEpoch);
        assert_eq!(old.epoch.map(|epoch| epoch.0), Some(state.epoch));
        assert!(!old.maybe_applied);
    }
}

#[tokio::test]
async fn what_is_out_of_bounds_is_refused_with_the_right_code_and_changes_nothing() {
    let servers = servers(1).await;
    let mut kv = servers.kv(0).await;
    let cases = [
        (
            PutRequest {
                key: bytes::Bytes::new(),
                ..put("", "v")
            },
            Code::InvalidArgument,
        ),
        (put(&"x".repeat(1025), "v"), Code::InvalidArgument),
        (
            PutRequest {
                value: vec![0; (1 << 20) + 1].into(),
                ..put("k", "")
            },
            Code::InvalidArgument,
        ),
        (
            PutRequest {
                digest: vec![0; 3].into(),
                ..put("k", "v")
            },
            Code::InvalidArgument,
        ),
        (
            PutRequest {
                digest: vec![0; 16].into(),
                ..put("k", "v")
            },
            Code::InvalidArgument,
        ),
        (
            PutRequest {
                namespace: "nobody".into(),
                ..put("k", "v")
            },
            Code::NotFound,
        ),
    ];
    for (request, code) in cases {
        let status = kv.put(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(!Fault::from_status(&status).maybe_applied);
    }
    let huge = PutRequest {
        value: vec![0; 17 << 20].into(),
        ..put("k", "")
    };
    let status = kv.put(huge).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    let items = vec![get("k"); 1_001];
    let status = kv.batch_get(BatchGetRequest { items }).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let limits = [(1, 1), (1024, 1 << 20)];
    for (key, value) in limits {
        let request = PutRequest {
            value: vec![7; value].into(),
            ..put(&"x".repeat(key), "")
        };
        kv.put(request)
            .await
            .expect("the limits themselves are allowed");
    }
    assert!(!kv.get(get("k")).await.unwrap().into_inner().found);
}

#[tokio::test]
async fn a_condition_that_does_not_hold_changes_nothing() {
    let servers = servers(1).await;
    let mut kv = servers.kv(0).await;
    let only = |kind| Some(Condition { kind: Some(kind) });
    let absent = || only(condition::Kind::IfAbsent(true));
    let first = PutRequest {
        condition: absent(),
        ..put("k", "1")
    };
    let version = kv.put(first).await.unwrap().into_inner().version.unwrap();
    let again = PutRequest {
        condition: absent(),
        ..put("k", "2")
    };
    assert_eq!(
        kv.put(again).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    let wrong = only(condition::Kind::IfVersion(Version {
        time: version.time - 1,
        ..version
    }));
    let stale = DeleteRequest {
        want_existed: true,
        key: "k".into(),
        condition: wrong,
        ..DeleteRequest::default()
    };
    assert_eq!(
        kv.delete(stale).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    assert_eq!(
        &kv.get(get("k")).await.unwrap().into_inner().value[..],
        b"1"
    );
    let right = only(condition::Kind::IfVersion(version));
    let swap = PutRequest {
        condition: right,
        ..put("k", "3")
    };
    kv.put(swap).await.unwrap();
    assert_eq!(
        &kv.get(get("k")).await.unwrap().into_inner().value[..],
        b"3"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_conditional_writes_on_one_version_exactly_one_wins() {
    let servers = servers(1).await;
    let mut kv = servers.kv(0).await;
    let mut version = kv
        .put(put("k", "0"))
        .await
        .unwrap()
        .into_inner()
        .version
        .unwrap();
    for round in 0..20 {
        let swaps = (0..16).map(|number| {
            let kind = condition::Kind::IfVersion(version);
            let condition = Some(Condition { kind: Some(kind) });
            let swap = PutRequest {
                condition,
                ..put("k", &format!("{round}.{number}"))
            };
            let mut kv = kv.clone();
            async move { kv.put(swap).await }
        });
        let results = futures::future::join_all(swaps).await;
        let won: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
        assert_eq!(won.len(), 1, "round {round}");
        version = won[0].get_ref().version.unwrap();
    }
}

#[tokio::test]
async fn in_a_batch_each_item_succeeds_or_fails_alone_and_the_last_of_a_key_wins() {
    let servers = servers(2).await;
    let mut kv = servers.kv(0).await;
    let items = vec![put("a", "1"), put("", "bad"), put("b", "2"), put("a", "3")];
    let results = kv
        .batch_put(BatchPutRequest { items })
        .await
        .unwrap()
        .into_inner()
        .results;
    let stored: Vec<bool> = results
        .iter()
        .map(|result| matches!(result.outcome, Some(put_result::Outcome::Ok(_))))
        .collect();
    assert_eq!(stored, [true, false, true, true]);
    let items = vec![get("a"), get("missing"), get("b")];
    let results = kv
        .batch_get(BatchGetRequest { items })
        .await
        .unwrap()
        .into_inner()
        .results;
    let values: Vec<_> = results
        .into_iter()
        .map(|result| match result.outcome {
            Some(get_result::Outcome::Ok(ok)) => ok.found.then_some(ok.value),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(values, [Some("3".into()), None, Some("2".into())]);
}

#[tokio::test]
async fn a_session_answers_every_operation_by_its_id() {
    let servers = servers(2).await;
    let mut kv = servers.kv(0).await;
    let puts = (0..200_u64).map(|id| {
        let operation = session_request::Operation::Put(put(&format!("s{id}"), &id.to_string()));
        SessionRequest {
            id,
            operation: Some(operation),
            ..SessionRequest::default()
        }
    });
    let answers = kv
        .session(tokio_stream::iter(puts))
        .await
        .unwrap()
        .into_inner();
    let answers: Vec<_> = answers.map(Result::unwrap).collect().await;
    assert_eq!(answers.len(), 200);
    let gets = (0..200_u64).map(|id| {
        let operation = session_request::Operation::Get(get(&format!("s{id}")));
        SessionRequest {
            id,
            operation: Some(operation),
            ..SessionRequest::default()
        }
    });
    let empty = SessionRequest {
        id: 999,
        operation: None,
        ..SessionRequest::default()
    };
    let requests = gets.chain([empty]);
    let mut answers = kv
        .session(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut seen = 0;
    while let Some(answer) = answers.next().await {
        let answer = answer.unwrap();
        match answer.outcome {
            Some(session_response::Outcome::Get(got)) => {
                assert_eq!(got.value, answer.id.to_string().as_bytes());
                seen += 1;
            }
            Some(session_response::Outcome::Fault(fault)) => {
                assert_eq!((answer.id, fault.reason()), (999, Reason::Invalid));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, 200);
}

#[tokio::test]
async fn sessions_whose_answers_nobody_reads_do_not_hold_up_other_clients() {
    let servers = servers(1).await;
    let mut unread = Vec::new();
    for session in 0..2 {
        // A node cannot send more than one byte of its answers.
        let url = format!("http://{}", servers.nodes[0].grpc_addr());
        let channel = Channel::from_shared(url).unwrap();
        let channel = channel.initial_stream_window_size(1).connect().await;
        let puts = (0..1_000).map(move |id| {
            let put = put(&format!("{session} {id}"), "v");
            SessionRequest {
                id,
                operation: Some(session_request::Operation::Put(put)),
                timeout_ms: 60_000,
                ..SessionRequest::default()
            }
        });
        let requests = tokio_stream::iter(puts).chain(futures::stream::pending());
        let answers = KvClient::new(channel.unwrap()).session(requests).await;
        unread.push(answers.unwrap().into_inner());
    }
    let mut honest = servers.kv(0).await;
    for key in ["0 999", "1 999"] {
        until("the last keys are put", async || {
            let mut request = tonic::Request::new(get(key));
            request.set_timeout(Duration::from_secs(10));
            let got = honest.get(request).await;
            got.expect("other clients are served").into_inner().found
        })
        .await;
    }
    drop(unread);
}

#[tokio::test]
async fn a_node_that_stops_asks_its_sessions_to_go_and_answers_what_they_sent() {
    let mut servers = servers(1).await;
    let (requests, outgoing) = tokio::sync::mpsc::unbounded_channel();
    let outgoing = tokio_stream::wrappers::UnboundedReceiverStream::new(outgoing);
    let operation = |id, operation| SessionRequest {
        id,
        operation: Some(operation),
        timeout_ms: 5_000,
        ..SessionRequest::default()
    };
    let first = session_request::Operation::Put(put("k", "1"));
    requests.send(operation(1, first)).unwrap();
    let mut kv = servers.kv(0).await;
    let mut answers = kv.session(outgoing).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert!(matches!(
        answer.outcome,
        Some(session_response::Outcome::Put(_))
    ));
    let node = servers.nodes.remove(0);
    let stopping = tokio::spawn(node.stop());
    let stage = |answer: SessionResponse| match (answer.id, answer.outcome) {
        (0, Some(session_response::Outcome::Farewell(farewell))) => farewell.stage(),
        other => panic!("{other:?}"),
    };
    let leaving = answers.message().await.unwrap().unwrap();
    assert_eq!(stage(leaving), Stage::Leaving);
    let last = session_request::Operation::Get(get("k"));
    requests.send(operation(2, last)).unwrap();
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!(answer.id, 2, "until it closes the node serves");
    let Some(session_response::Outcome::Get(got)) = answer.outcome else {
        panic!("{answer:?}");
    };
    assert_eq!(&got.value[..], b"1");
    let ended = answers.message().await.unwrap().unwrap();
    assert_eq!(stage(ended), Stage::Ended);
    let unread = session_request::Operation::Put(put("k", "2"));
    // Fails if the stream has also ended on this side.
    let _ = requests.send(operation(3, unread));
    assert!(answers.message().await.unwrap().is_none());
    stopping.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_scan_gives_every_record_once_in_ring_order_from_any_node() {
    let servers = servers(3).await;
    let mut kv = servers.kv(0).await;
    for number in 0..300 {
        kv.put(put(&format!("k{number}"), "v")).await.unwrap();
    }
    let mut orders = Vec::new();
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        let pages = kv.scan(ScanRequest::default()).await.unwrap().into_inner();
        let pages: Vec<_> = pages.map(Result::unwrap).collect().await;
        assert!(pages.last().unwrap().done);
        let keys: Vec<_> = pages
            .into_iter()
            .flat_map(|page| page.entries)
            .map(|entry| entry.key)
            .collect();
        assert_eq!(
            keys.iter().collect::<std::collections::BTreeSet<_>>().len(),
            300
        );
        assert_eq!(keys.len(), 300, "each key once");
        orders.push(keys);
    }
    assert!(
        orders.windows(2).all(|pair| pair[0] == pair[1]),
        "the order is the ring's"
    );

    let mut paged = Vec::new();
    let mut after = bytes::Bytes::new();
    loop {
        let request = ScanRequest {
            limit: 7,
            after: after.clone(),
            ..ScanRequest::default()
        };
        let pages = kv.scan(request).await.unwrap().into_inner();
        let pages: Vec<_> = pages.map(Result::unwrap).collect().await;
        let count: usize = pages.iter().map(|page| page.entries.len()).sum();
        after = pages.last().unwrap().cursor.clone();
        paged.extend(
            pages
                .into_iter()
                .flat_map(|page| page.entries)
                .map(|entry| entry.key),
        );
        assert!(count <= 7);
        if count < 7 {
            break;
        }
    }
    assert_eq!(paged, orders[0], "page by page it is the same");
}

#[tokio::test]
async fn a_topology_asked_for_again_holds_only_what_changed() {
    let servers = servers(2).await;
    let topology = servers.topology().await;
    assert_eq!(topology.changed.len(), 4096);
    let mut cluster = ClusterClient::new(servers.channel(1).await);
    let request = GetTopologyRequest {
        known_epoch: topology.epoch,
    };
    let again = cluster
        .get_topology(request)
        .await
        .unwrap()
        .into_inner()
        .topology
        .unwrap();
    assert_eq!((again.epoch, again.changed.len()), (topology.epoch, 0));
}

#[tokio::test]
async fn the_standard_health_service_says_serving() {
    use tonic_health::pb::health_client::HealthClient;
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
    let servers = servers(1).await;
    let mut health = HealthClient::new(servers.channel(0).await);
    until("it is healthy", async || {
        let request = HealthCheckRequest {
            service: "torc.v1.Kv".into(),
        };
        let status = health.check(request).await;
        status.is_ok_and(|it| it.into_inner().status() == ServingStatus::Serving)
    })
    .await;
    let long = HealthCheckRequest {
        service: "n".repeat(5_000),
    };
    let refused = health.check(long).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
}

#[tokio::test]
async fn reflection_lists_the_services() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let servers = servers(1).await;
    let mut reflection = ServerReflectionClient::new(servers.channel(0).await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = reflection
        .server_reflection_info(tokio_stream::iter([request]))
        .await
        .unwrap();
    let answer = answers.into_inner().next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let names: Vec<_> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    for name in ["torc.v1.Kv", "torc.v1.Cluster", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
}

#[tokio::test]
async fn joining_a_member_again_says_that_there_is_nothing_to_do() {
    use torc_proto::v1::{ChangeKind, JoinRequest};
    let servers = servers(2).await;
    let mut cluster = ClusterClient::new(servers.channel(0).await);
    let address = servers.nodes[1].grpc_addr().to_string();
    let request = JoinRequest {
        address,
        ..JoinRequest::default()
    };
    let answer = cluster.join(request).await.unwrap().into_inner();
    let plan = answer.plan.unwrap();
    assert_eq!(
        (answer.transition, plan.node, plan.partitions_moved),
        (0, 2, 0)
    );
    assert_eq!(plan.kind(), ChangeKind::Join);
}

#[tokio::test]
async fn a_join_of_the_metadata_address_is_refused() {
    let servers = servers(1).await;
    let mut cluster = ClusterClient::new(servers.channel(0).await);
    let request = torc_proto::v1::JoinRequest {
        address: "169.254.169.254:80".to_owned(),
        ..Default::default()
    };
    let refused = Fault::from_status(&cluster.join(request).await.unwrap_err());
    assert_eq!(refused.reason, Reason::Refused, "{refused}");
    assert!(!refused.maybe_applied);
}

#[tokio::test]
async fn a_node_of_no_cluster_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(settings(dir.path()).check().unwrap())
        .await
        .unwrap();
    let url = format!("http://{}", node.grpc_addr());
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    let status = KvClient::new(channel.clone())
        .get(get("k"))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("bootstrap"),
        "{}",
        status.message()
    );
    let status = ClusterClient::new(channel)
        .status(StatusRequest::default())
        .await
        .unwrap_err();
    assert_eq!(Fault::from_status(&status).reason, Reason::NotServing);
    assert!(node.ready().is_err());
}
