//! Figure 1: the architecture, drawn from a real build, with the graph of one of its buckets.

use std::fmt::Write as _;

use anyhow::Result;
use torc_index::paper::gigahash::{BuildPlan, Settings, SolvedGraph};

use super::super::claim::{Claim, Says};
use super::{Sizes, urls};
use torc_plot::{escaped, head};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 620.0;
/// The circle on which the bucket's vertices lie.
const CENTRE: (f64, f64) = (620.0, 330.0);
const RADIUS: f64 = 240.0;

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim =
        Claim::new("GigaHash, Figure 1: buckets, a function for each, stitched by offsets");
    let keys = urls(sizes.of(100_000), sizes.seed);
    let settings = Settings {
        seed: sizes.seed,
        ..Settings::default()
    };
    let plan = BuildPlan::new(&keys, settings)?;
    let graph = plan.graph_of(plan.buckets() / 2)?;
    let mean = keys.len() as f64 / f64::from(plan.buckets());
    let edges = graph.edges.len() as f64;
    let zeros = graph.values.iter().filter(|value| **value == 0).count();
    let case = "all buckets";
    claim.row(
        case,
        ("mean keys of a bucket, least", "keys"),
        Says::AtLeast(160.0),
        mean,
    );
    claim.row(
        case,
        ("mean keys of a bucket, most", "keys"),
        Says::AtMost(180.0),
        mean,
    );
    let case = "the bucket that is drawn";
    claim.row(case, ("keys", "edges"), Says::Nothing, edges);
    let vertices = graph.values.len() as f64;
    claim.row(
        case,
        ("vertices a key", "ratio"),
        Says::Is(0.89),
        vertices / edges,
    );
    claim.row(
        case,
        ("zeros", "%"),
        Says::Is(13.54),
        100.0 * zeros as f64 / vertices,
    );
    let core = 100.0 * graph.core_edges as f64 / edges;
    claim.row(case, ("edges of the 2-core", "%"), Says::AtMost(50.0), core);
    claim.row(
        case,
        ("tries", "graphs"),
        Says::Nothing,
        f64::from(graph.tries),
    );
    claim.why("Buckets are arcs of the ring, by the scaled token, where the paper takes h0(url) % B; their mean is 170.");
    claim.why("The 2-core: the paper says that its method works as long as that has at most half of the edges, which is so from c = 1.15 on; at 0.89 it has three quarters, and a try is likely to fail.");
    claim.why("One bucket strays from the means of Table 1: its zeros by 5 standard deviations of 2.8 points at most.");
    claim.picture(draw(&plan, keys.len(), &graph));
    Ok(claim)
}

/// The stages on the left, the bucket's graph on the right.
fn draw(plan: &BuildPlan<'_>, keys: usize, graph: &SolvedGraph) -> String {
    let mut out = head(WIDTH, HEIGHT, "GigaHash, Figure 1, of a real build");
    let stages = [
        format!("{keys} URLs"),
        "digests of 128 bits, in order".to_owned(),
        format!("{} buckets by scaled token", plan.buckets()),
        format!("a graph for each: here {} edges", graph.edges.len()),
        format!("values g, after {} tries", graph.tries),
        "offsets: slots, data and try of a bucket".to_owned(),
        "h(x) = offset + (g(a) + g(b)) mod n".to_owned(),
    ];
    for (index, stage) in stages.iter().enumerate() {
        let top = 70.0 + 74.0 * index as f64;
        let _ = writeln!(
            out,
            "<rect x=\"30\" y=\"{top}\" width=\"290\" height=\"40\" fill=\"#0072b2\" fill-opacity=\"0.12\" stroke=\"#0072b2\"/>\
             <text x=\"175\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            top + 25.0,
            escaped(stage)
        );
        if index > 0 {
            let _ = writeln!(
                out,
                "<path d=\"M175 {}v30l-4 -7m4 7l4 -7\" class=\"a\" fill=\"none\"/>",
                top - 33.0
            );
        }
    }
    draw_graph(&mut out, graph);
    out.push_str("</svg>\n");
    out
}

fn draw_graph(out: &mut String, graph: &SolvedGraph) {
    let place = |vertex: usize| {
        let angle = std::f64::consts::TAU * vertex as f64 / graph.values.len().max(1) as f64;
        let (sin, cos) = angle.sin_cos();
        (CENTRE.0 + RADIUS * cos, CENTRE.1 + RADIUS * sin)
    };
    for (a, b) in &graph.edges {
        let (a, b) = (place(usize::from(*a)), place(usize::from(*b)));
        let _ = writeln!(
            out,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#0072b2\" stroke-opacity=\"0.45\"/>",
            a.0, a.1, b.0, b.1
        );
    }
    let largest = f64::from(graph.values.iter().copied().max().unwrap_or(1).max(1));
    for (vertex, value) in graph.values.iter().enumerate() {
        let (x, y) = place(vertex);
        let share = f64::from(*value) / largest;
        let fill = if *value == 0 { "white" } else { "#d55e00" };
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"{fill}\" class=\"a\" stroke-width=\"0.6\"><title>g({vertex}) = {value}</title></circle>",
            2.5 + 4.0 * share
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">one bucket: {} vertices by value (white: 0), {} edges, {} of them in the 2-core</text>",
        CENTRE.0,
        CENTRE.1 + RADIUS + 34.0,
        graph.values.len(),
        graph.edges.len(),
        graph.core_edges
    );
}
