//! What a node did with a hostile request.

use std::fmt;

use tonic::Code;

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
