//! Commands and reads through the leader.
//!
//! A caller asks its own node. The node answers as the leader or asks the leader, and
//! retries during elections until the caller's deadline. It also retries attempts of
//! unknown outcome, because commands are idempotent.

use std::time::Duration;

use openraft::LogIdOptionExt as _;
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use tokio::time::{Instant, sleep_until, timeout_at};
use torc_ring::NodeId;
use torc_ring::topology::{Command, Outcome, Topology, TopologyError};

use crate::peers::Rpc;
use crate::raft::WriteError;
use crate::running::Running;
use crate::wire::{Answer, Ask, MAX_COMMAND_LEN, Question};
use crate::{Deadline, GroupError, TopologyGroup};

/// Pauses between attempts double from the first value to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// How long to wait for a node's answer after another one was elected: by then, the
/// question is decided or lost.
const GRACE: Duration = Duration::from_millis(500);

/// Time limit for another node's answer before the question goes elsewhere.
const ATTEMPT: Duration = Duration::from_secs(3);

/// How often a node that does not lead may forward a question.
const MOST_FORWARDS: u8 = 1;

/// The outcome of one attempt.
enum Attempt {
    Answered(Answer),
    /// No node was asked, or the asked node did nothing.
    NotAsked,
    /// A leader was asked and may or may not carry it out.
    Open,
    Fatal(GroupError),
}

impl TopologyGroup {
    /// Commits a command through the leader and returns its result. Retries during
    /// elections until the deadline; may send the command more than once. Costs two
    /// fsyncs on a majority.
    ///
    /// # Errors
    /// [`GroupError::Refused`] if the topology refuses the command;
    /// [`GroupError::NoLeader`] if no leader was reachable in time;
    /// [`GroupError::Unavailable`] if one was, and the outcome is unknown.
    pub async fn propose(
        &self,
        command: Command,
        deadline: impl Into<Deadline>,
    ) -> Result<Outcome, GroupError> {
        command.check()?;
        fits(&command)?;
        match self.ask(Ask::Commit(command), deadline.into()).await? {
            Answer::Applied(result) => Ok(result?),
            other => Err(self.misfit(&other)),
        }
    }

    /// A linearizable read: the topology with everything committed before this call.
    /// Costs a round trip to the leader and one from it to a majority.
    ///
    /// # Errors
    /// [`GroupError::NoLeader`] or [`GroupError::Lagging`] if the deadline passes first;
    /// [`GroupError::Refused`] if no cluster was founded.
    pub async fn read_current(
        &self,
        deadline: impl Into<Deadline>,
    ) -> Result<std::sync::Arc<Topology>, GroupError> {
        let deadline = deadline.into();
        let index = match self.ask(Ask::ReadIndex, deadline).await? {
            Answer::ReadIndex(index) => index,
            other => return Err(self.misfit(&other)),
        };
        let running = self.running()?;
        let wait = running.raft.wait(Some(deadline.remaining()));
        if wait
            .applied_index_at_least(index, "a linearizable read")
            .await
            .is_err()
        {
            return Err(match running.failed() {
                Some(reason) => GroupError::Failed { reason },
                None => GroupError::Lagging,
            });
        }
        self.topology()
            .ok_or(GroupError::Refused(TopologyError::NotFounded))
    }

    async fn ask(&self, ask: Ask, deadline: Deadline) -> Result<Answer, GroupError> {
        let (mut pause, longest) = PAUSES;
        let mut open = false;
        for attempts in 0.. {
            let running = self.running()?;
            if let Some(reason) = running.failed() {
                return Err(GroupError::Failed { reason });
            }
            let attempt = match self.whom_to_ask(running, attempts) {
                Some(node) if node == running.node => running.decide(&ask, deadline).await,
                Some(node) => running.ask_at(node, &ask, deadline, MOST_FORWARDS).await,
                None => Attempt::NotAsked,
            };
            match attempt {
                Attempt::Answered(answer) => return Ok(answer),
                Attempt::Fatal(error) => return Err(error),
                Attempt::Open => open = true,
                Attempt::NotAsked => {}
            }
            if deadline.passed() {
                break;
            }
            let until = deadline.instant().min(Instant::now() + pause);
            running.leader_changes_before(until).await;
            pause = longest.min(pause * 2);
        }
        let unknown = open && ask.changes();
        Err(if unknown {
            GroupError::Unavailable
        } else {
            GroupError::NoLeader
        })
    }

    /// The leader as far as this node knows; every other time some other member, which may
    /// know better: a node that moved receives nothing until the others know its new
    /// address.
    fn whom_to_ask(&self, running: &Running, attempts: usize) -> Option<NodeId> {
        let leader = running.leader();
        if leader == Some(running.node) || attempts.is_multiple_of(2) {
            return leader;
        }
        let topology = self.topology()?;
        let others = topology
            .members()
            .keys()
            .filter(|node| **node != running.node);
        others.copied().cycle().nth(attempts / 2)
    }

