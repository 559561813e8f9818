//! Errors on the wire: one [`Fault`] is one gRPC status with its details, or one
//! item's error in a batch or session. This file owns the mapping both ways.
//!
//! A status carries `google.rpc.ErrorInfo` (domain `torc`, reason, and the metadata
//! `changed` and `epoch`) and, where waiting helps, `google.rpc.RetryInfo`, so that
//! clients in any language can act on it. A status without these details comes from
//! the transport: unless the connection was never made or had ended, the outcome is
//! unknown.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use torc_record::Epoch;
use torc_ring::NodeId;
use torc_ring::topology::Boot;

pub use crate::v1::fault::Reason;

const DOMAIN: &str = "torc";

/// Longest message that is sent, bytes. It is sent in a header, and clients limit all headers to
/// about 8 KiB. It may also repeat what an unauthenticated client sent.
const MAX_MESSAGE_BYTES: usize = 1_024;

/// What to do if a data directory is not the expected one.
pub const DATA_DIR_ADVICE: &str = "Nothing was changed. Restore the right data directory; or empty it, \
                      start again, and let the new node take the place of the old one: \
                      `kvctl replace-node OLD-ID ADDRESS --dead`";

/// Why an operation failed, whether it may have taken effect, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The kind of failure.
    pub reason: Reason,
    /// What happened and what to do, for people.
    pub message: String,
    /// The operation may have taken effect, now or later. False: it did not and will not.
    pub maybe_applied: bool,
    /// The answering node's epoch of the partition.
    pub epoch: Option<Epoch>,
    /// How long to wait before trying again.
    pub retry_after: Option<Duration>,
}

/// The advice to wait distinguishes this refusal from others with its reason.
const CONNECT_AGAIN: Duration = Duration::from_millis(1);

