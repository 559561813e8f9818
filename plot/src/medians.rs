//! Subjects side by side: a dot for each median, on a line from its smallest to its largest round.
//!
//! A panel has one axis, of one unit. The axis is logarithmic if its medians differ more than
//! 30-fold. Values that are not above 0 are then hollow dots at the left edge.

use std::fmt::{self, Write as _};

use super::{COLOURS, Scale, escaped, head, label};

/// Larger ratios of medians are drawn by powers of ten.
const LINEAR: f64 = 30.0;
/// Pixels of a plot that is not split.
const TALL: f64 = 1_400.0;
/// Pixels of a letter in a long name, in a short one and in a small value, generously.
const LETTER: f64 = 6.6;
const WIDE_LETTER: f64 = 8.0;
const SMALL_LETTER: f64 = 5.8;
const MARGIN: f64 = 14.0;
/// The plotted part of a panel.
const ACROSS: f64 = 420.0;
const TITLE: f64 = 34.0;
const LEGEND_LINE: f64 = 18.0;
/// Above the rows of a panel, and below them with the axis.
const ABOVE: f64 = 26.0;
const BELOW: f64 = 48.0;
const HEADING: f64 = 20.0;
const LANE: f64 = 10.0;
const BETWEEN_ROWS: f64 = 5.0;

/// A subject's figure.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Its place among the subjects.
    pub subject: usize,
    /// The dot.
    pub median: f64,
    /// The ends of the line: the smallest and the largest round.
    pub range: (f64, f64),
    /// The median for people.
    pub text: String,
}

/// Marks below each other; a heading, if there are none.
#[derive(Debug, Clone)]
pub struct Row {
    /// What is compared.
    pub name: String,
    /// At most one of each subject.
    pub marks: Vec<Mark>,
}

/// Rows with one axis.
#[derive(Debug, Clone)]
pub struct Panel {
    /// What its rows have in common; may be empty.
    pub title: String,
    /// The unit of all values.
    pub unit: String,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// Panels of the same subjects; its `Display` is the SVG.
#[derive(Debug, Clone)]
pub struct Medians {
    /// Stands above the legend.
    pub title: String,
    /// Each has a colour.
    pub subjects: Vec<String>,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

impl Row {
    fn height(&self) -> f64 {
        match self.marks.len() {
            0 => HEADING,
            lanes => LANE * lanes as f64 + BETWEEN_ROWS,
        }
    }
}

impl Panel {
    /// Pixels from top to bottom.
    #[must_use]
    pub fn height(&self) -> f64 {
        ABOVE + self.rows.iter().map(Row::height).sum::<f64>() + BELOW
    }

    /// Whether a plot of this panel alone is taller than a page.
    #[must_use]
    pub fn is_tall(&self) -> bool {
        self.height() > TALL
    }

    fn marks(&self) -> impl Iterator<Item = &Mark> {
        let marks = self.rows.iter().flat_map(|row| &row.marks);
        marks.filter(|mark| mark.median.is_finite())
    }

    fn scale(&self, left: f64) -> Scale {
        let medians = self.marks().map(|mark| mark.median);
        let positive = medians.filter(|value| *value > 0.0);
        let ends = positive.fold(None, |ends: Option<(f64, f64)>, value| {
            let (from, until) = ends.unwrap_or((value, value));
            Some((from.min(value), until.max(value)))
        });
        let log = ends.is_some_and(|(from, until)| until > LINEAR * from);
        let drawn = |value: &f64| value.is_finite() && (!log || *value > 0.0);
        let values = self
            .marks()
            .flat_map(|mark| [mark.median, mark.range.0, mark.range.1]);
        Scale::of(values.filter(drawn), log, (left, left + ACROSS))
    }

