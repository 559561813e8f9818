//! The cluster's answer: adds every member's window and estimates all candidates on the sum.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join_all};
use torc_proto::v1::{
    self, HotCourse, HotEstimate, HotHistory, HotKeysRequest, HotKeysResponse, HotNode, HotSeries,
    HotWindowRequest, HotWindowResponse,
};
use torc_proto::{Fault, Reason};
use torc_record::{Digest, NamespaceId};
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;
use torc_sketch::hot_keys::{
    HotAnswer, HotKey, HotKeys, HotKeysOptions, Interval, NamespaceIntervals, NodeWindow, hottest,
};
use torc_telemetry::clock::unix_ms;

use super::history::{Windows, decode, decode_only};
use super::series::{self, Grid};
use super::{Hot, MAX_WINDOW_MS, options_of};

const USUAL_WINDOW_MS: u64 = 60_000;
const MAX_TOP: u32 = 1_000;
const USUAL_TOP: u32 = 20;
pub(super) const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest window accepted from a node.
const MAX_WINDOW_BYTES: usize = 7 << 20;

/// Asks other members for their counts.
pub trait Members: Send + Sync {
    /// The counts of a member, as [`Hot::own`] gives them there. It has `limit` to answer.
    fn hot_window<'a>(
        &'a self,
        table: &'a RoutingTable,
        node: NodeId,
        request: HotWindowRequest,
        limit: Duration,
    ) -> BoxFuture<'a, Result<HotWindowResponse, Fault>>;
}

/// A query for the counts of the cluster, and what the queried node knows.
#[derive(Debug)]
pub struct Asked {
    /// Its routing table.
    pub table: Arc<RoutingTable>,
    /// Its id.
    pub me: NodeId,
    /// The namespace that the request names.
    pub namespace: NamespaceId,
    /// The request.
    pub request: HotKeysRequest,
    /// When the answer must be complete; members that do not answer by then are named in it.
    pub deadline: Instant,
}

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
            "a window has at most 24 hours, because nodes keep no older counts",
        )),
    }
}

