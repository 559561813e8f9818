//! Hostile clients against a separate process: its memory stays bounded, and other clients are
//! served.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests count small numbers"
)]

use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes};
use futures::StreamExt as _;
use hyper::body::Frame;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::{
    BatchGetRequest, GetRequest, MaintenanceRequest, PutRequest, ScanRequest, SessionRequest,
    SketchKeysRequest, SketchedNamespace, get_result,
};
use torc_proto::{Fault, MAX_MESSAGE_LEN, Reason};
use torc_testkit::Kvd;
use tower_service::Service as _;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster of one node, as a process with this change, and a connection to it.
async fn founded(dir: &Path, change: impl FnOnce(&mut Kvd)) -> (Kvd, Channel) {
    let program = Path::new(env!("CARGO_BIN_EXE_kvd"));
    let mut kvd = Kvd::prepare(program, dir.to_owned(), &["--partitions=64"]).unwrap();
    kvd.found_with([]);
    change(&mut kvd);
    kvd.start().unwrap();
    kvd.ready().await.unwrap();
    let channel = connection(&kvd);
    put(&channel, "k", Bytes::from_static(b"v")).await.unwrap();
    (kvd, channel)
}

/// A cluster of one node with this limit on bytes in flight.
async fn with_in_flight(dir: &Path, mib: u64) -> (Kvd, Channel) {
    let change = |kvd: &mut Kvd| kvd.variable("TORC_IN_FLIGHT_MIB", &mib.to_string());
    founded(dir, change).await
}

/// A separate connection.
fn connection(kvd: &Kvd) -> Channel {
    let channel = Channel::from_shared(kvd.endpoint()).unwrap();
    channel.connect_lazy()
}

/// The peak of its memory.
fn peak_mib(kvd: &Kvd) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", kvd.pid().unwrap())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib >> 10
}

fn client(channel: &Channel) -> KvClient<Channel> {
    KvClient::new(channel.clone()).max_decoding_message_size(2 * MAX_MESSAGE_LEN)
}

async fn put(channel: &Channel, key: &str, value: Bytes) -> Result<(), Status> {
    let put = PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value,
        ..PutRequest::default()
    };
    let mut put = Request::new(put);
    put.set_timeout(TIMEOUT);
    client(channel).put(put).await.map(drop)
}

/// A codec that sends bytes unchanged, and accepts no answer.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        from.advance(from.remaining());
        Ok(Some(()))
    }
}

