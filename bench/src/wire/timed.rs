//! What is told of a case: the rate, latencies, and the servers' processor time.

use std::time::Duration;

use anyhow::Result;

use super::case::Work;
use super::closed_loop::Sample;
use super::data::Data;
use super::subject::Subject;
use super::{P50, P99, RATE, SERVER};
use crate::process;
use crate::report::{Metric, Report};

const CLIENT: Metric = Metric::new("client_cpu", "us/key");

/// A sample, and the processor time during it.
pub(super) struct Timed {
    pub(super) sample: Sample,
    servers: Duration,
    /// Of this thread.
    client: Duration,
}

impl Timed {
    /// Runs a case after a tenth of the time to warm up; `None` if the server does not support it.
    pub(super) async fn run(
        subject: &dyn Subject,
        work: Work,
        data: &Data,
        time: Duration,
    ) -> Result<Option<Self>> {
        if subject.run(work, data, time / 10).await?.is_none() {
            return Ok(None);
        }
        let before = (subject.cpu_time()?, process::cpu_time_of_this_thread());
        let Some(sample) = subject.run(work, data, time).await? else {
            return Ok(None);
        };
        Ok(Some(Self {
            sample,
            servers: subject.cpu_time()?.saturating_sub(before.0),
            client: process::cpu_time_since(before.1),
        }))
    }

    /// Reports all but the client's time.
    pub(super) fn tell(&self, report: &mut Report, case: &str, subject: &'static str) {
        self.sample.tell(report, case, subject);
        report.add(case, SERVER, subject, self.server_us());
    }

    /// Processor time of the servers per key, microseconds.
    pub(super) fn server_us(&self) -> f64 {
        self.per_key_us(self.servers)
    }

    pub(super) fn tell_client(&self, report: &mut Report, case: &str, subject: &'static str) {
        report.add(case, CLIENT, subject, self.per_key_us(self.client));
    }

    fn per_key_us(&self, spent: Duration) -> f64 {
        spent.as_secs_f64() * 1e6 / self.sample.operations.max(1) as f64
    }
}

impl Sample {
    /// Keys a second.
    pub(super) fn rate(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }

    /// Reports the rate and latencies.
    pub(super) fn tell(&self, report: &mut Report, case: &str, subject: &'static str) {
        let us = |quantile| self.latencies_ns.value_at_quantile(quantile) as f64 / 1e3;
        report.add(case, RATE, subject, self.rate());
        report.add(case, P50, subject, us(0.5));
        report.add(case, P99, subject, us(0.99));
    }
}
