//! Errors: what went wrong, whether anything changed, and what to do.

use std::fmt;
use std::time::Duration;

use torc_proto::{Fault, Reason};
use torc_record::Epoch;

/// The kind of a failure. Match on it to decide what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No node that can answer was reachable, or the reached node does not serve (yet).
    /// Nothing changed. The library retried until the deadline; retry later.
    Unavailable,
    /// The deadline passed before an answer came. Nothing changed. Allow more time.
    Deadline,
    /// The condition of a write did not hold. Nothing changed. Read, then decide.
    ConditionNotMet,
    /// A write was sent, but its outcome is unknown: it may happen, now or later. Read
    /// the key before you decide; never resend blindly.
    OutcomeUnknown,
    /// A key, value, option or endpoint is malformed or beyond the limits. Nothing
    /// changed; the same call will never succeed.
    Invalid,
    /// The cluster does not allow this, now or ever. Nothing changed; the message
    /// says why.
    Refused,
    /// The client is not authenticated or lacks the permission. Nothing was done; ask the
    /// cluster's administrator for a certificate or token with the role.
    Denied,
    /// There is no namespace of this name. Nothing changed.
    NoSuchNamespace,
    /// There is no node of this id. Nothing changed.
    NoSuchNode,
    /// The node is at a load limit. Nothing changed; slow down.
    Overloaded,
    /// The disk of the node is full, or those of most replicas. Nothing changed.
    OutOfSpace,
    /// Stored data failed its checksum. The record is unknown, not absent.
    Corrupt,
    /// A bug in the library or the node. Please report it.
    Internal,
}

/// Why an operation failed. Cheap to clone.
///
/// * What kind of failure: [`Error::kind`].
/// * Whether anything changed: [`Error::maybe_applied`].
/// * Whether the same call may succeed later: [`Error::is_retryable`].
/// * What happened and what to do, in one line: its `Display`, [`Error::message`].
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
    maybe_applied: bool,
    epoch: Option<Epoch>,
    retry_after: Option<Duration>,
}

impl Error {
    /// A failure that changed nothing.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            maybe_applied: false,
            epoch: None,
            retry_after: None,
        }))
    }

    /// The error of a read, or of any operation without effect.
    pub(crate) fn of_read(fault: Fault) -> Self {
        let kind = match fault.reason {
            // A read that may have been carried out changed nothing.
            Reason::OutcomeUnknown => ErrorKind::Unavailable,
            reason => kind_of(reason),
        };
        Self::with_fault(kind, false, fault)
    }

    /// The error of a write. If the write may have happened, [`ErrorKind::OutcomeUnknown`].
    pub(crate) fn of_write(fault: Fault) -> Self {
        let unknown = fault.maybe_applied || fault.reason == Reason::OutcomeUnknown;
        if !unknown {
            return Self::with_fault(kind_of(fault.reason), false, fault);
        }
        // The node's own message already says what may have happened and what to do.
        let message = match fault.reason {
            Reason::OutcomeUnknown => fault.message,
            _ => format!(
                "{}; the write may still happen: get the key before you retry",
                fault.message
            ),
        };
        Self::with_fault(ErrorKind::OutcomeUnknown, true, Fault { message, ..fault })
    }

    /// The error of a change that may be repeated. If the last attempt had no answer, and any may
    /// have been carried out, [`ErrorKind::OutcomeUnknown`].
    pub(crate) fn of_repeatable(fault: Fault, in_doubt: bool) -> Self {
        if !fault.maybe_applied && fault.reason != Reason::OutcomeUnknown {
            return Self::with_fault(kind_of(fault.reason), in_doubt, fault);
        }
        let message = format!(
            "{}; the change may still happen: you can repeat it",
            fault.message
        );
        Self::with_fault(ErrorKind::OutcomeUnknown, true, Fault { message, ..fault })
    }

    fn with_fault(kind: ErrorKind, maybe_applied: bool, fault: Fault) -> Self {
        Self(Box::new(Inner {
            kind,
            message: fault.message,
            maybe_applied,
            epoch: fault.epoch,
            retry_after: fault.retry_after,
        }))
    }

    /// The error of a malformed answer. `wrote`: whether it acknowledged a write.
    pub(crate) fn malformed(what: impl fmt::Display, wrote: bool) -> Self {
        let message = format!("the node's answer is malformed: {what}");
        let mut error = Self::new(ErrorKind::Internal, message);
        error.0.maybe_applied = wrote;
        error
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the operation may have taken effect or may do so later. `false`: it did
    /// not and will not.
    #[must_use]
    pub fn maybe_applied(&self) -> bool {
        self.0.maybe_applied
    }

    /// Whether the same call may succeed later and certainly has not happened. The
    /// library has already retried it until the deadline.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let passing = match self.kind() {
            ErrorKind::Unavailable
            | ErrorKind::Deadline
            | ErrorKind::Overloaded
            | ErrorKind::OutOfSpace => true,
            ErrorKind::ConditionNotMet
            | ErrorKind::OutcomeUnknown
            | ErrorKind::Invalid
            | ErrorKind::Refused
            | ErrorKind::Denied
            | ErrorKind::NoSuchNamespace
            | ErrorKind::NoSuchNode
            | ErrorKind::Corrupt
            | ErrorKind::Internal => false,
        };
        passing && !self.maybe_applied()
    }

    /// What happened and what to do, in one line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The answering node's epoch, where it matters.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.0.epoch
    }

    /// The node's advice how long to wait before a retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("maybe_applied", &self.0.maybe_applied)
            .field("epoch", &self.0.epoch)
            .field("retry_after", &self.0.retry_after)
            .finish()
    }
}

