//! Redis clients with real nodes over real sockets, partitions with three replicas.
#![allow(clippy::cast_possible_wrap, reason = "tests count small numbers")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Servers, settings, timed, until};
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use torc_proto::v1::{
    ChangeGenerationRequest, Condition, CreateNamespaceRequest, NamespaceMode, PutRequest,
    ReserveGeneration, change_generation_request, condition,
};
use torc_server::Node;
use torc_server::config::RawSettings;
use torc_testkit::redis::{Redis, Value, encode};
use torc_testkit::{Process, free_address};

impl Servers {
    fn resp(&self, index: usize) -> SocketAddr {
        self.nodes[index].resp_addr().unwrap()
    }

    async fn redis(&self, index: usize) -> Redis {
        Redis::connect(self.resp(index)).await
    }
}

/// A cluster of one node, which starts quickly.
async fn alone(settings: RawSettings) -> Node {
    let bootstrap = RawSettings {
        bootstrap: Some(true),
        ..settings
    };
    let node = Node::start(bootstrap.check().unwrap()).await.unwrap();
    until("it serves", async || node.ready().is_ok()).await;
    node
}

/// Commands and their replies, on alternating connections.
const SCRIPT: &[(&str, &str)] = &[
    ("PING", "+PONG"),
    ("ping hello", "hello"),
    ("ECHO hello", "hello"),
    ("GET a", "nil"),
    ("SET a 1", "+OK"),
    ("GET a", "1"),
    ("TYPE a", "+string"),
    ("TYPE none", "+none"),
    ("SET a 2 NX", "nil"),
    ("SET b 2 NX", "+OK"),
    ("SET none 2 XX", "nil"),
    ("SET a 3 XX GET", "1"),
    ("SET c 3 NX GET", "nil"),
    ("SETNX a 9", ":0"),
    ("SETNX d 9", ":1"),
    ("GETSET a 10", "3"),
    ("GETDEL d", "9"),
    ("GETDEL d", "nil"),
    ("INCR a", ":11"),
    ("INCRBY a -5", ":6"),
    ("DECR a", ":5"),
    ("DECRBY a 10", ":-5"),
    ("INCRBYFLOAT a 0.1", "-4.9"),
    ("INCR a", "-ERR value is not an integer or out of range"),
    ("INCRBYFLOAT a x", "-ERR value is not a valid float"),
    ("SET max 9223372036854775807", "+OK"),
    ("INCR max", "-ERR increment or decrement would overflow"),
    ("GET max", "9223372036854775807"),
    ("APPEND text Hello", ":5"),
    ("APPEND text World", ":10"),
    ("STRLEN text", ":10"),
    ("STRLEN none", ":0"),
    ("GETRANGE text 0 4", "Hello"),
    ("GETRANGE text -5 -1", "World"),
    ("SUBSTR text 1 2", "el"),
    ("GETRANGE none 0 -1", ""),
    ("MSET x 1 y 2 x 3", "+OK"),
    ("MGET x none y", "[3 nil 2]"),
    ("EXISTS x y x none", ":3"),
    ("TOUCH x none", ":1"),
    ("DEL x none y", ":2"),
    ("UNLINK x", ":0"),
    ("TTL none", ":-2"),
    ("TTL text", ":-1"),
    ("EXPIRE text 1000", ":1"),
    ("EXPIRE none 1000", ":0"),
    ("EXPIRE text 10 NX", ":0"),
    ("EXPIRE text 2000 GT", ":1"),
    ("EXPIRE text 1000 GT", ":0"),
    ("PERSIST text", ":1"),
    ("PERSIST text", ":0"),
    ("EXPIREAT text 4102444800", ":1"),
    ("EXPIRETIME text", ":4102444800"),
    ("PEXPIRETIME text", ":4102444800000"),
    ("APPEND text !", ":11"),
    ("EXPIRETIME text", ":4102444800"),
    ("SET text new KEEPTTL", "+OK"),
    ("EXPIRETIME text", ":4102444800"),
    ("SET text new", "+OK"),
    ("TTL text", ":-1"),
    ("SET text new PXAT 4102444800000", "+OK"),
    ("GETEX text", "new"),
    ("EXPIRETIME text", ":4102444800"),
    ("GETEX text PERSIST", "new"),
    ("TTL text", ":-1"),
    ("GETEX text EXAT 4102444800", "new"),
    ("EXPIRETIME text", ":4102444800"),
    ("PEXPIREAT text 1", ":1"),
    ("GET text", "nil"),
    ("SET gone 1 EXAT 1", "+OK"),
    ("EXISTS gone", ":0"),
    ("SETEX brief 100 v", "+OK"),
    ("PSETEX brief 100000 v", "+OK"),
    ("TTL brief", ":100"),
    ("EXPIRE brief -1", ":1"),
    ("GET brief", "nil"),
    ("PEXPIRE a 100000", ":1"),
    ("INCRBYFLOAT a 4.9", "0"),
    ("TTL a", ":100"),
    (
        "SETEX brief 0 v",
        "-ERR invalid expire time in 'setex' command",
    ),
    ("GET", "-ERR wrong number of arguments for 'get' command"),
    ("SET a b c", "-ERR syntax error"),
    ("CLUSTER KEYSLOT foo", ":12182"),
    ("READONLY", "+OK"),
    ("CLIENT SETNAME me", "+OK"),
    ("CLIENT GETNAME", "me"),
    ("CLIENT SETINFO LIB-NAME test", "+OK"),
    ("CLIENT NO-EVICT on", "+OK"),
    ("SELECT 0", "+OK"),
    ("SELECT 77", "-ERR DB index is out of range"),
    ("RESET", "+RESET"),
    ("CLIENT GETNAME", "nil"),
];

