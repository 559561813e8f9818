//! Nodes that join, leave and are replaced, one change at a time, while other faults continue.
//!
//! It starts a change and checks it between faults until the cluster has carried it out.
//! Requests are idempotent, so it repeats them while no transition runs and the change is
//! not done.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use torc_client::{Client, ClusterStatus, GoOptions, MemberState, NodeId};
use torc_proto::v1::IdentifyRequest;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_sim::Rng;

use super::Error;
use super::group::Group;

/// Time limit for a change, faults included.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Time to watch a node that has lost its disk before it is replaced.
const WATCHED: Duration = Duration::from_secs(1);
/// Time limit for an empty node to answer.
const STARTING: Duration = Duration::from_secs(60);
/// Partitions that move at a time: few, so that faults hit moves.
const PARALLEL: u32 = 8;

#[derive(Debug, Clone, Copy)]
struct Member {
    number: u32,
    id: NodeId,
}

/// A running change.
#[derive(Debug, Clone)]
struct Running {
    name: &'static str,
    newcomer: Option<u32>,
    goes: Option<Member>,
    is_dead: bool,
    begun: Instant,
    last_error: String,
}

/// The changes of a run.
pub(super) struct Changes {
    client: Client,
    rng: Rng,
    nodes: usize,
    running: Option<Running>,
    done: BTreeMap<&'static str, u64>,
    slowest: Duration,
}

impl Changes {
    /// Changes for a cluster with `nodes` nodes, and one more at times.
    pub(super) fn new(group: &Group, nodes: u8, seed: u64) -> Result<Self, Error> {
        Ok(Self {
            client: client(group)?,
            rng: Rng::new(seed ^ 0x6368_616e),
            nodes: usize::from(nodes),
            running: None,
            done: BTreeMap::new(),
            slowest: Duration::ZERO,
        })
    }

    /// Completed changes, by kind.
    pub(super) const fn done(&self) -> &BTreeMap<&'static str, u64> {
        &self.done
    }

    pub(super) const fn slowest(&self) -> Duration {
        self.slowest
    }

    /// Number of joins, leaves and replacements of living nodes, which `--changes` counts.
    pub(super) fn done_in_order(&self) -> u64 {
        let wiped = self.done.get("replace_wiped").copied().unwrap_or(0);
        self.done.values().sum::<u64>() - wiped
    }

    /// Begins the next change: adds, removes or replaces a node.
    pub(super) fn begin(&mut self, group: &mut Group) -> Result<(), Error> {
        // All nodes known to the last client may have left by now.
        self.client = client(group)?;
        let members = group.members();
        let is_replaced = self.rng.chance(333);
        let goes = if is_replaced || members.len() > self.nodes {
            self.rng.pick(&members).and_then(|index| {
                let process = &group.processes[index];
                let (number, id) = (process.number, process.id?);
                Some(Member { number, id })
            })
        } else {
            None
        };
        let comes = is_replaced || goes.is_none();
        let newcomer = comes.then(|| group.spare()).transpose()?;
        let name = match (newcomer, goes) {
            (Some(_), None) => "join",
            (None, _) => "leave",
            (Some(_), Some(_)) => "replace",
        };
        if let Some(goes) = goes {
            group.see_off(goes.number);
        }
        self.run(name, newcomer, goes, false);
        Ok(())
    }

    fn run(
        &mut self,
        name: &'static str,
        newcomer: Option<u32>,
        goes: Option<Member>,
        is_dead: bool,
    ) {
        self.running = Some(Running {
            name,
            newcomer,
            goes,
            is_dead,
            begun: Instant::now(),
            last_error: String::new(),
        });
    }

    /// Kills a member and deletes its disk. The node that starts in its place must not claim the
    /// member's identity; a new node then replaces the member, which is dead for good.
    pub(super) async fn wipe(&mut self, group: &mut Group) -> Result<(), String> {
        let Some(index) = self.rng.pick(&group.members()) else {
            return Ok(());
        };
        let process = &mut group.processes[index];
        let number = process.number;
        let Some(id) = process.id else {
            return Ok(());
        };
        let told = |error: Error| error.to_string();
        process.lose_data().map_err(told)?;
        process.start().map_err(told)?;
        let address = process.kvd.grpc;
        self.client = client(group).map_err(told)?;
        if let Some(known) = identity_of_wiped(&address.to_string()).await? {
            return Err(format!(
                "a node that lost its disk came back as node {known}, it was node {id}"
            ));
        }
        if let Some(process) = group.process(number) {
            process.kvd.kill_9();
        }
        group.see_off(number);
        let newcomer = group.spare().map_err(told)?;
        self.run(
            "replace_wiped",
            Some(newcomer),
            Some(Member { number, id }),
            true,
        );
        Ok(())
    }

    /// Advances the running change; returns whether none is running any more.
    pub(super) async fn look_after(&mut self, group: &mut Group) -> Result<bool, String> {
        let Some(mut running) = self.running.take() else {
            return Ok(true);
        };
        match self.client.status().await {
            Ok(status) => {
                if is_there(&running, group, &status) {
                    self.end(&running, &status, group);
                    return Ok(true);
                }
                if status.transition.is_none()
                    && let Err(error) = self.ask(&running, group).await
                {
                    running.last_error = error.to_string();
                }
            }
            Err(error) => running.last_error = error.to_string(),
        }
        if running.begun.elapsed() > TIMEOUT {
            let Running {
                name, last_error, ..
            } = running;
            return Err(format!(
                "{name} is not done within {TIMEOUT:?}: {last_error}"
            ));
        }
        self.running = Some(running);
        Ok(false)
    }

    async fn ask(&self, running: &Running, group: &mut Group) -> Result<(), torc_client::Error> {
        let options = GoOptions {
            parallel: Some(PARALLEL),
            force: false,
            dead: running.is_dead,
        };
        let address = |number| Some(group.process(number)?.kvd.grpc.to_string());
        let newcomer = running.newcomer.and_then(address);
        match (newcomer, running.goes) {
            (Some(address), None) => self.client.join(address, options.parallel).await.map(drop),
            (Some(address), Some(old)) => self
                .client
                .replace(old.id, address, options)
                .await
                .map(drop),
            (None, Some(old)) => self.client.leave_with(old.id, options).await.map(drop),
            (None, None) => Ok(()),
        }
    }

    fn end(&mut self, running: &Running, status: &ClusterStatus, group: &mut Group) {
        if let Some(number) = running.newcomer
            && let Some(id) = active_id(number, group, status)
        {
            group.admit(number, id);
        }
        if let Some(old) = running.goes {
            group.forget(old.number);
        }
        *self.done.entry(running.name).or_default() += 1;
        self.slowest = self.slowest.max(running.begun.elapsed());
    }
}

