//! How long a call may take, and the span that it belongs to.

use std::time::{Duration, Instant};

use torc_proto::{TraceContext, timeout_of};

/// Default time limit of an operation.
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Upper bound on the time limit of an operation.
pub(crate) const LONGEST_DEADLINE: Duration = Duration::from_secs(60);

/// The deadline of a request, from its `grpc-timeout` or the default.
pub(crate) fn deadline_of<T>(request: &tonic::Request<T>) -> Instant {
    let stated = request
        .metadata()
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(timeout_of);
    let timeout = stated.map_or(DEFAULT_DEADLINE, |stated| stated.min(LONGEST_DEADLINE));
    Instant::now() + timeout
}

/// The deadline of an operation, and the span that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallContext {
    pub(crate) deadline: Instant,
    /// `None` if it is not traced.
    pub(crate) trace: Option<TraceContext>,
}

impl CallContext {
    /// The time left until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_deadline_is_kept_and_bounded() {
        let stated = |timeout: &'static str| {
            let mut request = tonic::Request::new(());
            let value = tonic::metadata::MetadataValue::from_static(timeout);
            request.metadata_mut().insert("grpc-timeout", value);
            let before = Instant::now();
            let left = deadline_of(&request) - before;
            left.as_secs()
        };
        assert_eq!(stated("3S"), 3);
        assert_eq!(stated("99999999H"), LONGEST_DEADLINE.as_secs());
        assert_eq!(stated("+3S"), DEFAULT_DEADLINE.as_secs());
    }
}