const fn kind_of(reason: Reason) -> ErrorKind {
    match reason {
        Reason::StaleEpoch
        | Reason::NotServing
        | Reason::OwnerUnreachable
        | Reason::NoTopologyLeader => ErrorKind::Unavailable,
        Reason::ConditionNotMet => ErrorKind::ConditionNotMet,
        Reason::OutcomeUnknown => ErrorKind::OutcomeUnknown,
        Reason::Invalid => ErrorKind::Invalid,
        Reason::NoSuchNamespace => ErrorKind::NoSuchNamespace,
        Reason::Overloaded => ErrorKind::Overloaded,
        Reason::OutOfSpace => ErrorKind::OutOfSpace,
        Reason::Corrupt => ErrorKind::Corrupt,
        Reason::NoSuchNode => ErrorKind::NoSuchNode,
        Reason::Refused | Reason::WrongCluster | Reason::WrongNode | Reason::Superseded => {
            ErrorKind::Refused
        }
        Reason::Unauthenticated | Reason::PermissionDenied => ErrorKind::Denied,
        Reason::Deadline => ErrorKind::Deadline,
        // The library computed the digest: if it is wrong, the library is.
        Reason::DigestMismatch | Reason::Internal | Reason::Unspecified => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_reason() -> impl Iterator<Item = Reason> {
        (0..64).filter_map(|number| Reason::try_from(number).ok())
    }

    #[test]
    fn a_write_that_may_have_happened_is_of_unknown_outcome_whatever_the_reason() {
        for reason in every_reason() {
            let fault = Fault {
                maybe_applied: true,
                ..Fault::new(reason, "why")
            };
            let error = Error::of_write(fault);
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{reason:?}");
            assert!(error.maybe_applied());
            assert!(!error.is_retryable());
        }
    }

    #[test]
    fn a_change_without_an_answer_is_in_doubt_and_an_answer_keeps_its_kind() {
        for reason in every_reason() {
            let fault = Fault {
                maybe_applied: true,
                ..Fault::new(reason, "why")
            };
            let error = Error::of_repeatable(fault, true);
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{reason:?}");
            assert!(error.maybe_applied());
        }
        let gone = || Fault::new(Reason::NoSuchNamespace, "there is none");
        for in_doubt in [false, true] {
            let error = Error::of_repeatable(gone(), in_doubt);
            assert_eq!(error.kind(), ErrorKind::NoSuchNamespace);
            assert_eq!(error.maybe_applied(), in_doubt);
        }
    }

    #[test]
    fn a_read_never_changes_anything() {
        for reason in every_reason() {
            for maybe_applied in [false, true] {
                let fault = Fault {
                    maybe_applied,
                    ..Fault::new(reason, "why")
                };
                let error = Error::of_read(fault);
                assert!(!error.maybe_applied(), "{reason:?}");
                assert_ne!(error.kind(), ErrorKind::OutcomeUnknown, "{reason:?}");
            }
        }
    }

    #[test]
    fn what_the_fault_calls_retryable_the_error_does_too() {
        for reason in every_reason() {
            let fault = Fault::new(reason, "why");
            if fault.is_retryable() {
                assert!(Error::of_write(fault.clone()).is_retryable(), "{reason:?}");
                assert!(Error::of_read(fault).is_retryable(), "{reason:?}");
            }
        }
    }
}
