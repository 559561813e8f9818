//! The measurements of a suite, and their output.
//!
//! A figure has a case, a metric with its unit, and a subject: `torc`, or the name of a
//! peer. Every round adds one value; the report shows the median. The table has one
//! line per case and metric with the subjects side by side; `--json` prints one object
//! per figure, and everything else goes to standard error.

use std::io::{self, Write};

use serde::Serialize;

use crate::machine::{self, Busy};
use crate::stats;
use crate::table::Table;

/// The subject that is ours.
pub(crate) const TORC: &str = "torc";

/// What a figure measures, and its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
}

impl Metric {
    pub(crate) const fn new(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit }
    }
}

/// The expectation for Torc before the measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prediction {
    pub(crate) case: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) expected: &'static str,
}

/// The figures of one suite.
#[derive(Debug)]
pub(crate) struct Report {
    suite: &'static str,
    predictions: &'static [Prediction],
    rows: Vec<Row>,
    subjects: Vec<&'static str>,
    notes: Vec<String>,
    load_before: String,
    busy_before: Option<Busy>,
    failure: Option<anyhow::Error>,
}

/// The figures of one case and metric.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) metric: Metric,
    /// A subject, and its value in each round.
    pub(crate) figures: Vec<(&'static str, Vec<f64>)>,
}

impl Row {
    fn median(&self, subject: &str) -> Option<f64> {
        let of_subject = |(name, _): &&(&str, Vec<f64>)| *name == subject;
        let (_, values) = self.figures.iter().find(of_subject)?;
        stats::median(values)
    }

    /// The widest spread of a subject's rounds, in percent of its median.
    fn spread_percent(&self) -> Option<f64> {
        let spreads = self.figures.iter();
        spreads
            .filter_map(|(_, values)| stats::spread_percent(values))
            .max_by(f64::total_cmp)
    }
}

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    suite: &'a str,
    case: &'a str,
    subject: &'a str,
    metric: &'a str,
    value: f64,
    unit: &'a str,
}

impl Report {
    /// Starts a report; records how busy the machine is before the measurement.
    pub(crate) fn new(suite: &'static str, predictions: &'static [Prediction]) -> Self {
        Self {
            suite,
            predictions,
            rows: Vec::new(),
            subjects: vec![TORC],
            notes: Vec::new(),
            load_before: machine::load(),
            busy_before: Busy::now(),
            failure: None,
        }
    }

    /// Keeps the figures so far although the suite ended early. [`Report::outcome`] returns why.
    pub(crate) fn ended(&mut self, outcome: anyhow::Result<()>) {
        if let Err(failure) = outcome {
            self.note("ended early: only what was measured until then is here");
            self.failure = Some(failure);
        }
    }

    /// Whether everything was measured.
    ///
    /// # Errors
    /// Why the suite ended early.
    pub(crate) fn outcome(self) -> anyhow::Result<()> {
        self.failure.map_or(Ok(()), Err)
    }

    /// Adds one round's value of a figure.
    pub(crate) fn add(&mut self, case: &str, metric: Metric, subject: &'static str, value: f64) {
        if !self.subjects.contains(&subject) {
            self.subjects.push(subject);
        }
        let values = self.values(case, metric, subject);
        values.push(value);
    }

    fn values(&mut self, case: &str, metric: Metric, subject: &'static str) -> &mut Vec<f64> {
        let row = self
            .rows
            .iter()
            .position(|row| row.case == case && row.metric == metric);
        let row = row.unwrap_or_else(|| {
            self.rows.push(Row {
                case: case.to_owned(),
                metric,
                figures: Vec::new(),
            });
            self.rows.len() - 1
        });
        let figures = &mut self.rows[row].figures;
        let figure = figures.iter().position(|(name, _)| *name == subject);
        let figure = figure.unwrap_or_else(|| {
            figures.push((subject, Vec::new()));
            figures.len() - 1
        });
        &mut figures[figure].1
    }

    /// Adds a note under the table, once.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Names a peer that is not measured, and why.
    pub(crate) fn skip(&mut self, peer: &str, why: impl std::fmt::Display) {
        self.note(format!("skipped: {peer}: {why}"));
    }

