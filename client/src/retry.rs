//! Decides whether to retry, and how long to wait first.
//!
//! Pure: the remaining time and the random number are arguments.
//!
//! Invariants:
//! * A write is resent only if the fault says that it did not and will not happen. A
//!   fault that leaves the outcome open goes to the caller at once.
//! * A read, or a change that may be repeated, is resent even if its outcome is unknown. If no
//!   answer follows, the change is in doubt.
//! * No attempt starts with too little time to succeed: instead of sleeping into the
//!   deadline, the operation returns its last fault at once.
//!
//! The wait is exponential with full jitter (Brooker, "Exponential backoff and
//! jitter", 2015): uniform between 0 and a cap that doubles. A node's own advice to
//! wait is added to it.

use std::time::Duration;

use torc_proto::{Fault, Reason};

const FIRST_CAP: Duration = Duration::from_millis(5);
const LAST_CAP: Duration = Duration::from_millis(500);
/// The least part of an operation's time for another attempt: with less, a write would
/// more likely end in doubt than succeed.
const LEAST_PART: u32 = 20;
const LEAST_BUDGET: Duration = Duration::from_millis(20);
/// With this advice to wait, a node says that others have been out of reach for long.
const OUTAGE: Duration = Duration::from_secs(5);

/// Whether an operation changes what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// No.
    Read,
    /// Yes, but repeating it has no further effect.
    Repeatable,
    /// Yes, and repeating it can have a further effect.
    Write,
}

/// Where an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// There was no connection to the node: nothing was sent, or another cluster's node refused it.
    Connecting,
    /// The request was sent; the fault is the node's answer or the transport's.
    Sent,
    /// The request or its answer exceeds the limit of messages. Nothing changed.
    TooLarge,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Where it ended.
    pub(crate) stop: Stop,
    /// Why it failed.
    pub(crate) fault: Fault,
}

impl Failure {
    pub(crate) fn sent(fault: Fault) -> Self {
        Self {
            stop: Stop::Sent,
            fault,
        }
    }

    pub(crate) fn connecting(fault: Fault) -> Self {
        Self {
            stop: Stop::Connecting,
            fault,
        }
    }

    /// Whether a retry is safe and may help.
    pub(crate) fn may_retry(&self, nature: Nature) -> bool {
        let lost = self.is_in_doubt();
        self.fault.is_retryable()
            || self.is_misdirected()
            || self.is_stale() && !lost
            || lost && nature != Nature::Write
    }

    /// Whether the operation may have been carried out.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.fault.maybe_applied || self.fault.reason == Reason::OutcomeUnknown
    }

    /// Whether the wrong node, or a node of another cluster, refused it. The right node
    /// may still carry it out.
    pub(crate) fn is_misdirected(&self) -> bool {
        let stranger = matches!(self.fault.reason, Reason::WrongCluster | Reason::WrongNode);
        stranger && !self.fault.maybe_applied
    }

    /// Whether a newer topology may name another node for the operation.
    pub(crate) fn wants_topology(&self) -> bool {
        match self.fault.reason {
            Reason::StaleEpoch
            | Reason::DigestMismatch
            | Reason::NotServing
            | Reason::OwnerUnreachable
            | Reason::OutcomeUnknown
            | Reason::WrongCluster
            | Reason::WrongNode => true,
            Reason::Unspecified
            | Reason::ConditionNotMet
            | Reason::Invalid
            | Reason::NoSuchNamespace
            | Reason::Overloaded
            | Reason::OutOfSpace
            | Reason::Corrupt
            | Reason::Internal
            | Reason::NoSuchNode
            | Reason::Refused
            | Reason::Superseded
            | Reason::Unauthenticated
            | Reason::PermissionDenied
            | Reason::Deadline
            | Reason::NoTopologyLeader => false,
        }
    }

    /// Whether another node may succeed where this one failed.
    pub(crate) fn is_of_the_node(&self) -> bool {
        let reason = self.fault.reason;
        self.stop == Stop::Sent
            && matches!(
                reason,
                Reason::NotServing
                    | Reason::OwnerUnreachable
                    | Reason::OutOfSpace
                    | Reason::OutcomeUnknown
                    | Reason::Deadline
            )
    }

    /// Whether the node knows of a newer topology. The digest of a key is another one once its
    /// namespace was dropped and created again.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(
            self.fault.reason,
            Reason::StaleEpoch | Reason::DigestMismatch
        )
    }
}

