//! The progress of a build on stderr: a bar on a terminal, else occasional lines.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::input;
use crate::out::note;
use crate::progress::GrowthRate;
use crate::text;

/// Time between lines if there is no terminal. A build that is shorter prints none.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// One pass of a build.
pub(super) struct Pass {
    what: &'static str,
    bar: ProgressBar,
    is_terminal: bool,
    started: Instant,
    done: GrowthRate,
    records: GrowthRate,
    next_line: Duration,
}

impl Pass {
    /// `of`: when its position is that of the end, if it is known.
    pub(super) fn begin(what: &'static str, of: Option<u64>) -> Self {
        let template = match of {
            Some(_) => "{bar:30} {percent:>3} %  {msg}",
            None => "{spinner} {msg}",
        };
        Self {
            what,
            bar: input::styled(of, template),
            is_terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            done: GrowthRate::default(),
            records: GrowthRate::default(),
            next_line: LINE_EVERY,
        }
    }

    /// Its bar, whose position may be moved elsewhere.
    pub(super) const fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Shows the position of the bar, described by `done`, and the number of records so far.
    pub(super) fn show(&mut self, done: &str, records: u64) {
        let now = self.started.elapsed();
        let figures = self.figures(now, done, records);
        if self.is_terminal {
            self.bar.set_message(figures);
        } else if self.is_line_due(now) {
            note(format_args!("{}: {figures}", self.what));
        }
    }

    fn figures(&mut self, now: Duration, done: &str, records: u64) -> String {
        let at = self.bar.position();
        self.done.note(now, at);
        self.records.note(now, records);
        let rate = self.records.per_s().map(|rate| text::count(rate as u64));
        let left = self.bar.length().map(|of| of.saturating_sub(at));
        let left = left.and_then(|left| self.done.time_left(left));
        let parts = [
            Some(done.to_owned()),
            rate.map(|rate| format!("{rate} records/s")),
            left.map(|left| format!("{} left", text::duration(left))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn is_line_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.next_line;
        if is_due {
            self.next_line = now + LINE_EVERY;
        }
        is_due
    }

    pub(super) fn end(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_says_how_fast_it_is_and_when_it_ends() {
        let s = Duration::from_secs;
        let mut known = Pass::begin("reading", Some(100));
        assert_eq!(known.figures(s(0), "0 records", 0), "0 records");
        known.bar().set_position(25);
        let figures = known.figures(s(5), "5,000 records", 5_000);
        assert_eq!(figures, "5,000 records, 1,000 records/s, 15.0 s left");
        // The last ten seconds count.
        known.bar().set_position(26);
        known.figures(s(15), "", 5_100);
        known.bar().set_position(27);
        let figures = known.figures(s(25), "5,200 records", 5_200);
        assert_eq!(figures, "5,200 records, 10 records/s, 12 min 10 s left");
        let mut pipe = Pass::begin("reading", None);
        pipe.figures(s(0), "", 0);
        let figures = pipe.figures(s(2), "10 records", 10);
        assert_eq!(figures, "10 records, 5 records/s");
    }

    #[test]
    fn lines_are_ten_seconds_apart() {
        let mut pass = Pass::begin("reading", None);
        let due = [0, 9, 10, 11, 19, 25, 34, 35];
        let due = due.map(|at| pass.is_line_due(Duration::from_secs(at)));
        assert_eq!(due, [false, false, true, false, false, true, false, true]);
    }
}
