//! Plots as SVG: axes, ticks, a legend, and nothing else.
//!
//! [`Plot`] has lines and points, [`Medians`] compares subjects. `torc-bench SUITE --plot`,
//! `kvctl bench --plot` and `kvctl hot-keys --plot` draw with them. Plots follow the reader's dark
//! mode. Absent on purpose: files.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "pixels and ticks are small"
)]

mod medians;

use std::fmt::{self, Write as _};

pub use medians::{Mark, Medians, Panel, Row};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 380.0;
/// Where the legend begins, below the axis: two columns.
const LEGEND: f64 = BOTTOM + 60.0;
const LEGEND_LINE: f64 = 18.0;
/// Ticks of a decade, where there are not many decades.
const ROUND: [f64; 3] = [1.0, 2.0, 5.0];
/// Told apart by people who do not see red and green (Okabe and Ito 2008), on light and on dark;
/// grey instead of their black.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f",
];
/// Classes: the ground, axes, ticks. With its own ground, a plot is readable on any page.
const STYLE: &str = "<style>text{fill:#1f2937}.g{fill:#fff}.a{stroke:#1f2937}.t{stroke:#ddd}\
    @media (prefers-color-scheme:dark){text{fill:#e6edf3}.g{fill:#161b22}.a{stroke:#e6edf3}.t{stroke:#30363d}}</style>";

/// What an axis shows.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// What its values are, and their unit.
    pub label: &'static str,
    /// By powers of ten; values that are not above 0 are left out then.
    pub log: bool,
}

impl Axis {
    /// By equal steps.
    #[must_use]
    pub const fn linear(label: &'static str) -> Self {
        Self { label, log: false }
    }

    /// By powers of ten.
    #[must_use]
    pub const fn log(label: &'static str) -> Self {
        Self { label, log: true }
    }
}

#[derive(Debug)]
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    is_dashed: bool,
}

/// A plot; its `Display` is the SVG.
#[derive(Debug)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

/// From values to pixels.
struct Scale {
    log: bool,
    from: f64,
    until: f64,
    pixels: (f64, f64),
}

impl Plot {
    /// An empty plot.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            series: Vec::new(),
        }
    }

    /// Adds a dashed line: what is said or expected, or all beside a part.
    pub fn dashed(&mut self, name: impl Into<String>, points: Vec<(f64, f64)>) {
        self.add(name.into(), points, true);
    }

    /// Adds a line with points: what was measured.
    pub fn measured(&mut self, name: impl Into<String>, points: Vec<(f64, f64)>) {
        self.add(name.into(), points, false);
    }

    fn add(&mut self, name: String, mut points: Vec<(f64, f64)>, is_dashed: bool) {
        let shown = |axis: Axis, value: f64| value.is_finite() && (!axis.log || value > 0.0);
        points.retain(|(x, y)| shown(self.x, *x) && shown(self.y, *y));
        self.series.push(Series {
            name,
            points,
            is_dashed,
        });
    }

    fn scale(&self, axis: Axis, of: impl Fn(&(f64, f64)) -> f64, pixels: (f64, f64)) -> Scale {
        let points = self.series.iter().flat_map(|series| &series.points);
        Scale::of(points.map(of), axis.log, pixels)
    }
}

impl Scale {
    /// Shows all values, and 0 too if they are far apart.
    fn of(values: impl IntoIterator<Item = f64>, log: bool, pixels: (f64, f64)) -> Self {
        let range = values.into_iter().fold(None, |range, value: f64| {
            let (from, until) = range.unwrap_or((value, value));
            Some((value.min(from), value.max(until)))
        });
        let (mut from, mut until) = range.unwrap_or((1.0, 10.0));
        if log {
            (from, until) = (from.log10(), until.log10());
        } else if from == 0.0 && until == 0.0 {
            until = 1.0;
        } else if from > 0.0 && from < 0.5 * until {
            from = 0.0;
        }
        let margin = 0.04 * (until - from).max(1e-9 + 1e-3 * until.abs());
        let is_zero = from == 0.0 && !log;
        Self {
            log,
            from: if is_zero { from } else { from - margin },
            until: until + margin,
            pixels,
        }
    }

