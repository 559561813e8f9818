//! `CLUSTER`: the nodes that serve Redis clients, and slots for cluster clients.
//!
//! Any node answers any key, so slots only spread the clients: each node with --resp-addr gets an
//! equal run of them, in the order of node ids. No node redirects. A node that does not answer
//! keeps its slots until it has left the cluster, because clients try another node on their own.

#![expect(
    clippy::cast_possible_truncation,
    reason = "there are 16,384 slots, and a name shows 32 bits of an id"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use torc_proto::Fault;
use torc_resp::{ClusterCommand, Reply, SLOTS};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, RoutingTable};

use crate::Server;

/// Time for which the addresses reported by other nodes are cached.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// The nodes that serve Redis clients, and their addresses.
#[derive(Debug, Default)]
pub(super) struct Doors(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    asked: Option<Instant>,
    by_node: BTreeMap<NodeId, String>,
}

impl Doors {
    /// The known addresses of all members, at most a few seconds old.
    async fn all(&self, server: &Arc<Server>) -> Result<BTreeMap<NodeId, String>, Fault> {
        let now = Instant::now();
        {
            let known = self.0.lock();
            if known.asked.is_some_and(|asked| now < asked + FRESH_FOR) {
                return Ok(known.by_node.clone());
            }
        }
        let answering = server.node.redis_addresses().await?;
        let table = server.node.routing()?;
        let mut known = self.0.lock();
        known.asked = Some(now);
        known
            .by_node
            .retain(|node, _| table.members.contains_key(node));
        for (node, address) in answering {
            if address.is_empty() {
                known.by_node.remove(&node);
            } else {
                known.by_node.insert(node, address);
            }
        }
        Ok(known.by_node.clone())
    }
}

/// A node with its run of slots.
#[derive(Debug, PartialEq, Eq)]
struct Share {
    node: NodeId,
    host: String,
    port: i64,
    first: u16,
    last: u16,
}

/// Equal runs of slots, in the order of the nodes' ids; all slots are assigned.
fn shares(doors: BTreeMap<NodeId, String>) -> Vec<Share> {
    let count = doors.len().min(SLOTS.into()).max(1) as u32;
    let border = |number: u32| (u32::from(SLOTS) * number / count) as u16;
    let shares = doors.into_iter().zip(0..count);
    let shares = shares.map(|((node, address), number)| {
        let (host, port) = address.rsplit_once(':').unwrap_or((&address, "0"));
        Share {
            node,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: port.parse().unwrap_or(0),
            first: border(number),
            last: border(number + 1) - 1,
        }
    });
    shares.collect()
}

/// A node's name as clients expect it, 40 hexadecimal digits, derived from the ids of cluster and
/// node.
fn name(cluster: ClusterId, node: NodeId) -> String {
    let cluster = u128::from_be_bytes(cluster.0);
    format!("{cluster:032x}{:08x}", node.0 as u32)
}

/// Answers `CLUSTER …`.
pub(super) async fn answer(server: &Arc<Server>, command: &ClusterCommand) -> Result<Reply, Fault> {
    let table = server.node.routing()?;
    let me = server.node.id()?;
    if *command == ClusterCommand::MyId {
        return Ok(Reply::text(name(table.cluster, me)));
    }
    let shares = shares(server.doors.all(server).await?);
    Ok(match command {
        ClusterCommand::Slots => slots(&table, &shares),
        ClusterCommand::Shards => shards(&table, &shares),
        ClusterCommand::Nodes => Reply::Text(nodes(&table, &shares, me)),
        _ => Reply::Text(info(&table, &shares)),
    })
}

fn slots(table: &RoutingTable, shares: &[Share]) -> Reply {
    let slot = |share: &Share| {
        Reply::Array(vec![
            Reply::Integer(share.first.into()),
            Reply::Integer(share.last.into()),
            Reply::Array(vec![
                Reply::text(share.host.clone()),
                Reply::Integer(share.port),
                Reply::text(name(table.cluster, share.node)),
                Reply::Array(Vec::new()),
            ]),
        ])
    };
    Reply::Array(shares.iter().map(slot).collect())
}

fn shards(table: &RoutingTable, shares: &[Share]) -> Reply {
    let field = |name: &str, value: Reply| (Reply::text(name), value);
    let shard = |share: &Share| {
        let node = Reply::Map(vec![
            field("id", Reply::text(name(table.cluster, share.node))),
            field("port", Reply::Integer(share.port)),
            field("ip", Reply::text(share.host.clone())),
            field("endpoint", Reply::text(share.host.clone())),
            field("role", Reply::text("master")),
            field("replication-offset", Reply::Integer(0)),
            field("health", Reply::text("online")),
        ]);
        let slots = [share.first, share.last].map(|slot| Reply::Integer(slot.into()));
        Reply::Map(vec![
            field("slots", Reply::Array(slots.into())),
            field("nodes", Reply::Array(vec![node])),
        ])
    };
    Reply::Array(shares.iter().map(shard).collect())
}

fn nodes(table: &RoutingTable, shares: &[Share], me: NodeId) -> String {
    let line = |share: &Share| {
        let flags = if share.node == me {
            "myself,master"
        } else {
            "master"
        };
        format!(
            "{} {}:{}@{} {flags} - 0 0 {} connected {}-{}\n",
            name(table.cluster, share.node),
            share.host,
            share.port,
            share.port,
            table.epoch.0,
            share.first,
            share.last,
        )
    };
    shares.iter().map(line).collect()
}

fn info(table: &RoutingTable, shares: &[Share]) -> String {
    let (epoch, count) = (table.epoch.0, shares.len());
    let slots = if shares.is_empty() { 0 } else { SLOTS };
    let lines = [
        "cluster_state:ok".to_owned(),
        format!("cluster_slots_assigned:{slots}"),
        format!("cluster_slots_ok:{slots}"),
        "cluster_slots_pfail:0".to_owned(),
        "cluster_slots_fail:0".to_owned(),
        format!("cluster_known_nodes:{count}"),
        format!("cluster_size:{count}"),
        format!("cluster_current_epoch:{epoch}"),
        format!("cluster_my_epoch:{epoch}"),
        String::new(),
    ];
    lines.join("\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_split_evenly_and_all_of_them() {
        for count in [1_u64, 2, 3, 7, 100] {
            let door = |node| (NodeId(node), format!("10.0.0.{node}:7463"));
            let shares = shares((1..=count).map(door).collect());
            let mut next = 0;
            for share in &shares {
                assert_eq!(u64::from(share.first), next);
                let size = u64::from(share.last) + 1 - next;
                let even = u64::from(SLOTS) / count;
                assert!((even..=even + 1).contains(&size), "{share:?}");
                next += size;
            }
            assert_eq!(next, u64::from(SLOTS));
        }
        assert!(shares(BTreeMap::new()).is_empty());
    }

    #[test]
    fn an_address_is_split_into_host_and_port() {
        let doors = [(NodeId(1), "[::1]:7463".to_owned())];
        let share = shares(doors.into()).remove(0);
        assert_eq!((&*share.host, share.port), ("::1", 7463));
        assert_eq!(name(ClusterId([7; 16]), NodeId(3)).len(), 40);
    }
}
