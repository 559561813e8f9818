//! Errors of the client library as exceptions of `torc`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use torc_client::{Error, ErrorKind};

/// Why an object is unusable. Nothing was sent.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(crate) enum Unusable {
    /// It was inherited through a fork.
    #[error("this client was connected before a fork: connect in the child process")]
    Forked,
    /// It was closed.
    #[error("this client is closed: connect again")]
    Closed,
}

impl Unusable {
    const fn kind(self) -> &'static str {
        match self {
            Self::Forked => "forked",
            Self::Closed => "closed",
        }
    }
}

/// The exception of an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    with_note(py, error, "", error.maybe_applied())
}

/// The same with a prefix; `maybe_applied` is that of the whole call.
pub(crate) fn with_note(py: Python<'_>, error: &Error, note: &str, maybe_applied: bool) -> PyErr {
    let message = format!("{note}{}", error.message());
    let retry_after = error.retry_after().map(|time| time.as_secs_f64());
    let is_retryable = error.is_retryable() && !maybe_applied;
    make(
        py,
        kind(error.kind()),
        (message, maybe_applied, is_retryable, retry_after),
    )
}

pub(crate) fn unusable(py: Python<'_>, why: Unusable) -> PyErr {
    make(py, why.kind(), (why.to_string(), false, false, None))
}

/// The exception of a failed build, which involves no cluster.
pub(crate) fn of_build(py: Python<'_>, kind: &str, message: String) -> PyErr {
    let is_retryable = kind == "unavailable";
    make(py, kind, (message, false, is_retryable, None))
}

/// `torc._errors.make` knows the classes.
fn make(py: Python<'_>, kind: &str, details: (String, bool, bool, Option<f64>)) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (message, maybe_applied, is_retryable, retry_after) = details;
    let made = MAKE
        .import(py, "torc._errors", "make")
        .and_then(|make| make.call1((kind, message, maybe_applied, is_retryable, retry_after)));
    made.map_or_else(|error| error, PyErr::from_value)
}

const fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Deadline => "timeout",
        ErrorKind::ConditionNotMet => "condition_not_met",
        ErrorKind::OutcomeUnknown => "outcome_unknown",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Refused => "refused",
        ErrorKind::Denied => "denied",
        ErrorKind::NoSuchNamespace => "no_such_namespace",
        ErrorKind::NoSuchNode => "no_such_node",
        ErrorKind::Overloaded => "overloaded",
        ErrorKind::OutOfSpace => "out_of_space",
        ErrorKind::Corrupt => "corrupt",
        // Kinds that later releases add are unknown here.
        _ => "internal",
    }
}
