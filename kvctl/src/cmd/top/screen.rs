//! Draws a frame on a terminal.
//!
//! Figures are shown whole or not at all. Columns that do not fit are left out, and the last line
//! says how many. The first column and the sorted one always show, then those right of the sorted
//! one, then the others: so the keys that sort by another column also scroll.

use ratatui::Frame as Canvas;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Stylize as _;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Gauge, Row, Sparkline, Table};

use super::columns::Column;
use super::frame::Frame;
use super::views::{self, View};
use crate::progress::ProgressRate;
use crate::table::Align;
use crate::text;

/// The user's choices and the latest problem.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) view: View,
    /// The column that each view is sorted by.
    pub(super) sorts: [usize; View::COUNT],
    pub(super) reverse: bool,
    /// The first row to show.
    pub(super) row: usize,
    pub(super) rate: ProgressRate,
    /// Why the newest figures are missing.
    pub(super) problem: Option<String>,
}

const HELP: &str = "q quit   1-7 view   ← → sort   r reverse   ↑ ↓ rows";
/// Blanks between columns.
const SPACING: usize = 2;
/// Height of the chart; it is left out if the terminal has fewer than four times as many lines.
const PAST_HEIGHT: u16 = 4;

pub(super) fn draw(canvas: &mut Canvas<'_>, frame: Option<&Frame>, choice: &mut Choice) {
    let Some(frame) = frame else {
        let problem = choice.problem.as_deref();
        let waiting = problem.unwrap_or("connecting to the cluster");
        canvas.render_widget(Text::from(waiting), canvas.area());
        return;
    };
    let (change, warning) = (frame.change(&choice.rate), frame.warning());
    let is_high = canvas.area().height >= 4 * PAST_HEIGHT;
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(warning.is_some().into()),
        Constraint::Length(if is_high { PAST_HEIGHT } else { 0 }),
        Constraint::Length(change.is_some().into()),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [head, warn, past, progress, body, foot] = rows.areas(canvas.area());
    let width = usize::from(head.width);
    let part = |line: &str| Line::from(shortened(line, ", ", width));
    canvas.render_widget(part(&frame.headline()).bold(), head);
    canvas.render_widget(part(&warning.unwrap_or_default()).yellow(), warn);
    draw_past(canvas, past, frame);
    if let (Some(text), Some(running)) = (change, &frame.status.transition) {
        let share = f64::from(running.partitions_done) / f64::from(running.partitions_total.max(1));
        let label = shortened(&text, ", ", width);
        let gauge = Gauge::default().ratio(share.clamp(0.0, 1.0)).label(label);
        canvas.render_widget(gauge, progress);
    }
    let hidden = draw_body(canvas, body, frame, choice);
    let problem = choice.problem.as_deref().unwrap_or(HELP);
    let parts = [hidden.as_deref(), Some(problem)];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    let text = shortened(&format!(" {} ", parts.join("   ")), " ", width);
    canvas.render_widget(Line::from(text).reversed(), foot);
}

fn draw_past(canvas: &mut Canvas<'_>, area: Rect, frame: &Frame) {
    let title = " requests/s, a column every five seconds ";
    let block = Block::new().borders(Borders::TOP).title(title);
    let fit = frame.past.len().saturating_sub(area.width.into());
    let past = Sparkline::default().block(block).data(&frame.past[fit..]);
    canvas.render_widget(past, area);
}

