//! One kind of hostile client: its action and the expected outcome.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tonic::Code;

use super::grpc::Call;
use super::outcome::{Done, Outcome};
use super::target::Shot;

/// Time limit of a request, unless its kind has another: a hundred handshakes of an unoptimised node
/// on a busy machine.
const TIME: Duration = Duration::from_secs(120);

/// An outcome that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// This gRPC status.
    Code(Code),
    /// A gRPC status that reports a problem with the request.
    Refused,
    /// A gRPC answer.
    Answered,
    /// HTTP/1: this status, once.
    Http(u16),
    /// HTTP/1: a single refusal, with any status from 400 on.
    HttpRefused,
    Reset,
    GoAway,
    Closed,
    Stalled,
    Open,
}

impl Expected {
    fn is_met(self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Self::Code(code), Outcome::Grpc(found)) => code == *found,
            (Self::Refused, Outcome::Grpc(code)) => is_refusal(*code),
            (Self::Http(status), Outcome::Http(found, 1)) => status == *found,
            (Self::HttpRefused, Outcome::Http(status, 1)) => *status >= 400,
            (Self::Answered, Outcome::Grpc(Code::Ok))
            | (Self::Reset, Outcome::Reset(_))
            | (Self::GoAway, Outcome::GoAway(_))
            | (Self::Closed, Outcome::Closed)
            | (Self::Stalled, Outcome::Stalled)
            | (Self::Open, Outcome::Open) => true,
            _ => false,
        }
    }
}

/// Codes that blame the request or report a lack of resources.
const fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument
            | Code::OutOfRange
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::NotFound
            | Code::Aborted
            | Code::Unimplemented
            | Code::DeadlineExceeded
    )
}

/// Of a port that serves only nodes, or of a request without permission.
const fn is_denial(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Grpc(Code::PermissionDenied | Code::Unauthenticated)
            | Outcome::Http(401 | 403, _)
            | Outcome::Closed
    )
}

/// Sets of allowed outcomes that many kinds share.
pub(crate) mod expect {
    use super::Expected::{self, Answered, Closed, Code, GoAway, Open, Refused, Reset, Stalled};

    pub(crate) const INVALID: &[Expected] = &[Code(tonic::Code::InvalidArgument)];
    pub(crate) const REFUSED: &[Expected] = &[Refused];
    pub(crate) const ANSWERED: &[Expected] = &[Answered];
    /// Answered or refused: both are harmless.
    pub(crate) const TOLD: &[Expected] = &[Answered, Refused];
    /// tonic reports messages that prost cannot decode as INTERNAL.
    pub(crate) const MALFORMED: &[Expected] = &[Refused, Code(tonic::Code::Internal)];
    /// The connection ends.
    pub(crate) const ENDED: &[Expected] = &[GoAway, Closed];
    /// The stream or the connection ends.
    pub(crate) const CUT: &[Expected] = &[Reset, GoAway, Closed];
    /// Any outcome that costs the node nothing.
    pub(crate) const BORNE: &[Expected] = &[Open, Stalled, Reset, GoAway, Closed];
}

#[derive(Clone)]
pub(crate) enum Act {
    /// One call, on any connection to the node.
    Call(Arc<dyn Fn(&mut Shot) -> Call + Send + Sync>),
    /// Connections of its own.
    Own(Arc<dyn Fn(Shot) -> BoxFuture<'static, Done> + Send + Sync>),
}

/// A kind of hostile request or connection.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// Its action, in one line.
    pub(crate) what: String,
    expects: &'static [Expected],
    /// Why it is not run by default: the service does not withstand it yet.
    pub(crate) known: Option<&'static str>,
    /// Whether it waits much longer than it works, and so runs in a loop of its own.
    pub(crate) is_slow: bool,
    /// Whether it has its own connections and costs little, so that several of it may run
    /// concurrently.
    pub(crate) is_light: bool,
    /// Whether a denial is as expected as another refusal.
    pub(crate) may_be_denied: bool,
    pub(crate) act: Act,
}

impl Kind {
    /// A kind with connections of its own.
    pub(crate) fn new<F, Acting>(
        name: impl Into<String>,
        what: impl Into<String>,
        expects: &'static [Expected],
        act: F,
    ) -> Self
    where
        F: Fn(Shot) -> Acting + Send + Sync + 'static,
        Acting: Future<Output: Into<Done>> + Send + 'static,
    {
        let act = move |shot| -> BoxFuture<'static, Done> {
            let acting = act(shot);
            Box::pin(async move { acting.await.into() })
        };
        Self::of(name.into(), what.into(), expects, Act::Own(Arc::new(act)))
    }

    /// A kind of gRPC call.
    pub(crate) fn call(
        name: impl Into<String>,
        what: impl Into<String>,
        expects: &'static [Expected],
        call: impl Fn(&mut Shot) -> Call + Send + Sync + 'static,
    ) -> Self {
        Self::of(name.into(), what.into(), expects, Act::Call(Arc::new(call)))
    }

    const fn of(name: String, what: String, expects: &'static [Expected], act: Act) -> Self {
        Self {
            name,
            what,
            expects,
            known: None,
            is_slow: false,
            is_light: false,
            may_be_denied: false,
            act,
        }
    }

    /// Marks it as waiting much longer than it works.
    pub(crate) const fn slow(mut self) -> Self {
        self.is_slow = true;
        self
    }

    /// Marks it as costing little memory.
    pub(crate) const fn light(mut self) -> Self {
        self.is_light = true;
        self
    }

    /// Sets the allowed outcomes.
    pub(crate) const fn or(mut self, expects: &'static [Expected]) -> Self {
        self.expects = expects;
        self
    }

    /// Marks it as not withstood by the service.
    pub(crate) const fn known(mut self, why: &'static str) -> Self {
        self.known = Some(why);
        self
    }

    pub(crate) fn expects(&self, outcome: &Outcome) -> bool {
        let is_met = |expected: &Expected| expected.is_met(outcome);
        self.expects.iter().any(is_met) || (self.may_be_denied && is_denial(outcome))
    }

    /// The allowed outcomes, for display.
    pub(crate) fn expectation(&self) -> String {
        let names = self.expects.iter().map(|expected| match expected {
            Expected::Code(code) => format!("{code:?}"),
            Expected::Http(status) => format!("HTTP {status}"),
            other => format!("{other:?}"),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Time limit of one request.
    pub(crate) const fn time(&self) -> Duration {
        if self.is_slow {
            TIME.saturating_mul(3)
        } else {
            TIME
        }
    }
}
