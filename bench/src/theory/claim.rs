//! One claim: the source's figure, our figure, and why they differ.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

use crate::stats;
use crate::table::Table;
use torc_plot::Plot;

/// A source's statement about a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Says {
    /// An exact value.
    Is(f64),
    /// An upper bound.
    AtMost(f64),
    /// A lower bound.
    AtLeast(f64),
    /// No statement: the figure is shown for comparison.
    Nothing,
}

/// The source's figure and ours.
#[derive(Debug)]
struct Row {
    case: String,
    figure: &'static str,
    unit: &'static str,
    says: Says,
    measured: f64,
}

/// A claim, printed as a table and as lines of JSON.
#[derive(Debug)]
pub(super) struct Claim {
    title: &'static str,
    rows: Vec<Row>,
    why: Vec<String>,
    picture: Option<String>,
}

/// One line of `--json`, in the format of the other suites.
#[derive(Serialize)]
struct Line<'a> {
    suite: &'a str,
    case: String,
    subject: &'a str,
    metric: &'a str,
    value: f64,
    unit: &'a str,
}

impl Claim {
    /// A claim whose title names the source and the place in it.
    pub(super) const fn new(title: &'static str) -> Self {
        Self {
            title,
            rows: Vec::new(),
            why: Vec::new(),
            picture: None,
        }
    }

    /// Adds a figure.
    pub(super) fn row(
        &mut self,
        case: impl Into<String>,
        (figure, unit): (&'static str, &'static str),
        says: Says,
        measured: f64,
    ) {
        self.rows.push(Row {
            case: case.into(),
            figure,
            unit,
            says,
            measured,
        });
    }

    /// Adds a reason for a difference or an agreement.
    pub(super) fn why(&mut self, reason: impl Into<String>) {
        self.why.push(reason.into());
    }

    /// Gives the claim its plot.
    pub(super) fn plot(&mut self, plot: &Plot) {
        self.picture = Some(plot.to_string());
    }

    /// Gives the claim a picture, an SVG.
    pub(super) fn picture(&mut self, svg: String) {
        self.picture = Some(svg);
    }

    /// The plot, if it has one.
    pub(super) fn svg(&self) -> Option<&str> {
        self.picture.as_deref()
    }

    /// Writes two objects per row: the source's figure, if it has one, and ours.
    pub(super) fn write_json(&self, name: &str, out: &mut impl Write) -> io::Result<()> {
        for row in &self.rows {
            let sides = [("source", row.says.value()), ("torc", Some(row.measured))];
            for (subject, value) in sides {
                let Some(value) = value else { continue };
                let line = Line {
                    suite: "theory",
                    case: format!("{name}: {}", row.case),
                    subject,
                    metric: row.figure,
                    value,
                    unit: row.unit,
                };
                serde_json::to_writer(&mut *out, &line)?;
                writeln!(out)?;
            }
        }
        Ok(())
    }
}

impl Says {
    const fn value(self) -> Option<f64> {
        match self {
            Self::Is(value) | Self::AtMost(value) | Self::AtLeast(value) => Some(value),
            Self::Nothing => None,
        }
    }
}

impl fmt::Display for Says {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(value) => f.write_str(&number(*value)),
            Self::AtMost(value) => write!(f, "<= {}", number(*value)),
            Self::AtLeast(value) => write!(f, ">= {}", number(*value)),
            Self::Nothing => f.write_str("-"),
        }
    }
}

/// Formats numbers like the other suites, but small ones with an exponent.
fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 {
        format!("{value:.2e}")
    } else {
        stats::readable(value)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let header = ["case", "figure", "unit", "source says", "we measure"];
        let mut table = Table::new(header.map(str::to_owned).to_vec(), 3..5);
        let mut last_case = "";
        for row in &self.rows {
            let case = if row.case == last_case { "" } else { &row.case };
            last_case = &row.case;
            table.row(vec![
                case.to_owned(),
                row.figure.to_owned(),
                row.unit.to_owned(),
                row.says.to_string(),
                number(row.measured),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "why they differ:")?;
        for reason in &self.why {
            writeln!(f, "  {reason}")?;
        }
        Ok(())
    }
}
