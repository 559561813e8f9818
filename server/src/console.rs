//! The console: what `torc-console` shows of this node's cluster.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use futures::future::BoxFuture;
use torc_console::Cluster;
use torc_proto::Fault;
use torc_proto::v1::{ExplainRequest, ExplainResponse, StatusRequest, StatusResponse};

use crate::call::DEFAULT_DEADLINE;
use crate::cluster::{explain, status};
use crate::shared::Shared;

/// Samples this node's load.
pub(crate) async fn sample(shared: Arc<Shared>) {
    let console = Arc::clone(&shared.console);
    let totals = move || {
        let received = shared.metrics.transfers.received_bytes.get();
        (shared.metrics.totals(), received)
    };
    console.sample(Box::new(totals)).await;
}

/// Asks the members while there are viewers.
pub(crate) async fn run(shared: Arc<Shared>) {
    let console = Arc::clone(&shared.console);
    console.run(Arc::new(Members(shared))).await;
}

/// The page and its JSON.
pub(crate) fn router(shared: &Arc<Shared>) -> Router<Arc<Shared>> {
    torc_console::router(
        Arc::clone(&shared.console),
        Arc::new(Members(Arc::clone(shared))),
        shared.cancel.clone(),
    )
}

struct Members(Arc<Shared>);

impl Cluster for Members {
    fn status(&self, load_ms: u64) -> BoxFuture<'_, Result<StatusResponse, Fault>> {
        Box::pin(async move {
            let request = StatusRequest {
                local: false,
                load_ms,
                current: false,
            };
            status::gather(&self.0, &request).await
        })
    }

    fn explain(&self, request: ExplainRequest) -> BoxFuture<'_, Result<ExplainResponse, Fault>> {
        let deadline = Instant::now() + DEFAULT_DEADLINE;
        Box::pin(explain::explain(&self.0, request, deadline))
    }
}
