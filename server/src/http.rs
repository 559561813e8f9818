//! HTTP: health checks, metrics for Prometheus, the cluster's state as JSON, and the console.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use torc_access::caller::Caller;
use torc_limits::connections::{Connection, Places};
use torc_proto::v1::{HotKeysRequest, StatusRequest};
use torc_proto::{Access, Reason};
use torc_ring::topology::RingSummary;
use torc_store::Scratch;
use torc_tls::Door;

use crate::bearers::{Bearers, holder_of};
use crate::call::DEFAULT_DEADLINE;
use crate::cluster::{ClusterNode, status};
use crate::console;
use crate::hot;
use crate::limits::HANG_UP;
use crate::metrics::{Metrics, Readings};
use crate::renewal;

/// Time limit for receiving the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Pause after the system failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What serving HTTP needs of a node.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) node: Arc<ClusterNode>,
    pub(crate) bearers: Arc<Bearers>,
    pub(crate) scratch: Scratch,
    pub(crate) metrics: Arc<Metrics>,
}

/// Serves HTTP/1, with a limit on connections and on the time for the head of a request.
pub(crate) async fn serve(server: Server, listener: TcpListener) {
    let places = Places::new(server.node.settings.max_connections);
    let cancel = server.node.entrance.cancel.clone();
    let router = router(server.clone());
    let serving = async {
        loop {
            let (stream, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(place) = places.take(from.ip()) else {
                server.metrics.connections_refused.inc();
                continue;
            };
            let (router, entrance) = (router.clone(), Arc::clone(&server.node.entrance));
            let cancel = cancel.clone();
            tokio::spawn(async move {
                let begun = Connection::begin(stream, place, &entrance, Door::Http);
                let Some(stream) = begun.await else {
                    return;
                };
                let router = router.layer(axum::Extension(stream.caller().clone()));
                let old = tokio::time::sleep_until(stream.grows_old_at().into());
                let mut connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIME)
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
                tokio::select! {
                    ended = &mut connection => {
                        if ended.is_err_and(|error| error.is_parse_version_h2()) {
                            let stream = connection.into_parts().io.into_inner();
                            let told = tokio::time::timeout(HANG_UP, tell_of_grpc(stream));
                            let _ = cancel.run_until_cancelled(told).await;
                        }
                        // Otherwise the client is gone, and an error needs no answer.
                        return;
                    }
                    () = old => Pin::new(&mut connection).graceful_shutdown(),
                    () = cancel.cancelled() => {}
                }
                // Ends with the answer under way.
                if cancel.run_until_cancelled(&mut connection).await.is_none() {
                    Pin::new(&mut connection).graceful_shutdown();
                    let _ = tokio::time::timeout(HANG_UP, connection).await;
                }
            });
        }
    };
    let _ = cancel.run_until_cancelled(serving).await;
}

