//! One kind of hostile client: its action and the expected outcome.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tonic::Code;

use super::target::Shot;

/// Time limit of a request, unless its kind has another.
const TIME: Duration = Duration::from_secs(20);

/// What the node did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A gRPC status; `Ok` is an answer.
    Grpc(Code),
    /// HTTP/1 responses: the status of the first, and their number.
    Http(u16, usize),
    /// HTTP/2 ended the stream, with this code.
    Reset(u32),
    /// HTTP/2 ended the connection, with this code.
    GoAway(u32),
    /// The node closed the connection without a message.
    Closed,
    /// The node stopped reading, so sending blocks.
    Stalled,
    /// The connection is unchanged, and the node answers on it.
    Open,
    /// A required answer did not arrive. Never expected.
    Silent,
    /// Any other outcome. Never expected.
    Wrong(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grpc(Code::Ok) => f.write_str("answered"),
            Self::Grpc(code) => write!(f, "{code:?}"),
            Self::Http(status, 1) => write!(f, "HTTP {status}"),
            Self::Http(status, responses) => write!(f, "HTTP {status}, {responses} responses"),
            Self::Reset(code) => write!(f, "RST_STREAM {code}"),
            Self::GoAway(code) => write!(f, "GOAWAY {code}"),
            Self::Closed => f.write_str("closed"),
            Self::Stalled => f.write_str("not read"),
            Self::Open => f.write_str("left open"),
            Self::Silent => f.write_str("no answer"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

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

type Act = Arc<dyn Fn(Shot) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A kind of hostile request or connection.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// Its action, in one line.
    pub(crate) what: String,
    expects: &'static [Expected],
    /// Why it is not run by default: the service does not withstand it yet.
    pub(crate) known: Option<&'static str>,
    /// Whether it waits for the node's timers and so runs beside the others.
    pub(crate) is_slow: bool,
    act: Act,
}

impl Kind {
    pub(crate) fn new<F, Acting>(
        name: impl Into<String>,
        what: impl Into<String>,
        expects: &'static [Expected],
        act: F,
    ) -> Self
    where
        F: Fn(Shot) -> Acting + Send + Sync + 'static,
        Acting: Future<Output = Outcome> + Send + 'static,
    {
        Self {
            name: name.into(),
            what: what.into(),
            expects,
            known: None,
            is_slow: false,
            act: Arc::new(move |shot| Box::pin(act(shot))),
        }
    }

    /// Marks it as waiting for the node's timers.
    pub(crate) const fn slow(mut self) -> Self {
        self.is_slow = true;
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
        self.expects.iter().any(|expected| expected.is_met(outcome))
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

    /// Sends one request, or opens one connection.
    pub(crate) async fn act(&self, shot: Shot) -> Outcome {
        let time = if self.is_slow { 3 * TIME } else { TIME };
        let acted = tokio::time::timeout(time, (self.act)(shot)).await;
        acted.unwrap_or(Outcome::Silent)
    }
}
