//! The pictures of the book, drawn from a real ring and a real slice. `TORC_BLESS=1 cargo test -p
//! torc-kvctl --test pictures` redraws them; without it, an outdated picture fails.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "tests count small numbers"
)]
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fmt::Write as _;
use std::path::Path;

use torc_build::{Build, BuildOptions, Target};
use torc_record::{Digest, DigestKey, NamespaceId};
use torc_ring::{
    Change, NodeId, NodeSpec, Partition, Partitions, Placement, Ring, Token, TransitionPlan,
    allocate,
};

/// Distinguishable without seeing red and green (Okabe and Ito 2008).
const COLOURS: [&str; 4] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7"];
/// With its own background, so that it is readable on any page.
const STYLE: &str = "<style>.g{fill:#fff}.t{fill:#1f2937;font:13px sans-serif}.s{fill:#6b7280}.l{stroke:#1f2937;fill:none}\
    @media (prefers-color-scheme:dark){.g{fill:#161b22}.t{fill:#e6edf3}.s{fill:#8b949e}.l{stroke:#e6edf3}}</style>";
const REPLICAS: u8 = 3;
const KEY: &str = "greeting";

struct Svg(String);

impl Svg {
    fn new(width: u32, height: u32, title: &str) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n\
             {STYLE}\n<rect class=\"g\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n"
        ))
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.0.write_fmt(element).unwrap();
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.add(format_args!(
            "<text x=\"{x:.0}\" y=\"{y:.0}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// An arc of the ring; `from` and `to` are fractions of a turn.
    fn arc(&mut self, (from, to): (f64, f64), (inner, outer): (f64, f64), colour: &str) {
        let at = |turn: f64, radius: f64| {
            let (sin, cos) = (turn * TAU).sin_cos();
            format!("{:.1} {:.1}", 190.0 + radius * sin, 190.0 - radius * cos)
        };
        self.add(format_args!(
            "<path d=\"M{} A{outer} {outer} 0 0 1 {} L{} A{inner} {inner} 0 0 0 {} Z\" fill=\"{colour}\"/>",
            at(from, outer),
            at(to, outer),
            at(to, inner),
            at(from, inner)
        ));
    }

    /// Compares with the file of the book, or writes it.
    fn check(mut self, name: &str) {
        self.0.push_str("</svg>\n");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let path = root.join("docs").join(name);
        if std::env::var_os("TORC_BLESS").is_some() {
            std::fs::write(&path, &self.0).unwrap();
        }
        let drawn = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            drawn == self.0,
            "docs/{name} is not what the code gives: look at what TORC_BLESS=1 draws, and at the text beside it"
        );
    }
}

fn colour(node: NodeId) -> &'static str {
    COLOURS[node.0 as usize - 1]
}

/// A ring to which this many nodes have been added one by one, and its placement.
fn grown(nodes: u64, partitions: Partitions, positions: u16) -> (Ring, Placement) {
    let (mut ring, mut specs) = (Ring::new(), BTreeMap::new());
    for id in (1..=nodes).map(NodeId) {
        specs.insert(id, NodeSpec::normal(id));
        let change = Change::Join(id);
        ring = allocate(&ring, partitions, REPLICAS, positions, &specs, change).unwrap();
    }
    let placement = Placement::compute(&ring, partitions, REPLICAS, &specs);
    (ring, placement)
}