/// Commands that are absent from Redis, or from the version that the tests compare with.
const OWN_SCRIPT: &[(&str, &str)] = &[
    ("SET own 1 IFEQ 1", "nil"),
    ("SET own 1", "+OK"),
    ("SET own 2 IFEQ 1", "+OK"),
    ("SET own 3 IFEQ 1", "nil"),
    ("SET own 3 IFEQ 1 GET", "2"),
    ("GET own", "2"),
    ("SET own 3 IFEQ 2 EX 100", "+OK"),
    ("TTL own", ":100"),
    ("AUTH default any", "+OK"),
    ("CONFIG GET appendonly", "[appendonly yes]"),
    ("COMMAND COUNT", ":51"),
];

#[tokio::test]
async fn every_command_answers_as_it_should_at_every_node() {
    let servers = Servers::start().await;
    let mut clients = join_all((0..3).map(|index| servers.redis(index))).await;
    for (command, expected) in SCRIPT.iter().chain(OWN_SCRIPT) {
        // Commands about a connection's state go to the first node, others alternate.
        let words = ["CLIENT", "SELECT", "RESET"];
        let is_own = words.iter().any(|word| command.starts_with(word));
        let index = if is_own { 0 } else { command.len() % 3 };
        assert_eq!(clients[index].told(command).await, *expected, "{command}");
    }
    let first = &mut clients[0];
    for (command, begins) in [
        ("MSETNX a 1 b 2", "-ERR MSETNX is not supported: "),
        ("KEYS *", "-ERR KEYS is not supported: "),
        ("RANDOMKEY", "-ERR RANDOMKEY is not supported: "),
        ("CONFIG SET save x", "-ERR clients cannot change settings"),
        ("CLIENT MAINT_NOTIFICATIONS ON", "-ERR unknown subcommand"),
        ("AUTH secret", "-ERR AUTH <password> called without any"),
        ("AUTH alice secret", "-WRONGPASS "),
        (
            "NOSUCH a",
            "-ERR unknown command 'NOSUCH', with args beginning with: 'a'",
        ),
        ("INFO server", "# Server\\r\\nredis_version:7"),
        ("CLUSTER INFO", "cluster_state:ok"),
        ("TIME", "["),
        ("COMMAND DOCS get", "[get [summary "),
        (
            "COMMAND INFO get none",
            "[[get :2 [+readonly +fast] :1 :1 :1 ",
        ),
        ("CLIENT INFO", "id="),
    ] {
        let told = first.told(command).await;
        assert!(told.starts_with(begins), "{command}: {told}");
    }
    let metrics = servers.metrics(0).await;
    let counted = "torc_resp_commands_total{command=\"unknown\",outcome=\"error\"} 4\n";
    assert!(metrics.contains(counted), "{metrics}");
    assert_eq!(first.told("QUIT").await, "+OK");
    assert_eq!(first.try_receive().await, None, "QUIT closes");
}

#[tokio::test]
async fn the_third_version_has_its_own_forms_from_hello_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = alone(settings(dir.path().to_owned())).await;
    let mut client = Redis::connect(node.resp_addr().unwrap()).await;
    assert_eq!(client.call("GET none").await, Value::Nil(true));
    // Replies before and after it in one pipeline use their own protocol version.
    let commands = [
        "GET none",
        "HELLO 3 AUTH default x SETNAME me",
        "GET none",
        "CLIENT GETNAME",
    ];
    for command in commands {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        client.send(&words).await;
    }
    assert_eq!(client.receive().await, Value::Nil(true));
    let hello = client.receive().await;
    assert!(matches!(hello, Value::Other('%', _)), "{hello}");
    let told = hello.to_string();
    assert!(
        told.starts_with("[server redis version 7.2.0 proto :3 id :1 mode standalone"),
        "{told}"
    );
    assert_eq!(client.receive().await, Value::Nil(false));
    assert_eq!(client.receive().await, Value::Bulk(b"me".to_vec()));
    let info = client.call("INFO clients").await;
    assert!(matches!(info, Value::Verbatim(_)), "{info}");
    assert!(matches!(
        client.call("CONFIG GET *").await,
        Value::Other('%', _)
    ));
    assert_eq!(
        client.told("HELLO 4").await,
        "-NOPROTO unsupported protocol version"
    );
    assert_eq!(
        client.told("HELLO 2 AUTH alice x").await.split(' ').next(),
        Some("-WRONGPASS")
    );
    assert_eq!(
        client.call("GET none").await,
        Value::Nil(false),
        "it was refused as a whole"
    );
    client.call("HELLO 2").await;
    assert_eq!(client.call("GET none").await, Value::Nil(true));
    node.stop().await.unwrap();
}