impl Hot {
    /// The windows of this node, `me`.
    #[must_use = "nothing is asked unless it is awaited"]
    pub fn own(
        &self,
        me: NodeId,
        request: HotWindowRequest,
    ) -> BoxFuture<'_, Result<HotWindowResponse, Fault>> {
        Box::pin(async move {
            let window_ms = check_window(request.window_ms)?;
            let namespace = NamespaceId(request.namespace);
            if let Some(course) = &request.course {
                let (grid, keys) = check_course(course)?;
                return Ok(HotWindowResponse {
                    node: me.0,
                    series: self.course(window_ms, namespace, keys, grid).await?,
                    ..HotWindowResponse::default()
                });
            }
            let own = self.put_together(window_ms, namespace).await?;
            let encoded = |interval: &Interval| {
                let mut bytes = Vec::new();
                interval.encode(&mut bytes);
                bytes.into()
            };
            Ok(HotWindowResponse {
                node: me.0,
                window: encoded(&own.window),
                previous: encoded(&own.previous),
                previous_known: own.previous_known,
                series: Vec::new(),
            })
        })
    }

    /// The recent accesses to a key at this node; `None` where accesses are not counted.
    #[must_use = "nothing is asked unless it is awaited"]
    pub fn estimate<'a>(
        &'a self,
        namespace: NamespaceId,
        digest: &'a Digest,
    ) -> BoxFuture<'a, Option<HotEstimate>> {
        Box::pin(async move {
            let own = self.put_together(USUAL_WINDOW_MS, namespace).await.ok()?;
            let counts = own.window.counts();
            Some(HotEstimate {
                from_ms: own.window.from_ms(),
                to_ms: own.window.to_ms(),
                accesses: own.window.total(),
                estimate: counts.estimate(digest).max(0).unsigned_abs(),
                error_bound: counts.error_bound(),
            })
        })
    }

    /// The hot keys as counted by all members or the requested one. The answer names the members
    /// that did not answer.
    #[must_use = "nothing is asked unless it is awaited"]
    pub fn gather<'a>(
        &'a self,
        members: &'a dyn Members,
        asked: Asked,
    ) -> BoxFuture<'a, Result<HotKeysResponse, Fault>> {
        Box::pin(async move {
            let window_ms = check_window(asked.request.window_ms)?;
            let top = check_request(&asked.request)?;
            let asking = Asking {
                hot: self,
                members,
                asked: &asked,
                window_ms,
            };
            let nodes = nodes_of(&asked.table, asked.request.node)?;
            let windows = nodes
                .into_iter()
                .map(async |node| (node, asking.window(node).await));
            let gathered = Gathered::of(join_all(windows).await)?;
            let (redact, me, namespace) = (self.settings.redact, asked.me, asked.namespace);
            let table = Arc::clone(&asked.table);
            let adding = move || gathered.add_up(&table, me, namespace, top, redact);
            let mut answer = tokio::task::spawn_blocking(adding).await.map_err(|_| {
                Fault::new(
                    Reason::Internal,
                    "adding the nodes' counts failed: report this",
                )
            })??;
            if asked.request.steps > 0 {
                answer.history = asking.history(&answer, asked.request.steps).await;
            }
            Ok(answer)
        })
    }

    /// The history of some keys at this node.
    async fn course(
        &self,
        window_ms: u64,
        namespace: NamespaceId,
        keys: Vec<Digest>,
        grid: Grid,
    ) -> Result<Vec<HotSeries>, Fault> {
        let options = self.options()?;
        let _permit = self.query().await?;
        let windows = self.history.windows(&self.scratch, unix_ms(), window_ms);
        let windows = windows.await;
        let drawing = move || series::series(&windows.window, &options, namespace, &keys, grid);
        tokio::task::spawn_blocking(drawing)
            .await
            .map_err(|_| Fault::new(Reason::Internal, "reading intervals failed: report this"))
    }

    /// Merges up to a few hundred intervals, on a thread that serves no requests.
    async fn put_together(&self, window_ms: u64, namespace: NamespaceId) -> Result<Own, Fault> {
        let options = self.options()?;
        let _permit = self.query().await?;
        let now_ms = unix_ms();
        let windows = self.history.windows(&self.scratch, now_ms, window_ms);
        let windows = windows.await;
        let merging = move || merge(&windows, &options, namespace, now_ms);
        tokio::task::spawn_blocking(merging)
            .await
            .map_err(|_| Fault::new(Reason::Internal, "merging intervals failed: report this"))
    }
}

/// The number of keys to list.
fn check_request(request: &HotKeysRequest) -> Result<u32, Fault> {
    if request.steps > series::MAX_STEPS {
        let message = format!(
            "cannot draw {} steps: ask for at most {}",
            request.steps,
            series::MAX_STEPS
        );
        return Err(Fault::new(Reason::Invalid, message));
    }
    match request.top {
        0 => Ok(USUAL_TOP),
        top @ 1..=MAX_TOP => Ok(top),
        top => {
            let message = format!("cannot list {top} keys: ask for at most {MAX_TOP}");
            Err(Fault::new(Reason::Invalid, message))
        }
    }
}

fn check_course(course: &HotCourse) -> Result<(Grid, Vec<Digest>), Fault> {
    let invalid = |message: String| Fault::new(Reason::Invalid, message);
    if course.digests.len() > series::MAX_KEYS
        || course.steps == 0
        || course.steps > series::MAX_STEPS
        || course.step_ms == 0
        || course.step_ms > MAX_WINDOW_MS
        || course.from_ms > u64::MAX / 2
    {
        let message = format!(
            "ask for the history of 0 to {} keys in 1 to {} steps of 1 ms to 24 hours",
            series::MAX_KEYS,
            series::MAX_STEPS
        );
        return Err(invalid(message));
    }
    let digests = course.digests.iter().map(|bytes| {
        let bytes = <[u8; 16]>::try_from(&bytes[..]);
        bytes.map(Digest)
    });
    let digests = digests.collect::<Result<Vec<_>, _>>();
    let keys = digests.map_err(|_| invalid("a digest has 16 bytes".to_owned()))?;
    let grid = Grid {
        from_ms: course.from_ms,
        step_ms: course.step_ms,
        steps: course.steps,
    };
    Ok((grid, keys))
}