/// Tells a client that begins HTTP/2, as gRPC does, that this port serves HTTP/1.1 (RFC 9113, section 7).
async fn tell_of_grpc(mut stream: Connection) -> std::io::Result<()> {
    const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const ADVICE: &[u8] = b"this is the HTTP port of a Torc node: use its gRPC port";
    const HTTP_1_1_REQUIRED: u32 = 13;
    let length = 8 + ADVICE.len().to_be_bytes()[7];
    let head = [0, 0, length, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let code = HTTP_1_1_REQUIRED.to_be_bytes();
    let answer = [&EMPTY_SETTINGS[..], &head, &code, ADVICE].concat();
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    // If the node closed with bytes unread, the client would not read the answer.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

fn router(server: Server) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/status", get(show_status))
        .route("/ring", get(ring))
        .route("/hot-keys", get(hot_keys))
        .merge(console::router(&server.node))
        .route_layer(from_fn_with_state(server.clone(), may_observe))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(server)
}

/// Admits callers that may see the cluster's state. Anyone may read the health.
async fn may_observe(
    State(server): State<Server>,
    Extension(caller): Extension<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    let holder = holder_of(&server.bearers, &caller, request.headers());
    let who = holder.as_ref().ok().and_then(Option::as_ref);
    let who = who.unwrap_or(&caller).clone();
    let membership = server.node.member.identity.membership();
    let cluster = membership.map(|it| it.cluster);
    match holder.and_then(|_| who.check(Access::Observe, cluster)) {
        Ok(()) => {
            request.extensions_mut().insert(who);
            next.run(request).await
        }
        Err(fault) => {
            server.node.kv.denied(&who, request.uri().path(), &fault);
            let status = match fault.reason {
                Reason::Unauthenticated => StatusCode::UNAUTHORIZED,
                _ => StatusCode::FORBIDDEN,
            };
            (status, format!("{fault}\n")).into_response()
        }
    }
}

async fn readyz(State(server): State<Server>) -> Response {
    match server.node.ready() {
        Ok(()) => {
            let left = server
                .node
                .entrance
                .tls
                .as_ref()
                .map(|tls| renewal::left(tls));
            match left.filter(|left| *left < renewal::WARN_BEFORE) {
                Some(left) => {
                    let days = renewal::days(left);
                    format!("ready; the certificate ends in {days} days\n").into_response()
                }
                None => "ready\n".into_response(),
            }
        }
        Err(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {why}\n"),
        )
            .into_response(),
    }
}

async fn metrics(State(server): State<Server>) -> Response {
    let readings = Readings {
        store: server.node.kv.store.stats(),
        scratch_losses: server.scratch.losses(),
        resident_memory_bytes: status::resident_memory_bytes(),
        ready: server.node.ready().is_ok(),
        leader: server.node.group.is_leader(),
        hot: server.node.kv.hot.stats(),
        in_flight_bytes: server.node.kv.limits.budget.held() as u64,
        in_flight_limit_bytes: server.node.kv.limits.budget.bound() as u64,
        in_flight_refused: server.node.kv.limits.budget.refused(),
    };
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match server.metrics.render(&readings) {
        Ok(text) => ([(header::CONTENT_TYPE, openmetrics)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn show_status(State(server): State<Server>) -> Response {
    match status::gather(&server.node, &StatusRequest::default()).await {
        Ok(status) => Json(torc_console::status_json(&status)).into_response(),
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, format!("{fault}\n")).into_response(),
    }
}

/// The query parameters of `/hot-keys`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct HotQuery {
    /// For example `60s`, `10m`, `24h`.
    window: Option<String>,
    top: Option<u32>,
    node: Option<u64>,
    namespace: Option<String>,
    steps: Option<u32>,
}

async fn hot_keys(State(server): State<Server>, Query(query): Query<HotQuery>) -> Response {
    let window_ms = match query.window.as_deref().map(window_ms) {
        Some(None) => {
            let advice = "window must be a number from 1 with a unit, ms, s, m or h (without one: seconds), for example 60s, 10m or 24h\n";
            return (StatusCode::BAD_REQUEST, advice).into_response();
        }
        Some(Some(ms)) => ms,
        None => 0,
    };
    let request = HotKeysRequest {
        namespace: query.namespace.unwrap_or_default(),
        window_ms,
        top: query.top.unwrap_or(0),
        node: query.node.unwrap_or(0),
        steps: query.steps.unwrap_or(0),
    };
    let answered = hot::answer(&server.node.kv, request, Instant::now() + DEFAULT_DEADLINE).await;
    torc_console::answer(answered.map(|answer| torc_hot::to_json(&answer)))
}

/// Parses a duration into milliseconds: a number and its unit, seconds by default.
fn window_ms(text: &str) -> Option<u64> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let of_unit = |(unit, ms): &(&str, u64)| Some((text.strip_suffix(unit)?, *ms));
    let (digits, ms) = units.iter().find_map(of_unit).unwrap_or((text, 1_000));
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    number.checked_mul(ms).filter(|ms| *ms > 0)
}

async fn ring(State(server): State<Server>) -> Response {
    match server.node.member.routing() {
        Ok(table) => Json(RingSummary::of(&table)).into_response(),
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, format!("{fault}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_number_and_a_unit() {
        let windows = [
            ("60s", 60_000),
            ("60", 60_000),
            ("10m", 600_000),
            ("24h", 86_400_000),
            ("1500ms", 1_500),
        ];
        for (text, ms) in windows {
            assert_eq!(window_ms(text), Some(ms), "{text}");
        }
        let too_much = format!("{}h", u64::MAX);
        for text in ["", "s", "0s", "-1s", "+1s", "1d", "1.5h", "1 s", &too_much] {
            assert_eq!(window_ms(text), None, "{text:?}");
        }
    }
}