/// A server to compare with.
struct RedisServer {
    _process: Process,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl RedisServer {
    /// `None` if this machine has no Redis.
    async fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let address = free_address().unwrap();
        let mut server = Command::new("redis-server");
        // The tool is the server's program under another name.
        if !is_there("redis-server") && is_there("redis-check-rdb") {
            let tool = which("redis-check-rdb");
            let by_name = dir.path().join("redis-server");
            std::os::unix::fs::symlink(tool, &by_name).unwrap();
            server = Command::new(by_name);
        }
        server.args(["--port", &address.port().to_string(), "--save", "", "--dir"]);
        server
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let started = Self {
            _process: Process::start(&mut server).ok()?,
            address,
            _dir: dir,
        };
        until("redis-server listens", async || {
            tokio::net::TcpStream::connect(address).await.is_ok()
        })
        .await;
        Some(started)
    }
}

fn which(program: &str) -> String {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    let found = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    found.unwrap_or_default()
}

fn is_there(program: &str) -> bool {
    !which(program).is_empty()
}

/// A command on few keys, so that many meet the results of others.
fn any_command(random: &mut StdRng) -> String {
    let key = format!("k{}", random.random_range(0..6));
    let other = format!("k{}", random.random_range(0..6));
    let number = random.random_range(-3..15_i64);
    let at = 4_102_444_800_i64 + number;
    let option = [
        "",
        "",
        " NX",
        " XX",
        " GET",
        " NX GET",
        " KEEPTTL",
        " XX KEEPTTL",
    ];
    let option = option[random.random_range(0..option.len())];
    let when = ["", " NX", " XX", " GT", " LT", " XX LT", " NX GT", " ?"];
    let when = when[random.random_range(0..when.len())];
    let commands = [
        format!("GET {key}"),
        format!("GET {key}"),
        format!("SET {key} {number}{option}"),
        format!("SET {key} v{number} EXAT {at}{option}"),
        format!("SET {key} {number} PXAT {}", at * 1_000),
        format!("SETNX {key} {number}"),
        format!("GETSET {key} {number}"),
        format!("GETDEL {key}"),
        format!("GETEX {key} EXAT {at}"),
        format!("GETEX {key} PERSIST"),
        format!("DEL {key} {other}"),
        format!("EXISTS {key} {other} {key}"),
        format!("MGET {key} {other}"),
        format!("MSET {key} {number} {other} x"),
        format!("INCR {key}"),
        format!("DECRBY {key} {number}"),
        format!("INCRBYFLOAT {key} {number}.25"),
        format!("APPEND {key} {number}"),
        format!("STRLEN {key}"),
        format!("GETRANGE {key} {number} {}", random.random_range(-4..9)),
        format!("EXPIREAT {key} {at}{when}"),
        format!("PEXPIREAT {key} {}{when}", at * 1_000),
        format!("EXPIRE {key} -1{when}"),
        format!("EXPIRETIME {key}"),
        format!("PEXPIRETIME {key}"),
        format!("PERSIST {key}"),
        format!("TYPE {key}"),
        format!("SETEX {key} {} v", -number.abs()),
        format!("EXPIRE {key} x"),
        format!("INCRBY {key}"),
    ];
    commands[random.random_range(0..commands.len())].clone()
}