impl Fault {
    /// A failure that changed nothing.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            maybe_applied: false,
            epoch: None,
            retry_after: None,
        }
    }

    /// A write whose outcome is unknown.
    #[must_use]
    pub fn unknown(message: impl Into<String>) -> Self {
        Self {
            maybe_applied: true,
            ..Self::new(Reason::OutcomeUnknown, message)
        }
    }

    /// The refusal to a node after a later start of the same node.
    #[must_use]
    pub fn superseded(node: NodeId, mine: Boot, known: Boot) -> Self {
        let what = if known.number > mine.number {
            "its data directory is an older copy"
        } else {
            "its data directory is a copy, and another process runs from the other copy"
        };
        let message = format!(
            "the cluster has seen start {} of node {node}, but this is start {}: {what}. {DATA_DIR_ADVICE}",
            known.number, mine.number
        );
        Self::new(Reason::Superseded, message)
    }

    /// The refusal to a node that lacks what it stored before its last start.
    #[must_use]
    pub fn outdated(node: NodeId) -> Self {
        let message = format!(
            "node {node} has sent writes that its data directory does not know of: the directory is an older copy, \
             or has lost its latest writes. {DATA_DIR_ADVICE}"
        );
        Self::new(Reason::Superseded, message)
    }

    /// Adds the answering node's epoch.
    #[must_use]
    pub fn at(mut self, epoch: Epoch) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// Adds the advice to wait.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The refusal of a certificate that is no longer accepted on its connection.
    #[must_use]
    pub fn connect_again(message: impl Into<String>) -> Self {
        Self::new(Reason::Unauthenticated, message).retry_after(CONNECT_AGAIN)
    }

    /// Whether the same request can succeed on a new connection.
    #[must_use]
    pub fn wants_connection(&self) -> bool {
        self.reason == Reason::Unauthenticated && self.retry_after.is_some()
    }

    /// The same fault of a request whose change had been made before.
    #[must_use]
    pub fn after_change(self) -> Self {
        let maybe_applied = true;
        Self {
            maybe_applied,
            ..self
        }
    }

    /// Whether the same request can succeed later, or at another node, and is known
    /// not to have happened.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let passing = match self.reason {
            Reason::StaleEpoch
            | Reason::NotServing
            | Reason::OwnerUnreachable
            | Reason::Overloaded
            | Reason::OutOfSpace
            | Reason::NoTopologyLeader => true,
            Reason::Unspecified
            | Reason::ConditionNotMet
            | Reason::OutcomeUnknown
            | Reason::Invalid
            | Reason::DigestMismatch
            | Reason::NoSuchNamespace
            | Reason::Corrupt
            | Reason::Internal
            | Reason::NoSuchNode
            | Reason::Refused
            | Reason::Deadline
            | Reason::WrongCluster
            | Reason::WrongNode
            | Reason::Superseded
            | Reason::Unauthenticated
            | Reason::PermissionDenied => false,
        };
        passing && !self.maybe_applied
    }

    /// The gRPC code of this failure.
    #[must_use]
    pub fn code(&self) -> Code {
        match self.reason {
            Reason::StaleEpoch => Code::Aborted,
            Reason::ConditionNotMet
            | Reason::Refused
            | Reason::WrongCluster
            | Reason::WrongNode
            | Reason::Superseded => Code::FailedPrecondition,
            Reason::Unauthenticated => Code::Unauthenticated,
            Reason::PermissionDenied => Code::PermissionDenied,
            Reason::OutcomeUnknown | Reason::Unspecified => Code::Unknown,
            Reason::Invalid | Reason::DigestMismatch => Code::InvalidArgument,
            Reason::NoSuchNamespace | Reason::NoSuchNode => Code::NotFound,
            Reason::NotServing | Reason::OwnerUnreachable | Reason::NoTopologyLeader => {
                Code::Unavailable
            }
            Reason::Overloaded | Reason::OutOfSpace => Code::ResourceExhausted,
            Reason::Corrupt => Code::DataLoss,
            Reason::Internal => Code::Internal,
            Reason::Deadline => Code::DeadlineExceeded,
        }
    }

    /// Reads the status of a request that changes nothing, or the same each time: a broken connection
    /// leaves nothing in doubt.
    #[must_use]
    pub fn of_harmless(status: &Status) -> Self {
        Self {
            maybe_applied: false,
            ..Self::from_status(status)
        }
    }

    /// Reads a status: Torc's details if it has them, else the meaning of its code and of its
    /// transport error.
    #[must_use]
    pub fn from_status(status: &Status) -> Self {
        if let Some(info) = status.get_details_error_info()
            && info.domain == DOMAIN
            && let Some(reason) = Reason::from_str_name(&info.reason)
        {
            return Self {
                reason,
                message: status.message().to_owned(),
                maybe_applied: info.metadata.get("changed").is_some_and(|c| c == "unknown"),
                epoch: info
                    .metadata
                    .get("epoch")
                    .and_then(|e| e.parse().ok())
                    .map(Epoch),
                retry_after: status.get_details_retry_info().and_then(|r| r.retry_delay),
            };
        }
        Self::from_bare_status(status)
    }

    fn from_bare_status(status: &Status) -> Self {
        let message = status.message().to_owned();
        if never_connected(status) {
            return Self::new(
                Reason::OwnerUnreachable,
                format!("cannot connect: {message}"),
            );
        }
        if was_left(status) {
            let message =
                format!("the node closed the connection before it handled the request: {message}");
            return Self::new(Reason::NotServing, message);
        }
        if std::error::Error::source(status).is_some() {
            // The transport failed and used the nearest code.
            let reason = match status.code() {
                Code::Unavailable => Reason::OwnerUnreachable,
                Code::DeadlineExceeded | Code::Cancelled => Reason::Deadline,
                _ => Reason::OutcomeUnknown,
            };
            return Self {
                maybe_applied: true,
                ..Self::new(reason, message)
            };
        }
        let (reason, maybe_applied) = match status.code() {
            Code::InvalidArgument | Code::OutOfRange => (Reason::Invalid, false),
            Code::Unimplemented => (Reason::Refused, false),
            Code::Unauthenticated => (Reason::Unauthenticated, false),
            Code::PermissionDenied => (Reason::PermissionDenied, false),
            Code::ResourceExhausted => (Reason::Overloaded, false),
            Code::DeadlineExceeded => (Reason::Deadline, true),
            Code::Unavailable => (Reason::OwnerUnreachable, true),
            _ => (Reason::OutcomeUnknown, true),
        };
        Self {
            maybe_applied,
            ..Self::new(reason, message)
        }
    }
}

/// Whether the request failed before a connection existed, so that no byte of it was sent.
fn never_connected(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The cause at the end of the chain, with advice if there is any.
#[must_use]
pub fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if speaks_no_grpc(error) {
        return "it serves HTTP, not gRPC: use the node's gRPC port".to_owned();
    }
    let of_http2 = cause.downcast_ref::<h2::Error>();
    // A TLS alert is not a frame.
    let is_no_frame = |error: &h2::Error| {
        !error.is_remote() && error.reason() == Some(h2::Reason::FRAME_SIZE_ERROR)
    };
    if of_http2.is_some_and(is_no_frame) {
        "the server at this address does not speak HTTP/2 without TLS; if it uses TLS, set the \
         authorities to trust (kvctl: --tls-ca FILE)"
            .to_owned()
    } else {
        cause.to_string()
    }
}

