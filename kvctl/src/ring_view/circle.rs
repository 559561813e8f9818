//! Draws the ring as a circle on a canvas of character cells.
//!
//! A cell is about twice as high as wide, so the circle has twice as many columns as
//! lines.

use std::f64::consts::TAU;

use torc_ring::topology::Stage;

use super::RingView;
use crate::text;

/// The content of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    Blank,
    Char(char),
    /// An arc of the node at this index; `None`: without an owner.
    Arc(Option<usize>),
    /// A partition that moves.
    Moving(Stage),
}

/// Radius of the smallest legible circle, lines.
pub(super) const MIN_RADIUS: usize = 6;
/// Radius of the largest circle.
pub(super) const MAX_RADIUS: usize = 14;
/// Thickness of the ring, lines.
const THICKNESS: f64 = 2.4;
/// Thickness of the marks of moving partitions, just inside the ring.
const MARKS_THICKNESS: f64 = 1.1;

/// Width of a circle, columns.
pub(super) const fn width(radius: usize) -> usize {
    4 * radius + 5
}

/// Draws the ring clockwise from token 0 at the top.
pub(super) fn draw(view: &RingView, radius: usize) -> Vec<Vec<Cell>> {
    let mut canvas = Canvas::new(radius);
    canvas.each(|polar| {
        (polar.radius > radius as f64 - THICKNESS && polar.radius <= radius as f64 + 0.4).then(
            || {
                // The arc that one cell covers.
                let part = 0.5 / (TAU * radius as f64);
                Cell::Arc(view.owner_between(polar.turn - part, polar.turn + part))
            },
        )
    });
    for moving in &view.moving {
        canvas.mark(view.middle_of(moving.partition), Cell::Moving(moving.stage));
    }
    canvas.labels();
    canvas.centre(&[
        format!("epoch {}", view.epoch),
        text::counted(view.partitions.into(), "partition"),
        plural(view.nodes.len(), "node"),
        plural(usize::from(view.replicas), "replica"),
    ]);
    canvas.cells
}

/// `1 node`, `2 nodes`.
pub(super) fn plural(count: usize, what: &str) -> String {
    text::counted(count as u64, what)
}

/// A cell's position as seen from the centre.
struct Polar {
    /// Lines.
    radius: f64,
    /// Clockwise from the top, 0 to 1.
    turn: f64,
}

struct Canvas {
    radius: usize,
    cells: Vec<Vec<Cell>>,
}

impl Canvas {
    /// Leaves a line and two columns around the circle for labels.
    fn new(radius: usize) -> Self {
        Self {
            radius,
            cells: vec![vec![Cell::Blank; width(radius)]; 2 * radius + 3],
        }
    }

    fn middle(&self) -> (usize, usize) {
        (self.radius + 1, 2 * self.radius + 2)
    }

    fn polar(&self, line: usize, column: usize) -> Polar {
        let (middle_line, middle_column) = self.middle();
        let up = middle_line as f64 - line as f64;
        let right = (column as f64 - middle_column as f64) / 2.0;
        Polar {
            radius: up.hypot(right),
            turn: right.atan2(up).rem_euclid(TAU) / TAU,
        }
    }

    /// Fills the cells for which `fill` returns one.
    fn each(&mut self, fill: impl Fn(Polar) -> Option<Cell>) {
        for line in 0..self.cells.len() {
            for column in 0..self.cells[line].len() {
                if let Some(cell) = fill(self.polar(line, column)) {
                    self.cells[line][column] = cell;
                }
            }
        }
    }

    /// Puts a mark inside the ring. A later stage hides an earlier one.
    fn mark(&mut self, turn: f64, mark: Cell) {
        let radius = self.radius as f64 - THICKNESS - MARKS_THICKNESS / 2.0;
        let (middle_line, middle_column) = self.middle();
        let (right, up) = (turn * TAU).sin_cos();
        let line = (middle_line as f64 - up * radius).round() as usize;
        let column = (middle_column as f64 + 2.0 * right * radius).round() as usize;
        if let Some(cell) = self
            .cells
            .get_mut(line)
            .and_then(|line| line.get_mut(column))
        {
            *cell = match (*cell, mark) {
                (Cell::Moving(there), Cell::Moving(new)) if rank(there) > rank(new) => *cell,
                _ => mark,
            };
        }
    }

    /// First hexadecimal digit of the tokens at the quarters.
    fn labels(&mut self) {
        let (line, column) = self.middle();
        let (last_line, last_column) = (2 * line, 2 * column);
        self.cells[0][column] = Cell::Char('0');
        self.cells[line][last_column] = Cell::Char('4');
        self.cells[last_line][column] = Cell::Char('8');
        self.cells[line][0] = Cell::Char('c');
    }

    /// Writes lines in the middle, if they fit between the marks.
    fn centre(&mut self, lines: &[String]) {
        let (middle_line, middle_column) = self.middle();
        let inner = self.radius as f64 - THICKNESS - MARKS_THICKNESS - 0.5;
        let first = middle_line.saturating_sub(lines.len() / 2);
        let fits = lines.iter().zip(first..).all(|(text, line)| {
            let column = middle_column + text.len().div_ceil(2);
            self.polar(line, column).radius < inner
        });
        if !fits {
            return;
        }
        for (text, line) in lines.iter().zip(first..) {
            let start = middle_column - text.len() / 2;
            for (c, column) in text.chars().zip(start..) {
                if c != ' ' {
                    self.cells[line][column] = Cell::Char(c);
                }
            }
        }
    }
}

const fn rank(stage: Stage) -> u8 {
    match stage {
        Stage::Stable => 0,
        Stage::Copying => 1,
        Stage::WriteBothReadOld => 2,
        Stage::WriteBothReadNew => 3,
    }
}
