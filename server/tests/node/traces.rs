//! Traces: three real nodes and a collector that speaks OTLP.
#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![cfg(feature = "otlp")]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Servers, until};
use futures::stream;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use torc_proto::TraceContext;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::{
    BatchPutRequest, DeleteRequest, ExplainRequest, GetRequest, PutRequest, SessionRequest,
};
use torc_server::config::RawSettings;
use torc_testkit::free_address;

const CLIENT_SPAN: [u8; 8] = [0xc1; 8];

/// A span, and the node that recorded it.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    node: String,
    span: Span,
}

/// A collector's reaction to spans.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    Takes,
    Hangs,
}

#[derive(Clone)]
struct Collector {
    manner: Manner,
    seen: Arc<Mutex<Vec<Seen>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if self.manner == Manner::Hangs {
            std::future::pending::<()>().await;
        }
        for of_node in request.into_inner().resource_spans {
            let attributes = of_node.resource.unwrap().attributes;
            let node = attributes
                .into_iter()
                .find(|it| it.key == "service.instance.id");
            let node = node.unwrap().value.unwrap().value.unwrap();
            let Value::StringValue(node) = node else {
                panic!("{node:?}");
            };
            let spans = of_node.scope_spans.into_iter().flat_map(|it| it.spans);
            let seen = spans.map(|span| Seen {
                node: node.clone(),
                span,
            });
            self.seen.lock().extend(seen);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts a collector; returns it with its URL.
    async fn start(manner: Manner) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self {
            manner,
            seen: Arc::default(),
        };
        let service = TraceServiceServer::new(collector.clone());
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        (collector, url)
    }

    /// The span of a client's own request, once it has arrived.
    async fn served(&self, trace: u8, name: &str) -> Seen {
        let of_trace = |it: Seen| (it.span.trace_id == [trace; 16]).then_some(it);
        let find = || {
            let mut found = self.children(&CLIENT_SPAN, name).into_iter();
            found.find_map(of_trace)
        };
        until(name, async || find().is_some()).await;
        find().unwrap()
    }

    /// The children of this span with this name.
    fn children(&self, parent: &[u8], name: &str) -> Vec<Seen> {
        let seen = self.seen.lock();
        let is_it = |it: &&Seen| it.span.parent_span_id == parent && it.span.name == name;
        seen.iter().filter(is_it).cloned().collect()
    }

    /// The only child with this name, once it has arrived.
    async fn child(&self, parent: &[u8], name: &str) -> Seen {
        until(name, async || !self.children(parent, name).is_empty()).await;
        let mut found = self.children(parent, name);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found.remove(0)
    }
}

async fn start(url: String, ratio: f64) -> Servers {
    let traced = |settings| RawSettings {
        otlp_endpoint: Some(url.clone()),
        trace_ratio: Some(ratio),
        ..settings
    };
    Servers::start_with(tempfile::tempdir().unwrap(), traced).await
}

fn sampled(trace: u8) -> TraceContext {
    TraceContext::new([trace; 16], CLIENT_SPAN, true).unwrap()
}

/// A request with this `traceparent`.
fn with<T>(traceparent: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = traceparent.parse().unwrap();
    request.metadata_mut().insert("traceparent", value);
    request
}

fn put(key: &str) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: "value".into(),
        ..PutRequest::default()
    }
}

fn get(key: &str) -> GetRequest {
    GetRequest {
        key: key.to_owned().into(),
        ..GetRequest::default()
    }
}

/// The indices of the node that leads a key's partition, and of another node.
async fn lead_and_other(servers: &Servers, key: &str) -> (usize, usize) {
    let request = ExplainRequest {
        key: key.to_owned().into(),
        ..ExplainRequest::default()
    };
    let explained = servers.cluster(0).await.explain(request).await.unwrap();
    let lead = explained.into_inner().partition.unwrap().lead as usize - 1;
    (lead, (lead + 1) % 3)
}

fn address(servers: &Servers, index: usize) -> String {
    servers.nodes[index].grpc_addr().to_string()
}