#[test]
fn a_key_on_the_ring() {
    let partitions = Partitions::new(64).unwrap();
    let (ring, placement) = grown(4, partitions, 4);
    let digest = Digest::of(&DigestKey([7; 32]), NamespaceId::DEFAULT, KEY.as_bytes());
    let token = Token::of(&digest);
    let (partition, nodes) = placement.locate(token);
    let turn = |token: Token| token.0 as f64 / 2f64.powi(64);
    let share = 1.0 / f64::from(partitions.count());
    let mut svg = Svg::new(640, 380, "A ring of four nodes, and where a key lies");
    for each in partitions.iter() {
        let from = f64::from(each.0) * share;
        let node = placement.primary(each).unwrap();
        svg.arc(
            (from + 0.001, from + share - 0.001),
            (110.0, 150.0),
            colour(node),
        );
    }
    for (position, node) in ring.iter() {
        let (sin, cos) = (turn(position) * TAU).sin_cos();
        svg.add(format_args!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"{}\"/>",
            190.0 + 160.0 * sin,
            190.0 - 160.0 * cos,
            colour(node)
        ));
    }
    let (sin, cos) = (turn(token) * TAU).sin_cos();
    svg.add(format_args!(
        "<path class=\"l\" stroke-width=\"2\" d=\"M190 190 L{:.1} {:.1}\"/>",
        190.0 + 106.0 * sin,
        190.0 - 106.0 * cos
    ));
    let names: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
    let lines = [
        format!("key {KEY}"),
        format!("token {:016x}", token.0),
        format!("partition {} of {}", partition.0, partitions.count()),
        format!("preference list: nodes {}", names.join(", ")),
        format!("lead: node {}", placement.lead(partition).unwrap().0),
    ];
    for (line, y) in lines.iter().zip((70..).step_by(24)) {
        svg.text(380.0, f64::from(y), "t", line);
    }
    for (node, y) in (1..=4).zip((220..).step_by(24)) {
        let fill = colour(NodeId(node));
        svg.add(format_args!(
            "<rect x=\"380\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{fill}\"/>",
            y - 11
        ));
        svg.text(400.0, f64::from(y), "t", &format!("node {node}"));
    }
    svg.text(380.0, 330.0, "t s", "dots: positions; an arc of the ring");
    svg.text(380.0, 350.0, "t s", "belongs to the next one, clockwise");
    svg.check("ring.svg");
}

#[test]
fn what_a_join_moves() {
    let partitions = Partitions::new(128).unwrap();
    let ((_, before), (_, after)) = (grown(3, partitions, 8), grown(4, partitions, 8));
    let plan = TransitionPlan::between(&before, &after);
    let mut svg = Svg::new(
        640,
        250,
        "The replicas of 128 partitions before and after a fourth node joins",
    );
    // In the row of the node that lost it, so that unchanged parts are visible.
    let row = |nodes: &[NodeId], row: u64| {
        let own = NodeId(row);
        if nodes.contains(&own) { own } else { NodeId(4) }
    };
    let rows = |svg: &mut Svg, top: f64, placement: &Placement| {
        for number in 1..=3 {
            let nodes: Vec<NodeId> = partitions
                .iter()
                .map(|it| row(placement.nodes(it), number))
                .collect();
            let mut from = 0;
            for run in nodes.chunk_by(|one, next| one == next) {
                svg.add(format_args!(
                    "<rect x=\"{:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"18\" fill=\"{}\"/>",
                    20.0 + 4.69 * from as f64,
                    top + 20.0 * (number - 1) as f64,
                    4.69 * run.len() as f64 - 0.7,
                    colour(run[0])
                ));
                from += run.len();
            }
        }
    };
    svg.text(20.0, 26.0, "t", "three nodes: each holds every partition");
    rows(&mut svg, 36.0, &before);
    svg.text(20.0, 126.0, "t", "four nodes");
    rows(&mut svg, 136.0, &after);
    let moved = plan.moved_replicas;
    let all = u64::from(partitions.count()) * u64::from(REPLICAS);
    let least = plan.minimum_replicas;
    let said = format!(
        "{moved} of {all} replicas move, all of them to node 4, whose even share is {least:.0}"
    );
    let only_to_it = plan
        .moves
        .iter()
        .all(|it| it.gained().all(|node| node == NodeId(4)));
    assert!(only_to_it);
    svg.text(20.0, 222.0, "t", &said);
    svg.text(
        20.0,
        240.0,
        "t s",
        "each column is a partition, in the order of the ring",
    );
    svg.check("join.svg");
}

