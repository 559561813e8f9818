//! The cases of every server, and the predictions.

use crate::report::Prediction;

/// A kind of work, and how much of it is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// One key per request, each request on its own.
    Get {
        in_flight: usize,
    },
    Put {
        in_flight: usize,
    },
    /// [`BATCH`] keys per request.
    GetBatches {
        in_flight: usize,
    },
    PutBatches {
        in_flight: usize,
    },
    /// One key per message, all on one connection or stream.
    StreamGets {
        in_flight: usize,
    },
    StreamPuts {
        in_flight: usize,
    },
    /// One key per request; a connection sends `depth` requests together, and again when all are
    /// answered. Latencies are those of all together.
    PipelinedGets {
        connections: usize,
        depth: usize,
    },
    PipelinedPuts {
        connections: usize,
        depth: usize,
    },
}

/// Keys per batch.
pub(super) const BATCH: usize = 100;

/// A kind of work, and its name.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) work: Work,
}

const fn case(name: &'static str, work: Work) -> Case {
    Case { name, work }
}

/// All measured cases, in the order of the report.
pub(super) const CASES: &[Case] = &[
    case("get, 64 in flight", Work::Get { in_flight: 64 }),
    case("put, 64 in flight", Work::Put { in_flight: 64 }),
    case("put, 256 in flight", Work::Put { in_flight: 256 }),
    case(
        "get of 100, 16 in flight",
        Work::GetBatches { in_flight: 16 },
    ),
    case(
        "put of 100, 16 in flight",
        Work::PutBatches { in_flight: 16 },
    ),
    case("stream get, 1 in flight", Work::StreamGets { in_flight: 1 }),
    case(
        "stream get, 16 in flight",
        Work::StreamGets { in_flight: 16 },
    ),
    case(
        "stream get, 64 in flight",
        Work::StreamGets { in_flight: 64 },
    ),
    case(
        "stream get, 256 in flight",
        Work::StreamGets { in_flight: 256 },
    ),
    case(
        "stream put, 64 in flight",
        Work::StreamPuts { in_flight: 64 },
    ),
    case(
        "stream put, 256 in flight",
        Work::StreamPuts { in_flight: 256 },
    ),
];

const fn rate(case: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case,
        metric: "rate",
        expected,
    }
}

const fn server(case: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case,
        metric: "server_cpu",
        expected,
    }
}

/// Taken from an echo server with a hash map, without a store or a cluster.
pub(super) const PREDICTIONS: &[Prediction] = &[
    rate(
        "get, 64 in flight",
        "103,000 by a work-stealing runtime, 159,000 by one without",
    ),
    server(
        "get, 64 in flight",
        "9.6 by a work-stealing runtime, 5.7 by one without",
    ),
    rate("get of 100, 16 in flight", "1,900,000 to 2,900,000"),
    server("get of 100, 16 in flight", "0.35 to 0.5"),
    rate("stream get, 1 in flight", "16,000"),
    server("stream get, 1 in flight", "27"),
    rate("stream get, 16 in flight", "199,000"),
    server("stream get, 16 in flight", "2.4"),
    rate("stream get, 64 in flight", "522,000"),
    server("stream get, 64 in flight", "1.0"),
    rate("stream get, 256 in flight", "1,640,000"),
    server("stream get, 256 in flight", "0.6"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prediction_is_of_a_case() {
        for prediction in PREDICTIONS {
            assert!(
                CASES.iter().any(|case| case.name == prediction.case),
                "{prediction:?}"
            );
        }
    }
}
