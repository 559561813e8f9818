//! The console: a web page that shows the state of the cluster.
//!
//! * `history`: the operations of a node in the last hour; every node samples its own.
//! * `model`, `explain`, `status`: the content as JSON, from the members' answers, which a [`Cluster`] asks
//!   for.
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
mod status;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use torc_proto::v1::{ExplainRequest, ExplainResponse, LoadSample, StatusResponse};
use torc_proto::{Fault, Reason};
use torc_telemetry::clock::unix_ms;
use torc_telemetry::operation::Totals;

use history::{EVERY_MS, History, MOST_SAMPLES};
use stream::Stream;

pub use status::to_json as status_json;

/// What the console shows.
pub trait Cluster: Send + Sync + 'static {
    /// The status of the cluster; of each node, also its load over the last `load_ms` milliseconds.
    fn status(&self, load_ms: u64) -> BoxFuture<'_, Result<StatusResponse, Fault>>;

    /// Where a key is.
    fn explain(&self, request: ExplainRequest) -> BoxFuture<'_, Result<ExplainResponse, Fault>>;
}

/// State that a node keeps for the console.
#[derive(Debug, Default)]
pub struct Console {
    history: Mutex<History>,
    stream: Stream,
}

/// Load samples in the live state: enough to show the last complete sample of each node.
const RECENT_MS: u64 = 4 * EVERY_MS;

impl Console {
    /// The load of this node over the last `load_ms` milliseconds.
    #[must_use]
    pub fn load(&self, load_ms: u64) -> Vec<LoadSample> {
        self.history.lock().since(unix_ms().saturating_sub(load_ms))
    }

    /// Samples the node's load for ever. `totals`: the requests since the node started, and the bytes
    /// received with slices.
    #[must_use = "nothing is sampled unless it is awaited"]
    pub fn sample(
        self: Arc<Self>,
        totals: Box<dyn Fn() -> (Totals, u64) + Send>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let from_ms = unix_ms() / EVERY_MS * EVERY_MS;
                let left = (from_ms + EVERY_MS).saturating_sub(unix_ms());
                tokio::time::sleep(Duration::from_millis(left)).await;
                let (totals, received_bytes) = totals();
                self.history.lock().add(from_ms, totals, received_bytes);
            }
        })
    }
}

/// What the handlers share.
#[derive(Clone)]
struct Served {
    console: Arc<Console>,
    cluster: Arc<dyn Cluster>,
    cancel: CancellationToken,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The page and its JSON. Live views end with `cancel`. The caller decides who may see it, and gives
/// each request its `Caller` as an extension.
pub fn router<S: Clone + Send + Sync + 'static>(
    console: Arc<Console>,
    cluster: Arc<dyn Cluster>,
    cancel: CancellationToken,
) -> Router<S> {
    let served = Served {
        console,
        cluster,
        cancel,
    };
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
        .with_state(served)
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

async fn show_state(State(served): State<Served>) -> Response {
    let status = served.cluster.status(RECENT_MS).await;
    answer(status.map(|status| model::state_json(&status, unix_ms())))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    node: Option<u64>,
}

async fn show_history(State(served): State<Served>, Query(query): Query<HistoryQuery>) -> Response {
    let status = served.cluster.status(MOST_SAMPLES as u64 * EVERY_MS).await;
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
    State(served): State<Served>,
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
    let explained = served.cluster.explain(request).await;
    answer(explained.map(|explained| explain::to_json(&explained)))
}

/// The JSON, or the fault as text with the status that fits it.
#[must_use]
pub fn answer(result: Result<serde_json::Value, Fault>) -> Response {
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

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes, to_bytes};
    use axum::extract::Request;
    use tower_service::Service as _;

    use super::*;

    struct NoCluster;

    impl Cluster for NoCluster {
        fn status(&self, _: u64) -> BoxFuture<'_, Result<StatusResponse, Fault>> {
            unreachable!("files do not need the cluster")
        }

        fn explain(&self, _: ExplainRequest) -> BoxFuture<'_, Result<ExplainResponse, Fault>> {
            unreachable!("files do not need the cluster")
        }
    }

    /// A file of the page; checks its headers.
    async fn file(path: &str) -> Bytes {
        let mut router: Router = router(
            Arc::default(),
            Arc::new(NoCluster),
            CancellationToken::new(),
        );
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.call(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str();
        let policy = policy.unwrap();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(
            response.headers()[header::X_CONTENT_TYPE_OPTIONS],
            "nosniff"
        );
        to_bytes(response.into_body(), usize::MAX).await.unwrap()
    }

    /// What a browser loads because the page names it: nothing from elsewhere, and nothing inline,
    /// which the policy would refuse.
    #[tokio::test]
    async fn the_page_is_small_and_loads_nothing_from_elsewhere() {
        let page = file("/").await;
        let page = std::str::from_utf8(&page).unwrap();
        assert!(
            !page.contains("<style") && !page.contains("style="),
            "inline style"
        );
        assert!(
            !page.contains(" onclick") && !page.contains("<script>"),
            "inline script"
        );
        let named = page.split(['"', '\'']);
        let mut paths: Vec<&str> = named
            .filter(|it| it.starts_with("/console/") && it.contains('.'))
            .collect();
        // The scripts import it.
        paths.push("/console/draw.js");
        paths.sort_unstable();
        paths.dedup();
        assert!(paths.len() >= 4, "{paths:?}");
        let mut bytes = page.len();
        for path in paths {
            let text = file(path).await;
            bytes += text.len();
            let text = std::str::from_utf8(&text).unwrap();
            let links = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!links.contains("://"), "{path}");
        }
        assert!(bytes < 150 << 10, "{bytes} bytes");
    }
}