/// A client of the present nodes.
fn client(group: &Group) -> Result<Client, Error> {
    Ok(group.client()?.with_deadline(Duration::from_secs(5)))
}

/// Whether the change is complete.
fn is_there(running: &Running, group: &mut Group, status: &ClusterStatus) -> bool {
    let is_old =
        |node: &torc_client::NodeStatus| running.goes.is_some_and(|old| old.id == node.member.id);
    let is_over = status.transition.is_none() && !status.nodes.iter().any(is_old);
    let newcomer = running.newcomer;
    is_over && newcomer.is_none_or(|number| active_id(number, group, status).is_some())
}

/// The id of a process that has become a member with positions on the ring.
fn active_id(number: u32, group: &mut Group, status: &ClusterStatus) -> Option<NodeId> {
    let address = group.process(number)?.kvd.grpc.to_string();
    let mut members = status.nodes.iter().map(|node| &node.member);
    let member = members.find(|member| member.address == address)?;
    (member.state == MemberState::Active).then_some(member.id)
}

/// The identity that a node without data claims, now and a little later; correct is none.
async fn identity_of_wiped(address: &str) -> Result<Option<u64>, String> {
    let begun = Instant::now();
    let mut answered = None;
    loop {
        match identity(address).await {
            Ok(Some(known)) => return Ok(Some(known)),
            Ok(None) => {
                let first = *answered.get_or_insert_with(Instant::now);
                if first.elapsed() > WATCHED {
                    return Ok(None);
                }
            }
            Err(error) if begun.elapsed() > STARTING => {
                return Err(format!("a node that lost its disk does not start: {error}"));
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The identity that a node claims; `None` if it has none yet.
async fn identity(address: &str) -> Result<Option<u64>, String> {
    let replica = ReplicaClient::connect(format!("http://{address}")).await;
    let mut replica = replica.map_err(|error| error.to_string())?;
    let answer = replica.identify(IdentifyRequest::default()).await;
    let answer = answer.map_err(|status| status.to_string())?.into_inner();
    Ok((!answer.cluster_id.is_empty()).then_some(answer.node))
}