fn merge(windows: &Windows, options: &HotKeysOptions, namespace: NamespaceId, now_ms: u64) -> Own {
    let sum = |parts: &[Arc<[u8]>]| {
        let parts = parts
            .iter()
            .filter_map(|bytes| decode_only(bytes, options, namespace))
            .flat_map(NamespaceIntervals::into_streams);
        let sum = parts.reduce(|mut sum, part| {
            // Cannot fail: the parts have the same seed and shape, as checked when they were read.
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

fn nodes_of(table: &RoutingTable, only: u64) -> Result<Vec<NodeId>, Fault> {
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

/// One query for the counts of members.
struct Asking<'a> {
    hot: &'a Hot,
    members: &'a dyn Members,
    asked: &'a Asked,
    window_ms: u64,
}

impl Asking<'_> {
    async fn peer(
        &self,
        node: NodeId,
        course: Option<HotCourse>,
    ) -> Result<HotWindowResponse, Fault> {
        let left = self
            .asked
            .deadline
            .saturating_duration_since(Instant::now());
        let request = HotWindowRequest {
            window_ms: self.window_ms,
            namespace: self.asked.namespace.0,
            course,
        };
        let limit = left.min(ASK_TIMEOUT);
        let answer = self
            .members
            .hot_window(&self.asked.table, node, request, limit);
        answer.await
    }

    async fn window(&self, node: NodeId) -> Result<Own, Fault> {
        if self.asked.me == node {
            return self
                .hot
                .put_together(self.window_ms, self.asked.namespace)
                .await;
        }
        let answer = self.peer(node, None).await?;
        let options = options_of(&self.hot.settings, &self.asked.table.digest_key);
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
            let message = "its counts are damaged or incompatible: use the same \
                           --hot-keys-epsilon, --hot-keys-delta and release on all nodes";
            Fault::new(Reason::Internal, message)
        })
    }

    /// The history of the answer's first keys, over all nodes that count accesses in it.
    async fn history(&self, answer: &HotKeysResponse, steps: u32) -> Option<HotHistory> {
        let grid = Grid::over(answer.from_ms, answer.to_ms, steps);
        let keys = answer.keys.iter().take(series::MAX_KEYS);
        let course = HotCourse {
            from_ms: grid.from_ms,
            step_ms: grid.step_ms,
            steps: grid.steps,
            digests: keys.map(|key| key.digest.clone()).collect(),
        };
        let busy = answer.nodes.iter().filter(|node| node.accesses > 0);
        let asked = busy.map(async |node| self.course(NodeId(node.node), course.clone()).await);
        let mut sum = series::nothing(course.digests.len(), grid);
        for told in join_all(asked).await {
            if !series::add(&mut sum, &told.ok()?) {
                return None;
            }
        }
        Some(HotHistory {
            from_ms: grid.from_ms,
            step_ms: grid.step_ms,
            series: sum,
        })
    }

    async fn course(&self, node: NodeId, course: HotCourse) -> Result<Vec<HotSeries>, Fault> {
        if self.asked.me == node {
            let (grid, keys) = check_course(&course)?;
            let hot = self.hot;
            return hot
                .course(self.window_ms, self.asked.namespace, keys, grid)
                .await;
        }
        Ok(self.peer(node, Some(course)).await?.series)
    }
}

/// The counts of the members.
struct Gathered {
    windows: Vec<NodeWindow>,
    previous: Option<Interval>,
    nodes: Vec<HotNode>,
}

impl Gathered {
    /// # Errors
    /// The first node's fault if no node answered.
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
                        // Cannot fail: all windows have the same seed and shape, as checked when
                        // they were read.
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
        // The window of a node without accesses covers no real time and would stretch the result.
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
