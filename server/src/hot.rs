//! Hot keys: what `torc-hot` needs of this node, and the limit on its dearest query.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use torc_hot::{Asked, Members};
use torc_member::peers::{Recipient, within};
use torc_proto::v1::{HotKeysRequest, HotKeysResponse, HotWindowRequest, HotWindowResponse};
use torc_proto::{Fault, Reason, find_namespace};
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;

use crate::kv::KvNode;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Keeps intervals from when the node is a member of a cluster until it stops.
pub(crate) async fn keep(kv: Arc<KvNode>, cancel: CancellationToken) {
    let hot = Arc::clone(&kv.hot);
    let digest_key = Box::pin(async move {
        loop {
            if let Some(table) = kv.member.routing.load_full() {
                return table.digest_key;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    hot.keep(digest_key, cancel).await;
}

/// The hot keys of the cluster.
pub(crate) async fn answer(
    kv: &KvNode,
    request: HotKeysRequest,
    deadline: Instant,
) -> Result<HotKeysResponse, Fault> {
    let answering = async {
        let _place = kv.limits.classes.hot_keys.enter_soon().await?;
        let (table, me) = (kv.member.routing()?, kv.member.node()?);
        let asked = Asked {
            namespace: find_namespace(&table, &request.namespace)?,
            table,
            me,
            request,
            deadline,
        };
        kv.hot.gather(kv, asked).await
    };
    let answer = tokio::time::timeout_at(deadline.into(), answering).await;
    answer.unwrap_or_else(|_| {
        let message = "the nodes' counts did not arrive before the deadline: retry";
        Err(Fault::new(Reason::Deadline, message))
    })
}

impl Members for KvNode {
    fn hot_window<'a>(
        &'a self,
        table: &'a RoutingTable,
        node: NodeId,
        request: HotWindowRequest,
        limit: Duration,
    ) -> BoxFuture<'a, Result<HotWindowResponse, Fault>> {
        Box::pin(async move {
            let mut client = self.member.peers.cluster(&Recipient::of(table, node)?)?;
            let asked = client.hot_window(within(limit, request));
            let silent = |_| Fault::new(Reason::Deadline, "it did not answer in time");
            let answer = tokio::time::timeout(limit, asked).await.map_err(silent)?;
            let answer = answer.map_err(|status| Fault::from_status(&status))?;
            Ok(answer.into_inner())
        })
    }
}