/// The lengths of the parts of a slice, from its header (`store/FORMAT.md`).
fn parts(slice: &[u8]) -> Vec<(&'static str, u64)> {
    let u32_at = |at: usize| u64::from(u32::from_le_bytes(slice[at..at + 4].try_into().unwrap()));
    let u64_at = |at: usize| u64::from_le_bytes(slice[at..at + 8].try_into().unwrap());
    assert_eq!(&slice[..4], b"TSLC");
    let parts = vec![
        ("header", 128),
        ("Bloom gate", u32_at(32)),
        ("MPHF", u32_at(36)),
        ("offsets", u32_at(40)),
        ("order", u32_at(44)),
        ("records", u64_at(48)),
        ("digest", 32),
    ];
    assert_eq!(parts.iter().map(|(_, len)| len).sum::<u64>(), u64_at(8));
    parts
}

#[test]
fn the_parts_of_a_slice() {
    const KEYS: u64 = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let target = Target {
        partitions: Partitions::new(1).unwrap(),
        ..Target::offline([0; 32])
    };
    let out = dir.path().join("built");
    let mut build = Build::create(&out, target, BuildOptions::default()).unwrap();
    for number in 0..KEYS {
        let key = format!("https://example.org/{number:07}");
        build.push(key.into(), vec![b'v'; 100].into()).unwrap();
    }
    let built = build.finish(|_| {}).unwrap();
    let [file] = &built.files[..] else {
        panic!("one file");
    };
    let [slice] = &file.slices[..] else {
        panic!("one slice");
    };
    assert_eq!(slice.partition, Partition(0));
    let named = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().len() == file.len;
    let paths = std::fs::read_dir(&out)
        .unwrap()
        .map(|it| it.unwrap().path());
    let path = paths.into_iter().find(named).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let start = bytes.windows(4).position(|it| it == b"TSLC").unwrap();
    let parts = parts(&bytes[start..]);

    let mut svg = Svg::new(640, 230, "The parts of a slice of ten thousand records");
    svg.text(
        20.0,
        26.0,
        "t",
        "a slice of 10,000 records (keys of 27 bytes, values of 100)",
    );
    let index = &parts[1..4];
    let bar =
        |svg: &mut Svg, top: f64, parts: &[(&str, u64)], colour: &dyn Fn(usize) -> &'static str| {
            let all: u64 = parts.iter().map(|(_, len)| len).sum();
            let mut x = 20.0;
            for (place, (_, len)) in parts.iter().enumerate() {
                let width = 600.0 * *len as f64 / all as f64;
                svg.add(format_args!(
                "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"26\" fill=\"{}\"/>",
                colour(place)
            ));
                x += width;
            }
        };
    let is_index = |place: usize| (1..4).contains(&place);
    bar(&mut svg, 36.0, &parts, &|place| {
        if is_index(place) {
            COLOURS[place - 1]
        } else {
            "#8b949e"
        }
    });
    let bits = |len: u64| 8.0 * len as f64 / KEYS as f64;
    let in_memory: u64 = index.iter().map(|(_, len)| len).sum();
    let records = parts[5].1 as f64 / KEYS as f64;
    svg.text(
        20.0,
        82.0,
        "t s",
        &format!("grey: on disk only, above all the records, {records:.0} bytes each; in colour: the index, also in memory"),
    );
    svg.text(
        20.0,
        116.0,
        "t",
        &format!("its index, {:.1} bits a key", bits(in_memory)),
    );
    bar(&mut svg, 126.0, index, &|place| COLOURS[place]);
    let what = [
        "is the key here at all? wrongly yes for 1 % of the others",
        "its slot, a number of its own below 10,000",
        "where the record of the slot lies",
    ];
    for (place, ((name, len), what)) in index.iter().zip(what).enumerate() {
        let y = 176.0 + 20.0 * place as f64;
        svg.add(format_args!(
            "<rect x=\"20\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
            y - 11.0,
            COLOURS[place]
        ));
        svg.text(
            40.0,
            y,
            "t",
            &format!("{name}, {:.1} bits: {what}", bits(*len)),
        );
    }
    svg.check("slice.svg");
}
