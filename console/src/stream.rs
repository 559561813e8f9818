//! The live state as server-sent events.
//!
//! While there are viewers, one task asks the members, and every viewer gets the newest state. A
//! slow viewer misses states and holds at most one in memory; a viewer that stops reading loses
//! its connection (`connections.rs`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_stream::wrappers::WatchStream;
use torc_access::caller::Caller;
use torc_telemetry::clock::unix_ms;

use super::{Cluster, Console, RECENT_MS, Served, model};

/// Limit on the viewers at a time.
const MOST_STREAMS: usize = 32;
/// Interval between states.
const EVERY: Duration = Duration::from_secs(2);
/// Limit on the bytes of a state: enough for some hundred members.
const MOST_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Stream {
    places: Arc<Semaphore>,
    newest: watch::Sender<Arc<str>>,
    wanted: Notify,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MOST_STREAMS)),
            newest: watch::Sender::new(Arc::from("")),
            wanted: Notify::new(),
        }
    }
}

impl Console {
    /// Asks the members while there are viewers; never ends.
    #[must_use = "viewers see nothing unless it is awaited"]
    pub fn run(self: Arc<Self>, cluster: Arc<dyn Cluster>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.stream.run(&*cluster).await })
    }
}

impl Stream {
    async fn run(&self, cluster: &dyn Cluster) {
        loop {
            while self.newest.receiver_count() == 0 {
                self.wanted.notified().await;
            }
            let state = match cluster.status(RECENT_MS).await {
                Ok(status) => model::state_json(&status, unix_ms()),
                Err(fault) => json!({ "problem": fault.to_string() }),
            };
            let mut text = state.to_string();
            if text.len() > MOST_BYTES {
                let problem = "the cluster is too large for the live view: use kvctl status";
                text = json!({ "problem": problem }).to_string();
            }
            self.newest.send_replace(text.into());
            tokio::time::sleep(EVERY).await;
        }
    }
}

pub(super) async fn events(
    State(served): State<Served>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let stream = &served.console.stream;
    let Ok(place) = Arc::clone(&stream.places).try_acquire_owned() else {
        let retry = [(header::RETRY_AFTER, "10")];
        let why = format!(
            "this node already serves {MOST_STREAMS} consoles: retry later, or use another node\n"
        );
        return (StatusCode::SERVICE_UNAVAILABLE, retry, why).into_response();
    };
    let states = WatchStream::from_changes(stream.newest.subscribe());
    stream.wanted.notify_one();
    let events = states
        // The token may expire or be revoked meanwhile.
        .take_while(move |_| std::future::ready(caller.check_counts().is_ok()))
        .map(move |state| {
            // Released with the stream.
            let _ = &place;
            Ok::<_, Infallible>(Event::default().event("state").data(state))
        })
        .take_until(served.cancel.cancelled_owned());
    Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response()
}
