//! An operation's loop of attempts.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tonic::{Response, Status};
use torc_proto::{Fault, Reason, TraceContext, v1};
use torc_record::{Digest, KeyId};
use torc_ring::topology::PartitionState;

use crate::Error;
use crate::core::{Core, Target};
use crate::naming::Connection;
use crate::options::LONGEST_DEADLINE;
use crate::peer::Peer;
use crate::peer::attempt::{AttemptTimeout, attempt, attempt_with_timeout};
use crate::race::{RoutedTarget, race};
use crate::retry::{Failure, Nature, RetryState, blame};
use crate::trace::Tracing;
use crate::view::{MOST_UNREACHED, View};
use torc_session::SessionPermit;

pub(crate) fn digest_to_wire(digest: &Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}

/// Longer than nearly every answer takes. Doubles with every attempt, for slower answers.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);

/// A running operation: its deadline and its failures so far.
pub(crate) struct Call<'a> {
    core: &'a Core,
    nature: Nature,
    deadline: Instant,
    began: Instant,
    retry_state: RetryState,
    /// Nodes that could not carry it out.
    detours: usize,
    /// The fault that caused the retry.
    earlier: Option<Fault>,
    /// Whether a failed attempt may have been carried out.
    in_doubt: bool,
    /// The errors of unreachable addresses.
    unreached: BTreeSet<String>,
    /// Any replica serves it as well as the lead.
    is_spread: bool,
    /// Whether the cluster has sent this client the digest key. If not, digests made here only
    /// distinguish keys and mean nothing to nodes, so the client asks any node.
    pub(crate) is_told: bool,
    /// `None`: not traced.
    tracing: Option<Tracing>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(core: &'a Core, nature: Nature, time: Duration) -> Self {
        let time = time.min(LONGEST_DEADLINE);
        Self {
            core,
            nature,
            deadline: Instant::now() + time,
            began: Instant::now(),
            retry_state: RetryState::new(time),
            detours: 0,
            earlier: None,
            in_doubt: false,
            unreached: BTreeSet::new(),
            is_spread: false,
            is_told: false,
            tracing: None,
        }
    }

    pub(crate) fn traced(self, tracing: Option<Tracing>) -> Self {
        Self { tracing, ..self }
    }

    /// The first attempt goes to the next replica in turn.
    pub(crate) fn spread(self) -> Self {
        Self {
            is_spread: true,
            ..self
        }
    }

    /// The next replica in turn, if the operation is spread over the replicas.
    fn turn(&self, view: &View, state: &PartitionState) -> Option<Target> {
        let is_first = self.detours == 0 && self.attempts() == 0;
        (self.is_spread && is_first).then(|| self.core.next_replica(view, state))?
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Attempts that failed so far.
    pub(crate) fn attempts(&self) -> usize {
        self.retry_state.attempts() as usize
    }

    /// Nodes that could not carry it out.
    pub(crate) fn detours(&self) -> usize {
        self.detours
    }

    /// The timeout of the next attempt.
    pub(crate) fn attempt_timeout(&self) -> AttemptTimeout {
        let doublings = self.retry_state.attempts().min(6);
        AttemptTimeout {
            after: FIRST_ATTEMPT_TIMEOUT * 2_u32.pow(doublings),
            nature: self.nature,
        }
    }

    /// The topology, waiting for one if none is known yet.
    pub(crate) async fn view(&mut self) -> Result<Arc<View>, Error> {
        loop {
            if let Some(view) = self.core.view() {
                return Ok(view);
            }
            if let Err(failure) = self.core.refresh(None, None, self.deadline).await {
                self.recover(failure, None, None).await?;
            }
        }
    }

    /// Sends to the lead of the key's partition, directly or through a node that forwards, or
    /// to another replica. Retries while this is safe and the deadline allows. `locate` finds
    /// the key in a topology fetched meanwhile.
    pub(crate) async fn on_lead<T, F, Fut>(
        mut self,
        at: KeyId,
        locate: impl Fn(&View) -> KeyId,
        send: F,
    ) -> Result<T, Error>
    where
        F: Fn(SessionPermit, Duration, Option<v1::Route>, Bytes) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let (nature, began, tracing) = (self.nature, self.began, self.tracing.take());
        let trace = tracing.as_ref().map(|it| it.context);
        let outcome = self.send_to_lead(at, locate, send, trace).await;
        if let Some(tracing) = tracing {
            tracing.end(nature, began, &outcome);
        }
        outcome
    }

    async fn send_to_lead<T, F, Fut>(
        mut self,
        mut at: KeyId,
        locate: impl Fn(&View) -> KeyId,
        send: F,
        trace: Option<TraceContext>,
    ) -> Result<T, Error>
    where
        F: Fn(SessionPermit, Duration, Option<v1::Route>, Bytes) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        loop {
            let view = self.view().await?;
            if self.attempts() > 0 {
                at = locate(&view);
                self.is_told &= view.tells_digests();
            }
            let is_told = self.is_told;
            let send = |permit: SessionPermit, budget, route| {
                let digest = is_told.then(|| digest_to_wire(&at.digest));
                let digest = digest.unwrap_or_default();
                send(permit.on_behalf_of(trace), budget, route, digest)
            };
            let partition = view.table.partition_of(at.namespace, &at.digest);
            let state = view.state(partition)?;
            let attempt_timeout = self.attempt_timeout();
            let tries = (self.detours, self.attempts());
            let usual = || self.core.first_target(&view, state, self.nature, tries);
            let target = self.turn(&view, state).unwrap_or_else(usual);
            // If the client's digests mean nothing to nodes, the asked node finds out where the key
            // lives.
            let partition = is_told.then_some(partition);
            let first = RoutedTarget::new(target.clone(), &view, partition);
            let outcome = if self.nature == Nature::Read {
                let second = || {
                    let targets = self.core.targets(&view, state, self.nature, tries);
                    let is_other = |other: &Target| other.direct && !other.is_same(&target);
                    let other = targets.into_iter().find(is_other)?;
                    Some(RoutedTarget::new(other, &view, partition))
                };
                race(
                    self.core,
                    first,
                    second,
                    self.deadline,
                    attempt_timeout,
                    &send,
                )
                .await
            } else {
                let sending = |permit, budget| send(permit, budget, first.route);
                attempt_with_timeout(&target.peer, self.deadline, attempt_timeout, sending).await
            };
            match outcome {
                Ok(answer) => return Ok(answer),
                Err(failure) => {
                    self.recover(failure, Some(&view), Some(&target.peer))
                        .await?;
                }
            }
        }
    }

    /// Sends to any node, and to others while this is safe and the deadline allows. A read does not
    /// wait for a silent node longer than a third of the remaining time.
    pub(crate) async fn on_any<T, F, Fut>(self, send: F) -> Result<T, Error>
    where
        F: Fn(Connection, Duration) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let third = |remaining: Duration| remaining / 3;
        self.on_any_for(third, send).await
    }

    /// [`on_any`](Self::on_any) for work that takes a node long, during which it is silent.
    pub(crate) async fn on_any_patiently<T, F, Fut>(self, send: F) -> Result<T, Error>
    where
        F: Fn(Connection, Duration) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        self.on_any_for(|remaining| remaining, send).await
    }

    async fn on_any_for<T, F, Fut>(
        mut self,
        silence: impl Fn(Duration) -> Duration,
        send: F,
    ) -> Result<T, Error>
    where
        F: Fn(Connection, Duration) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        loop {
            let peer = self.core.any_peer(self.attempts());
            let remaining = self.deadline.saturating_duration_since(Instant::now());
            let after = silence(remaining);
            let answer = if self.nature == Nature::Read && after < remaining {
                let timeout = AttemptTimeout {
                    after,
                    nature: self.nature,
                };
                attempt_with_timeout(&peer, self.deadline, timeout, &send).await
            } else {
                attempt(&peer, self.deadline, &send).await
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(failure) => self.recover(failure, None, None).await?,
            }
        }
    }

    /// Returns when it is time to retry.
    ///
    /// # Errors
    /// The operation's error, if a retry is not safe, does not help, or would come too
    /// late.
    pub(crate) async fn recover(
        &mut self,
        failure: Failure,
        view: Option<&Arc<View>>,
        peer: Option<&Arc<Peer>>,
    ) -> Result<(), Error> {
        self.in_doubt |= failure.is_in_doubt();
        if failure.may_retry(self.nature) {
            let is_unreached = failure.fault.reason == Reason::OwnerUnreachable;
            if is_unreached && self.unreached.len() < MOST_UNREACHED {
                self.unreached.insert(failure.fault.message.clone());
            }
            let is_alone = is_unreached && self.core.is_alone_after(self.began.elapsed());
            let failures = [failure];
            let goes_on = !is_alone && self.pause(&failures, view, peer).await;
            let [Failure { mut fault, .. }] = failures;
            if !goes_on && is_unreached && self.core.view().is_none() {
                let all: Vec<&str> = self.unreached.iter().map(String::as_str).collect();
                let tried = self.tried();
                fault.message = format!(
                    "no node answers{tried}: {}. Is kvd running there?",
                    all.join("; ")
                );
                fault.maybe_applied |= self.in_doubt;
                let fault = blame(fault, self.earlier.take(), self.nature);
                return Err(self.error(fault));
            }
            if goes_on {
                self.earlier = Some(blame(fault, self.earlier.take(), self.nature));
                return Ok(());
            }
            let fault = blame(fault, self.earlier.take(), self.nature);
            return Err(self.given_up(fault));
        }
        let fault = blame(failure.fault, self.earlier.take(), self.nature);
        Err(self.error(fault))
    }

    /// Waits as these failures advise, and fetches a newer topology if they call for
    /// one. `false`: there is no time for another attempt.
    pub(crate) async fn pause(
        &mut self,
        failures: &[Failure],
        view: Option<&Arc<View>>,
        peer: Option<&Arc<Peer>>,
    ) -> bool {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        let Some(wait) = self.retry_state.pause(failures, remaining, rand::random()) else {
            return false;
        };
        self.detours += usize::from(failures.iter().any(Failure::is_of_the_node));
        tracing::debug!(?wait, attempts = self.attempts(), fault = %failures[0].fault, "again");
        if !wait.is_zero() {
            sleep(wait).await;
        }
        if let Some(view) = view
            && failures.iter().any(Failure::wants_topology)
        {
            let first = peer.filter(|_| failures.iter().any(Failure::is_stale));
            // If there is no newer topology, the known one is used.
            let asked = self.core.refresh(Some(view), first, self.deadline).await;
            if let Err(failure) = asked {
                tracing::debug!(fault = %failure.fault, "no newer topology");
            }
        }
        true
    }

    /// How often and how long, unless it was once.
    fn tried(&self) -> String {
        let (attempts, seconds) = (self.attempts(), self.began.elapsed().as_secs_f32());
        if attempts > 1 {
            format!(" (tried {attempts} times in {seconds:.1} s)")
        } else {
            String::new()
        }
    }

    /// The error of an operation whose deadline ended the retries.
    pub(crate) fn given_up(&self, mut fault: Fault) -> Error {
        fault.message.push_str(&self.tried());
        // No attempt had an answer that tells what an earlier one changed.
        fault.maybe_applied |= self.in_doubt;
        self.error(fault)
    }

    /// The error of an operation that ended with this fault.
    pub(crate) fn error(&self, fault: Fault) -> Error {
        match self.nature {
            Nature::Read => Error::of_read(fault),
            Nature::Repeatable => Error::of_repeatable(fault, self.in_doubt),
            Nature::Write => Error::of_write(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::options::Config;

    fn config() -> Config {
        Config {
            seeds: vec!["127.0.0.1:1".to_owned()],
            connect_timeout: Duration::from_secs(1),
            first_contact: Duration::MAX,
            channels: 1,
            hot_keys: true,
            tls: None,
            token: None,
        }
    }

    #[tokio::test]
    async fn a_change_whose_first_answer_was_lost_stays_in_doubt_if_no_later_one_comes() {
        let core = Core::new(config()).unwrap();
        let ends = async |nature, last: Fault| {
            let mut call = Call::new(&core, nature, Duration::from_secs(5));
            let lost = Fault::unknown("the connection was lost");
            call.recover(Failure::sent(lost), None, None).await.unwrap();
            call.deadline = Instant::now();
            call.recover(Failure::connecting(last), None, None)
                .await
                .unwrap_err()
        };
        let nobody = || Fault::new(Reason::OwnerUnreachable, "no node answers");
        let error = ends(Nature::Repeatable, nobody()).await;
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert!(error.maybe_applied(), "{error}");
        let error = ends(Nature::Read, nobody()).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(!error.maybe_applied());
        let refused = Fault::new(Reason::Refused, "a change is running");
        let error = ends(Nature::Repeatable, refused).await;
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.maybe_applied());
    }
}
