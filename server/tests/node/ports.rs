//! The client port and the peer port: which callers each of them serves.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tonic::Code;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_proto::v1::{
    GetRequest, GetTopologyRequest, GiveAuthorityRequest, IdentifyRequest, IdentifyResponse,
    JoinRequest, PutRequest, StatusRequest, SummarizeRequest,
};
use torc_proto::{Access, CLUSTER_HEADER, NODE_HEADER};
use torc_server::Node;
use torc_server::config::RawSettings;
use torc_testkit::free_address;

use crate::common::office::{Door, Office, calls, channel_to, connects_as};
use crate::common::{Servers, found, settings, until, value_of};

const IDENTIFY: &str = "/torc.v1.Replica/Identify";
/// The beginning of an HTTP/2 client's connection.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_port_refuses_every_call_of_the_other() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let as_node = Office::connector(&office.issue("peer", "torc://any/node/any"));
    let clients = Door::at(node.grpc_addr(), &as_node).await;
    let peers = Door::at(node.peer_addr(), &as_node).await;
    for path in calls() {
        if Access::to(&path) == Some(Access::Node) {
            let is_open = path == IDENTIFY;
            let code = clients.ends(&path).await;
            assert_eq!(code != Code::PermissionDenied, is_open, "{path}: {code:?}");
            let code = peers.ends(&path).await;
            assert_ne!(code, Code::PermissionDenied, "{path}");
        } else {
            let code = peers.begins(&path).await;
            assert_eq!(code, Code::PermissionDenied, "{path}");
        }
    }
    let health = peers.ends("/grpc.health.v1.Health/Check").await;
    assert_eq!(health, Code::PermissionDenied);
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_does_as_an_administrator_and_each_request_for_a_key_are_logged() {
    let office = Office::new();
    let (node, data) = office.node().await;
    let as_node = Office::connector(&office.issue("peer", "torc://any/node/any"));
    let clients = Door::at(node.grpc_addr(), &as_node).await;
    let listed = clients.ends("/torc.v1.Cluster/ListTokens").await;
    assert_eq!(listed, Code::Ok);
    let mut peer = ReplicaClient::new(channel_to(node.peer_addr(), &as_node).await);
    let who = peer.identify(IdentifyRequest::default()).await.unwrap();
    let asked = named(GiveAuthorityRequest::default(), who.get_ref());
    let refused = peer.give_authority(asked).await.unwrap_err();
    assert_eq!(
        refused.code(),
        Code::InvalidArgument,
        "no digest: {refused}"
    );
    node.stop().await.unwrap();
    let audit = std::fs::read_to_string(data.path().join("audit/audit.log")).unwrap();
    let acts: Vec<_> = audit
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| [line["event"].to_string(), line["call"].to_string()])
        .collect();
    let expected = [
        ["\"admin\"", "\"Cluster/ListTokens\""],
        ["\"node\"", "\"Replica/GiveAuthority\""],
    ];
    assert_eq!(acts, expected);
}

#[tokio::test]
async fn without_tls_the_ports_refuse_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(RawSettings::check(founder(&dir)).unwrap())
        .await
        .unwrap();
    until("it serves", async || node.ready().is_ok()).await;
    let url = |address: SocketAddr| format!("http://{address}");
    let mut replica = ReplicaClient::connect(url(node.grpc_addr())).await.unwrap();
    let who = replica.identify(IdentifyRequest::default()).await.unwrap();
    let who = who.into_inner();
    assert_eq!(who.peer_address, node.peer_addr().to_string());
    let named = || named(SummarizeRequest::default(), &who);
    let refused = replica.summarize(named()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains(&who.peer_address), "{refused}");
    let mut replica = ReplicaClient::connect(url(node.peer_addr())).await.unwrap();
    replica.summarize(named()).await.unwrap();

    let mut client = torc_proto::v1::kv_client::KvClient::connect(url(node.peer_addr()))
        .await
        .unwrap();
    let refused = client.get(GetRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("--grpc-addr"), "{refused}");
    node.stop().await.unwrap();
}

