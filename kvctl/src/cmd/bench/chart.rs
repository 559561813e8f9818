//! Plots of a benchmark: latency by percentile, and against load.

use torc_plot::{Axis, Plot};

use super::report::Run;
use super::workload::Kind;

const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Latency by percentile for one run, latency against load for several.
pub(super) fn plot(runs: &[Run]) -> Plot {
    match runs {
        [run] => by_percentile(run),
        _ => against_load(runs),
    }
}

fn by_percentile(run: &Run) -> Plot {
    let mut plot = Plot::new(
        "Latency by percentile",
        Axis::log("1 / (1 - percentile): 10 is p90, 100 is p99, 1000 is p99.9"),
        Axis::log("latency, ms"),
    );
    for kind in Kind::ALL {
        let counts = run.tally.of(kind);
        let Some(histogram) = counts.and_then(|counts| counts.latencies.histogram()) else {
            continue;
        };
        let point = |one_of: f64| {
            let us = histogram.value_at_quantile(1.0 - one_of.recip());
            (one_of, us as f64 / 1_000.0)
        };
        // A percentile finer than one request means nothing.
        let len = histogram.len() as f64;
        plot.measured(
            kind.name(),
            steps().take_while(|step| *step <= len).map(point).collect(),
        );
    }
    plot
}

/// 1, 2, 5, 10, 20, 50, and on.
fn steps() -> impl Iterator<Item = f64> {
    (0..12).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)))
}

fn against_load(runs: &[Run]) -> Plot {
    let mut plot = Plot::new(
        "Latency against load, from when requests were due",
        Axis::linear("operations per second, answered"),
        Axis::log("latency, ms"),
    );
    for kind in Kind::ALL {
        for (name, quantile) in PERCENTILES {
            let point = |run: &Run| {
                let histogram = run.tally.of(kind)?.latencies.histogram()?;
                let load = run.tally.done() as f64 / run.elapsed.as_secs_f64().max(1e-6);
                Some((load, histogram.value_at_quantile(quantile) as f64 / 1_000.0))
            };
            let points: Vec<_> = runs.iter().filter_map(point).collect();
            if !points.is_empty() {
                plot.measured(format!("{} {name}", kind.name()), points);
            }
        }
    }
    plot
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cmd::bench::tally::{Outcome, Tally};

    fn run(rate: u64) -> Run {
        let mut tally = Tally::default();
        for us in 1..=100 {
            tally.note(Kind::Get, Duration::from_micros(us), [Ok(Outcome::Done)]);
        }
        Run {
            rate: Some(rate),
            elapsed: Duration::from_secs(1),
            tally,
            not_sent: Some(0),
        }
    }

    #[test]
    fn one_run_is_drawn_as_far_as_its_requests_say_something() {
        let drawn = plot(&[run(10)]).to_string();
        assert!(drawn.contains(">get</text>") && !drawn.contains("put"));
        // 1, 2, 5, 10, 20, 50, 100 of a hundred requests.
        assert_eq!(drawn.matches("<circle").count(), 7);
    }

    #[test]
    fn several_runs_are_a_point_each_of_three_percentiles() {
        let drawn = plot(&[run(10), run(20), run(30)]).to_string();
        assert_eq!(drawn.matches("<circle").count(), 9);
        assert!(drawn.contains("get p99.9"));
    }
}
