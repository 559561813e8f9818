//! Starts flushes and compactions on request.

use std::time::Instant;

use futures::future::join_all;
use torc_member::peers::{Recipient, within};
use torc_proto::v1::{MaintenanceRequest, MaintenanceResponse, NodeMaintenance};
use torc_proto::{Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;
use torc_store::StoreError;

use super::node::ClusterNode;

/// A maintenance task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maintenance {
    Flush,
    Compact,
}

/// Runs the task on one member or on all. The answer names the members that could not do it.
///
/// # Errors
/// `NO_SUCH_NODE`, or the fault of the only node that was asked.
pub(super) async fn answer(
    this: &ClusterNode,
    task: Maintenance,
    request: MaintenanceRequest,
    deadline: Instant,
) -> Result<MaintenanceResponse, Fault> {
    let table = this.member.routing()?;
    if request.node != 0 {
        let node = NodeId(request.node);
        if !table.members.contains_key(&node) {
            let message = format!("there is no node {node}: `kvctl status` lists them");
            return Err(Fault::new(Reason::NoSuchNode, message));
        }
        let nodes = vec![one(this, &table, task, node, deadline).await?];
        return Ok(MaintenanceResponse { nodes });
    }
    let asked = table.members.keys().map(|node| async {
        let done = one(this, &table, task, *node, deadline).await;
        done.unwrap_or_else(|fault| NodeMaintenance {
            node: node.0,
            problem: fault.message,
            ..NodeMaintenance::default()
        })
    });
    let nodes = join_all(asked).await;
    Ok(MaintenanceResponse { nodes })
}

async fn one(
    this: &ClusterNode,
    table: &RoutingTable,
    task: Maintenance,
    node: NodeId,
    deadline: Instant,
) -> Result<NodeMaintenance, Fault> {
    let left = deadline.saturating_duration_since(Instant::now());
    let late = |_| {
        let message = format!("node {node} has not finished in time; it continues by itself");
        Fault::new(Reason::Deadline, message)
    };
    if this.member.identity.node() == Some(node) {
        return tokio::time::timeout(left, own(this, task, node))
            .await
            .map_err(late)?;
    }
    let mut client = this.member.peers.cluster(&Recipient::of(table, node)?)?;
    let request = within(left, MaintenanceRequest { node: node.0 });
    let asked = async {
        match task {
            Maintenance::Flush => client.flush(request).await,
            Maintenance::Compact => client.compact(request).await,
        }
    };
    let answer = tokio::time::timeout(left, asked).await.map_err(late)?;
    let answer = answer.map_err(|status| Fault::from_status(&status))?;
    let done = answer.into_inner().nodes.into_iter();
    let mut done = done.filter(|done| done.node == node.0);
    let nothing = || {
        Fault::new(
            Reason::Internal,
            format!("node {node} sent an empty answer"),
        )
    };
    done.next().ok_or_else(nothing)
}

async fn own(
    this: &ClusterNode,
    task: Maintenance,
    node: NodeId,
) -> Result<NodeMaintenance, Fault> {
    let store = this.kv.store.clone();
    // Spawned, so that the task completes even if the caller disconnects.
    let working = tokio::spawn(async move {
        Ok(match task {
            Maintenance::Flush => {
                let report = store.flush().await?;
                (report.records, report.slices, report.bytes, report.seconds)
            }
            Maintenance::Compact => {
                let report = store.compact().await?;
                let slices = report.slices_written;
                (report.records, slices, report.bytes, report.seconds)
            }
        })
    });
    let failed = |_| {
        Fault::new(
            Reason::Internal,
            "the task ended without a result: report this",
        )
    };
    let done: Result<_, StoreError> = working.await.map_err(failed)?;
    let (records, slices, bytes, seconds) = done.map_err(|error| {
        let reason = match error {
            StoreError::OutOfSpace => Reason::OutOfSpace,
            StoreError::Closed => Reason::NotServing,
            _ => Reason::Internal,
        };
        Fault::new(reason, error.to_string())
    })?;
    Ok(NodeMaintenance {
        node: node.0,
        records,
        slices,
        bytes,
        seconds,
        problem: String::new(),
    })
}
