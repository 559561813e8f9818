//! The console: a web page that shows the state of the cluster.
//!
//! * `history`: the operations of a node in the last hour; every node samples its own.
//! * `model`, `explain`: the content as JSON, from the members' answers.
//! * `stream`: the live state, to a bounded number of viewers; `page`: HTML, CSS and JavaScript.
//!
//! Invariants:
//! * It only reads, and its paths need the same roles as `/status` and `/hot-keys`.
//! * The page loads nothing from other hosts, and no text becomes markup: names of nodes and keys
//!   are untrusted.
//! * While there are viewers, however many, the node asks the members for the live state every
//!   two seconds.
//!
//! Absent on purpose: changes, and what Prometheus does better: longer history and alerts.

mod explain;
mod history;
mod model;
mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use torc_proto::v1::{ExplainRequest, LoadSample, StatusRequest, StatusResponse};
use torc_proto::{Fault, Reason};
use torc_telemetry::clock::unix_ms;

use crate::cluster::{explain as explaining, status};
use crate::shared::{DEFAULT_DEADLINE, Shared};
use history::{EVERY_MS, History, MOST_SAMPLES};
use stream::Stream;

pub(crate) use stream::run;

/// State that a node keeps for the console.
#[derive(Debug, Default)]
pub(crate) struct Console {
    history: Mutex<History>,
    stream: Stream,
}

/// Load samples in the live state: enough to show the last complete sample of each node.
const RECENT_MS: u64 = 4 * EVERY_MS;

impl Console {
    /// The load of this node over the last `load_ms` milliseconds.
    pub(crate) fn load(&self, load_ms: u64) -> Vec<LoadSample> {
        self.history.lock().since(unix_ms().saturating_sub(load_ms))
    }
}

/// Samples this node's load until it stops.
pub(crate) async fn sample(shared: Arc<Shared>) {
    loop {
        let from_ms = unix_ms() / EVERY_MS * EVERY_MS;
        let left = (from_ms + EVERY_MS).saturating_sub(unix_ms());
        tokio::time::sleep(Duration::from_millis(left)).await;
        let metrics = &shared.metrics;
        let received = metrics.transfer_received_bytes.get();
        let mut history = shared.console.history.lock();
        history.add(from_ms, metrics.totals(), received);
    }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The page and its JSON.
pub(crate) fn router() -> Router<Arc<Shared>> {
    let file = |kind: &'static str, text: &'static str| {
        get(move || std::future::ready(([(header::CONTENT_TYPE, kind)], text)))
    };
    Router::new()
        .route(
            "/",
            file(
                "text/html; charset=utf-8",
                include_str!("page/console.html"),
            ),
        )
        .route(
            "/console/console.css",
            file("text/css; charset=utf-8", include_str!("page/console.css")),
        )
        .route(
            "/console/console.js",
            file(SCRIPT, include_str!("page/console.js")),
        )
        .route(
            "/console/draw.js",
            file(SCRIPT, include_str!("page/draw.js")),
        )
        .route(
            "/console/icon.svg",
            file("image/svg+xml", include_str!("page/icon.svg")),
        )
        .route("/console/state", get(show_state))
        .route("/console/history", get(show_history))
        .route("/console/explain", get(show_explanation))
        .route("/console/events", get(stream::events))
        .layer(map_response(harden))
}

async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn gathered(shared: &Arc<Shared>, load_ms: u64) -> Result<StatusResponse, Fault> {
    let request = StatusRequest {
        local: false,
        load_ms,
    };
    status::gather(shared, &request).await
}

async fn show_state(State(shared): State<Arc<Shared>>) -> Response {
    let status = gathered(&shared, RECENT_MS).await;
    answer(status.map(|status| model::state_json(&status, unix_ms())))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    node: Option<u64>,
}

async fn show_history(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<HistoryQuery>,
) -> Response {
    let status = gathered(&shared, MOST_SAMPLES as u64 * EVERY_MS).await;
    answer(status.map(|status| model::history_json(&status, query.node)))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    key: Option<String>,
    key_base64: Option<String>,
    namespace: Option<String>,
}

async fn show_explanation(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<ExplainQuery>,
) -> Response {
    let key = match (query.key, query.key_base64) {
        (Some(key), None) => Some(key.into_bytes()),
        (None, Some(key)) => STANDARD.decode(key).ok(),
        _ => None,
    };
    let Some(key) = key else {
        let advice = "pass either key or key_base64\n";
        return (StatusCode::BAD_REQUEST, advice).into_response();
    };
    let request = ExplainRequest {
        namespace: query.namespace.unwrap_or_default(),
        key: key.into(),
        local: false,
    };
    let deadline = Instant::now() + DEFAULT_DEADLINE;
    let explained = explaining::explain(&shared, request, deadline).await;
    answer(explained.map(|explained| explain::to_json(&explained)))
}

fn answer(result: Result<serde_json::Value, Fault>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(fault) => {
            let status = match fault.reason {
                Reason::Invalid => StatusCode::BAD_REQUEST,
                Reason::NoSuchNode | Reason::NoSuchNamespace => StatusCode::NOT_FOUND,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, format!("{fault}\n")).into_response()
        }
    }
}