/// Waits for the spans of replicas for a write: that they accept it and sync their logs, on at
/// least two nodes.
async fn replicas_of_a_write(collector: &Collector, coordinator: &Seen) {
    let coordinator = &coordinator.span.span_id;
    let synced = || {
        let accepts = collector.children(coordinator, "replica accept");
        let accepts = accepts.iter();
        let synced = accepts.filter(|accept| {
            let syncs = collector.children(&accept.span.span_id, "log sync");
            syncs.iter().any(|sync| sync.node == accept.node)
        });
        synced.map(|it| it.node.clone()).collect::<BTreeSet<_>>()
    };
    until("two replicas synced", async || synced().len() >= 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_shows_client_coordinator_replicas_and_log_sync() {
    let (collector, url) = Collector::start(Manner::Takes).await;
    let servers = start(url, 0.0).await;
    let (lead, other) = lead_and_other(&servers, "key").await;

    // A node that cannot reach the lead yet coordinates itself.
    let mut trace = 0;
    let (served, forwarded) = loop {
        trace += 1;
        let traceparent = sampled(trace).to_traceparent();
        let mut kv = servers.kv(other).await;
        kv.put(with(&traceparent, put("key"))).await.unwrap();
        let served = collector.served(trace, "torc.v1.Kv/Put").await;
        let children = |name| collector.children(&served.span.span_id, name);
        let both = || (children("coordinator write"), children("torc.v1.Kv/Put"));
        until("a coordinator", async || both() != (vec![], vec![])).await;
        if let Some(forwarded) = both().1.pop() {
            break (served, forwarded);
        }
    };
    assert_eq!(served.node, address(&servers, other));
    assert_eq!(served.span.kind(), SpanKind::Server);
    assert!(served.span.start_time_unix_nano <= served.span.end_time_unix_nano);
    assert_eq!(forwarded.node, address(&servers, lead));
    let coordinator = collector.child(&forwarded.span.span_id, "coordinator write");
    let coordinator = coordinator.await;
    assert_eq!(coordinator.node, address(&servers, lead));
    replicas_of_a_write(&collector, &coordinator).await;

    let mut kv = servers.kv(lead).await;
    let traceparent = sampled(trace).to_traceparent();
    let found = kv.get(with(&traceparent, get("key"))).await.unwrap();
    assert!(found.into_inner().found);
    let served = collector.served(trace, "torc.v1.Kv/Get").await;
    let coordinator = collector.child(&served.span.span_id, "coordinator read");
    let coordinator = coordinator.await;
    let is_replicas = |it: &Seen| it.span.name.starts_with("replica ");
    until("another replica was asked", async || {
        let seen = collector.seen.lock();
        let mut asked = seen.iter().filter(|it| is_replicas(it));
        asked.any(|it| {
            it.span.parent_span_id == coordinator.span.span_id && it.node != coordinator.node
        })
    })
    .await;

    let seen = collector.seen.lock();
    for it in seen.iter() {
        let of_put = 1..=trace;
        assert!(of_put.map(|it| [it; 16]).any(|id| it.span.trace_id == id));
        let text = format!("{it:?}");
        assert!(!text.contains("\"key\""), "no key is in a span: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_carries_the_span_of_each_operation() {
    let (collector, url) = Collector::start(Manner::Takes).await;
    let servers = start(url, 0.0).await;
    let message = |id, operation, trace: TraceContext| SessionRequest {
        id,
        operation: Some(operation),
        trace: trace.to_wire(),
        ..SessionRequest::default()
    };
    let unsampled = TraceContext::new([9; 16], CLIENT_SPAN, false).unwrap();
    for index in 0..3 {
        let trace = index as u8 + 1;
        let key = format!("key-{trace}");
        let (lead, _) = lead_and_other(&servers, &key).await;
        let delete = DeleteRequest {
            key: key.clone().into(),
            ..DeleteRequest::default()
        };
        let messages = [
            message(1, Operation::Put(put(&key)), sampled(trace)),
            message(2, Operation::Delete(delete), unsampled),
        ];
        let session = servers
            .kv(index)
            .await
            .session(stream::iter(messages))
            .await;
        let mut answers = session.unwrap().into_inner();
        for _ in 0..2 {
            answers.message().await.unwrap().unwrap();
        }
        let of_this = |it: &Seen| it.span.trace_id == [trace; 16];
        until("the put's coordinator", async || {
            let seen = collector.seen.lock();
            let mut seen = seen.iter().filter(|it| of_this(it));
            seen.any(|it| it.span.name == "coordinator write")
        })
        .await;
        let seen = collector.seen.lock().clone();
        let find = |name| seen.iter().find(|it| of_this(it) && it.span.name == name);
        let coordinator = find("coordinator write").unwrap();
        // A node that cannot reach the lead yet coordinates itself.
        let may_be = [address(&servers, lead), address(&servers, index)];
        assert!(may_be.contains(&coordinator.node), "{coordinator:?}");
    }
    assert!(
        collector
            .seen
            .lock()
            .iter()
            .all(|it| it.span.trace_id != [9; 16]),
        "the client has said that it is not sampled"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_sampled_or_malformed_has_no_spans() {
    let (collector, url) = Collector::start(Manner::Takes).await;
    let servers = start(url, 0.0).await;
    let mut kv = servers.kv(0).await;
    let unsampled = TraceContext::new([9; 16], CLIENT_SPAN, false).unwrap();
    let unsampled = unsampled.to_traceparent();
    let upper = sampled(0xab).to_traceparent().to_uppercase();
    for traceparent in [
        &*unsampled,
        &*upper,
        "",
        "00",
        "nonsense",
        &"0".repeat(4_000),
    ] {
        kv.put(with(traceparent, put("key"))).await.unwrap();
        kv.get(with(traceparent, get("key"))).await.unwrap();
    }
    kv.put(put("key")).await.unwrap();
    let malformed = SessionRequest {
        id: 1,
        operation: Some(Operation::Put(put("key"))),
        trace: vec![1; 24].into(),
        ..SessionRequest::default()
    };
    let session = kv.session(stream::iter([malformed])).await;
    session
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap()
        .unwrap();
    // A node sends its spans in order: after these, nothing else arrives from it.
    for index in 0..3 {
        let (trace, key) = (index as u8 + 1, format!("last-{index}"));
        let mut kv = servers.kv(index).await;
        let last = with(&sampled(trace).to_traceparent(), get(&key));
        kv.get(last).await.unwrap();
        until("the last span", async || {
            let seen = collector.seen.lock();
            let mut seen = seen.iter().filter(|it| it.span.trace_id == [trace; 16]);
            seen.any(|it| it.node == address(&servers, index))
        })
        .await;
    }
    let seen = collector.seen.lock();
    let others = seen.iter().find(|it| it.span.trace_id[0] > 3);
    assert!(others.is_none(), "{others:?}");
}

/// Without a client's trace context, a fraction of operations is traced; the spans of a batch are
/// bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_begins_traces_of_its_own() {
    let (collector, url) = Collector::start(Manner::Takes).await;
    let servers = start(url, 1.0).await;
    let items = (0..200).map(|number| put(&format!("key-{number}")));
    let batch = BatchPutRequest {
        items: items.collect(),
    };
    servers.kv(0).await.batch_put(batch).await.unwrap();
    let root = collector.child(&[], "torc.v1.Kv/BatchPut").await;
    // One for each lead, or one here if a lead was not reached yet.
    let of_the_trace = |it: &&Seen| it.span.trace_id == root.span.trace_id;
    let coordinators = || {
        let seen = collector.seen.lock();
        let seen = seen.iter().filter(of_the_trace);
        seen.filter(|it| it.span.name == "coordinator write")
            .count()
    };
    until("coordinators", async || coordinators() >= 8).await;
    // A node sends its spans in order: when these are there, those of the batch are, too.
    let last = put("last");
    servers.kv(0).await.put(last).await.unwrap();
    collector.child(&[], "torc.v1.Kv/Put").await;
    assert!(
        coordinators() < 100,
        "not one for each item: {}",
        coordinators()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_dead_or_hangs_fails_nothing_and_what_is_lost_is_counted() {
    let (_collector, hanging) = Collector::start(Manner::Hangs).await;
    let dead = format!("http://{}", free_address().unwrap());
    for url in [dead, hanging] {
        let servers = start(url, 1.0).await;
        let mut kv = servers.kv(0).await;
        let name = "torc_spans_dropped_total{reason=\"failed\"}";
        until("spans are dropped", async || {
            let puts = (0..100).map(|number| {
                let mut kv = kv.clone();
                async move { kv.put(put(&format!("key-{number}"))).await }
            });
            for put in futures::future::join_all(puts).await {
                put.unwrap();
            }
            kv.get(get("key-1")).await.unwrap();
            servers.metric(0, name).await > 0
        })
        .await;
        assert_eq!(servers.metric(0, "torc_spans_sent_total").await, 0);
        let mut nodes = servers.nodes.into_iter();
        nodes.next().unwrap().stop().await.unwrap();
    }
}

/// All counters exist from the start, at zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_and_the_dashboard_name_only_what_a_node_reports() {
    let (_collector, url) = Collector::start(Manner::Takes).await;
    let servers = start(url, 0.0).await;
    let reported = servers.metrics(0).await;
    let reported: BTreeSet<_> = metric_names(&reported).collect();
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for file in ["prometheus/alerts.yml", "grafana/torc.json"] {
        let text = std::fs::read_to_string(deploy.join(file)).unwrap();
        let named: BTreeSet<_> = metric_names(&text).collect();
        assert!(named.len() > 10, "{file}");
        let unknown: Vec<_> = named.difference(&reported).collect();
        assert!(unknown.is_empty(), "{file}: no node reports {unknown:?}");
    }
}

fn metric_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("torc_"))
}
