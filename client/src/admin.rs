//! The client's operations on the cluster, which any node carries out.

use bytes::Bytes;
use torc_proto::v1;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_ring::NodeId;

use crate::call::request;
use crate::client::checked_key;
use crate::retry::Nature;
use crate::{Change, Client, ClusterStatus, Error, Explanation, Plan};

/// Operations on the cluster.
impl Client {
    /// What the cluster is doing: its nodes, what they hold, the transition that
    /// runs. The node that answers asks all others: a round trip to each.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
    /// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline) when no node of a cluster
    /// answered within the deadline.
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        let sending = |channel, budget| async move {
            let message = v1::StatusRequest { local: false };
            ClusterClient::new(channel)
                .status(request(message, budget))
                .await
        };
        let answer = self.call(Nature::Read).on_any(sending).await?;
        ClusterStatus::from_wire(answer)
    }

    /// Where a key lives and why, and what the node that serves it holds.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn explain(&self, key: impl Into<Bytes>) -> Result<Explanation, Error> {
        let key = checked_key(key)?;
        let sending = |channel, budget| {
            let message = v1::ExplainRequest {
                namespace: self.namespace_name(),
                key: key.clone(),
            };
            async move {
                ClusterClient::new(channel)
                    .explain(request(message, budget))
                    .await
            }
        };
        let answer = self.call(Nature::Read).on_any(sending).await?;
        Explanation::from_wire(answer)
    }

    /// What adding the running, empty node at `address` (`host:port`) would move.
    /// Changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) when it cannot be added now,
    /// and why; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
    /// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline) when no node answered
    /// within the deadline.
    pub async fn plan_join(&self, address: impl Into<String>) -> Result<Plan, Error> {
        let wish = v1::JoinRequest {
            address: address.into(),
            plan_only: true,
            parallel: 0,
        };
        Ok(self.send_join(wish).await?.plan)
    }

    /// Adds the running, empty node at `address` (`host:port`), moving `parallel`
    /// partitions at a time. Returns once the transition is committed: the moving
    /// goes on for as long as it takes, see [`Client::status`]. Asking again is
    /// harmless, so this is retried like a read.
    ///
    /// # Errors
    /// As [`Client::plan_join`].
    pub async fn join(
        &self,
        address: impl Into<String>,
        parallel: Option<u32>,
    ) -> Result<Change, Error> {
        let wish = v1::JoinRequest {
            address: address.into(),
            plan_only: false,
            parallel: parallel.unwrap_or(0),
        };
        self.send_join(wish).await
    }

    /// What removing a node would move. Changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNode`](crate::ErrorKind::NoSuchNode), and as
    /// [`Client::plan_join`].
    pub async fn plan_leave(&self, node: NodeId) -> Result<Plan, Error> {
        let wish = v1::LeaveRequest {
            node: node.0,
            plan_only: true,
            parallel: 0,
        };
        Ok(self.send_leave(wish, Nature::Read).await?.plan)
    }

    /// Moves everything off a node, `parallel` partitions at a time, and removes it.
    /// Returns once the transition is committed, see [`Client::status`].
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNode`](crate::ErrorKind::NoSuchNode);
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) when the
    /// answer was lost: see [`Client::status`] before asking again; and as
    /// [`Client::plan_join`].
    pub async fn leave(&self, node: NodeId, parallel: Option<u32>) -> Result<Change, Error> {
        let wish = v1::LeaveRequest {
            node: node.0,
            plan_only: false,
            parallel: parallel.unwrap_or(0),
        };
        self.send_leave(wish, Nature::Write).await
    }

    async fn send_join(&self, wish: v1::JoinRequest) -> Result<Change, Error> {
        let sending = |channel, budget| {
            let message = wish.clone();
            async move {
                ClusterClient::new(channel)
                    .join(request(message, budget))
                    .await
            }
        };
        let answer = self.call(Nature::Read).on_any(sending).await?;
        Change::from_wire(answer, !wish.plan_only)
    }

    async fn send_leave(&self, wish: v1::LeaveRequest, nature: Nature) -> Result<Change, Error> {
        let sending = |channel, budget| async move {
            ClusterClient::new(channel)
                .leave(request(wish, budget))
                .await
        };
        let answer = self.call(nature).on_any(sending).await?;
        Change::from_wire(answer, !wish.plan_only)
    }
}