async fn send_raw(channel: &Channel, path: &'static str, message: Bytes) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(path);
    grpc.unary(Request::new(message), path, Raw).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn millions_of_empty_items_are_refused_before_they_take_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (kvd, channel) = founded(dir.path(), |_| {}).await;
    let before = peak_mib(&kvd);
    // A tag and a length of zero, repeatedly.
    let of = |tag: u8| Bytes::from([tag, 0].repeat(MAX_MESSAGE_LEN / 2 - 8));
    for (path, tag) in [
        ("/torc.v1.Kv/BatchGet", 0x0a),
        ("/torc.v1.Kv/BatchPut", 0x0a),
        ("/torc.v1.Kv/Scan", 0x32),
    ] {
        let refused = send_raw(&channel, path, of(tag)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{path}: {refused}");
        assert_eq!(Fault::from_status(&refused).reason, Reason::Invalid);
    }
    // The 16 MiB of the message a few times over, and not the gigabytes that it would decode to.
    let grown = peak_mib(&kvd) - before;
    assert!(grown < 200, "{grown} MiB");
    put(&channel, "k", Bytes::from_static(b"w")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_long_values_is_read_until_its_answer_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let (kvd, channel) = founded(dir.path(), |_| {}).await;
    put(&channel, "long", vec![7; 1 << 20].into())
        .await
        .unwrap();
    let before = peak_mib(&kvd);
    let get = GetRequest {
        key: Bytes::from_static(b"long"),
        ..GetRequest::default()
    };
    let batch = BatchGetRequest {
        items: vec![get; 1_000],
    };
    let answer = client(&channel)
        .batch_get(batch)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.results.len(), 1_000, "each is answered");
    let is_full = |result: &torc_proto::v1::GetResult| {
        let reason = match &result.outcome {
            Some(get_result::Outcome::Fault(fault)) => fault.reason(),
            _ => return false,
        };
        assert_eq!(
            Reason::try_from(i32::from(reason)).unwrap(),
            Reason::Overloaded
        );
        true
    };
    let left = answer.results.iter().filter(|it| is_full(it)).count();
    assert_eq!(left, 992, "8 MiB are an answer");
    let grown = peak_mib(&kvd) - before;
    assert!(grown < 400, "{grown} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_take_neither_descriptors_nor_places_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let (kvd, channel) = founded(dir.path(), |kvd| kvd.limit_files(256)).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        for address in [kvd.grpc, kvd.http] {
            silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
    }
    for number in 0..500 {
        let value = vec![7; 100_000].into();
        put(&channel, &format!("k{number}"), value).await.unwrap();
    }
    // Only the node has closed connections.
    let newcomer = connection(&kvd);
    let deadline = Instant::now() + TIMEOUT;
    while let Err(status) = put(&newcomer, "k", Bytes::from_static(b"v")).await {
        assert!(Instant::now() < deadline, "no place: {status}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_that_nobody_reads_have_so_many_places_and_others_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (kvd, channel) = founded(dir.path(), |_| {}).await;
    // Unread data fills the window of its own connection, which has 256 streams.
    let hoarder = Channel::from_shared(kvd.endpoint()).unwrap();
    let hoarders: Vec<Channel> = (0..5).map(|_| hoarder.connect_lazy()).collect();
    for number in 0..40 {
        let value = vec![7; 1 << 20].into();
        put(&channel, &format!("long-{number}"), value)
            .await
            .unwrap();
    }
    let mut unread = Vec::new();
    let mut refused = None;
    while refused.is_none() {
        assert!(unread.len() < 1_000, "there is no bound");
        let hoarder = &hoarders[unread.len() / 200];
        let mut scan = tonic::Request::new(ScanRequest::default());
        scan.set_timeout(TIMEOUT);
        match client(hoarder).scan(scan).await {
            Ok(pages) => unread.push(pages.into_inner()),
            Err(status) => refused = Some(Fault::from_status(&status)),
        }
    }
    assert_eq!(refused.unwrap().reason, Reason::Overloaded);
    assert!(unread.len() >= 100, "{}", unread.len());
    put(&channel, "k", Bytes::from_static(b"w")).await.unwrap();
    // A client that disconnects releases its permit.
    drop(unread);
    let deadline = Instant::now() + TIMEOUT;
    while let Err(status) = client(&channel).scan(ScanRequest::default()).await {
        assert!(Instant::now() < deadline, "no place: {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A connection that lets the node send nothing on a stream.
fn without_window(kvd: &Kvd) -> Channel {
    let endpoint = Channel::from_shared(kvd.endpoint()).unwrap();
    endpoint.initial_stream_window_size(0).connect_lazy()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_end_and_give_back_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let brief = |kvd: &mut Kvd| kvd.variable("TORC_TEST_IDLE_TIME_MS", "3000");
    let (kvd, channel) = founded(dir.path(), brief).await;
    for number in 0..300 {
        let key = format!("k{number}");
        put(&channel, &key, Bytes::from_static(b"v")).await.unwrap();
    }
    let mut unread_sketches = Vec::new();
    let sketch = SketchKeysRequest {
        node: 1,
        partitions: (0..64).collect(),
        namespaces: vec![SketchedNamespace::default(); 2],
        ..SketchKeysRequest::default()
    };
    let hoarder = without_window(&kvd);
    for _ in 0..2 {
        let mut hoarder = ClusterClient::new(hoarder.clone());
        let answer = hoarder.sketch_keys(sketch.clone()).await.unwrap();
        unread_sketches.push(answer);
    }
    // As many as there are places, and more.
    let mut unread_scans = Vec::new();
    let hoarders = [without_window(&kvd), without_window(&kvd)];
    for number in 0..300 {
        let mut hoarder = client(&hoarders[number % 2]);
        unread_scans.extend(hoarder.scan(ScanRequest::default()).await);
    }

    let honest = async {
        let mut honest = ClusterClient::new(channel.clone());
        // Refused until the first scans have ended.
        let mut sketches = loop {
            match honest.sketch_keys(sketch.clone()).await {
                Ok(answer) => break answer.into_inner(),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let mut count = 0;
        while let Some(message) = sketches.next().await {
            count += usize::from(message.unwrap().sketch.is_some());
        }
        assert_eq!(count, 2);
        let mut pages = loop {
            match client(&channel).scan(ScanRequest::default()).await {
                Ok(pages) => break pages.into_inner(),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let mut entries = 0;
        while let Some(page) = pages.next().await {
            entries += page.unwrap().entries.len();
        }
        assert_eq!(entries, 301);
    };
    tokio::time::timeout(TIMEOUT, honest).await.unwrap();
    drop((unread_sketches, unread_scans));
}

const IN_FLIGHT_MIB: u64 = 96;
/// In addition to the budget: the windows of connections, 512 KiB each; the data that threads are
/// decoding, reading and encoding; and memory kept by the allocator.
const MARGIN_MIB: u64 = CONNECTIONS as u64 / 2 + 80;
const CONNECTIONS: usize = 24;

/// The head of a message of this length, and its first bytes; then nothing more, forever.
struct Unfinished {
    head: Option<Bytes>,
    left: usize,
}

impl Unfinished {
    fn new(len: usize, sent: usize) -> Self {
        let mut head = vec![0];
        head.extend((len as u32).to_be_bytes());
        Self {
            head: Some(head.into()),
            left: sent,
        }
    }
}

impl hyper::body::Body for Unfinished {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        if self.left == 0 {
            return Poll::Pending;
        }
        let len = self.left.min(64 << 10);
        self.left -= len;
        Poll::Ready(Some(Ok(Frame::data(vec![7; len].into()))))
    }
}

/// Sends a request without reading the answer, and keeps what has arrived of it.
async fn send_body(mut channel: Channel, path: &str, body: tonic::body::Body) -> impl Sized {
    let request = http::Request::post(format!("http://torc{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    poll_fn(|context| channel.poll_ready(context))
        .await
        .unwrap();
    channel.call(request).await
}

/// A message and the end of its request.
fn whole(message: &impl prost::Message) -> tonic::body::Body {
    let mut bytes = vec![0];
    bytes.extend((message.encoded_len() as u32).to_be_bytes());
    message.encode(&mut bytes).unwrap();
    tonic::body::Body::new(axum::body::Body::from(bytes))
}

/// A connection with a completed greeting. On a slow, busy machine a greeting may be too late, and
/// the node closes the connection: the client then connects again.
async fn greeted(kvd: &Kvd) -> Channel {
    let until = Instant::now() + TIMEOUT;
    loop {
        let channel = connection(kvd);
        match put(&channel, "greeting", Bytes::new()).await {
            Ok(()) => return channel,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
}

/// Puts and gets of a modest client, for this long.
async fn honest(kvd: &Kvd, time: Duration) {
    let channel = greeted(kvd).await;
    let until = Instant::now() + time;
    let mut number = 0;
    while Instant::now() < until {
        let key = format!("honest-{number}");
        let value = Bytes::from(vec![number as u8; 10_000]);
        put(&channel, &key, value.clone()).await.unwrap();
        let get = GetRequest {
            key: key.into(),
            ..GetRequest::default()
        };
        let got = client(&channel).get(get).await.unwrap().into_inner();
        assert_eq!(got.value, value);
        number += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn check_memory(kvd: &Kvd, before: u64) {
    let grown = peak_mib(kvd) - before;
    assert!(grown < IN_FLIGHT_MIB + MARGIN_MIB, "{grown} MiB");
}

/// Stores long values in slices, so that each read takes memory.
async fn put_long_values(channel: &Channel) {
    for number in 0..16 {
        put(channel, &format!("long-{number}"), vec![7; 1 << 20].into())
            .await
            .unwrap();
    }
    let flush = MaintenanceRequest::default();
    ClusterClient::new(channel.clone())
        .flush(flush)
        .await
        .unwrap();
}

fn long(number: usize) -> GetRequest {
    GetRequest {
        key: format!("long-{}", number % 16).into(),
        ..GetRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_requests_hold_no_more_than_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let (kvd, _) = with_in_flight(dir.path(), IN_FLIGHT_MIB).await;
    let before = peak_mib(&kvd);
    let mut hoarders = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = connection(&kvd);
        for path in [
            "/torc.v1.Kv/Put",
            "/torc.v1.Kv/BatchPut",
            "/torc.v1.Kv/Session",
        ] {
            let body = Unfinished::new(MAX_MESSAGE_LEN - 8, MAX_MESSAGE_LEN - 100);
            let body = tonic::body::Body::new(body);
            hoarders.push(tokio::spawn(send_body(connection.clone(), path, body)));
        }
    }
    honest(&kvd, Duration::from_secs(5)).await;
    check_memory(&kvd, before);
    for hoarder in hoarders {
        hoarder.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_hold_no_more_than_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let (kvd, channel) = with_in_flight(dir.path(), IN_FLIGHT_MIB).await;
    put_long_values(&channel).await;
    let before = peak_mib(&kvd);
    let mut hoarders = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = connection(&kvd);
        let batch = BatchGetRequest {
            items: (0..8).map(long).collect(),
        };
        for _ in 0..8 {
            let sent = send_body(connection.clone(), "/torc.v1.Kv/BatchGet", whole(&batch));
            hoarders.push(tokio::spawn(sent));
        }
        for _ in 0..4 {
            let scan = whole(&ScanRequest::default());
            let sent = send_body(connection.clone(), "/torc.v1.Kv/Scan", scan);
            hoarders.push(tokio::spawn(sent));
        }
    }
    honest(&kvd, Duration::from_secs(5)).await;
    check_memory(&kvd, before);
    drop(hoarders);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mix_of_unread_sessions_and_unfinished_requests_holds_no_more_than_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let (kvd, channel) = with_in_flight(dir.path(), IN_FLIGHT_MIB).await;
    put_long_values(&channel).await;
    let before = peak_mib(&kvd);
    let mut hoarders = Vec::new();
    for _ in 0..CONNECTIONS / 2 {
        let connection = connection(&kvd);
        let asked = (0..200).map(|number| SessionRequest {
            id: number as u64,
            operation: Some(Operation::Get(long(number))),
            ..SessionRequest::default()
        });
        let asked = futures::stream::iter(asked).chain(futures::stream::pending());
        let mut unread = client(&connection);
        hoarders.push(tokio::spawn(async move {
            let answers = unread.session(asked).await;
            tokio::time::sleep(TIMEOUT).await;
            drop(answers);
        }));
        let body = Unfinished::new(MAX_MESSAGE_LEN - 8, MAX_MESSAGE_LEN - 100);
        let sent = send_body(connection, "/torc.v1.Kv/Put", tonic::body::Body::new(body));
        hoarders.push(tokio::spawn(async move {
            let answer = sent.await;
            tokio::time::sleep(TIMEOUT).await;
            drop(answer);
        }));
    }
    honest(&kvd, Duration::from_secs(5)).await;
    check_memory(&kvd, before);
    for hoarder in hoarders {
        hoarder.abort();
    }
}