    fn pixel(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        let share = (value - self.from) / (self.until - self.from);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// Round values within the scale, about six.
    fn ticks(&self) -> Vec<f64> {
        let range = self.until - self.from;
        if self.log && range >= 1.5 {
            let step = (range / 6.0).ceil().max(1.0) as i32;
            let (first, last) = (self.from.ceil() as i32, self.until.floor() as i32);
            return (first..=last)
                .step_by(step as usize)
                .map(|power| 10_f64.powi(power))
                .collect();
        }
        if self.log {
            let within = |tick: &f64| (self.from..=self.until).contains(&tick.log10());
            let decades = self.from.floor() as i32..=self.until.ceil() as i32;
            let round = decades.flat_map(|power| ROUND.map(|step| step * 10_f64.powi(power)));
            let ticks: Vec<f64> = round.filter(within).collect();
            if ticks.len() >= 2 {
                return ticks;
            }
        }
        let raw = range / 6.0;
        let magnitude = 10_f64.powf(raw.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .find(|f| f * magnitude >= raw);
        let step = factor.unwrap_or(10.0) * magnitude;
        let first = (self.from / step).ceil() as i64;
        let last = (self.until / step).floor() as i64;
        let ticks = (first..=last).map(|tick| tick as f64 * step);
        ticks
            .map(|tick| if self.log { 10_f64.powf(tick) } else { tick })
            .collect()
    }
}

/// A tick's label: as short as possible, with all digits of a round value.
fn label(value: f64) -> String {
    // Removes the error of computing the tick.
    let value = format!("{value:.9e}").parse().unwrap_or(value);
    let size = value.abs();
    if size == 0.0 || (1e-3..1e5).contains(&size) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

/// Text of an SVG.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The start of an SVG of this size. Classes for what is drawn on it: `a` strokes axes, `t` ticks.
#[must_use]
pub fn head(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         {STYLE}\n<rect class=\"g\" width=\"{width}\" height=\"{height}\"/>\n\
         <text x=\"{}\" y=\"24\" font-size=\"15\" text-anchor=\"middle\">{}</text>\n",
        width / 2.0,
        escaped(title)
    )
}

impl Plot {
    fn draw_axes(&self, out: &mut String, x: &Scale, y: &Scale) -> fmt::Result {
        for tick in x.ticks() {
            let at = x.pixel(tick);
            writeln!(
                out,
                "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" class=\"t\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 16.0,
                label(tick)
            )?;
        }
        for tick in y.ticks() {
            let at = y.pixel(tick);
            writeln!(
                out,
                "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" class=\"t\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                label(tick)
            )?;
        }
        let middle = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
        writeln!(
            out,
            "<path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" class=\"a\" fill=\"none\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            middle.0,
            BOTTOM + 36.0,
            escaped(self.x.label),
            middle.1,
            escaped(self.y.label)
        )
    }

    fn draw_series(&self, out: &mut String, x: &Scale, y: &Scale) -> fmt::Result {
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let mut path = String::new();
            for (at, point) in series.points.iter().enumerate() {
                let command = if at == 0 { 'M' } else { 'L' };
                write!(
                    path,
                    "{command}{:.1} {:.1}",
                    x.pixel(point.0),
                    y.pixel(point.1)
                )?;
            }
            let dashes = if series.is_dashed {
                " stroke-dasharray=\"7 5\""
            } else {
                ""
            };
            writeln!(
                out,
                "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"1.8\" fill=\"none\"{dashes}/>"
            )?;
            if !series.is_dashed {
                for point in &series.points {
                    writeln!(
                        out,
                        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.2\" fill=\"{colour}\"/>",
                        x.pixel(point.0),
                        y.pixel(point.1)
                    )?;
                }
            }
            let column = LEFT + (RIGHT - LEFT) / 2.0 * (index % 2) as f64;
            let line = LEGEND + LEGEND_LINE * (index / 2) as f64;
            writeln!(
                out,
                "<path d=\"M{column} {line}h24\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                column + 30.0,
                line + 4.0,
                escaped(&series.name)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Plot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let x = self.scale(self.x, |point| point.0, (LEFT, RIGHT));
        let y = self.scale(self.y, |point| point.1, (BOTTOM, TOP));
        let lines = self.series.len().div_ceil(2) as f64;
        let mut out = head(WIDTH, LEGEND + LEGEND_LINE * lines, &self.title);
        self.draw_axes(&mut out, &x, &y)?;
        self.draw_series(&mut out, &x, &y)?;
        out.push_str("</svg>\n");
        f.write_str(&out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        let scale = |log, from, until| Scale {
            log,
            from,
            until,
            pixels: (0.0, 100.0),
        };
        assert_eq!(
            scale(false, 0.0, 10.0).ticks(),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(scale(true, -0.1, 2.1).ticks(), [1.0, 10.0, 100.0]);
        assert_eq!(scale(true, 0.7, 2.0).ticks(), [10.0, 20.0, 50.0, 100.0]);
        assert!(scale(true, 0.1, 0.2).ticks().len() >= 2);
        for tick in scale(true, 0.1, 0.9).ticks() {
            assert!((0.1..0.9).contains(&tick.log10()));
        }
        assert_eq!(
            ["0", "0.5", "20", "1e-6", "1e6"],
            [0.0, 0.5, 20.0, 1e-6, 1e6]
                .map(label)
                .each_ref()
                .map(String::as_str)
        );
    }

    #[test]
    fn the_labels_of_an_axis_differ() {
        for (from, until, wanted) in [
            (
                90_000.0,
                210_000.0,
                ["1e5", "1.2e5", "1.4e5", "1.6e5", "1.8e5", "2e5"],
            ),
            (
                0.0009,
                0.0021,
                ["0.001", "0.0012", "0.0014", "0.0016", "0.0018", "0.002"],
            ),
        ] {
            let scale = Scale {
                log: false,
                from,
                until,
                pixels: (0.0, 100.0),
            };
            let labels: Vec<String> = scale.ticks().into_iter().map(label).collect();
            assert_eq!(labels, wanted);
        }
    }

    #[test]
    fn a_plot_of_nothing_or_of_one_point_is_drawn() {
        let mut plot = Plot::new("a < b", Axis::log("x"), Axis::linear("y"));
        assert!(plot.to_string().contains("a &lt; b"));
        plot.measured("zero has no logarithm", vec![(0.0, 1.0), (1.0, 5.0)]);
        let drawn = plot.to_string();
        assert_eq!(drawn.matches("<circle").count(), 1);
        assert!(!drawn.contains("NaN"));
    }
}