    pub(crate) const fn suite(&self) -> &'static str {
        self.suite
    }

    /// The subjects in the order of the table: ours first.
    pub(crate) fn subjects(&self) -> &[&'static str] {
        &self.subjects
    }

    /// In the order of the table.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Prints the report to standard output.
    ///
    /// # Errors
    /// The error of standard output.
    pub(crate) fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            self.write_json(&mut out)?;
            self.write_surroundings(&mut io::stderr().lock())?;
        } else {
            writeln!(out, "{}", self.table())?;
            self.write_surroundings(&mut out)?;
        }
        out.flush()
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        for row in &self.rows {
            for (subject, values) in &row.figures {
                let Some(value) = stats::median(values) else {
                    continue;
                };
                let line = Line {
                    suite: self.suite,
                    case: &row.case,
                    subject,
                    metric: row.metric.name,
                    value,
                    unit: row.metric.unit,
                };
                serde_json::to_writer(&mut *out, &line)?;
                writeln!(out)?;
            }
        }
        Ok(())
    }

    fn write_surroundings(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "\n{}; load average before: {}; after: {}",
            machine::describe(),
            self.load_before,
            machine::load()
        )?;
        if let (Some(before), Some(now)) = (self.busy_before, Busy::now()) {
            let others = now.others_percent(before);
            writeln!(out, "processor time that others took: {others:.0} %")?;
        }
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let mut header = vec!["case".to_owned(), "metric".to_owned(), "unit".to_owned()];
        header.extend(self.subjects.iter().map(|subject| (*subject).to_owned()));
        header.extend(["spread".to_owned(), "predicted".to_owned()]);
        let mut table = Table::new(header, 3..4 + self.subjects.len());
        let mut last_case = "";
        for row in &self.rows {
            let case = if row.case == last_case { "" } else { &row.case };
            last_case = &row.case;
            let mut cells = vec![
                case.to_owned(),
                row.metric.name.to_owned(),
                row.metric.unit.to_owned(),
            ];
            let figure = |subject: &&str| row.median(subject).map_or("-".into(), stats::readable);
            cells.extend(self.subjects.iter().map(figure));
            let spread = row.spread_percent();
            cells.push(spread.map_or(String::new(), |percent| format!("{percent:.0} %")));
            cells.push(self.predicted(row).to_owned());
            table.row(cells);
        }
        table
    }

    fn predicted(&self, row: &Row) -> &'static str {
        let of_row = |of: &&Prediction| of.case == row.case && of.metric == row.metric.name;
        let found = self.predictions.iter().find(of_row);
        found.map_or("", |prediction| prediction.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Metric = Metric::new("rate", "ops/s");

    fn report() -> Report {
        let mut report = Report::new(
            "store",
            &[Prediction {
                case: "puts",
                metric: "rate",
                expected: "2,000",
            }],
        );
        for (torc, peer) in [(1000.0, 10.0), (3000.0, 30.0), (2000.0, 20.0)] {
            report.add("puts", RATE, TORC, torc);
            report.add("puts", RATE, "peer", peer);
        }
        report.add("gets", RATE, "peer", 5.0);
        report
    }

    #[test]
    fn the_table_has_medians_side_by_side_and_what_was_predicted() {
        let expected = [
            "case  metric  unit    torc   peer  spread  predicted",
            "puts  rate    ops/s  2,000   20.0   100 %  2,000",
            "gets  rate    ops/s      -  5.000",
        ];
        assert_eq!(report().table().to_string(), expected.join("\n"));
    }

    #[test]
    fn json_has_one_object_a_figure() {
        let mut out = Vec::new();
        report().write_json(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            r#"{"suite":"store","case":"puts","subject":"torc","metric":"rate","value":2000.0,"unit":"ops/s"}"#
        );
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_suite_that_ends_early_keeps_its_figures_and_fails() {
        let mut report = report();
        report.ended(Ok(()));
        assert!(report.notes.is_empty());
        report.ended(Err(anyhow::anyhow!("a node has ended")));
        assert!(report.table().to_string().contains("2,000"));
        assert_eq!(
            report.outcome().unwrap_err().to_string(),
            "a node has ended"
        );
    }

    #[test]
    fn a_note_is_said_once() {
        let mut report = report();
        report.skip("etcd", "not installed");
        report.skip("etcd", "not installed");
        assert_eq!(report.notes, ["skipped: etcd: not installed"]);
    }
}
