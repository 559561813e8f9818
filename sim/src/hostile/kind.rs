//! One kind of hostile client: its action and the expected outcome.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tonic::Code;

use super::grpc::Call;
use super::target::Shot;

/// How long one request may take, unless its kind says otherwise.
const TIME: Duration = Duration::from_secs(20);

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A gRPC status; `Ok` is an answer.
    Grpc(Code),
    /// Responses of HTTP/1: the status of the first, and how many there were.
    Http(u16, usize),
    /// HTTP/2 ended the stream, with this code.
    Reset(u32),
    /// HTTP/2 ended the connection, with this code.
    GoAway(u32),
    /// The node hung up without a word.
    Closed,
    /// The node stopped reading: what is sent waits here.
    Stalled,
    /// The connection is as it was, and the node answers on it.
    Open,
    /// An answer was due and none came. Never as it should be.
    Silent,
    /// Anything that no other variant describes. Never as it should be.
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

impl Outcome {
    /// The node has no place or no time now, and may have one later.
    pub(crate) const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Grpc(Code::ResourceExhausted | Code::Unavailable | Code::DeadlineExceeded)
        )
    }
}

/// An outcome, and how many requests led to it.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) requests: u64,
}

impl From<Outcome> for Done {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            requests: 1,
        }
    }
}

/// What may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// This gRPC status.
    Code(Code),
    /// A gRPC status that says what is wrong with the request.
    Refused,
    /// A gRPC answer.
    Answered,
    /// HTTP/1: this status, once.
    Http(u16),
    /// HTTP/1: one refusal, of whatever status from 400 on.
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

/// Codes that blame the request, or say that there is no room for it.
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

/// Sets of expectations that many kinds share.
pub(crate) mod expect {
    use super::Expected::{self, Answered, Closed, Code, GoAway, Open, Refused, Reset, Stalled};

    pub(crate) const INVALID: &[Expected] = &[Code(tonic::Code::InvalidArgument)];
    pub(crate) const REFUSED: &[Expected] = &[Refused];
    pub(crate) const ANSWERED: &[Expected] = &[Answered];
    /// Answered or refused: harmless either way.
    pub(crate) const TOLD: &[Expected] = &[Answered, Refused];
    /// What prost cannot decode is INTERNAL, as tonic has it.
    pub(crate) const MALFORMED: &[Expected] = &[Refused, Code(tonic::Code::Internal)];
    /// The connection ends.
    pub(crate) const ENDED: &[Expected] = &[GoAway, Closed];
    /// The stream or the connection ends.
    pub(crate) const CUT: &[Expected] = &[Reset, GoAway, Closed];
    /// Whatever does not cost the node anything.
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
    /// What it does, in a line.
    pub(crate) what: String,
    expects: &'static [Expected],
    /// Why it is not run unless asked for: what the service does not hold against yet.
    pub(crate) known: Option<&'static str>,
    /// It waits much longer than it works, so it runs in a loop of its own.
    pub(crate) is_slow: bool,
    /// It may be repeated within one go.
    pub(crate) is_repeated: bool,
    /// It has connections of its own and costs little, so it may run beside itself.
    pub(crate) is_light: bool,
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
            is_repeated: true,
            is_light: false,
            act,
        }
    }

    /// It waits much longer than it works.
    pub(crate) const fn slow(mut self) -> Self {
        self.is_slow = true;
        self
    }

    /// It is not repeated within one go.
    pub(crate) const fn once(mut self) -> Self {
        self.is_repeated = false;
        self
    }

    /// It costs little memory.
    pub(crate) const fn light(mut self) -> Self {
        self.is_light = true;
        self
    }

    /// It expects something else.
    pub(crate) const fn or(mut self, expects: &'static [Expected]) -> Self {
        self.expects = expects;
        self
    }

    /// The service is known not to hold against it.
    pub(crate) const fn known(mut self, why: &'static str) -> Self {
        self.known = Some(why);
        self
    }

    pub(crate) fn expects(&self, outcome: &Outcome) -> bool {
        self.expects.iter().any(|expected| expected.is_met(outcome))
    }

    /// What is expected, for people.
    pub(crate) fn expectation(&self) -> String {
        let names = self.expects.iter().map(|expected| match expected {
            Expected::Code(code) => format!("{code:?}"),
            Expected::Http(status) => format!("HTTP {status}"),
            other => format!("{other:?}"),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// How long one request may take.
    pub(crate) const fn time(&self) -> Duration {
        if self.is_slow {
            TIME.saturating_mul(3)
        } else {
            TIME
        }
    }
}