    /// Answers another node's question.
    pub(crate) async fn answer(&self, question: Question) -> Result<Answer, GroupError> {
        let running = self.running()?;
        let deadline = Deadline::from(Duration::from_millis(question.within_ms));
        let attempt = match running.leader() {
            Some(node) if node == running.node => running.decide(&question.ask, deadline).await,
            Some(node) if question.hops > 0 => {
                running
                    .ask_at(node, &question.ask, deadline, question.hops - 1)
                    .await
            }
            leader => Attempt::Answered(Answer::NotLeader(leader)),
        };
        match attempt {
            Attempt::Answered(answer) => Ok(answer),
            Attempt::NotAsked => Ok(Answer::NotLeader(None)),
            Attempt::Open => Ok(Answer::Open),
            Attempt::Fatal(error) => Err(error),
        }
    }

    fn misfit(&self, answer: &Answer) -> GroupError {
        let node = self.leader().unwrap_or_default();
        GroupError::Peer {
            node,
            reason: format!("unexpected kind of answer: {answer:?}"),
        }
    }
}

/// Attempts.
impl Running {
    /// Asks this node's Raft, which is believed to lead.
    async fn decide(&self, ask: &Ask, deadline: Deadline) -> Attempt {
        match ask {
            Ask::Commit(command) => match command.check() {
                Ok(()) => self.commit(command.clone(), deadline).await,
                Err(refused) => Attempt::Answered(Answer::Applied(Err(refused))),
            },
            Ask::ReadIndex => self.read_index(deadline).await,
        }
    }

    async fn commit(&self, command: Command, deadline: Deadline) -> Attempt {
        tokio::select! {
            biased;
            written = self.raft.client_write(command) => match written {
                Ok(written) => Attempt::Answered(Answer::Applied(written.data)),
                Err(error) => self.not_written(error),
            },
            () = self.deposed(self.node) => Attempt::Open,
            () = sleep_until(deadline.instant()) => Attempt::Open,
        }
    }

    fn not_written(&self, error: WriteError) -> Attempt {
        match error {
            // Refused, or removed from the log by the next leader: it will not happen.
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Attempt::NotAsked,
            RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => {
                Attempt::Fatal(GroupError::Failed {
                    reason: error.to_string(),
                })
            }
            RaftError::Fatal(fatal) => {
                let reason = self.failed().unwrap_or_else(|| fatal.to_string());
                Attempt::Fatal(GroupError::Failed { reason })
            }
        }
    }

    async fn read_index(&self, deadline: Deadline) -> Attempt {
        let read = timeout_at(deadline.instant(), self.raft.get_read_log_id()).await;
        match read {
            Ok(Ok((read, _))) => Attempt::Answered(Answer::ReadIndex(read.index())),
            Ok(Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_)))) => {
                Attempt::NotAsked
            }
            Err(_) | Ok(Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)))) => {
                Attempt::Open
            }
            Ok(Err(RaftError::Fatal(fatal))) => {
                let reason = self.failed().unwrap_or_else(|| fatal.to_string());
                Attempt::Fatal(GroupError::Failed { reason })
            }
        }
    }

    /// Asks another node, which is believed to lead.
    async fn ask_at(&self, node: NodeId, ask: &Ask, deadline: Deadline, hops: u8) -> Attempt {
        let deadline = deadline.min(Deadline::from(ATTEMPT));
        let within = deadline.remaining();
        let within_ms = within.as_millis().try_into().unwrap_or(u64::MAX);
        let question = Question {
            ask: ask.clone(),
            within_ms,
            hops,
        };
        let address = self.address_of(node);
        let answer = tokio::select! {
            biased;
            answer = self.peers.call(node, &address, Rpc::Propose, question, within) => answer,
            () = self.deposed(node) => return Attempt::Open,
            () = sleep_until(deadline.instant()) => return Attempt::Open,
        };
        match answer {
            Ok(Answer::NotLeader(_)) => Attempt::NotAsked,
            Ok(Answer::Open) => Attempt::Open,
            Ok(answer) => Attempt::Answered(answer),
            Err(error) => {
                tracing::debug!(%error, "the topology leader did not answer");
                if error.leaves_open() {
                    Attempt::Open
                } else {
                    Attempt::NotAsked
                }
            }
        }
    }

    /// Returns some time after a node other than `leader` was elected.
    async fn deposed(&self, leader: NodeId) {
        let other = |now: Option<u64>| now.is_some_and(|now| now != leader.0);
        let mut metrics = self.raft.metrics();
        if metrics
            .wait_for(|metrics| other(metrics.current_leader))
            .await
            .is_ok()
        {
            tokio::time::sleep(GRACE).await;
        }
    }

    /// Waits until `until`, or until this node knows a different leader.
    async fn leader_changes_before(&self, until: Instant) {
        let mut metrics = self.raft.metrics();
        let now = metrics.borrow().current_leader;
        let changed = metrics.wait_for(|metrics| metrics.current_leader != now);
        // In both cases, it is time to check again.
        let _ = timeout_at(until, changed).await;
    }
}

fn fits(command: &Command) -> Result<(), GroupError> {
    let mut len = Counter(0);
    // Writing to a counter cannot fail, and every command has a JSON form.
    if let Err(error) = serde_json::to_writer(&mut len, command) {
        return Err(GroupError::Failed {
            reason: error.to_string(),
        });
    }
    let max = MAX_COMMAND_LEN;
    if len.0 <= max {
        Ok(())
    } else {
        Err(GroupError::TooLarge { len: len.0, max })
    }
}

/// Counts the bytes written to it.
struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
