//! Operations in flight: how many there may be, how they wait, and that they end with their callers.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::session_response::Outcome;
use torc_proto::v1::{
    BatchPutRequest, Cancel, Consistency, GetRequest, PutRequest, SessionRequest, SessionResponse,
};
use torc_proto::{Fault, Reason};
use torc_server::config::RawSettings;

use crate::common::{Servers, found, settings, until};

/// Operations that a node runs at a time, and that a session has in flight.
const MOST: u64 = 1_024;
/// The id of a get that takes no permit.
const STALE: u64 = u64::MAX;

/// A node whose puts take very long. It holds a short and a long value.
async fn stalled() -> Servers {
    let dir = tempfile::tempdir().unwrap();
    let faults = dir.path().join("disk.json");
    let settings = RawSettings {
        test_disk_faults: Some(faults.clone()),
        ..settings(dir.path().join("1"))
    };
    let nodes = found([settings]).await;
    let servers = Servers { nodes, dir };
    let mut kv = servers.kv(0).await;
    for (key, len) in [("short", 1), ("long", 200_000)] {
        kv.put(put(key, len)).await.unwrap();
    }
    std::fs::write(faults, r#"{"sync_ms": 20000}"#).unwrap();
    servers
}

fn put(key: &str, len: usize) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: vec![7; len].into(),
        ..PutRequest::default()
    }
}

fn get(key: &str) -> Operation {
    Operation::Get(GetRequest {
        key: key.to_owned().into(),
        ..GetRequest::default()
    })
}

struct Session {
    requests: UnboundedSender<SessionRequest>,
    answers: Streaming<SessionResponse>,
}

impl Session {
    async fn open(servers: &Servers) -> Self {
        let (requests, sent) = mpsc::unbounded_channel();
        let sent = UnboundedReceiverStream::new(sent);
        let answers = servers.kv(0).await.session(sent).await.unwrap();
        Self {
            requests,
            answers: answers.into_inner(),
        }
    }

    /// A session with this many puts in flight.
    async fn with_puts(servers: &Servers, count: u64) -> Self {
        let mut session = Self::open(servers).await;
        for id in 0..count {
            session.put(id, 60_000);
        }
        session.stale();
        assert_eq!(session.next().await.id, STALE);
        session
    }

    /// Sessions that have all of the node's permits.
    async fn with_all_permits(servers: &Servers) -> [Self; 2] {
        let half = Self::with_puts(servers, MOST / 2).await;
        [half, Self::with_puts(servers, MOST / 2).await]
    }

    fn is_unanswered(&mut self) -> bool {
        self.answers.message().now_or_never().is_none()
    }

    fn send(&self, id: u64, timeout_ms: u32, operation: Operation) {
        let message = SessionRequest {
            id,
            operation: Some(operation),
            timeout_ms,
            ..SessionRequest::default()
        };
        self.requests.send(message).unwrap();
    }

    fn put(&self, id: u64, timeout_ms: u32) {
        self.send(id, timeout_ms, Operation::Put(put(&format!("k{id}"), 1)));
    }

    fn stale(&self) {
        let stale = GetRequest {
            key: "short".into(),
            consistency: Consistency::Stale.into(),
            ..GetRequest::default()
        };
        self.send(STALE, 0, Operation::Get(stale));
    }

    async fn next(&mut self) -> SessionResponse {
        self.answers.message().await.unwrap().unwrap()
    }
}

/// The get behind a put that had waited alone started only when that put had ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_wait_start_as_soon_as_there_are_permits() {
    const GETS: u64 = 600;
    let servers = stalled().await;
    let others = Session::with_all_permits(&servers).await;
    let mut session = Session::with_puts(&servers, 1).await;
    for id in 1..=GETS {
        session.send(id, 60_000, get("short"));
    }
    session.stale();
    assert_eq!(session.next().await.id, STALE, "the others wait");
    drop(others);
    for _ in 0..GETS {
        assert_ne!(session.next().await.id, 0, "the put is under way");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_waits_for_a_permit_ends_at_its_deadline() {
    let servers = stalled().await;
    let mut others = Session::with_all_permits(&servers).await;
    let mut session = Session::with_puts(&servers, 1).await;
    session.put(1, 500);
    let answer = session.next().await;
    assert_eq!(answer.id, 1);
    let Some(Outcome::Fault(fault)) = answer.outcome else {
        panic!("{answer:?}");
    };
    let fault = Fault::from(fault);
    assert_eq!(fault.reason, Reason::OwnerUnreachable, "{fault:?}");
    assert!(!fault.maybe_applied, "{fault:?}");
    assert!(others.iter_mut().all(Session::is_unanswered));
}

/// The cancellation stayed unread. Had it been read, the next message would have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_with_as_many_operations_as_it_may_have_takes_cancellations() {
    let servers = stalled().await;
    let mut others = Session::with_all_permits(&servers).await;
    // One that waits with the others, and one that has a future of its own, and may not have run yet.
    for (long, cancelled) in [(0, 1), (0, 0), (MOST - 1, MOST - 1)] {
        let mut session = Session::open(&servers).await;
        session.stale();
        for id in 0..MOST {
            if id == long {
                session.send(id, 60_000, get("long"));
            } else {
                session.put(id, 60_000);
            }
        }
        session.send(cancelled, 0, Operation::Cancel(Cancel {}));
        session.stale();
        for _ in 0..2 {
            assert_eq!(session.next().await.id, STALE);
        }
        assert!(others.iter_mut().all(Session::is_unanswered));
    }
}

/// Had they not ended with their callers, their outcomes would be known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_ends_with_the_call_the_batch_or_the_session_that_it_came_in() {
    const LEN: usize = 100_000;
    let servers = stalled().await;
    let unknown = async || servers.metric(0, "torc_register_unknown_total").await;
    let calls: [fn(KvClient<Channel>) -> BoxFuture<'static, ()>; 3] = [
        |mut kv| {
            let mut request = Request::new(put("call", LEN));
            request.set_timeout(Duration::from_secs(60));
            async move { kv.put(request).map(drop).await }.boxed()
        },
        |mut kv| {
            let items = vec![put("batch1", LEN), put("batch2", LEN)];
            let mut request = Request::new(BatchPutRequest { items });
            request.set_timeout(Duration::from_secs(60));
            async move { kv.batch_put(request).map(drop).await }.boxed()
        },
        |mut kv| {
            let request = SessionRequest {
                operation: Some(Operation::Put(put("session", LEN))),
                timeout_ms: 60_000,
                ..SessionRequest::default()
            };
            let requests = futures::stream::iter([request]);
            async move {
                let mut answers = kv.session(requests).await.unwrap().into_inner();
                let _ = answers.message().await;
            }
            .boxed()
        },
    ];
    for call in calls {
        let before = unknown().await;
        // Again, if it was gone before it had begun.
        until("it is gone", async || {
            let call = tokio::spawn(call(servers.kv(0).await));
            until("it has arrived", async || {
                servers.metric(0, "torc_in_flight_bytes ").await >= LEN as u64
            })
            .await;
            call.abort();
            unknown().await > before
        })
        .await;
    }
}
