//! The client's operations on the cluster. Any node carries them out.

use std::time::Duration;

use bytes::Bytes;
use tonic::{Request, Response, Status};
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::{MAX_MESSAGE_LEN, v1};
use torc_ring::NodeId;
use torc_ring::topology::{is_dropped_name, is_hidden_name};

use torc_record::{Epoch, to_millis};

use crate::client::checked_key;
use crate::naming::Connection;
use crate::peer::attempt::request;
use crate::retry::Nature;
use crate::{
    AlterOptions, Change, Client, ClusterStatus, Error, Explanation, GoOptions, HotKeys,
    HotKeysOptions, Namespace, NamespaceMode, NodeMaintenance, Plan, Transition,
};

/// One call of any node.
impl Client {
    /// Asks any node with one RPC, and others while this is safe and the deadline allows.
    pub(crate) async fn ask<M: Clone, T>(
        &self,
        nature: Nature,
        message: M,
        rpc: impl AsyncFn(&mut ClusterClient<Connection>, Request<M>) -> Result<Response<T>, Status>,
    ) -> Result<T, Error> {
        let rpc = &rpc;
        let sending = |channel, budget| {
            let request = request(message.clone(), budget);
            // The status of many nodes over an hour is long.
            let client = ClusterClient::new(channel);
            let mut client = client.max_decoding_message_size(MAX_MESSAGE_LEN);
            async move { rpc(&mut client, request).await }
        };
        self.call(nature).on_any(sending).await
    }
}