/// Draws the chosen view, and the hot keys below the nodes. Returns what does not fit.
fn draw_body(
    canvas: &mut Canvas<'_>,
    area: Rect,
    frame: &Frame,
    choice: &mut Choice,
) -> Option<String> {
    let view = choice.view;
    let title = tabs(view, area.width);
    let sort = choice.sorts[view as usize];
    let mut section = Section::of(frame, view, title, sort, choice.reverse);
    let count = section.lines.len();
    let high = match view {
        View::Nodes => Constraint::Length(count as u16 + 2),
        _ => Constraint::Length(area.height),
    };
    let [area, below] = Layout::vertical([high, Constraint::Min(0)]).areas(area);
    let room = usize::from(area.height.saturating_sub(2));
    choice.row = choice.row.min(count.saturating_sub(room.max(1)));
    section.lines.drain(..choice.row);
    let columns = draw_section(canvas, area, section);
    if below.height > 2 {
        let (title, sort) = (
            Line::from(" hot keys, more in view 4 "),
            View::Keys.table().sort,
        );
        let keys = Section::of(frame, View::Keys, title, sort, false);
        draw_section(canvas, below, keys);
    }
    let rows = count.saturating_sub(room);
    let hidden = [(columns, "column"), (rows, "row")];
    let hidden = hidden.into_iter().filter(|(count, _)| *count > 0);
    let hidden: Vec<_> = hidden
        .map(|(count, what)| text::counted(count as u64, what))
        .collect();
    (!hidden.is_empty()).then(|| format!("{} hidden", hidden.join(" and ")))
}

/// The views and the keys that choose them. A narrow terminal shows only the name of the chosen
/// one.
fn tabs(chosen: View, width: u16) -> Line<'static> {
    let tab = |(index, view): (usize, View), is_named| {
        let name = view.table().name;
        match (view == chosen, is_named) {
            (true, _) => Span::from(format!(" {} {name} ", index + 1)).reversed(),
            (false, true) => Span::from(format!(" {} {name} ", index + 1)),
            (false, false) => Span::from(format!(" {} ", index + 1)),
        }
    };
    let views = || View::ALL.into_iter().enumerate();
    let named: Line<'_> = views().map(|it| tab(it, true)).collect();
    if named.width() <= width.into() {
        return named;
    }
    views().map(|it| tab(it, false)).collect()
}

/// A table under its title.
struct Section<'a> {
    title: Line<'a>,
    columns: &'static [Column],
    lines: Vec<views::Line>,
    /// Shown instead of no lines.
    empty: String,
    sort: usize,
    reverse: bool,
}

impl<'a> Section<'a> {
    fn of(frame: &Frame, view: View, title: Line<'a>, sort: usize, reverse: bool) -> Self {
        let table = view.table();
        Self {
            title,
            columns: table.columns,
            lines: table.lines(frame, sort, reverse),
            empty: views::without_rows(frame, view),
            sort,
            reverse,
        }
    }
}

/// Draws a table. Returns how many columns do not fit.
fn draw_section(canvas: &mut Canvas<'_>, area: Rect, section: Section<'_>) -> usize {
    let Section { columns, sort, .. } = section;
    let block = Block::new().borders(Borders::TOP).title(section.title);
    if section.lines.is_empty() {
        canvas.render_widget(Text::from(section.empty), block.inner(area));
        canvas.render_widget(block, area);
        return 0;
    }
    let shown = fit(columns, &section.lines, sort, area.width.into());
    let head = shown.iter().map(|&(at, width)| {
        let (mark, column) = (if section.reverse { "▴" } else { "▾" }, &columns[at]);
        if at == sort {
            let title = shortened(column.title, " ", width - 1);
            cell(format!("{title}{mark}"), column.align).bold()
        } else {
            cell(shortened(column.title, " ", width), column.align)
        }
    });
    let rows = section.lines.iter().map(|line| {
        let cells = shown.iter().map(|&(at, width)| {
            let text = shortened(&line.cells[at], " ", width);
            cell(text, columns[at].align)
        });
        let row = Row::new(cells);
        if line.is_well { row } else { row.yellow() }
    });
    let widths = shown
        .iter()
        .map(|&(_, width)| Constraint::Length(width as u16));
    let table = Table::new(rows, widths)
        .header(Row::new(head).underlined())
        .column_spacing(SPACING as u16)
        .block(block);
    canvas.render_widget(table, area);
    columns.len() - shown.len()
}

fn cell(text: String, align: Align) -> Cell<'static> {
    let alignment = match align {
        Align::Left => Alignment::Left,
        Align::Right => Alignment::Right,
    };
    Cell::from(Text::from(text).alignment(alignment))
}