/// A request that names its recipient, as nodes do.
fn named<T>(message: T, recipient: &IdentifyResponse) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let metadata = request.metadata_mut();
    let cluster = u128::from_be_bytes(recipient.cluster_id[..].try_into().unwrap());
    metadata.insert(CLUSTER_HEADER, format!("{cluster:032x}").parse().unwrap());
    metadata.insert(NODE_HEADER, recipient.node.into());
    request
}

fn founder(dir: &tempfile::TempDir) -> RawSettings {
    RawSettings {
        bootstrap: Some(true),
        ..settings(dir.path().to_owned())
    }
}

/// Whether the node sends any HTTP/2.
async fn answers(to: SocketAddr, tls: &tokio_rustls::TlsConnector) -> bool {
    let stream = TcpStream::connect(to).await.unwrap();
    let Ok(mut stream) = tls.connect(to.ip().into(), stream).await else {
        return false;
    };
    // The connection may have been closed before or after this.
    let _ = stream.write_all(PREFACE).await;
    let _ = stream.flush().await;
    matches!(stream.read(&mut [0; 64]).await, Ok(1..))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_peer_port_shakes_hands_with_nodes_of_this_cluster_alone() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let status = StatusRequest::default();
    let mut admin = office.admin(&node).await;
    let cluster = admin.status(status).await.unwrap().into_inner().cluster_id;
    let cluster = u128::from_be_bytes(cluster[..].try_into().unwrap());
    for (name, who) in [
        ("any", "torc://any/node/any".to_owned()),
        ("own", format!("torc://{cluster:032x}/node/2")),
    ] {
        let tls = connects_as(&office, Some(&office.issue(name, &who)));
        assert!(answers(node.peer_addr(), &tls).await, "{who}");
    }
    let other = Office::new();
    let strange = other.issue("node", "torc://any/node/any");
    let refused = [
        ("a stranger", None),
        (
            "a client",
            Some(office.issue("alice", "torc://any/client/alice/admin")),
        ),
        (
            "another cluster's node",
            Some(office.issue("theirs", &format!("torc://{:032x}/node/1", cluster ^ 1))),
        ),
        ("a node of another authority", Some(strange)),
    ];
    for (who, files) in &refused {
        let tls = connects_as(&office, files.as_ref());
        assert!(!answers(node.peer_addr(), &tls).await, "{who}");
    }
    let tls = connects_as(&office, None);
    assert!(
        answers(node.grpc_addr(), &tls).await,
        "clients need no certificate"
    );
    node.stop().await.unwrap();
}

/// The peer addresses of the members, according to a node.
async fn known(servers: &Servers, index: usize) -> Vec<String> {
    let mut cluster = servers.cluster(index).await;
    let topology = cluster.get_topology(GetTopologyRequest::default()).await;
    let Ok(topology) = topology else {
        return Vec::new();
    };
    let topology = topology.into_inner().topology.unwrap_or_default();
    let members = topology.members.into_iter();
    members.map(|member| member.peer_address).collect()
}

fn bound(servers: &Servers) -> Vec<String> {
    let nodes = servers.nodes.iter();
    nodes.map(|node| node.peer_addr().to_string()).collect()
}

async fn put_and_get(servers: &Servers, value: &str) {
    for index in 0..servers.nodes.len() {
        let (key, value) = (format!("k{index}"), value.to_owned());
        let put = PutRequest {
            key: key.clone().into(),
            value: value.clone().into(),
            ..PutRequest::default()
        };
        let mut kv = servers.kv(index).await;
        until("the write is acknowledged", async || {
            kv.put(put.clone()).await.is_ok()
        })
        .await;
        let get = GetRequest {
            key: key.into(),
            ..GetRequest::default()
        };
        let mut kv = servers.kv((index + 1) % servers.nodes.len()).await;
        assert_eq!(value_of(&mut kv, get).await, Some(value));
    }
}