/// Operations on the cluster.
impl Client {
    /// The status of the cluster: its nodes, what they hold, and the running
    /// transition. The answering node asks all others: a round trip to each.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
    /// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline) if no node of a cluster
    /// answered within the deadline.
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        self.status_as(v1::StatusRequest::default()).await
    }

    /// As [`status`](Self::status), but not older than this call: the answering node first asks the
    /// leader of the topology group what is committed, one more round trip.
    ///
    /// # Errors
    /// As `status`; also if the topology group has no majority, or the answering node is no member
    /// any more.
    pub async fn current_status(&self) -> Result<ClusterStatus, Error> {
        let message = v1::StatusRequest {
            current: true,
            ..v1::StatusRequest::default()
        };
        self.status_as(message).await
    }

    /// As [`status`](Self::status), with the operations of each node in the last `load`, at most
    /// one hour.
    ///
    /// # Errors
    /// As `status`.
    pub async fn status_with_load(&self, load: Duration) -> Result<ClusterStatus, Error> {
        let message = v1::StatusRequest {
            load_ms: to_millis(load),
            ..v1::StatusRequest::default()
        };
        self.status_as(message).await
    }

    async fn status_as(&self, message: v1::StatusRequest) -> Result<ClusterStatus, Error> {
        let answer = self
            .ask(Nature::Read, message, ClusterClient::status)
            .await?;
        ClusterStatus::from_wire(answer)
    }

    /// Explains where a key lives and why, and what its replicas hold. Costs a round trip to each
    /// replica.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn explain(&self, key: impl Into<Bytes>) -> Result<Explanation, Error> {
        let key = checked_key(key)?;
        let message = v1::ExplainRequest {
            namespace: self.namespace_name(),
            key,
            local: false,
        };
        let answer = self
            .ask(Nature::Read, message, ClusterClient::explain)
            .await?;
        Explanation::from_wire(answer)
    }

    /// The most accessed keys in a recent window, with their counts: the answering node adds up
    /// the counts of all nodes. The answer names nodes that did not respond.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if nodes do not count accesses,
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for options beyond their limits,
    /// [`ErrorKind::NoSuchNode`](crate::ErrorKind::NoSuchNode), and as [`Client::status`].
    pub async fn hot_keys(&self, options: HotKeysOptions) -> Result<HotKeys, Error> {
        let window = options.window.map(|window| window.as_millis().max(1));
        let window_ms = window.map_or(0, |ms| u64::try_from(ms).unwrap_or(u64::MAX));
        let message = v1::HotKeysRequest {
            namespace: self.namespace_name(),
            window_ms,
            top: options.top.unwrap_or(0),
            node: options.node.map_or(0, |node| node.0),
            steps: options.steps.unwrap_or(0),
        };
        let answer = self
            .ask(Nature::Read, message, ClusterClient::hot_keys)
            .await?;
        HotKeys::from_wire(answer)
    }

    /// Writes memtables to slices now, on one node or all. Nodes also do this by themselves; use it
    /// for demonstrations and measurements. The answer names nodes that failed.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNode`](crate::ErrorKind::NoSuchNode), and as [`Client::status`].
    pub async fn flush(&self, node: Option<NodeId>) -> Result<Vec<NodeMaintenance>, Error> {
        let message = maintenance(node);
        let sending = |channel, budget| async move {
            ClusterClient::new(channel)
                .flush(request(message, budget))
                .await
        };
        let answer = self.call(Nature::Read).on_any_patiently(sending).await?;
        Ok(answer.nodes.into_iter().map(Into::into).collect())
    }

    /// Compacts the slices of every partition into one now, on one node or all. Nodes also do
    /// this by themselves where it pays. A compaction that outlasts the deadline continues.
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub async fn compact(&self, node: Option<NodeId>) -> Result<Vec<NodeMaintenance>, Error> {
        let message = maintenance(node);
        let sending = |channel, budget| async move {
            ClusterClient::new(channel)
                .compact(request(message, budget))
                .await
        };
        let answer = self.call(Nature::Read).on_any_patiently(sending).await?;
        Ok(answer.nodes.into_iter().map(Into::into).collect())
    }

    /// Plans the join of the running, empty node at `address` (`host:port`). Changes
    /// nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if it cannot join now, with
    /// the reason; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
    /// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline) when no node answered within
    /// the deadline.
    pub async fn plan_join(&self, address: impl Into<String>) -> Result<Plan, Error> {
        let change = v1::JoinRequest {
            address: address.into(),
            plan_only: true,
            parallel: 0,
        };
        let planned = self.ask_change(Nature::Read, change, ClusterClient::join);
        Ok(planned.await?.plan)
    }

    /// Adds the running, empty node at `address` (`host:port`), moving `parallel`
    /// partitions at a time. Returns once the transition is committed; watch its
    /// progress with [`Client::status`]. Repeating it is harmless, so the library repeats it if
    /// an answer is lost.
    ///
    /// # Errors
    /// As [`Client::plan_join`].
    pub async fn join(
        &self,
        address: impl Into<String>,
        parallel: Option<u32>,
    ) -> Result<Change, Error> {
        let change = v1::JoinRequest {
            address: address.into(),
            plan_only: false,
            parallel: parallel.unwrap_or(0),
        };
        self.ask_change(Nature::Repeatable, change, ClusterClient::join)
            .await
    }

    /// Plans the removal of a node. Changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNode`](crate::ErrorKind::NoSuchNode), and as
    /// [`Client::plan_join`].
    pub async fn plan_leave(&self, node: NodeId) -> Result<Plan, Error> {
        self.plan_leave_with(node, GoOptions::default()).await
    }

    /// As [`Client::plan_leave`], with options.
    ///
    /// # Errors
    /// As [`Client::plan_leave`].
    pub async fn plan_leave_with(&self, node: NodeId, options: GoOptions) -> Result<Plan, Error> {
        let change = v1::LeaveRequest {
            plan_only: true,
            ..leave_request(node, options)
        };
        let planned = self.ask_change(Nature::Read, change, ClusterClient::leave);
        Ok(planned.await?.plan)
    }

    /// Moves all data off a node, `parallel` partitions at a time, then removes it.
    /// Returns once the transition is committed, see [`Client::status`].
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNode`](crate::ErrorKind::NoSuchNode);
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if the answer
    /// was lost: check [`Client::status`] before you retry; and as
    /// [`Client::plan_join`].
    pub async fn leave(&self, node: NodeId, parallel: Option<u32>) -> Result<Change, Error> {
        let options = GoOptions {
            parallel,
            ..GoOptions::default()
        };
        self.leave_with(node, options).await
    }

    /// As [`Client::leave`], with options.
    ///
    /// # Errors
    /// As [`Client::leave`].
    pub async fn leave_with(&self, node: NodeId, options: GoOptions) -> Result<Change, Error> {
        let change = leave_request(node, options);
        self.ask_change(Nature::Write, change, ClusterClient::leave)
            .await
    }

    /// Plans the replacement of `old` by the running, empty node at `address`
    /// (`host:port`). Changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNode`](crate::ErrorKind::NoSuchNode), and as
    /// [`Client::plan_join`].
    pub async fn plan_replace(
        &self,
        old: NodeId,
        address: impl Into<String>,
        options: GoOptions,
    ) -> Result<Plan, Error> {
        let change = v1::ReplaceRequest {
            plan_only: true,
            ..replace_request(old, address.into(), options)
        };
        let planned = self.ask_change(Nature::Read, change, ClusterClient::replace);
        Ok(planned.await?.plan)
    }

    /// Replaces `old` by the running, empty node at `address` (`host:port`) and removes
    /// `old` from the cluster. Returns once the transition is committed, see
    /// [`Client::status`]. Repeating it is harmless, so the library retries it like a
    /// read; with [`GoOptions::dead`], a repetition declares `old` dead during the
    /// replacement.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if `old` does not answer and
    /// was not declared dead; and as [`Client::plan_replace`].
    pub async fn replace(
        &self,
        old: NodeId,
        address: impl Into<String>,
        options: GoOptions,
    ) -> Result<Change, Error> {
        let change = replace_request(old, address.into(), options);
        self.ask_change(Nature::Repeatable, change, ClusterClient::replace)
            .await
    }

    /// Plans a new weight for a node, in percent of a normal one. Changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) unless `percent` is 1 to 10,000;
    /// [`ErrorKind::NoSuchNode`](crate::ErrorKind::NoSuchNode), and as
    /// [`Client::plan_join`].
    pub async fn plan_reweight(&self, node: NodeId, percent: u32) -> Result<Plan, Error> {
        let change = v1::ReweightRequest {
            node: node.0,
            weight: percent,
            plan_only: true,
            parallel: 0,
        };
        let planned = self.ask_change(Nature::Read, change, ClusterClient::reweight);
        Ok(planned.await?.plan)
    }

    /// Changes the weight of a node, in percent of a normal one, moving `parallel`
    /// partitions at a time. Returns once the transition is committed, see
    /// [`Client::status`]. Repeating it is harmless, so the library retries it like a
    /// read.
    ///
    /// # Errors
    /// As [`Client::plan_reweight`].
    pub async fn reweight(
        &self,
        node: NodeId,
        percent: u32,
        parallel: Option<u32>,
    ) -> Result<Change, Error> {
        let change = v1::ReweightRequest {
            node: node.0,
            weight: percent,
            plan_only: false,
            parallel: parallel.unwrap_or(0),
        };
        self.ask_change(Nature::Repeatable, change, ClusterClient::reweight)
            .await
    }

    /// Undoes the running transition of this number: moved partitions move back. Returns
    /// the transition once this is committed, see [`Client::status`]. Repeating it is
    /// harmless, so the library repeats it if
    /// an answer is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if it is no longer running, or
    /// cannot be undone; and as [`Client::status`].
    pub async fn abort(&self, transition: u64) -> Result<Transition, Error> {
        let message = v1::AbortRequest { transition };
        let answer = self
            .ask(Nature::Repeatable, message, ClusterClient::abort)
            .await?;
        Transition::from_wire(answer.transition.as_ref())
    }

    /// Creates a namespace. `replicas` is 1 to 5 and at most the number of nodes; by default, it is
    /// that of the namespace `default`. [`Client::alter_namespace`] changes it later. A number that
    /// no other namespace has is [`ErrorKind::Refused`](crate::ErrorKind::Refused) while another
    /// change runs. Returns once every member that answers knows the namespace. Repeating it with
    /// the same settings is harmless, so the library repeats it if
    /// an answer is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) for settings that the cluster does
    /// not support, or if the namespace exists with other settings;
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a malformed name; and as
    /// [`Client::status`].
    pub async fn create_namespace(
        &self,
        name: impl Into<String>,
        mode: NamespaceMode,
        replicas: Option<u32>,
    ) -> Result<Namespace, Error> {
        let change = v1::CreateNamespaceRequest {
            name: name.into(),
            mode: v1::NamespaceMode::from(mode).into(),
            replicas: replicas.unwrap_or(0),
        };
        let answer = self
            .ask(Nature::Repeatable, change, ClusterClient::create_namespace)
            .await?;
        Namespace::from_wire(answer.namespace).map_err(|error| Error::malformed(error, true))
    }

    /// Drops a namespace for good: nodes stop serving its keys and delete them in the background.
    /// Returns once every member knows, or after the timeout with the members that may still serve
    /// it. The library repeats this if an answer is lost; the repetition can then end with
    /// [`ErrorKind::NoSuchNamespace`](crate::ErrorKind::NoSuchNamespace).
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNamespace`](crate::ErrorKind::NoSuchNamespace);
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) for `default`; and as [`Client::status`].
    pub async fn drop_namespace(&self, name: impl Into<String>) -> Result<Vec<NodeId>, Error> {
        let name = name.into();
        let message = v1::DropNamespaceRequest { name };
        let answer = self
            .ask(Nature::Repeatable, message, ClusterClient::drop_namespace)
            .await?;
        Ok(answer.unconfirmed.into_iter().map(NodeId).collect())
    }

    /// Raises the epoch of a namespace's partitions above this one, so that every write that begins
    /// later has a higher version than any of that epoch. Returns once every member acts in the new
    /// epoch, or after the timeout with the members that may still write in an earlier one: then
    /// repeat the call, which is harmless.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNamespace`](crate::ErrorKind::NoSuchNamespace);
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) while partitions move; and as
    /// [`Client::status`].
    pub async fn raise_epoch(
        &self,
        namespace: impl Into<String>,
        above: Epoch,
    ) -> Result<Vec<NodeId>, Error> {
        let namespace = namespace.into();
        let message = v1::RaiseEpochRequest {
            namespace,
            above: above.0,
        };
        let answer = self
            .ask(Nature::Repeatable, message, ClusterClient::raise_epoch)
            .await?;
        Ok(answer.unconfirmed.into_iter().map(NodeId).collect())
    }

    /// The cluster's namespaces by name, and dropped ones whose records nodes still delete.
    ///
    /// # Errors
    /// As [`Client::topology`].
    pub async fn namespaces(&self) -> Result<Vec<Namespace>, Error> {
        let table = self.topology().await?;
        let namespaces = table.namespaces.iter();
        // Those that wait for their first records are among the generations.
        let named = |(name, _): &(&String, _)| !is_hidden_name(name) || is_dropped_name(name);
        Ok(namespaces
            .filter(named)
            .map(|(name, namespace)| Namespace::of(name, *namespace))
            .collect())
    }

    /// Plans a new number of `replicas` for a namespace, with the namespaces that would
    /// change with it. Changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNamespace`](crate::ErrorKind::NoSuchNamespace);
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) unless `replicas` is 1 to 5;
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if the cluster has fewer nodes; and as
    /// [`Client::plan_join`].
    pub async fn plan_alter_namespace(
        &self,
        name: impl Into<String>,
        replicas: u32,
    ) -> Result<Plan, Error> {
        let change = v1::AlterNamespaceRequest {
            namespace: name.into(),
            replicas,
            plan_only: true,
            ..v1::AlterNamespaceRequest::default()
        };
        let planned = self.ask_change(Nature::Read, change, ClusterClient::alter_namespace);
        Ok(planned.await?.plan)
    }

    /// Changes the number of `replicas` of a namespace. Returns once the transition is
    /// committed, see [`Client::status`]; the cluster keeps serving. Repeating it is harmless,
    /// so the library repeats it if
    /// an answer is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if other namespaces, which the error
    /// names, would change with it, unless you set [`AlterOptions::with_all`]; and as
    /// [`Client::plan_alter_namespace`].
    pub async fn alter_namespace(
        &self,
        name: impl Into<String>,
        replicas: u32,
        options: AlterOptions,
    ) -> Result<Change, Error> {
        let change = v1::AlterNamespaceRequest {
            namespace: name.into(),
            replicas,
            plan_only: false,
            parallel: options.parallel.unwrap_or(0),
            with_all: options.with_all,
        };
        self.ask_change(Nature::Repeatable, change, ClusterClient::alter_namespace)
            .await
    }

    /// Asks for a change of the cluster, or for its plan: then the nature is `Read`.
    async fn ask_change<M: Clone>(
        &self,
        nature: Nature,
        message: M,
        rpc: impl AsyncFn(
            &mut ClusterClient<Connection>,
            Request<M>,
        ) -> Result<Response<v1::ChangeResponse>, Status>,
    ) -> Result<Change, Error> {
        let answer = self.ask(nature, message, rpc).await?;
        Change::from_wire(answer, nature != Nature::Read)
    }
}

fn leave_request(node: NodeId, options: GoOptions) -> v1::LeaveRequest {
    v1::LeaveRequest {
        node: node.0,
        plan_only: false,
        parallel: options.parallel.unwrap_or(0),
        force: options.force,
        dead: options.dead,
    }
}

fn replace_request(old: NodeId, address: String, options: GoOptions) -> v1::ReplaceRequest {
    v1::ReplaceRequest {
        old: old.0,
        address,
        plan_only: false,
        parallel: options.parallel.unwrap_or(0),
        force: options.force,
        dead: options.dead,
    }
}

fn maintenance(node: Option<NodeId>) -> v1::MaintenanceRequest {
    v1::MaintenanceRequest {
        node: node.map_or(0, |node| node.0),
    }
}