/// The columns that fit, by index, and their widths. Text takes at most a third of the terminal if
/// not all columns fit.
fn fit(
    columns: &[Column],
    lines: &[views::Line],
    sort: usize,
    width: usize,
) -> Vec<(usize, usize)> {
    let count = columns.len();
    let own = |at: usize| {
        let cells = lines.iter().map(|line| line.cells[at].chars().count());
        let title = columns[at].title.chars().count() + usize::from(at == sort);
        cells.max().unwrap_or(0).max(title) + SPACING
    };
    let width = width + SPACING;
    let is_wide = (0..count).map(own).sum::<usize>() <= width;
    let (mut left, mut shown) = (width, Vec::new());
    for at in [0, sort]
        .into_iter()
        .chain((1..count).map(|by| (sort + by) % count))
    {
        let needed = match columns[at].align {
            Align::Left if !is_wide => own(at).min(width / 3),
            _ => own(at),
        };
        if needed <= left && shown.iter().all(|(other, _)| *other != at) {
            left -= needed;
            shown.push((at, needed.saturating_sub(SPACING).max(1)));
        }
    }
    shown.sort_unstable();
    shown
}

/// Text that fits, with `…` for what is left out: whole parts between separators, else whole words,
/// so that no figure is cut.
fn shortened(text: &str, separator: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    let end = kept.rfind(separator).or_else(|| kept.rfind(' '));
    let end = end.filter(|end| *end > 0).unwrap_or(kept.len());
    format!("{}…", &kept[..end])
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::{frame, large};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn choice(view: View, sort: &str) -> Choice {
        let mut sorts = View::ALL.map(|view| view.table().sort);
        sorts[view as usize] = view.table().position(sort).unwrap();
        Choice {
            view,
            sorts,
            reverse: false,
            row: 0,
            rate: ProgressRate::default(),
            problem: None,
        }
    }

    fn drawn(
        width: u16,
        height: u16,
        frame: Option<&Frame>,
        choice: &mut Choice,
        problem: Option<&str>,
    ) -> String {
        choice.problem = problem.map(str::to_owned);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|canvas| draw(canvas, frame, choice)).unwrap();
        terminal.backend().to_string()
    }

    fn by_requests() -> Choice {
        choice(View::Nodes, "requests")
    }

    #[test]
    fn a_terminal_shows_rates_progress_nodes_hot_keys_and_keys_to_press() {
        let screen = drawn(200, 24, Some(&frame()), &mut by_requests(), None);
        for part in [
            "1,024 requests/s",
            "2,048 partitions have no quorum",
            "removal of node 2: 1,024 of 2,048 partitions",
            "1 nodes  2 memory  3 health  4 keys  5 changes  6 partitions",
            "requests/s▾",
            "unreachable",
            "1,002",
            r"busy\n\x1b[2J",
            "q quit",
        ] {
            assert!(screen.contains(part), "{part}:\n{screen}");
        }
        assert!(screen.contains('█'), "past requests are drawn:\n{screen}");
        assert!(!screen.contains("hidden"), "{screen}");
    }

    #[test]
    fn a_small_terminal_and_a_lost_cluster_are_no_failure() {
        let mut choice = by_requests();
        for (width, height) in [(1, 1), (20, 5), (3, 40), (200, 2)] {
            for view in View::ALL {
                choice.view = view;
                drawn(width, height, Some(&frame()), &mut choice, None);
            }
        }
        choice.view = View::Nodes;
        let lost = drawn(60, 3, None, &mut choice, Some("nobody answers"));
        assert!(lost.contains("nobody answers"));
        let lost = drawn(160, 24, Some(&frame()), &mut choice, Some("nobody answers"));
        assert!(
            lost.contains("nobody answers") && lost.contains("1,002"),
            "{lost}"
        );
    }

    /// The lines of a screen, without the quotes that `TestBackend` adds.
    fn lines(screen: &str) -> Vec<String> {
        let line = |line: &str| line.trim_matches('"').to_owned();
        screen.lines().map(line).collect()
    }

    #[test]
    fn no_figure_is_cut_in_any_view_at_any_width_by_any_order() {
        let frame = large();
        for (width, view) in [120, 80, 40]
            .into_iter()
            .flat_map(|width| View::ALL.map(|view| (width, view)))
        {
            let table = view.table();
            for (sort, column) in table.columns.iter().enumerate() {
                let whole = table.lines(&frame, sort, false);
                let mut choice = choice(view, column.name);
                let screen = lines(&drawn(width, 40, Some(&frame), &mut choice, None));
                let head = screen.iter().position(|line| line.contains('▾')).unwrap();
                for (line, row) in screen[head + 1..].iter().zip(&whole) {
                    let cells = line.split("  ").map(str::trim).filter(|it| !it.is_empty());
                    let cells: Vec<&str> = cells.collect();
                    for cell in &cells {
                        let is_part = |whole: &String| {
                            let kept = cell.strip_suffix('…');
                            whole == cell || kept.is_some_and(|kept| whole.starts_with(kept))
                        };
                        assert!(
                            row.cells.iter().any(is_part),
                            "{cell:?} of {column:?} at {width}:\n{}",
                            screen.join("\n"),
                            column = column.name,
                        );
                    }
                    assert!(cells.len() >= if sort == 0 { 1 } else { 2 }, "{line}");
                    if column.align == Align::Right {
                        assert!(cells.contains(&&*row.cells[sort]), "{line}");
                    }
                }
            }
        }
    }

    #[test]
    fn lines_around_the_table_end_with_whole_figures() {
        let large = large();
        let mut choice = by_requests();
        let told = format!(
            "{} {} {}",
            large.headline(),
            large.warning().unwrap(),
            large.change(&choice.rate).unwrap()
        );
        let whole: Vec<&str> = told.split_whitespace().collect();
        for width in [80, 40] {
            let screen = lines(&drawn(width, 40, Some(&large), &mut choice, None));
            for line in [&screen[0], &screen[1], &screen[6]] {
                let words = line.trim().trim_end_matches('…').split_whitespace();
                for word in words.filter(|word| word.contains(|it: char| it.is_ascii_digit())) {
                    let is_it = |of: &&str| of.trim_end_matches(',') == word.trim_end_matches(',');
                    assert!(whole.iter().any(is_it), "{word:?}:\n{}", screen.join("\n"));
                }
            }
        }
        let narrow = drawn(40, 24, Some(&frame()), &mut choice, None);
        assert!(
            narrow.contains("\"2 of 3 nodes ready, 1,024 requests/s…"),
            "{narrow}"
        );
    }

    #[test]
    fn the_last_line_counts_what_is_hidden_and_sorting_by_another_column_shows_it() {
        let frame = large();
        let screen = drawn(80, 24, Some(&frame), &mut choice(View::Nodes, "node"), None);
        let hidden = lines(&screen).pop().unwrap();
        assert!(hidden.starts_with(" 8 columns hidden   q quit"), "{screen}");
        assert!(!screen.contains("errors/s "), "{screen}");
        let mut by_errors = choice(View::Nodes, "errors");
        for width in [80, 40] {
            let screen = drawn(width, 24, Some(&frame), &mut by_errors, None);
            assert!(screen.contains("errors/s▾   get 50 %"), "{screen}");
            assert!(
                screen.contains("node") && screen.contains("1003"),
                "{screen}"
            );
        }
        let screen = drawn(40, 24, Some(&frame), &mut by_errors, None);
        assert!(screen.contains(" 1 nodes  2  3  4  5  6 "), "{screen}");
    }

    #[test]
    fn rows_that_do_not_fit_are_counted_and_scrolled() {
        let frame = large();
        let mut choice = choice(View::Memory, "node");
        let first = drawn(80, 8, Some(&frame), &mut choice, None);
        assert!(first.contains("columns and 1 row hidden"), "{first}");
        choice.row = 1_000;
        let last = drawn(80, 8, Some(&frame), &mut choice, None);
        assert_eq!(choice.row, 1, "the last row stays on the screen");
        assert!(!first.contains("1003") && last.contains("1003"), "{last}");
    }
}
