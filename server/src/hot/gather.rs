//! The cluster's answer: every member's window, added up, and all candidates asked of the sum.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use torc_proto::v1::{
    self, HotEstimate, HotKeysRequest, HotKeysResponse, HotNode, HotWindowRequest,
    HotWindowResponse,
};
use torc_proto::{Fault, Reason};
use torc_record::{Digest, NamespaceId};
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;
use torc_sketch::hot_keys::{
    HotAnswer, HotKey, HotKeys, HotKeysOptions, Interval, NodeWindow, hottest,
};

use super::history::{Windows, decode};
use super::options_of;
use crate::clock::unix_ms;
use crate::kv::find_namespace;
use crate::peers::within;
use crate::recipient::Recipient;
use crate::shared::Shared;

pub(super) const MAX_WINDOW_MS: u64 = 24 * 3600 * 1000;
const USUAL_WINDOW_MS: u64 = 60_000;
const MAX_TOP: u32 = 1_000;
const USUAL_TOP: u32 = 20;
const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest window that is taken from a node.
const MAX_WINDOW_BYTES: usize = 4 << 20;

/// What one node has counted.
struct Own {
    window: Interval,
    previous: Interval,
    previous_known: bool,
}

fn check_window(window_ms: u64) -> Result<u64, Fault> {
    match window_ms {
        0 => Ok(USUAL_WINDOW_MS),
        1..=MAX_WINDOW_MS => Ok(window_ms),
        _ => Err(Fault::new(
            Reason::Invalid,
            "a window of more than 24 hours: what was counted before is not kept",
        )),
    }
}

/// This node's windows.
pub(crate) async fn own(
    shared: &Arc<Shared>,
    request: HotWindowRequest,
) -> Result<HotWindowResponse, Fault> {
    let window_ms = check_window(request.window_ms)?;
    let own = put_together(shared, window_ms).await?;
    let encoded = |interval: &Interval| {
        let mut bytes = Vec::new();
        interval.encode(&mut bytes);
        bytes.into()
    };
    Ok(HotWindowResponse {
        node: shared.node()?.0,
        window: encoded(&own.window),
        previous: encoded(&own.previous),
        previous_known: own.previous_known,
    })
}

/// Up to some hundred intervals are merged on a thread that serves no requests.
async fn put_together(shared: &Arc<Shared>, window_ms: u64) -> Result<Own, Fault> {
    let hot = &shared.hot;
    let options = hot.options()?;
    let stopping = |_| Fault::new(Reason::NotServing, "the node is stopping: try another one");
    let _permit = hot.queries.acquire().await.map_err(stopping)?;
    let now_ms = unix_ms();
    let windows = hot
        .history
        .windows(&shared.scratch, now_ms, window_ms)
        .await;
    let merging = tokio::task::spawn_blocking(move || merge(&windows, &options, now_ms));
    merging
        .await
        .map_err(|_| Fault::new(Reason::Internal, "merging intervals failed: report this"))
}

fn merge(windows: &Windows, options: &HotKeysOptions, now_ms: u64) -> Own {
    let sum = |parts: &[Arc<[u8]>]| {
        let parts = parts.iter().filter_map(|bytes| decode(bytes, options));
        let sum = parts.reduce(|mut sum, part| {
            // All were checked to count alike.
            let _ = sum.merge(part);
            sum
        });
        sum.unwrap_or_else(|| HotKeys::new(options, now_ms).snapshot(now_ms))
    };
    Own {
        window: sum(&windows.window),
        previous: sum(&windows.previous),
        previous_known: windows.previous_known,
    }
}

/// How often a key was accessed here of late; none where accesses are not counted.
pub(crate) async fn estimate(shared: &Arc<Shared>, digest: &Digest) -> Option<HotEstimate> {
    let own = put_together(shared, USUAL_WINDOW_MS).await.ok()?;
    let counts = own.window.counts();
    Some(HotEstimate {
        from_ms: own.window.from_ms(),
        to_ms: own.window.to_ms(),
        accesses: own.window.total(),
        estimate: counts.estimate(digest).max(0).unsigned_abs(),
        error_bound: counts.error_bound(),
    })
}