    fn draw(&self, out: &mut String, top: f64, left: f64) -> fmt::Result {
        let scale = self.scale(left);
        let (first, last) = (top + ABOVE, top + self.height() - BELOW);
        writeln!(
            out,
            "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            first - 8.0,
            escaped(&self.title)
        )?;
        for tick in scale.ticks() {
            let at = scale.pixel(tick);
            writeln!(
                out,
                "<path d=\"M{at:.1} {first}V{last}\" class=\"t\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                last + 16.0,
                label(tick)
            )?;
        }
        writeln!(
            out,
            "<path d=\"M{left} {first}V{last}h{ACROSS}\" class=\"a\" fill=\"none\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            left + ACROSS / 2.0,
            last + 32.0,
            escaped(&self.unit)
        )?;
        let mut at = first;
        for row in &self.rows {
            row.draw(out, at, left, &scale)?;
            at += row.height();
        }
        Ok(())
    }
}

impl Row {
    fn draw(&self, out: &mut String, top: f64, left: f64, scale: &Scale) -> fmt::Result {
        let weight = if self.marks.is_empty() {
            " font-weight=\"bold\""
        } else {
            ""
        };
        writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\"{weight}>{}</text>",
            left - 8.0,
            top + self.height() / 2.0 + 4.0,
            escaped(&self.name)
        )?;
        let lanes = (0..).map(|lane| top + BETWEEN_ROWS / 2.0 + LANE * (f64::from(lane) + 0.5));
        for (mark, y) in self.marks.iter().zip(lanes) {
            if mark.median.is_finite() {
                mark.draw(out, y, scale)?;
            }
        }
        Ok(())
    }
}

impl Mark {
    fn draw(&self, out: &mut String, y: f64, scale: &Scale) -> fmt::Result {
        let colour = COLOURS[self.subject % COLOURS.len()];
        let is_off = |value: f64| scale.log && value <= 0.0;
        let at = |value: f64| {
            if is_off(value) {
                scale.pixels.0
            } else {
                scale.pixel(value)
            }
        };
        let fill = if is_off(self.median) { "none" } else { colour };
        let [mut from, mut until] = [self.range.0, self.range.1].map(at);
        if !from.is_finite() || !until.is_finite() {
            (from, until) = (at(self.median), at(self.median));
        }
        if until - from >= 0.1 {
            write!(
                out,
                "<path d=\"M{from:.1} {y}H{until:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
            )?;
        }
        writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{y}\" r=\"3.6\" fill=\"{fill}\" stroke=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{}</text>",
            at(self.median),
            until.max(at(self.median)) + 7.0,
            y + 3.5,
            escaped(&self.text)
        )
    }
}

impl Medians {
    /// Plots that are not taller than a page, except for panels that are.
    #[must_use]
    pub fn pages(self) -> Vec<Self> {
        let page = |panels| Self {
            title: self.title.clone(),
            subjects: self.subjects.clone(),
            panels,
        };
        let mut pages: Vec<Vec<Panel>> = Vec::new();
        let mut height = 0.0;
        for panel in self.panels {
            height += panel.height();
            if let Some(page) = pages.last_mut().filter(|_| height <= TALL) {
                page.push(panel);
            } else {
                height = panel.height();
                pages.push(vec![panel]);
            }
        }
        pages.into_iter().map(page).collect()
    }

    /// Pixels left of the axes.
    fn left(&self) -> f64 {
        let rows = self.panels.iter().flat_map(|panel| &panel.rows);
        let longest = rows.map(|row| row.name.chars().count()).max();
        MARGIN + 8.0 + LETTER * longest.unwrap_or(0) as f64
    }

    /// Pixels right of the axes: a value may begin at their end.
    fn right(&self) -> f64 {
        let marks = self.panels.iter().flat_map(Panel::marks);
        let longest = marks.map(|mark| mark.text.chars().count()).max();
        MARGIN + SMALL_LETTER * longest.unwrap_or(0) as f64
    }