/// The addresses that clients get are unreachable for nodes, as behind a firewall.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_need_only_their_peer_ports() {
    let dir = tempfile::tempdir().unwrap();
    let unreachable = |number: u16| RawSettings {
        advertise_addr: Some(format!("127.0.0.1:{number}")),
        ..settings(dir.path().join(number.to_string()))
    };
    let mut nodes = Vec::new();
    for number in [2, 3] {
        let settings = unreachable(number).check().unwrap();
        nodes.push(Node::start(settings).await.unwrap());
    }
    let others = nodes.iter().map(|node| node.peer_addr().to_string());
    let founder = RawSettings {
        bootstrap: Some(true),
        found_with: Some(others.collect()),
        ..unreachable(1)
    };
    nodes.insert(0, Node::start(founder.check().unwrap()).await.unwrap());
    let fourth = unreachable(4).check().unwrap();
    let mut servers = Servers { nodes, dir };
    servers.formed().await;
    put_and_get(&servers, "founded").await;

    let node = Node::start(fourth).await.unwrap();
    let join = JoinRequest {
        address: node.peer_addr().to_string(),
        ..JoinRequest::default()
    };
    // Forwarded to the leader, if that is another node.
    servers.cluster(2).await.join(join).await.unwrap();
    servers.nodes.push(node);
    servers.formed().await;
    until("the fourth knows all", async || {
        known(&servers, 3).await == bound(&servers)
    })
    .await;
    put_and_get(&servers, "joined").await;
    for node in servers.nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_port_that_changed_is_announced() {
    let mut servers = Servers::start().await;
    let old = bound(&servers);
    servers.nodes.pop().unwrap().stop().await.unwrap();
    let again = settings(servers.dir.path().join("3")).check().unwrap();
    servers.nodes.push(Node::start(again).await.unwrap());
    assert_ne!(bound(&servers), old);
    until("the others know", async || {
        known(&servers, 0).await == bound(&servers)
    })
    .await;
    servers.formed().await;
    put_and_get(&servers, "moved").await;
}

/// Connects from this address. The connection, if the node answers on it.
async fn greeted_from(source: [u8; 4], to: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    // The connection may have been closed before or after this.
    let _ = stream.write_all(PREFACE).await;
    let is_greeted = matches!(stream.read(&mut [0; 64]).await, Ok(1..));
    is_greeted.then_some(stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_advertises_a_name_has_connections_of_its_own_and_not_without_bound() {
    let dir = tempfile::tempdir().unwrap();
    let peer = free_address().unwrap();
    let named = RawSettings {
        peer_addr: Some(peer),
        advertise_peer_addr: Some(format!("localhost:{}", peer.port())),
        ..settings(dir.path().join("2"))
    };
    let founder = RawSettings {
        max_connections: Some(32),
        ..settings(dir.path().join("1"))
    };
    let nodes = found([founder, named]).await;
    let servers = Servers { nodes, dir };
    let to = servers.nodes[0].peer_addr();
    let mut strangers = Vec::new();
    let mut members = Vec::new();
    // The member lives at the address of its own connections.
    let mut next = async || {
        for stranger in [[127, 0, 0, 2], [127, 0, 0, 3]] {
            while let Some(stream) = greeted_from(stranger, to).await {
                strangers.push(stream);
            }
        }
        greeted_from([127, 0, 0, 1], to).await
    };
    until("it has some, once strangers have all others", async || {
        members.extend(next().await);
        members.len() == 6
    })
    .await;
    put_and_get(&servers, "served").await;
    while let Some(stream) = next().await {
        members.push(stream);
        assert!(members.len() <= 16, "half of 32, less those of its own");
    }
    for node in servers.nodes {
        node.stop().await.unwrap();
    }
}