/// What is hot, by all members or the one that was named. Members that do not answer are
/// named in the answer.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    request: HotKeysRequest,
    deadline: Instant,
) -> Result<HotKeysResponse, Fault> {
    let table = shared.routing()?;
    let me = shared.node()?;
    let namespace = find_namespace(&table, &request.namespace)?;
    let window_ms = check_window(request.window_ms)?;
    let top = match request.top {
        0 => USUAL_TOP,
        top @ 1..=MAX_TOP => top,
        top => {
            let message = format!("the top {top} keys: ask for {MAX_TOP} at most");
            return Err(Fault::new(Reason::Invalid, message));
        }
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = left.min(ASK_TIMEOUT);
    let asked = members(&table, request.node)?.into_iter().map(|node| {
        let table = &table;
        async move { (node, one(shared, table, node, window_ms, limit).await) }
    });
    let answers = join_all(asked).await;
    let gathered = Gathered::of(answers)?;
    let redact = shared.hot.settings.redact;
    let adding = move || gathered.add_up(&table, me, namespace, top, redact);
    tokio::task::spawn_blocking(adding)
        .await
        .map_err(|_| Fault::new(Reason::Internal, "adding nodes up failed: report this"))?
}

fn members(table: &RoutingTable, only: u64) -> Result<Vec<NodeId>, Fault> {
    if only == 0 {
        return Ok(table.members.keys().copied().collect());
    }
    let only = NodeId(only);
    if !table.members.contains_key(&only) {
        let message = format!("there is no node {only}: `kvctl status` lists them");
        return Err(Fault::new(Reason::NoSuchNode, message));
    }
    Ok(vec![only])
}

async fn one(
    shared: &Arc<Shared>,
    table: &RoutingTable,
    node: NodeId,
    window_ms: u64,
    limit: Duration,
) -> Result<Own, Fault> {
    if shared.identity.node() == Some(node) {
        return put_together(shared, window_ms).await;
    }
    let mut client = shared.peers.cluster(&Recipient::of(table, node)?)?;
    let asked = client.hot_window(within(limit, HotWindowRequest { window_ms }));
    let silent = |_| Fault::new(Reason::Deadline, "it did not answer in time");
    let answer = tokio::time::timeout(limit, asked).await.map_err(silent)?;
    let answer = answer.map_err(|status| Fault::from_status(&status))?;
    let answer = answer.into_inner();
    let options = options_of(&table.digest_key);
    let read = move || {
        let read = |bytes: &[u8]| {
            let fits = bytes.len() <= MAX_WINDOW_BYTES;
            fits.then(|| decode(bytes, &options)).flatten()
        };
        Some(Own {
            window: read(&answer.window)?,
            previous: read(&answer.previous)?,
            previous_known: answer.previous_known,
        })
    };
    let read = tokio::task::spawn_blocking(read).await.ok().flatten();
    read.ok_or_else(|| {
        let message = "its counts are damaged, or made in another way: is it of another release?";
        Fault::new(Reason::Internal, message)
    })
}

/// What the members have counted.
struct Gathered {
    windows: Vec<NodeWindow>,
    previous: Option<Interval>,
    nodes: Vec<HotNode>,
}

impl Gathered {
    /// # Errors
    /// The first node's fault if none has answered.
    fn of(answers: Vec<(NodeId, Result<Own, Fault>)>) -> Result<Self, Fault> {
        let (mut windows, mut nodes) = (Vec::new(), Vec::new());
        let (mut previous, mut all_known, mut first_fault) = (None::<Interval>, true, None);
        for (node, answer) in answers {
            match answer {
                Ok(own) => {
                    nodes.push(described(node, &own.window));
                    windows.push(NodeWindow {
                        node: node.0,
                        interval: own.window,
                    });
                    all_known &= own.previous_known;
                    match &mut previous {
                        // All were checked to count alike.
                        Some(sum) => drop(sum.merge(own.previous)),
                        None => previous = Some(own.previous),
                    }
                }
                Err(fault) => {
                    nodes.push(HotNode {
                        node: node.0,
                        problem: fault.message.clone(),
                        ..HotNode::default()
                    });
                    first_fault.get_or_insert(fault);
                }
            }
        }
        if let Some(fault) = first_fault.filter(|_| windows.is_empty()) {
            return Err(Fault {
                maybe_applied: false,
                ..fault
            });
        }
        Ok(Self {
            windows,
            previous: previous.filter(|_| all_known),
            nodes,
        })
    }

    fn add_up(
        self,
        table: &RoutingTable,
        me: NodeId,
        namespace: NamespaceId,
        top: u32,
        redact: bool,
    ) -> Result<HotKeysResponse, Fault> {
        let otherwise = |error| Fault::new(Reason::Internal, format!("{error}"));
        // A node without accesses has no time of its own: it would stretch the window.
        let (busy, idle): (Vec<_>, Vec<_>) = self
            .windows
            .into_iter()
            .partition(|window| window.interval.total() > 0);
        let counted = if busy.is_empty() { idle } else { busy };
        let Some(mut answer) = hottest(&counted).map_err(otherwise)? else {
            return Err(Fault::new(Reason::NotServing, "the cluster has no members"));
        };
        if let Some(previous) = &self.previous {
            answer.compare(previous).map_err(otherwise)?;
        }
        let names: BTreeMap<NamespaceId, &str> = table
            .namespaces
            .iter()
            .map(|(name, namespace)| (namespace.id, name.as_str()))
            .collect();
        let keys = answer.keys.iter();
        let keys = keys.filter(|key| key.name.namespace == namespace);
        let keys = keys.take(top as usize);
        let keys = keys.map(|key| key_to_wire(key, &names, redact)).collect();
        Ok(HotKeysResponse {
            answered_by: me.0,
            keys,
            nodes: self.nodes,
            ..totals(&answer)
        })
    }
}

fn totals(answer: &HotAnswer) -> HotKeysResponse {
    HotKeysResponse {
        from_ms: answer.window.from_ms(),
        to_ms: answer.window.to_ms(),
        accesses: answer.window.total(),
        error_bound: answer.error_bound,
        delta: answer.delta,
        complete_from: answer.complete_from,
        majority: answer.majority.map(|majority| v1::HotMajority {
            digest: majority.digest.0.to_vec().into(),
            certain: majority.is_certain,
        }),
        ..HotKeysResponse::default()
    }
}

fn described(node: NodeId, window: &Interval) -> HotNode {
    let accesses = window.total();
    let time = |ms| if accesses == 0 { 0 } else { ms };
    HotNode {
        node: node.0,
        accesses,
        from_ms: time(window.from_ms()),
        to_ms: time(window.to_ms()),
        problem: String::new(),
    }
}

fn key_to_wire(key: &HotKey, names: &BTreeMap<NamespaceId, &str>, redact: bool) -> v1::HotKey {
    let name = names.get(&key.name.namespace).copied();
    let bytes = key.name.key.as_deref().filter(|_| !redact);
    let nodes = key.nodes.iter();
    v1::HotKey {
        digest: key.digest.0.to_vec().into(),
        namespace: name.unwrap_or_default().to_owned(),
        key: bytes.unwrap_or_default().to_vec().into(),
        estimate: key.estimate,
        share: key.share,
        nodes: nodes
            .map(|&(node, estimate)| v1::HotKeyNode { node, estimate })
            .collect(),
        is_new: key.is_new,
    }
}