    /// Places of the subjects that have marks.
    fn legend(&self, width: f64) -> Vec<(usize, f64, f64)> {
        let has = |subject: &usize| {
            let mut marks = self.panels.iter().flat_map(Panel::marks);
            marks.any(|mark| mark.subject == *subject)
        };
        let (mut x, mut y) = (MARGIN, TITLE + LEGEND_LINE / 2.0);
        let mut places = Vec::new();
        for subject in (0..self.subjects.len()).filter(has) {
            let across = 30.0 + WIDE_LETTER * self.subjects[subject].chars().count() as f64;
            if x > MARGIN && x + across > width {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            places.push((subject, x, y));
            x += across;
        }
        places
    }
}

impl fmt::Display for Medians {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left();
        let width = (left + ACROSS + self.right()).round();
        let legend = self.legend(width);
        let mut top = legend.last().map_or(TITLE, |(_, _, y)| y + LEGEND_LINE);
        let height = top + self.panels.iter().map(Panel::height).sum::<f64>();
        let mut out = head(width, height, &self.title);
        for (subject, x, y) in legend {
            writeln!(
                out,
                "<circle cx=\"{}\" cy=\"{y}\" r=\"5\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>",
                x + 5.0,
                COLOURS[subject % COLOURS.len()],
                x + 14.0,
                y + 4.0,
                escaped(&self.subjects[subject])
            )?;
        }
        for panel in &self.panels {
            panel.draw(&mut out, top, left)?;
            top += panel.height();
        }
        out.push_str("</svg>\n");
        f.write_str(&out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(subject: usize, median: f64) -> Mark {
        Mark {
            subject,
            median,
            range: (0.9 * median, 1.1 * median),
            text: format!("{median}"),
        }
    }

    fn panel(medians: &[f64]) -> Panel {
        let marks = medians.iter().enumerate();
        Panel {
            title: "p50".to_owned(),
            unit: "us/key".to_owned(),
            rows: vec![Row {
                name: "get & put, \"64\" < 256".to_owned(),
                marks: marks
                    .map(|(subject, median)| mark(subject, *median))
                    .collect(),
            }],
        }
    }

    fn medians(panels: Vec<Panel>) -> Medians {
        Medians {
            title: "wire".to_owned(),
            subjects: ["torc", "redis <7>", "absent"].map(str::to_owned).to_vec(),
            panels,
        }
    }

    #[test]
    fn a_plot_has_its_title_legend_rows_values_and_unit() {
        let drawn = medians(vec![panel(&[100.0, 250.0])]).to_string();
        for text in [
            ">wire</text>",
            ">torc</text>",
            ">redis &lt;7&gt;</text>",
            ">p50</text>",
            "get &amp; put, \"64\" &lt; 256",
            ">us/key</text>",
            ">250</text>",
        ] {
            assert!(drawn.contains(text), "{text} is missing: {drawn}");
        }
        assert!(!drawn.contains("absent"), "a subject without marks");
        assert_eq!(drawn.matches("r=\"3.6\"").count(), 2, "a dot each");
        assert_eq!(
            drawn.matches("stroke-width=\"2\"").count(),
            2,
            "a line each"
        );
    }

    #[test]
    fn an_axis_is_logarithmic_if_medians_differ_thirtyfold() {
        assert!(!panel(&[1.0, 30.0]).scale(0.0).log);
        let wide = panel(&[1.0, 31.0]);
        assert!(wide.scale(0.0).log);
        assert!(wide.scale(0.0).ticks().len() >= 2);
    }

    #[test]
    fn a_value_without_a_logarithm_is_hollow_at_the_left_edge() {
        let drawn = medians(vec![panel(&[0.0, 1.0, 1_000.0])]);
        let edge = format!("<circle cx=\"{:.1}\"", drawn.left());
        let drawn = drawn.to_string();
        let hollow: Vec<_> = drawn.lines().filter(|line| line.contains(&edge)).collect();
        assert_eq!(hollow.len(), 1, "{drawn}");
        assert!(hollow[0].contains("fill=\"none\"") && hollow[0].contains(">0</text>"));
    }

    #[test]
    fn what_is_no_number_is_not_drawn() {
        let mut broken = panel(&[f64::NAN, f64::INFINITY, 5.0, 0.0]);
        broken.rows[0].marks[2].range = (f64::NAN, f64::INFINITY);
        for panels in [vec![broken], vec![panel(&[])], vec![panel(&[0.0])], vec![]] {
            let drawn = medians(panels).to_string();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }

    #[test]
    fn what_is_taller_than_a_page_is_several_plots() {
        let panels = vec![panel(&[1.0, 2.0]); 25];
        let pages = medians(panels).pages();
        assert_eq!(
            pages.iter().map(|page| page.panels.len()).sum::<usize>(),
            25
        );
        assert!(pages.len() > 1);
        for page in pages {
            let height: f64 = page.panels.iter().map(Panel::height).sum();
            assert!(height <= TALL && !page.panels.is_empty());
        }
        let tall = Panel {
            rows: vec![panel(&[1.0]).rows[0].clone(); 100],
            ..panel(&[])
        };
        assert!(tall.is_tall());
        assert_eq!(medians(vec![tall]).pages().len(), 1);
    }
}