/// The fault to report for an operation that ended with `last`. If the operation only ran out of
/// time during a retry, the fault that caused the retry (`earlier`) is more informative; and
/// "another cluster answers at this address" is more informative than "no answer". A change in
/// doubt stays in doubt.
pub(crate) fn blame(last: Fault, earlier: Option<Fault>, nature: Nature) -> Fault {
    let in_doubt = nature != Nature::Read && last.maybe_applied;
    match earlier {
        Some(earlier) if !in_doubt && says_more(&earlier, &last) => earlier,
        _ => last,
    }
}

fn says_more(earlier: &Fault, last: &Fault) -> bool {
    match last.reason {
        Reason::Deadline => true,
        Reason::OwnerUnreachable => earlier.reason == Reason::WrongCluster,
        _ => false,
    }
}

/// The attempts of an operation and their failures.
#[derive(Debug, Clone)]
pub(crate) struct RetryState {
    /// The least remaining time for an attempt.
    budget: Duration,
    attempts: u32,
    waits: u32,
    stale_seen: bool,
    connect_failed: bool,
    /// Whether a node has said that others have been out of reach for long.
    outage_told: bool,
}

impl RetryState {
    /// For an operation with this time limit.
    pub(crate) fn new(time: Duration) -> Self {
        Self {
            budget: (time / LEAST_PART).max(LEAST_BUDGET),
            attempts: 0,
            waits: 0,
            stale_seen: false,
            connect_failed: false,
            outage_told: false,
        }
    }

    /// Attempts that failed so far.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How long to wait before a retry; `None` if `remaining` is too short for the wait
    /// and another attempt.
    ///
    /// `random` is uniform in 0..1. The first stale epoch and the first failure to
    /// connect cost no wait: the next attempt takes another route.
    pub(crate) fn pause(
        &mut self,
        failures: &[Failure],
        remaining: Duration,
        random: f64,
    ) -> Option<Duration> {
        self.attempts += 1;
        let remaining = remaining.saturating_sub(self.budget);
        if self.reroutes(failures) {
            return (!remaining.is_zero()).then_some(Duration::ZERO);
        }
        let cap = (FIRST_CAP * 2_u32.saturating_pow(self.waits)).min(LAST_CAP);
        self.waits += 1;
        // A node may be alone in not reaching others: another one is asked before the operation waits or gives up.
        let is_outage = |f: &Failure| {
            f.fault.reason == Reason::OwnerUnreachable && f.fault.retry_after >= Some(OUTAGE)
        };
        let is_first = !self.outage_told;
        self.outage_told |= failures.iter().any(is_outage);
        let heeded = failures.iter().filter(|f| !(is_first && is_outage(f)));
        let advice = heeded.filter_map(|f| f.fault.retry_after).max();
        let wait = advice.unwrap_or_default() + cap.mul_f64(random.clamp(0.0, 1.0));
        (wait < remaining).then_some(wait)
    }