#[tokio::test]
async fn redis_answers_the_same() {
    let Some(theirs) = RedisServer::start().await else {
        eprintln!("skipped: there is no redis-server here to compare with");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let node = alone(settings(dir.path().to_owned())).await;
    let mut ours = Redis::connect(node.resp_addr().unwrap()).await;
    let mut theirs = Redis::connect(theirs.address).await;
    for (command, _) in SCRIPT.iter().filter(|(command, _)| *command != "SELECT 77") {
        if command.starts_with("CLUSTER") || command.starts_with("READONLY") {
            continue;
        }
        if command.starts_with("CLIENT SETINFO") {
            // Only since 7.2.
            continue;
        }
        assert_eq!(
            ours.call(command).await,
            theirs.call(command).await,
            "{command}"
        );
    }
    let mut random = StdRng::seed_from_u64(7);
    for number in 0..40 {
        let commands: Vec<_> = (0..50).map(|_| any_command(&mut random)).collect();
        let pipeline: Vec<u8> = commands
            .iter()
            .flat_map(|command| {
                let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
                encode(&words)
            })
            .collect();
        ours.send_bytes(&pipeline).await;
        theirs.send_bytes(&pipeline).await;
        for (at, command) in commands.iter().enumerate() {
            let (ours, theirs) = (ours.receive().await, theirs.receive().await);
            let before = &commands[..at];
            assert_eq!(
                ours, theirs,
                "pipeline {number}: {command} after {before:?}"
            );
        }
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_pipeline_sees_its_own_writes_however_it_arrives() {
    let servers = Servers::start().await;
    let mut client = servers.redis(1).await;
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for round in 0..120 {
        let key = format!("key{}", round % 7);
        let value = format!("{round}");
        let mut put = |command: String, reply: String| {
            let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
            bytes.extend(encode(&words));
            expected.push(reply);
        };
        put(format!("SET {key} {value}"), "+OK".into());
        put(format!("GET {key}"), value);
        put(format!("INCR {key}"), format!(":{}", round + 1));
        put(format!("MGET {key} none"), format!("[{} nil]", round + 1));
        put("PING".into(), "+PONG".into());
        put(format!("DEL {key}"), ":1".into());
        put(format!("INCRBY {key} {round}"), format!(":{round}"));
    }
    let mut random = StdRng::seed_from_u64(3);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let len = random.random_range(1..=rest.len().min(2_000));
        client.send_bytes(&rest[..len]).await;
        rest = &rest[len..];
    }
    for (number, expected) in expected.iter().enumerate() {
        assert_eq!(
            client.receive().await.to_string(),
            *expected,
            "reply {number}"
        );
    }
}

#[tokio::test]
async fn a_thousand_parallel_increments_through_three_nodes_end_at_a_thousand() {
    const CLIENTS: usize = 100;
    let servers = Servers::start().await;
    let increments = (0..CLIENTS).map(|number| {
        let servers = &servers;
        async move {
            let mut client = servers.redis(number % 3).await;
            let mut told = Vec::new();
            // Half of them concurrently, half one after another.
            for _ in 0..5 {
                client.send(&[b"INCR", b"counter"]).await;
            }
            for _ in 0..5 {
                told.push(client.receive().await.number());
            }
            for _ in 0..5 {
                told.push(client.call("INCR counter").await.number());
            }
            assert!(told.is_sorted(), "{told:?}");
            told
        }
    });
    let told = join_all(increments).await;
    let told: BTreeSet<_> = told.into_iter().flatten().collect();
    assert_eq!(told, (1..=1_000).collect(), "each number is told once");
    let mut client = servers.redis(2).await;
    assert_eq!(client.told("GET counter").await, "1000");
    assert!(servers.metric(0, "torc_resp_combined_writes_total").await > 0);
}

/// Such deletes wrote nothing: a row that was merged later undid them.
#[tokio::test]
async fn a_delete_that_finds_no_value_is_kept_while_a_merge_is_open() {
    let servers = Servers::start().await;
    let mut client = servers.redis(0).await;
    assert_eq!(client.told("SET older x").await, "+OK");
    let change = change_generation_request::Change::Reserve(ReserveGeneration {
        namespace: "default".into(),
        merge: true,
        ..ReserveGeneration::default()
    });
    let request = ChangeGenerationRequest {
        change: Some(change),
    };
    let mut cluster = servers.cluster(0).await;
    let reserved = cluster.change_generation(timed(request)).await.unwrap();
    let reserved = reserved.into_inner().generation.unwrap();
    assert!(reserved.unconfirmed.is_empty());
    let later = [
        "DEL one",
        "GETDEL two",
        "GET three|DEL three",
        "SETNX four v|DEL four",
    ];
    let later = later
        .into_iter()
        .chain(["DEL five|DEL five", "MGET six five|DEL six"]);
    for pipeline in later {
        let commands = pipeline.split('|').map(|command| {
            let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
            encode(&words)
        });
        let commands: Vec<_> = commands.collect();
        client.send_bytes(&commands.concat()).await;
        for _ in &commands {
            let reply = client.receive().await;
            assert!(!reply.is_error(), "{pipeline}: {reply}");
        }
    }
    // Neither a read nor a command that changed nothing is a later write.
    for command in ["GET read", "EXPIRE read 10", "EXISTS read"] {
        assert!(!client.call(command).await.is_error());
    }
    let mut kv = servers.kv(1).await;
    let is_deleted = |key: &str| !matches!(key, "read" | "older");
    for key in [
        "one", "two", "three", "four", "five", "six", "read", "older",
    ] {
        let older = condition::Kind::IfOlderThan(reserved.version.unwrap());
        let row = PutRequest {
            key: key.into(),
            value: "row".into(),
            condition: Some(Condition { kind: Some(older) }),
            ..PutRequest::default()
        };
        let put = kv.put(timed(row)).await;
        assert_eq!(put.is_err(), is_deleted(key), "{key}: {put:?}");
        let expected = if is_deleted(key) { "nil" } else { "row" };
        assert_eq!(client.told(&format!("GET {key}")).await, expected, "{key}");
    }
}

#[tokio::test]
async fn an_expiry_does_not_drift_when_its_counter_is_counted() {
    let servers = Servers::start().await;
    let mut clients = join_all((0..3).map(|index| servers.redis(index))).await;
    clients[0].call("SET counter 0 EX 1000").await;
    let expires = clients[1].call("PEXPIRETIME counter").await;
    for count in 1..=60 {
        let told = clients[count % 3].call("INCR counter").await;
        assert_eq!(told, Value::Int(count as i64));
    }
    assert_eq!(clients[2].call("PEXPIRETIME counter").await, expires);
}

#[tokio::test]
async fn a_scan_finds_every_key_page_by_page_at_any_node() {
    let servers = Servers::start().await;
    let mut clients = join_all((0..3).map(|index| servers.redis(index))).await;
    let keys: BTreeSet<_> = (0..700).map(|number| format!("key:{number}")).collect();
    for some in keys.iter().collect::<Vec<_>>().chunks(100) {
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        for key in some {
            words.extend([key.as_bytes(), b"value"]);
        }
        assert_eq!(clients[0].call_words(&words).await.to_string(), "+OK");
    }
    let (mut found, mut cursor, mut pages) = (Vec::new(), "0".to_owned(), 0);
    loop {
        let page = clients[pages % 3]
            .call(&format!("SCAN {cursor} COUNT 50"))
            .await;
        let mut page = page.items();
        let keys = page.remove(1).items();
        assert!(keys.len() <= 50);
        found.extend(keys.iter().map(ToString::to_string));
        cursor = page.remove(0).to_string();
        pages += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 700, "none twice");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), keys);
    assert!(pages >= 14, "{pages}");

    // A page ends after half a second, however many keys are requested.
    let (mut matching, mut cursor) = (0, "0".to_owned());
    loop {
        let page = clients[1]
            .call(&format!("SCAN {cursor} COUNT 10000 MATCH key:1?"))
            .await
            .items();
        matching += page[1].clone().items().len();
        cursor = page[0].to_string();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(matching, 10);
    let other_type = clients[1]
        .call("SCAN 0 COUNT 10000 TYPE hash")
        .await
        .items();
    assert_eq!(other_type[1].clone().items().len(), 0);
    // Few keys are counted exactly, if that does not take too long.
    let mut counted = String::new();
    for _ in 0..20 {
        counted = clients[2].told("DBSIZE").await;
        if counted == ":700" {
            break;
        }
    }
    assert_eq!(counted, ":700");
    assert_eq!(clients[2].told("SCAN x").await, "-ERR invalid cursor");
}

#[tokio::test]
async fn databases_are_namespaces_and_an_eventual_one_knows_no_conditions() {
    let dir = tempfile::tempdir().unwrap();
    let databases = vec!["1=urls".to_owned(), "5=missing".to_owned()];
    let node = alone(RawSettings {
        resp_db: Some(databases),
        ..settings(dir.path().to_owned())
    })
    .await;
    let url = format!("http://{}", node.grpc_addr());
    let mut cluster = torc_proto::v1::cluster_client::ClusterClient::connect(url)
        .await
        .unwrap();
    let request = CreateNamespaceRequest {
        name: "urls".to_owned(),
        mode: NamespaceMode::Eventual.into(),
        ..CreateNamespaceRequest::default()
    };
    cluster.create_namespace(request).await.unwrap();
    let mut client = Redis::connect(node.resp_addr().unwrap()).await;
    assert_eq!(client.told("SET a default").await, "+OK");
    assert_eq!(client.told("SELECT 1").await, "+OK");
    until("the namespace is known", async || {
        !client.call("GET a").await.is_error()
    })
    .await;
    assert_eq!(client.told("GET a").await, "nil");
    assert_eq!(client.told("SET a urls").await, "+OK");
    assert_eq!(client.told("GET a").await, "urls");
    assert_eq!(client.told("DEL a").await, ":1");
    let refused = client.told("INCR counter").await;
    assert!(
        refused.starts_with("-ERR an eventual namespace does not support conditions"),
        "{refused}"
    );
    // The same in one packet, where they are one operation on the key.
    for (packet, wanted) in [
        ("GET a|SET a 1", ["nil", "+OK"]),
        ("DEL a|SET a 2", [":1", "+OK"]),
        ("EXISTS a|DEL a", [":1", ":1"]),
    ] {
        let commands = packet.split('|').map(|command| {
            let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
            encode(&words)
        });
        let packet = commands.collect::<Vec<_>>().concat();
        client.send_bytes(&packet).await;
        for wanted in wanted {
            assert_eq!(client.receive().await.to_string(), wanted);
        }
    }
    client.call("SELECT 0").await;
    assert_eq!(client.told("GET a").await, "default");
    client.call("SELECT 5").await;
    let missing = client.told("GET a").await;
    assert!(
        missing.starts_with("-ERR there is no namespace `missing`"),
        "{missing}"
    );
    node.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_out_of_bounds_ends_its_connection_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let node = alone(settings(dir.path().to_owned())).await;
    let address = node.resp_addr().unwrap();
    let mut honest = Redis::connect(address).await;
    let endless = vec![b'a'; 70_000];
    let cases: [(&[u8], &str); 8] = [
        (b"*2\r\n$3\r\nGET\r\n$536870912\r\n", "invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n$-1\r\n", "invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1048576\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (
            b"*1\r\n$4\r\nPINGPONG\r\n",
            "does not end where its length says",
        ),
        (b"SET \"a\r\n", "unbalanced quotes"),
        (&endless, "too big inline request"),
    ];
    for (bytes, why) in cases {
        let mut hostile = Redis::connect(address).await;
        // Requests before it are answered.
        hostile.send(&[b"SET", b"before", b"1"]).await;
        hostile.send_bytes(bytes).await;
        assert_eq!(hostile.receive().await.to_string(), "+OK");
        let told = hostile.receive().await.to_string();
        assert!(
            told.starts_with("-ERR Protocol error: ") && told.contains(why),
            "{told}"
        );
        assert_eq!(hostile.try_receive().await, None, "{why}");
        assert_eq!(honest.told("PING").await, "+PONG");
    }
    // Within the limits of a request, but not of a value or a key: the connection continues.
    let long = vec![b'v'; (1 << 20) + 1];
    let told = honest
        .call_words(&[b"SET", b"long", &long])
        .await
        .to_string();
    assert!(
        told.starts_with("-ERR string exceeds maximum allowed size"),
        "{told}"
    );
    let told = honest
        .call_words(&[b"APPEND", b"long", &long])
        .await
        .to_string();
    assert!(
        told.starts_with("-ERR string exceeds maximum allowed size"),
        "{told}"
    );
    let told = honest
        .call_words(&[b"GET", &long[..1_025]])
        .await
        .to_string();
    assert!(told.starts_with("-ERR the key has 1025 bytes"), "{told}");
    assert_eq!(
        honest.told("GET ").await.split(' ').next(),
        Some("-ERR"),
        "an empty key"
    );
    let most = &long[..1 << 20];
    assert_eq!(
        honest
            .call_words(&[b"SET", b"long", most])
            .await
            .to_string(),
        "+OK"
    );
    assert_eq!(honest.call("GET long").await, Value::Bulk(most.to_vec()));
    // Byte by byte, and as an inline command.
    for byte in encode(&[b"STRLEN", b"long"]) {
        honest.send_bytes(&[byte]).await;
    }
    assert_eq!(honest.receive().await, Value::Int(1 << 20));
    honest.send_bytes(b"strlen 'long'\n").await;
    assert_eq!(honest.receive().await, Value::Int(1 << 20));
    node.stop().await.unwrap();
}

/// A connection kept 16 MiB of names, repeated them a thousand times in its answers, and the answers of a thousand tables.
#[tokio::test]
async fn a_connection_keeps_short_names_and_tables_are_told_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = alone(settings(dir.path().to_owned())).await;
    let address = node.resp_addr().unwrap();
    let mut client = Redis::connect(address).await;
    let long = vec![b'n'; 257];
    for words in [
        &[&b"CLIENT"[..], b"SETNAME", &long][..],
        &[b"CLIENT", b"SETINFO", b"LIB-NAME", &long],
        &[b"CLIENT", b"SETINFO", b"LIB-VER", &long],
        &[b"HELLO", b"3", b"SETNAME", &long],
    ] {
        let told = client.call_words(words).await.to_string();
        assert!(told.ends_with("Limit: 256 bytes."), "{told}");
    }
    let told = client
        .call_words(&[b"CLIENT", b"SETNAME", &long[1..]])
        .await;
    assert_eq!(told.to_string(), "+OK");
    client.send_bytes(&b"COMMAND\nPING\n".repeat(300)).await;
    for _ in 0..300 {
        assert!(client.receive().await.items().len() > 40);
        assert_eq!(client.receive().await.to_string(), "+PONG");
    }
    // What a browser sends for another site's page.
    for request in [
        "POST / HTTP/1.1\r\nHost: x\r\n\r\nSET posted 1\r\n",
        "Host: x\r\nSET posted 1\r\n",
    ] {
        let mut browser = Redis::connect(address).await;
        browser.send_bytes(request.as_bytes()).await;
        assert_eq!(browser.try_receive().await, None);
    }
    assert_eq!(client.told("EXISTS posted").await, ":0");
    node.stop().await.unwrap();
}

