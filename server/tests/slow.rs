//! The log of slow operations, on a node for which every operation is slow. A process of its own, because its log
//! is the process's.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "it uses a part of what tests of nodes share")]
#[path = "node/common/mod.rs"]
mod common;

use std::io::{self, Write};
use std::sync::Arc;

use common::{settings, until};
use futures::stream;
use parking_lot::Mutex;
use serde_json::Value;
use tonic::Request;
use tonic::transport::Channel;
use torc_proto::TraceContext;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::{BatchPutRequest, PutRequest, SessionRequest};
use torc_server::Node;
use torc_server::config::RawSettings;

/// Captures the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }

    /// The lines about slow operations of this kind.
    fn slow(&self, operation: &str) -> Vec<Value> {
        let lines: Vec<Value> = self
            .text()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let is_it =
            |line: &Value| line["message"] == "slow operation" && line["operation"] == operation;
        lines.into_iter().filter(is_it).collect()
    }
}

fn put(key: &str) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: "secret-value".into(),
        ..PutRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_operation_is_logged_with_its_trace_and_without_its_key() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(move || writer.clone())
        .init();
    let dir = tempfile::tempdir().unwrap();
    let settings = RawSettings {
        bootstrap: Some(true),
        replicas: Some(1),
        slow_ms: Some(0),
        ..settings(dir.path().join("1"))
    };
    let node = Node::start(settings.check().unwrap()).await.unwrap();
    until("the node serves", async || node.ready().is_ok()).await;
    let url = format!("http://{}", node.grpc_addr());
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    let mut kv = KvClient::new(channel);
    let unsampled = TraceContext::new([7; 16], [1; 8], false).unwrap();
    let mut request = Request::new(put("secret-key"));
    let traceparent = unsampled.to_traceparent().parse().unwrap();
    request.metadata_mut().insert("traceparent", traceparent);
    kv.put(request).await.unwrap();
    until("the put is logged", async || !log.slow("put").is_empty()).await;
    let line = &log.slow("put")[0];
    assert_eq!(line["trace_id"], "07".repeat(16));
    assert_eq!(line["outcome"], "OK");
    assert_eq!(line["level"], "WARN");
    assert!(line["took_ms"].is_u64(), "{line}");
    assert!(line["partition"].as_u64().unwrap() < 64, "{line}");

    let traced = SessionRequest {
        id: 1,
        operation: Some(Operation::Put(put("secret-key"))),
        trace: TraceContext::new([8; 16], [1; 8], true).unwrap().to_wire(),
        ..SessionRequest::default()
    };
    let answers = kv.session(stream::iter([traced])).await.unwrap();
    answers.into_inner().message().await.unwrap().unwrap();
    let is_sessions = |line: &Value| line["trace_id"] == "08".repeat(16);
    until("the session's put is logged", async || {
        log.slow("put").iter().any(is_sessions)
    })
    .await;
    let line = log.slow("put").into_iter().find(is_sessions).unwrap();
    assert_eq!(line["partition"], log.slow("put")[0]["partition"]);

    let batch = BatchPutRequest {
        items: vec![put("secret-key")],
    };
    kv.batch_put(batch).await.unwrap();
    until("the batch is logged", async || {
        !log.slow("batch_put").is_empty()
    })
    .await;
    let line = &log.slow("batch_put")[0];
    assert!(
        line.get("trace_id").is_none(),
        "nobody named a trace: {line}"
    );
    let text = log.text();
    assert!(!text.contains("secret"), "no key and no value: {text}");

    node.stop().await.unwrap();
}
