//! Plots of reports, as files: the medians of a suite, a panel for each unit.
//!
//! Within a panel, rows are grouped by case or by metric, whichever are fewer. A panel that would
//! be taller than a page is one for each group.

use std::path::Path;

use anyhow::{Context as _, Result};
use torc_plot::{Mark, Medians, Panel};

use crate::report::{Report, Row};
use crate::stats;

/// Creates the directory of plots, before anything is measured.
///
/// # Errors
/// The system's error.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    let made = std::fs::create_dir_all(dir);
    made.with_context(|| format!("cannot make the directory of plots {}", dir.display()))
}

/// Writes a plot as `NAME.svg`.
///
/// # Errors
/// The system's error.
pub(crate) fn write(dir: &Path, name: &str, svg: &str) -> Result<()> {
    let file = dir.join(name).with_extension("svg");
    let written = std::fs::write(&file, svg);
    written.with_context(|| format!("cannot write the plot {}", file.display()))
}

/// Writes a report as `SUITE.svg`, or as `SUITE-1.svg` and so on if one were too tall.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_report(dir: &Path, report: &Report) -> Result<()> {
    let pages = of(report).pages();
    let suite = report.suite();
    if let [page] = &pages[..] {
        return write(dir, suite, &page.to_string());
    }
    for (number, page) in (1..).zip(&pages) {
        write(dir, &format!("{suite}-{number}"), &page.to_string())?;
    }
    Ok(())
}

fn of(report: &Report) -> Medians {
    let subjects = report.subjects();
    let units = distinct(report.rows().iter().map(|row| row.metric.unit));
    let panels = units.into_iter().flat_map(|unit| {
        let rows = report.rows().iter().filter(|row| row.metric.unit == unit);
        panels(unit, &rows.collect::<Vec<_>>(), subjects)
    });
    let suite = report.suite();
    Medians {
        title: format!("torc-bench {suite}: medians and ranges of the rounds"),
        subjects: subjects.iter().map(|name| (*name).to_owned()).collect(),
        panels: panels.collect(),
    }
}

/// The panels of a unit: one, if it is not too tall.
fn panels(unit: &str, rows: &[&Row], subjects: &[&str]) -> Vec<Panel> {
    let metrics = distinct(rows.iter().map(|row| row.metric.name));
    let cases = distinct(rows.iter().map(|row| row.case.as_str()));
    let by_metric = metrics.len() <= cases.len();
    let (groups, name): (_, fn(&Row) -> [&str; 2]) = if by_metric {
        (metrics, |row| [row.metric.name, &row.case])
    } else {
        (cases, |row| [&row.case, row.metric.name])
    };
    let group = |group: &str| {
        let rows = rows.iter().filter(|row| name(row)[0] == group);
        let row = |row: &&Row| torc_plot::Row {
            name: name(row)[1].to_owned(),
            marks: marks(row, subjects),
        };
        Panel {
            title: group.to_owned(),
            unit: unit.to_owned(),
            rows: rows.map(row).collect(),
        }
    };
    let groups: Vec<Panel> = groups.into_iter().map(group).collect();
    if groups.len() == 1 {
        return groups;
    }
    let with_heading = |group: &Panel| {
        let name = group.title.clone();
        let heading = torc_plot::Row {
            name,
            marks: Vec::new(),
        };
        std::iter::once(heading).chain(group.rows.clone())
    };
    let together = Panel {
        title: String::new(),
        unit: unit.to_owned(),
        rows: groups.iter().flat_map(with_heading).collect(),
    };
    if together.is_tall() {
        groups
    } else {
        vec![together]
    }
}

/// The figures of a row in the order of the subjects.
fn marks(row: &Row, subjects: &[&str]) -> Vec<Mark> {
    let mark = |(subject, name): (usize, &&str)| {
        let of_subject = row.figures.iter().find(|(of, _)| of == name);
        let (_, values) = of_subject?;
        let median = stats::median(values)?;
        Some(Mark {
            subject,
            median,
            range: stats::range(values)?,
            text: stats::readable(median),
        })
    };
    subjects.iter().enumerate().filter_map(mark).collect()
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Metric, TORC};

    const RATE: Metric = Metric::new("rate", "keys/s");
    const P50: Metric = Metric::new("p50", "us");
    const P99: Metric = Metric::new("p99", "us");

    fn report(cases: usize) -> Report {
        let mut report = Report::new("wire", &[]);
        for case in 0..cases {
            let case = format!("get <{case}>");
            for round in 1..=3_u8 {
                for (metric, value) in [(RATE, 1e6), (P50, 40.0), (P99, 90.0)] {
                    let value = value * f64::from(round);
                    report.add(&case, metric, TORC, value);
                    report.add(&case, metric, "redis", 2.0 * value);
                }
            }
        }
        report
    }

    #[test]
    fn a_unit_is_a_panel_and_the_fewer_of_cases_and_metrics_are_its_groups() {
        let one = of(&report(1));
        let titles: Vec<_> = one.panels.iter().map(|panel| &panel.title[..]).collect();
        assert_eq!(titles, ["rate", "get <0>"]);
        let latencies = &one.panels[1];
        assert_eq!(latencies.unit, "us");
        let names: Vec<_> = latencies.rows.iter().map(|row| &row.name[..]).collect();
        assert_eq!(names, ["p50", "p99"]);
        let mark = &latencies.rows[0].marks[1];
        assert_eq!(one.subjects[mark.subject], "redis");
        assert_eq!((mark.median, mark.range), (160.0, (80.0, 240.0)));
        assert_eq!(mark.text, "160");

        let three = of(&report(3));
        let names: Vec<_> = three.panels[1]
            .rows
            .iter()
            .map(|row| &row.name[..])
            .collect();
        let cases = ["get <0>", "get <1>", "get <2>"];
        assert_eq!(names, [&["p50"][..], &cases, &["p99"], &cases].concat());
        assert!(three.panels[1].rows[0].marks.is_empty(), "a heading");
    }

    #[test]
    fn a_report_is_a_file_or_several() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("new").join("plots");
        make_dir(&dir).unwrap();
        write_report(&dir, &report(2)).unwrap();
        let drawn = std::fs::read_to_string(dir.join("wire.svg")).unwrap();
        assert!(drawn.contains(">torc-bench wire: ") && drawn.contains(">get &lt;1&gt;<"));
        write_report(&dir, &report(40)).unwrap();
        assert!(dir.join("wire-1.svg").exists() && dir.join("wire-2.svg").exists());
        let refused = write_report(&dir.join("wire.svg"), &report(1)).unwrap_err();
        assert!(
            refused.to_string().contains("cannot write the plot"),
            "{refused}"
        );
        assert!(make_dir(&dir.join("wire.svg")).is_err());
    }
}