/// The answer of another node holds 8 MiB, and the rest was refused for ever.
#[tokio::test]
async fn more_values_than_a_message_holds_are_told_in_one_answer() {
    let servers = Servers::start().await;
    let mut client = servers.redis(0).await;
    let value = |number: u8| vec![b'a' + number % 26; 1 << 20];
    let keys: Vec<String> = (0..32).map(|number| format!("large-{number}")).collect();
    for (key, number) in keys.iter().zip(0..) {
        let told = client
            .call_words(&[b"SET", key.as_bytes(), &value(number)])
            .await;
        assert_eq!(told.to_string(), "+OK");
    }
    let mut words = vec![&b"MGET"[..]];
    words.extend(keys.iter().map(String::as_bytes));
    words.extend(std::iter::repeat_n(keys[0].as_bytes(), 8));
    let told = client.call_words(&words).await.items();
    let wanted = (0..32).chain(std::iter::repeat_n(0, 8));
    for (number, (told, wanted)) in told.into_iter().zip(wanted).enumerate() {
        assert!(told == Value::Bulk(value(wanted)), "{number}");
    }
}

#[tokio::test]
async fn where_no_quorum_answers_the_client_is_told_whether_something_may_have_changed() {
    let servers = Servers::start().await;
    let mut client = servers.redis(0).await;
    assert_eq!(client.told("SET a 1").await, "+OK");
    for index in 0..3 {
        servers.link_faults(index, r#"{"drop_to": [1, 2, 3], "drop_from": [1, 2, 3]}"#);
    }
    let mut kinds = BTreeSet::new();
    until("writes fail", async || {
        for command in ["SET a 2", "INCR a", "GET a"] {
            let told = client.told(command).await;
            if let Some(kind) = told.strip_prefix('-') {
                kinds.insert(kind.split(' ').next().unwrap().to_owned());
            }
        }
        !kinds.is_empty()
    })
    .await;
    let known = ["OUTCOMEUNKNOWN", "UNAVAILABLE"];
    assert!(
        kinds.iter().all(|kind| known.contains(&&**kind)),
        "{kinds:?}"
    );
    for index in 0..3 {
        servers.link_faults(index, "{}");
    }
    until("writes succeed again", async || {
        client.told("SET a 5").await == "+OK"
    })
    .await;
    assert_eq!(client.told("INCR a").await, ":6");
}

#[tokio::test]
async fn every_node_tells_the_same_slots_evenly_split() {
    let servers = Servers::start().await;
    let mut told = BTreeSet::new();
    for index in 0..3 {
        let mut client = servers.redis(index).await;
        let slots = client.call("CLUSTER SLOTS").await;
        told.insert(slots.to_string());
        let ranges: Vec<_> = slots.items().into_iter().map(Value::items).collect();
        let borders: Vec<_> = ranges
            .iter()
            .map(|range| (range[0].number(), range[1].number()))
            .collect();
        assert_eq!(borders, [(0, 5_460), (5_461, 10_921), (10_922, 16_383)]);
        let port = ranges[index][2].clone().items()[1].number();
        assert_eq!(
            port,
            i64::from(servers.resp(index).port()),
            "in the order of the ids"
        );
        let id = client.told("CLUSTER MYID").await;
        assert_eq!(ranges[index][2].clone().items()[2].to_string(), id);
        let nodes = client.told("CLUSTER NODES").await;
        assert!(
            nodes.contains(&format!("{id} 127.0.0.1:{port}@{port} myself,master")),
            "{nodes}"
        );
        assert_eq!(client.call("CLUSTER SHARDS").await.items().len(), 3);
    }
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn a_node_that_stops_answers_what_it_has_read() {
    let dir = tempfile::tempdir().unwrap();
    let node = alone(settings(dir.path().to_owned())).await;
    let address = node.resp_addr().unwrap();
    let mut client = Redis::connect(address).await;
    assert_eq!(client.told("SET a 1").await, "+OK");
    node.stop().await.unwrap();
    assert_eq!(client.try_receive().await, None, "it was closed");
    let node = alone(settings(dir.path().to_owned())).await;
    let mut client = Redis::connect(node.resp_addr().unwrap()).await;
    assert_eq!(client.told("GET a").await, "1");
    node.stop().await.unwrap();
}

/// A sample of the metrics.
async fn sample(node: &Node, name: &str) -> u64 {
    let text = torc_testkit::http_get(node.http_addr(), "/metrics")
        .await
        .unwrap()
        .1;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name}")).trim();
    value.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_of_redis_clients_are_timed_counted_and_slow_ones_logged() {
    let dir = tempfile::tempdir().unwrap();
    let node = alone(RawSettings {
        slow_ms: Some(0),
        ..settings(dir.path().to_owned())
    })
    .await;
    let mut client = Redis::connect(node.resp_addr().unwrap()).await;
    for command in ["SET a 1", "GET a", "INCR a", "DEL a", "MGET a b", "PING"] {
        assert!(!client.told(command).await.starts_with('-'), "{command}");
    }
    assert_eq!(client.told("SETNX a 1").await, ":1");
    assert_eq!(client.told("SETNX a 1").await, ":0");
    let seconds = |kind| format!(r#"torc_operation_seconds_count{{operation="redis_{kind}"}}"#);
    // `INCR` is a get and a put.
    assert_eq!(sample(&node, &seconds("get")).await, 4);
    assert_eq!(sample(&node, &seconds("put")).await, 4);
    assert_eq!(sample(&node, &seconds("delete")).await, 1);
    let not_met =
        r#"torc_operation_faults_total{operation="redis_put",reason="condition_not_met"}"#;
    assert_eq!(sample(&node, not_met).await, 1);
    assert_eq!(sample(&node, "torc_slow_operations_total").await, 9);
    node.stop().await.unwrap();
}

/// The output of a tool, or `None` if it is not installed.
async fn tool(program: &str, args: &[&str]) -> Option<String> {
    let mut command = tokio::process::Command::new(program);
    let output = tokio::time::timeout(Duration::from_secs(120), command.args(args).output());
    let output = output.await.expect("it hangs").ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn redis_cli_and_redis_benchmark_get_on_with_a_node() {
    if !is_there("redis-cli") || !is_there("redis-benchmark") {
        eprintln!("skipped: redis-cli and redis-benchmark are not installed");
        return;
    }
    let servers = Servers::start().await;
    let port = servers.resp(0).port().to_string();
    let cli = async |args: &[&str]| {
        let args = [&["-p", &port], args].concat();
        tool("redis-cli", &args).await.unwrap()
    };
    assert_eq!(cli(&["SET", "a", "1"]).await, "OK\n");
    assert_eq!(cli(&["-3", "INCR", "a"]).await, "2\n");
    assert_eq!(cli(&["-c", "GET", "a"]).await, "2\n", "in its cluster mode");
    assert_eq!(cli(&["--scan"]).await, "a\n");
    let tests = ["-n", "500", "-c", "10", "-P", "8", "-q", "--csv", "-t"];
    let tests = [&["-p", &port], &tests[..], &["ping,set,get,incr,mset"]].concat();
    let measured = tool("redis-benchmark", &tests).await.unwrap();
    for test in ["PING_INLINE", "SET", "GET", "INCR", "MSET (10 keys)"] {
        assert!(measured.contains(&format!("\"{test}\",")), "{measured}");
    }
}

/// redis-py, used plainly, in a pipeline, asynchronously and in cluster mode.
const PYTHON: &str = r#"
import asyncio, sys
import redis, redis.asyncio
from redis.cluster import RedisCluster
ports = [int(port) for port in sys.argv[1:]]
for protocol in (2, 3):
    client = redis.Redis(port=ports[0], protocol=protocol, decode_responses=True)
    client.set("a", 1, ex=100)
    assert client.get("a") == "1" and client.incr("a") == 2 and 90 < client.ttl("a") <= 100
    assert client.set("a", 3, nx=True) is None
    assert client.mget("a", "none") == ["2", None]
    pipeline = client.pipeline(transaction=False)
    for number in range(300):
        pipeline.set("p%d" % number, number).get("p%d" % number)
    assert pipeline.execute()[1::2] == [str(number) for number in range(300)]
    assert len(set(client.scan_iter(match="p*", count=100))) == 300
    assert client.info("server")["redis_version"] and client.command()["get"]["arity"] == 2
    assert client.incrbyfloat("f%d" % protocol, 0.5) == 0.5 and client.delete("a", "none") == 1
cluster = RedisCluster(host="127.0.0.1", port=ports[0], decode_responses=True)
assert len(cluster.get_nodes()) == 3
for number in range(60):
    cluster.set("c%d" % number, number)
assert [cluster.get("c%d" % number) for number in range(60)] == [str(number) for number in range(60)]
assert cluster.incr("cluster") == 1 and cluster.mget_nonatomic("c1", "c2") == ["1", "2"]
async def main():
    clients = [redis.asyncio.Redis(port=port) for port in ports]
    await asyncio.gather(*[clients[number % 3].incr("async") for number in range(300)])
    assert await clients[1].get("async") == b"300"
    for client in clients:
        await client.aclose()
asyncio.run(main())
print("done")
"#;

#[tokio::test]
async fn redis_py_gets_on_with_a_cluster() {
    let python = std::env::var("TORC_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let imports = Command::new(&python)
        .args(["-c", "import redis.cluster"])
        .output();
    if !imports.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no redis-py; TORC_TEST_PYTHON may name one that has");
        return;
    }
    let servers = Servers::start().await;
    let ports = [0, 1, 2].map(|index| servers.resp(index).port().to_string());
    let args: Vec<&str> = ["-c", PYTHON]
        .into_iter()
        .chain(ports.iter().map(|port| &**port))
        .collect();
    assert_eq!(tool(&python, &args).await.unwrap(), "done\n");
}

#[tokio::test]
async fn memtier_benchmark_gets_on_with_a_cluster() {
    if !is_there("memtier_benchmark") {
        eprintln!("skipped: memtier_benchmark is not installed");
        return;
    }
    let servers = Servers::start().await;
    let port = servers.resp(0).port().to_string();
    let common = [
        "-p",
        &port,
        "-t",
        "1",
        "-c",
        "5",
        "-n",
        "100",
        "--hide-histogram",
    ];
    for more in [
        &["--pipeline=16", "--ratio=1:1"][..],
        &["--protocol=resp3", "--data-size=2000"],
        &["--cluster-mode"],
        &["--command=INCRBY counter-__key__ 2"],
    ] {
        let told = tool("memtier_benchmark", &[&common, more].concat()).await;
        let told = told.unwrap();
        assert!(told.contains("Totals"), "{told}");
        assert!(!told.contains("error response"), "{told}");
    }
}

/// Runs those of the tests of Tair's compatibility suite that have only commands which Torc has. The
/// suite empties the server before each test; here, its keys are deleted.
const TAIR: &str = r#"
import json, os, sys, tempfile
import redis
suite, port, mode, *known = sys.argv[1:]
tests = json.load(open(suite + "/cts.json"))
words = lambda test: [command.replace('"', "").split() for command in test["command"]]
tests = [test for test in tests if all(command[0].upper() in known for command in words(test))]
keys = {word for test in tests for command in words(test) for word in command[1:]}
for client in (redis.Redis, redis.RedisCluster):
    client.flushall = lambda self: self.delete(*keys)
with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    json.dump(tests, file)
    file.flush()
    sys.argv = ["cts", "--port", port, "--testfile", file.name, "--specific-version", "7.2.0", "--show-failed"]
    sys.argv += ["--cluster"] if mode == "cluster" else []
    # Its name since July 2024, or the former one.
    names = ["/resp_compatibility.py", "/redis_compatibility_test.py"]
    program = next(suite + name for name in names if os.path.exists(suite + name))
    exec(compile(open(program).read(), program, "exec"), {"__name__": "__main__"})
"#;

#[tokio::test]
async fn what_tairs_suite_tests_of_these_commands_passes() {
    let (Ok(suite), Ok(python)) = (
        std::env::var("TORC_TEST_TAIR"),
        std::env::var("TORC_TEST_PYTHON"),
    ) else {
        eprintln!(
            "skipped: TORC_TEST_TAIR names a checkout of Tair's compatibility-test-suite-for-redis, \
             and TORC_TEST_PYTHON a Python that has what it needs"
        );
        return;
    };
    let servers = Servers::start().await;
    let port = servers.resp(0).port().to_string();
    let mut client = servers.redis(0).await;
    let known = client.call("COMMAND LIST").await.items();
    let known: Vec<String> = known
        .iter()
        .map(|it| it.to_string().to_uppercase())
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    for (mode, count) in [("plain", 50), ("cluster", 50)] {
        let args = [&["-c", TAIR, &suite, &port, mode], &known[..]].concat();
        let told = tool(&python, &args).await.unwrap();
        let summary = told.lines().find(|line| line.starts_with("Summary"));
        let summary = summary.unwrap_or_else(|| panic!("{told}"));
        let passed = told.matches(" passed\n").count();
        assert!(
            summary.ends_with("rate: 100.00%") && passed >= count,
            "{told}"
        );
    }
}