/// Whether the peer said that it serves HTTP/1.1 only, as a node's HTTP port does (RFC 9113, section 7).
#[must_use]
pub fn speaks_no_grpc(error: &(dyn std::error::Error + 'static)) -> bool {
    let chain = std::iter::successors(Some(error), |error| error.source());
    let mut of_http2 = chain.filter_map(|error| error.downcast_ref::<h2::Error>());
    of_http2.any(|error| error.is_remote() && error.reason() == Some(h2::Reason::HTTP_1_1_REQUIRED))
}

/// Whether the connection ended before the request was sent, or the peer reported that it
/// did not process it (RFC 9113, sections 6.8 and 8.7).
fn was_left(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let reason = error.reason();
            let refused = error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM);
            let left = error.is_go_away() && reason == Some(h2::Reason::NO_ERROR);
            return error.is_remote() && (refused || left);
        }
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_canceled)
        {
            return true;
        }
        source = error.source();
    }
    false
}

/// The message as it is sent.
fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let mut ends = (0..=MAX_MESSAGE_BYTES).rev();
        let end = ends.find(|at| message.is_char_boundary(*at));
        message.truncate(end.unwrap_or(0));
        message.push_str(" …");
    }
    message
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let changed = if fault.maybe_applied { "unknown" } else { "no" };
        let mut metadata = std::collections::HashMap::new();
        metadata.insert("changed".to_owned(), changed.to_owned());
        if let Some(epoch) = fault.epoch {
            metadata.insert("epoch".to_owned(), epoch.to_string());
        }
        let mut details =
            ErrorDetails::with_error_info(fault.reason.as_str_name(), DOMAIN, metadata);
        if let Some(wait) = fault.retry_after {
            details.set_retry_info(Some(wait));
        }
        Self::with_error_details(fault.code(), shortened(fault.message), details)
    }
}

impl From<Fault> for crate::v1::Fault {
    fn from(fault: Fault) -> Self {
        Self {
            reason: fault.reason.into(),
            message: shortened(fault.message),
            maybe_applied: fault.maybe_applied,
            epoch: fault.epoch.map_or(0, |epoch| epoch.0),
            retry_after_ms: fault.retry_after.map_or(0, torc_record::to_millis),
        }
    }
}

impl From<crate::v1::Fault> for Fault {
    fn from(wire: crate::v1::Fault) -> Self {
        Self {
            reason: wire.reason(),
            maybe_applied: wire.maybe_applied,
            epoch: (wire.epoch != 0).then_some(Epoch(wire.epoch)),
            retry_after: (wire.retry_after_ms != 0)
                .then(|| Duration::from_millis(wire.retry_after_ms)),
            message: wire.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_reason() -> impl Iterator<Item = Reason> {
        (0..64).filter_map(|number| Reason::try_from(number).ok())
    }

    #[test]
    fn what_a_stranger_named_is_not_repeated_at_length() {
        let fault = Fault::new(Reason::Invalid, "ü".repeat(1 << 20));
        let status = Status::from(fault.clone());
        assert!(status.message().len() < 1_100);
        assert!(status.details().len() < 1_300, "it is there once more");
        assert!(crate::v1::Fault::from(fault).message.ends_with("ü …"));
    }

    #[test]
    fn a_fault_survives_the_way_through_a_status() {
        for reason in every_reason() {
            for maybe_applied in [false, true] {
                let fault = Fault {
                    maybe_applied,
                    ..Fault::new(reason, "why")
                }
                .at(Epoch(7))
                .retry_after(Duration::from_millis(250));
                let status = Status::from(fault.clone());
                assert_eq!(Fault::from_status(&status), fault);
                let wire = crate::v1::Fault::from(fault.clone());
                assert_eq!(Fault::from(wire), fault);
            }
        }
    }

    #[test]
    fn what_may_have_happened_is_never_retryable() {
        for reason in every_reason() {
            let fault = Fault {
                maybe_applied: true,
                ..Fault::new(reason, "")
            };
            assert!(!fault.is_retryable(), "{reason:?}");
        }
    }

    #[test]
    fn a_broken_connection_leaves_the_outcome_open() {
        let fault = Fault::from_status(&Status::unavailable("broken pipe"));
        assert!(fault.maybe_applied);
        assert!(!fault.is_retryable());
    }

    #[test]
    fn what_the_transport_failed_of_is_in_doubt_whatever_its_code() {
        let mut status = Status::resource_exhausted("enhance your calm");
        assert!(
            !Fault::from_status(&status).maybe_applied,
            "the server said so itself"
        );
        status.set_source(std::sync::Arc::new(std::io::Error::other(
            "connection closed",
        )));
        assert!(Fault::from_status(&status).maybe_applied);
    }

    #[tokio::test]
    async fn a_connection_that_was_never_made_changed_nothing() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{closed}"))
            .unwrap()
            .connect_lazy();
        let mut client = crate::v1::kv_client::KvClient::new(channel);
        let status = client
            .get(crate::v1::GetRequest::default())
            .await
            .unwrap_err();
        let fault = Fault::from_status(&status);
        assert_eq!(fault.reason, Reason::OwnerUnreachable, "{status:?}");
        assert!(fault.is_retryable());
    }
}
