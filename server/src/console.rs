//! The console: what `torc-console` shows of this node's cluster.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use futures::future::BoxFuture;
use torc_console::{Cluster, Console};
use torc_proto::Fault;
use torc_proto::v1::{ExplainRequest, ExplainResponse, StatusRequest, StatusResponse};

use crate::call::DEFAULT_DEADLINE;
use crate::cluster::{ClusterNode, explain, status};
use crate::metrics::Metrics;

/// Samples this node's load.
pub(crate) async fn sample(console: Arc<Console>, metrics: Arc<Metrics>) {
    let totals = move || {
        let received = metrics.transfers.received_bytes.get();
        (metrics.totals(), received)
    };
    console.sample(Box::new(totals)).await;
}

/// Asks the members while there are viewers.
pub(crate) async fn run(node: Arc<ClusterNode>) {
    let console = Arc::clone(&node.console);
    console.run(Arc::new(Members(node))).await;
}

/// The page and its JSON.
pub(crate) fn router<S: Clone + Send + Sync + 'static>(node: &Arc<ClusterNode>) -> Router<S> {
    torc_console::router(
        Arc::clone(&node.console),
        Arc::new(Members(Arc::clone(node))),
        node.entrance.cancel.clone(),
    )
}

struct Members(Arc<ClusterNode>);

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
