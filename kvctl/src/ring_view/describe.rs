//! The ring as text: picture, table of nodes, and what moves.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use torc_ring::NodeId;
use torc_ring::topology::{MovingPartition, NodeSummary, Stage};

use super::RingView;
use super::circle::{self, Cell, MAX_RADIUS, MIN_RADIUS, plural};
use crate::out::Screen;
use crate::table::{Align, Table};
use crate::text;

/// Radius without a terminal.
const PLAIN_RADIUS: usize = 10;
/// Longest bar after a node.
const MAX_BAR: usize = 24;

/// Draws the ring for a screen: a circle if there is room, else a strip. Without
/// colours, letters distinguish the nodes.
pub(crate) fn describe(view: &RingView, screen: Screen) -> String {
    let mut out = String::new();
    let picture = match radius(view, screen) {
        Some(radius) => circle::draw(view, radius),
        None => strip(view, screen.width),
    };
    for line in picture {
        paint(&line, view, screen.colour, &mut out);
        out.push('\n');
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{}, clockwise from token 0; digits: first hexadecimal digit of the token\n",
        plural(view.positions.len(), "position"),
    );
    out += &nodes(view, screen);
    out += &moves(view);
    out
}

/// The largest circle that leaves room for the table; `None` if it would be too small.
fn radius(view: &RingView, screen: Screen) -> Option<usize> {
    let wide_enough = (MIN_RADIUS..=MAX_RADIUS)
        .rev()
        .find(|r| circle::width(*r) <= screen.width)?;
    if !screen.terminal {
        return Some(wide_enough.min(PLAIN_RADIUS));
    }
    let others = view.nodes.len() + 9;
    let high_enough = screen.height.saturating_sub(others) / 2;
    Some(wide_enough.min(high_enough.max(MIN_RADIUS)))
}

/// The ring cut open at token 0: one line, as wide as the screen.
fn strip(view: &RingView, width: usize) -> Vec<Vec<Cell>> {
    let width = width.max(1);
    let cell = |column: usize| {
        let part = |column| column as f64 / width as f64;
        Cell::Arc(view.owner_between(part(column), part(column + 1)))
    };
    vec![(0..width).map(cell).collect()]
}

/// Background colours, of the 256 terminal colours, on which black text is legible.
const COLOURS: [u8; 12] = [39, 208, 76, 207, 226, 51, 203, 141, 118, 215, 45, 180];

fn paint(line: &[Cell], view: &RingView, colour: bool, out: &mut String) {
    let mut background = None;
    let used = line
        .iter()
        .rposition(|cell| *cell != Cell::Blank)
        .map_or(0, |last| last + 1);
    for cell in &line[..used] {
        let owner = match cell {
            Cell::Arc(owner) if colour => *owner,
            _ => None,
        };
        if owner != background {
            out.push_str("\x1b[0m");
            if let Some(owner) = owner {
                push_background(owner, out);
            }
            background = owner;
        }
        out.push(match cell {
            Cell::Blank => ' ',
            Cell::Char(c) => *c,
            Cell::Arc(owner) => owner.map_or('.', |owner| view.nodes[owner].mark),
            Cell::Moving(stage) => stage_mark(*stage),
        });
    }
    if background.is_some() {
        out.push_str("\x1b[0m");
    }
}

fn push_background(owner: usize, out: &mut String) {
    let _ = write!(out, "\x1b[30;48;5;{}m", COLOURS[owner % COLOURS.len()]);
}

const fn stage_mark(stage: Stage) -> char {
    match stage {
        Stage::Stable => ' ',
        Stage::Copying => '+',
        Stage::WriteBothReadOld => '<',
        Stage::WriteBothReadNew => '>',
    }
}

fn nodes(view: &RingView, screen: Screen) -> String {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("node", Align::Right),
        ("address", Align::Left),
        ("zone", Align::Left),
        ("weight", Align::Right),
        ("state", Align::Left),
        ("positions", Align::Right),
        ("arcs", Align::Right),
        ("replicas", Align::Right),
        ("leads", Align::Right),
    ]);
    for node in &view.nodes {
        table.row(cells(node, view));
    }
    let mut out = String::new();
    for (index, line) in table.to_string().lines().enumerate() {
        let bar = index
            .checked_sub(1)
            .map(|place| bar(place, view, line.chars().count(), screen));
        let _ = writeln!(out, "{line}{}", bar.unwrap_or_default());
    }
    out
}

fn cells(node: &NodeSummary, view: &RingView) -> [String; 10] {
    let share = f64::from(node.primaries) / f64::from(view.partitions.max(1));
    [
        node.mark.to_string(),
        node.id.to_string(),
        node.address.clone(),
        node.zone.clone(),
        format!("{} %", node.weight_percent),
        node.state.to_owned(),
        text::count(node.positions.into()),
        text::percent(share),
        text::count(node.replicas.into()),
        text::count(node.leads.into()),
    ]
}

/// The node's replicas as a bar; the busiest node's is the longest.
fn bar(place: usize, view: &RingView, line_width: usize, screen: Screen) -> String {
    let room = screen.width.saturating_sub(line_width + 2).min(MAX_BAR);
    let most = view
        .nodes
        .iter()
        .map(|node| node.replicas)
        .max()
        .unwrap_or(0);
    let len = match most {
        0 => 0,
        most => (view.nodes[place].replicas as usize * room).div_ceil(most as usize),
    };
    if room < 4 || len == 0 {
        return String::new();
    }
    if !screen.colour {
        return format!("  {}", "#".repeat(len));
    }
    let mut bar = String::from("  ");
    push_background(place, &mut bar);
    bar + &" ".repeat(len) + "\x1b[0m"
}

/// What moves now: partitions by stage, and between which nodes.
fn moves(view: &RingView) -> String {
    if view.moving.is_empty() {
        return String::new();
    }
    let count = |stage: fn(&Stage) -> bool| view.moving.iter().filter(|m| stage(&m.stage)).count();
    let copying = count(|stage| matches!(stage, Stage::Copying));
    let read_old = count(|stage| matches!(stage, Stage::WriteBothReadOld));
    let read_new = count(|stage| matches!(stage, Stage::WriteBothReadNew));
    let mut out = format!(
        "\n{} moving: {copying} copying (+), {read_old} writing to both and reading from the old \
         (<), {read_new} writing to both and reading from the new (>)\n",
        plural(view.moving.len(), "partition")
    );
    let mut ways: BTreeMap<(String, String), usize> = BTreeMap::new();
    for way in view.moving.iter().map(way) {
        *ways.entry(way).or_default() += 1;
    }
    for ((from, to), partitions) in ways {
        let _ = writeln!(out, "  {from} to {to}: {}", plural(partitions, "partition"));
    }
    out
}

/// The nodes that give and the nodes that take; a node on both lists keeps its data.
fn way(moving: &MovingPartition) -> (String, String) {
    let without = |list: &[NodeId], other: &[NodeId]| {
        let kept = list.iter().filter(|node| !other.contains(node));
        let names: Vec<String> = kept.map(|node| format!("node {node}")).collect();
        if names.is_empty() {
            "nobody".to_owned()
        } else {
            names.join(" and ")
        }
    };
    (
        without(&moving.nodes, &moving.next_nodes),
        without(&moving.next_nodes, &moving.nodes),
    )
}
