//! Draws a frame on a terminal.

use ratatui::Frame as Canvas;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Gauge, Row, Sparkline, Table};

use super::frame::{Column, Frame, HOT_COLUMNS, hot_rows};
use crate::progress::ProgressRate;
use crate::table::Align;

/// The user's choices and the latest problem.
#[derive(Debug)]
pub(super) struct View {
    pub(super) sort: Column,
    pub(super) reverse: bool,
    pub(super) rate: ProgressRate,
    /// Why the newest figures are missing.
    pub(super) problem: Option<String>,
}

const HELP: &str = " q quit   ← → sort by another column   r reverse ";

pub(super) fn draw(canvas: &mut Canvas<'_>, frame: Option<&Frame>, view: &View) {
    let Some(frame) = frame else {
        let waiting = view
            .problem
            .as_deref()
            .unwrap_or("connecting to the cluster");
        canvas.render_widget(Text::from(waiting), canvas.area());
        return;
    };
    let change = frame.change(&view.rate);
    let nodes = frame.status.nodes.len() as u16;
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Length(change.is_some().into()),
        Constraint::Length(nodes + 2),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [head, past, progress, table, hot, foot] = rows.areas(canvas.area());
    canvas.render_widget(Line::from(frame.headline()).bold(), head);
    let title = " requests/s, a column every five seconds ";
    let block = Block::new().borders(Borders::TOP).title(title);
    let fit = frame.past.len().saturating_sub(past.width.into());
    canvas.render_widget(
        Sparkline::default().block(block).data(&frame.past[fit..]),
        past,
    );
    if let (Some(text), Some(running)) = (change, &frame.status.transition) {
        let share = f64::from(running.partitions_done) / f64::from(running.partitions_total.max(1));
        let gauge = Gauge::default().ratio(share.clamp(0.0, 1.0)).label(text);
        canvas.render_widget(gauge, progress);
    }
    draw_nodes(canvas, table, frame, view);
    draw_hot(canvas, hot, frame);
    let foot_text = view
        .problem
        .as_deref()
        .map_or_else(|| HELP.to_owned(), |it| format!(" {it} "));
    canvas.render_widget(Line::from(foot_text).reversed(), foot);
}

fn cell(text: String, align: Align) -> Cell<'static> {
    let alignment = match align {
        Align::Left => Alignment::Left,
        Align::Right => Alignment::Right,
    };
    Cell::from(Text::from(text).alignment(alignment))
}

/// Column widths that fit the cells.
fn widths<'a>(titles: impl Iterator<Item = &'a str>, rows: &[Vec<String>]) -> Vec<Constraint> {
    let wide = |(at, title): (usize, &str)| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.max().unwrap_or(0).max(title.chars().count() + 1) as u16
    };
    titles
        .enumerate()
        .map(wide)
        .map(Constraint::Length)
        .collect()
}

fn draw_nodes(canvas: &mut Canvas<'_>, area: Rect, frame: &Frame, view: &View) {
    let rows = frame.rows(view.sort, view.reverse);
    let head = Column::ALL.map(|column| {
        let mark = match (column == view.sort, view.reverse) {
            (true, false) => "▾",
            (true, true) => "▴",
            (false, _) => "",
        };
        let style = if column == view.sort {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            Style::new()
        };
        cell(format!("{}{mark}", column.title()), column.align()).style(style)
    });
    let widths = widths(Column::ALL.iter().map(|it| it.title()), &rows);
    let lines = rows.into_iter().map(|row| {
        let is_well = row[2] == "ready";
        let cells = row.into_iter().zip(Column::ALL);
        let line = Row::new(cells.map(|(text, column)| cell(text, column.align())));
        if is_well { line } else { line.yellow() }
    });
    let table = Table::new(lines, widths)
        .header(Row::new(head).underlined())
        .column_spacing(2)
        .block(Block::new().borders(Borders::TOP).title(" nodes "));
    canvas.render_widget(table, area);
}

fn draw_hot(canvas: &mut Canvas<'_>, area: Rect, frame: &Frame) {
    let block = Block::new().borders(Borders::TOP);
    let Some(hot) = &frame.hot else {
        let problem = frame.hot_problem.as_deref().unwrap_or_default();
        canvas.render_widget(block.title(format!(" no hot keys: {problem} ")), area);
        return;
    };
    let rows: Vec<Vec<String>> = hot_rows(hot).map(Vec::from).collect();
    let widths = widths(HOT_COLUMNS.iter().map(|(title, _)| *title), &rows);
    let lines = rows.into_iter().map(|row| {
        let cells = row.into_iter().zip(HOT_COLUMNS);
        Row::new(cells.map(|(text, (_, align))| cell(text, align)))
    });
    let head = HOT_COLUMNS.map(|(title, align)| cell(title.to_owned(), align));
    let table = Table::new(lines, widths)
        .header(Row::new(head).underlined())
        .column_spacing(2)
        .block(block);
    canvas.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::frame;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, frame: Option<&Frame>, problem: Option<&str>) -> String {
        let view = View {
            sort: Column::Requests,
            reverse: false,
            rate: ProgressRate::default(),
            problem: problem.map(str::to_owned),
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|canvas| draw(canvas, frame, &view)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_terminal_shows_rates_progress_nodes_hot_keys_and_keys_to_press() {
        let screen = drawn(160, 24, Some(&frame()), None);
        for part in [
            "1,024 requests/s",
            "removal of node 2: 1,024 of 2,048 partitions",
            "requests/s▾",
            "unreachable",
            "1,002",
            r"busy\n\x1b[2J",
            "q quit",
        ] {
            assert!(screen.contains(part), "{part}:\n{screen}");
        }
        assert!(screen.contains('█'), "past requests are drawn:\n{screen}");
    }

    #[test]
    fn a_small_terminal_and_a_lost_cluster_are_no_failure() {
        drawn(1, 1, Some(&frame()), None);
        drawn(20, 5, Some(&frame()), None);
        assert!(drawn(60, 3, None, Some("nobody answers")).contains("nobody answers"));
        let lost = drawn(160, 24, Some(&frame()), Some("nobody answers"));
        assert!(
            lost.contains("nobody answers") && lost.contains("1,002"),
            "{lost}"
        );
    }
}