    /// Whether a new route solves all of these failures, and each is the first of its kind.
    fn reroutes(&mut self, failures: &[Failure]) -> bool {
        let stale = failures.iter().any(Failure::is_stale);
        let cut_off = failures.iter().any(|f| f.stop == Stop::Connecting);
        let others = failures
            .iter()
            .any(|f| !f.is_stale() && f.stop != Stop::Connecting);
        let fresh = (!stale || !self.stale_seen) && (!cut_off || !self.connect_failed);
        self.stale_seen |= stale;
        self.connect_failed |= cut_off;
        (stale || cut_off) && fresh && !others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_secs(3_600);
    const SHORT: Duration = Duration::from_millis(100);

    fn fault(reason: Reason) -> Fault {
        Fault::new(reason, "why")
    }

    fn sent(reason: Reason) -> Failure {
        Failure::sent(fault(reason))
    }

    fn any_failure() -> impl Strategy<Value = Failure> {
        (0..=18_i32, any::<bool>(), any::<bool>()).prop_map(|(number, maybe_applied, connect)| {
            let reason = Reason::try_from(number).unwrap();
            let fault = Fault {
                maybe_applied,
                ..fault(reason)
            };
            let stop = if connect {
                Stop::Connecting
            } else {
                Stop::Sent
            };
            Failure { stop, fault }
        })
    }

    #[test]
    fn the_first_stale_epoch_costs_no_wait_and_the_second_does() {
        let mut retries = RetryState::new(SHORT);
        let stale = [sent(Reason::StaleEpoch)];
        assert_eq!(retries.pause(&stale, LONG, 1.0), Some(Duration::ZERO));
        assert_eq!(retries.pause(&stale, LONG, 1.0), Some(FIRST_CAP));
        assert_eq!(retries.attempts(), 2);
    }

    #[test]
    fn the_first_failure_to_connect_costs_no_wait_and_the_second_does() {
        let mut retries = RetryState::new(SHORT);
        let cut_off = [Failure::connecting(fault(Reason::OwnerUnreachable))];
        assert_eq!(retries.pause(&cut_off, LONG, 1.0), Some(Duration::ZERO));
        assert_eq!(retries.pause(&cut_off, LONG, 1.0), Some(FIRST_CAP));
    }

    #[test]
    fn a_stale_item_does_not_hurry_the_overloaded_ones_beside_it() {
        let mut retries = RetryState::new(SHORT);
        let mixed = [sent(Reason::StaleEpoch), sent(Reason::Overloaded)];
        assert_eq!(retries.pause(&mixed, LONG, 1.0), Some(FIRST_CAP));
    }

    #[test]
    fn waits_double_up_to_their_cap() {
        let mut retries = RetryState::new(SHORT);
        let overloaded = [sent(Reason::Overloaded)];
        let waits: Vec<_> = (0..9)
            .map(|_| retries.pause(&overloaded, LONG, 1.0).unwrap().as_millis())
            .collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
    }

    #[test]
    fn a_nodes_advice_is_the_least_wait() {
        let advice = Duration::from_millis(700);
        let failure = Failure::sent(fault(Reason::Overloaded).retry_after(advice));
        let wait = RetryState::new(SHORT).pause(&[failure], LONG, 0.0);
        assert_eq!(wait, Some(advice));
    }

    #[test]
    fn a_lost_read_is_sent_again_and_a_lost_write_is_not() {
        let lost = Failure::sent(Fault {
            maybe_applied: true,
            ..fault(Reason::OwnerUnreachable)
        });
        assert!(lost.may_retry(Nature::Read));
        assert!(!lost.may_retry(Nature::Write));
    }

    #[test]
    fn running_out_of_time_is_blamed_on_what_cost_it() {
        let busy = fault(Reason::Overloaded);
        let late = fault(Reason::Deadline);
        let in_doubt = Fault {
            maybe_applied: true,
            ..late.clone()
        };
        let stranger = fault(Reason::WrongCluster);
        let nobody = fault(Reason::OwnerUnreachable);
        let last = nobody.clone();
        assert_eq!(blame(last, Some(stranger.clone()), Nature::Write), stranger);
        let told = |last: &Fault, nature| blame(last.clone(), Some(busy.clone()), nature);
        assert_eq!(told(&nobody, Nature::Write), nobody);
        assert_eq!(told(&late, Nature::Write), busy);
        assert_eq!(told(&in_doubt, Nature::Read), busy);
        assert_eq!(told(&in_doubt, Nature::Write), in_doubt);
        assert_eq!(blame(late.clone(), None, Nature::Read), late);
        let full = fault(Reason::OutOfSpace);
        assert_eq!(told(&full, Nature::Write), full);
    }

    proptest! {
        #[test]
        fn a_write_that_may_have_happened_is_never_sent_again(failure in any_failure()) {
            if failure.fault.maybe_applied {
                prop_assert!(!failure.may_retry(Nature::Write));
            }
        }

        #[test]
        fn what_is_tried_again_has_time_left_to_succeed(
            failures in proptest::collection::vec(any_failure(), 1..4),
            tries in 1..40,
            remaining_ms in 0_u64..2_000,
            random in 0.0..1.0_f64,
        ) {
            let time = Duration::from_secs(1);
            let mut retries = RetryState::new(time);
            let remaining = Duration::from_millis(remaining_ms);
            for _ in 0..tries {
                if let Some(wait) = retries.pause(&failures, remaining, random) {
                    prop_assert!(wait + time / 20 < remaining);
                }
            }
        }
    }
}
