use super::*;
use crate::out::Screen;
use std::collections::BTreeMap;
use std::sync::Arc;
use torc_record::{DigestKey, Epoch, NodeSlot};
use torc_ring::replicas::Config;
use torc_ring::topology::{
    ClusterId, Incarnation, Layers, Member, MemberState, NewMember, Release, Stage,
};
use torc_ring::{Partition, Partitions, PreferenceList, Ring, Weight, Zone};

const PLAIN: Screen = Screen {
    width: 80,
    height: 40,
    terminal: false,
    colour: false,
};

fn member(id: u64, state: MemberState) -> (NodeId, Member) {
    let identity = NewMember {
        incarnation: Incarnation([id as u8; 16]),
        address: format!("127.0.0.1:740{id}"),
        peer_address: format!("127.0.0.1:750{id}"),
        http_address: format!("127.0.0.1:748{id}"),
        zone: Zone::default(),
        weight: Weight::NORMAL,
        release: Release::ours(),
    };
    let slot = NodeSlot(id as u16);
    (
        NodeId(id),
        Member {
            slot,
            state,
            identity,
        },
    )
}

fn list(nodes: &[u64]) -> PreferenceList {
    let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
    PreferenceList::from(nodes.as_slice())
}

/// 64 partitions, two nodes with two positions each.
fn table() -> RoutingTable {
    let partitions = Partitions::new(64).unwrap();
    let mut ring = Ring::new();
    let positions = [(15, 1), (31, 2), (39, 1), (63, 2)];
    for (partition, node) in positions {
        ring.insert(partitions.end(Partition(partition)), NodeId(node))
            .unwrap();
    }
    let state = |partition| {
        let (_, owner) = ring.successor(partitions.end(partition)).unwrap();
        PartitionState::of(Config::founded(partition, Epoch(3), &[owner]), owner)
    };
    RoutingTable {
        cluster: ClusterId([7; 16]),
        digest_key: DigestKey([7; 32]),
        epoch: Epoch(3),
        feature_level: 1,
        partitions,
        layers: Layers::base(1),
        members: BTreeMap::from([
            member(1, MemberState::Active),
            member(2, MemberState::Active),
        ]),
        states: partitions.iter().map(state).collect(),
        ring,
        namespaces: BTreeMap::new(),
        generations: BTreeMap::new(),
        restored: BTreeMap::new(),
        authorities: Vec::new(),
    }
}

/// As [`table`], with node 3 joining: one partition in each stage of moving.
fn moving_table() -> RoutingTable {
    let mut table = table();
    table.members.extend([member(3, MemberState::Joining)]);
    let stages = [
        Stage::Copying,
        Stage::WriteBothReadOld,
        Stage::WriteBothReadNew,
    ];
    for (partition, stage) in [4, 20, 44].into_iter().zip(stages) {
        let state = &mut table.states[partition];
        Arc::make_mut(&mut state.config).stage = stage;
        state.next = Some(list(&[3]));
    }
    table
}

#[test]
fn a_ring_that_moves_is_drawn_with_its_marks_and_explained() {
    let expected = "              0
          BBBBAAAAA
       BBBBBBBAAAAAAAA
     BBBBBBBBBAAAAAAAAAA
   BBBBBBBB      +AAAAAAAA
  BBBBBBB           AAAAAAA
  BBBBBB             AAAAAA
c BBBBB               AAAAA 4
  BBBBBB>           <BBBBBB
  BBBBBBB           BBBBBBB
   BBBBBAAA       BBBBBBBB
     BAAAAAAAAABBBBBBBBB
       AAAAAAAABBBBBBB
          AAAAABBBB
              8
4 positions, clockwise from token 0; digits: first hexadecimal digit of the token

   node  address         zone     weight  state    positions    arcs  replicas  leads
A     1  127.0.0.1:7401  default   100 %  active           2  37.5 %        24     24
B     2  127.0.0.1:7402  default   100 %  active           2  62.5 %        40     40
C     3  127.0.0.1:7403  default   100 %  joining          0   0.0 %         0      0

3 partitions moving: 1 copying (+), 1 writing to both and reading from the old (<), 1 writing to both and reading from the new (>)
  node 1 to node 3: 1 partition
  node 2 to node 3: 2 partitions
";
    let narrow = Screen { width: 30, ..PLAIN };
    assert_eq!(describe(&RingView::of(&moving_table()), narrow), expected);
}

#[test]
fn where_a_circle_does_not_fit_the_ring_is_cut_open() {
    let narrow = Screen { width: 16, ..PLAIN };
    let picture = describe(&RingView::of(&table()), narrow);
    assert_eq!(picture.lines().next(), Some("AAAABBBBAABBBBBB"));
}

#[test]
fn bars_fill_what_is_left_of_the_width() {
    let wide = Screen {
        width: 101,
        ..PLAIN
    };
    let picture = describe(&RingView::of(&table()), wide);
    let bar = |node: &str| {
        let line = picture.lines().find(|line| line.contains(node)).unwrap();
        line.chars().filter(|c| *c == '#').count()
    };
    assert!(bar("7402") > bar("7401"));
    assert!(picture.lines().all(|line| line.chars().count() <= 101));
}

#[test]
fn colours_add_nothing_but_colours() {
    let terminal = Screen {
        width: 120,
        height: 40,
        terminal: true,
        colour: true,
    };
    let view = RingView::of(&moving_table());
    let coloured = describe(&view, terminal);
    let plain = describe(
        &view,
        Screen {
            colour: false,
            ..terminal
        },
    );
    assert!(coloured.contains("\x1b[30;48;5;39mA"));
    assert!(!plain.contains('\x1b'));
    let stripped = console::strip_ansi_codes(&coloured).into_owned();
    // Bars are coloured blanks instead of signs.
    let trimmed = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.trim_end_matches(['#', ' ']).to_owned())
            .collect()
    };
    assert_eq!(trimmed(&stripped), trimmed(&plain));
}

#[test]
fn a_picture_fits_the_terminal_whatever_its_size() {
    let view = RingView::of(&moving_table());
    for width in [1, 10, 29, 40, 80, 200] {
        for height in [1, 10, 24, 60] {
            let screen = Screen {
                width,
                height,
                terminal: true,
                colour: false,
            };
            let picture = describe(&view, screen);
            let widest = picture
                .lines()
                .take_while(|line| !line.contains("clockwise"));
            assert!(widest.map(|line| line.chars().count()).max() <= Some(width.max(1)));
        }
    }
}

#[test]
fn a_cluster_without_a_ring_is_drawn_too() {
    let mut table = table();
    table.ring = Ring::new();
    for state in &mut table.states {
        state.nodes = list(&[]);
    }
    let picture = describe(&RingView::of(&table), PLAIN);
    assert!(picture.contains("....") && picture.contains("0 positions"));
}

#[test]
fn small_arcs_do_not_vanish_from_the_strip_of_their_size() {
    let view = RingView::of(&table());
    assert_eq!(view.owner_between(0.0, 0.25), Some(0));
    assert_eq!(view.owner_between(0.25, 0.5), Some(1));
    assert_eq!(view.owner_between(0.5, 0.625), Some(0));
    assert_eq!(
        view.owner_between(-0.01, 0.001),
        Some(0),
        "of equals, the first"
    );
    assert_eq!(view.owner_between(0.99, 1.0), Some(1));
}

#[test]
fn the_json_of_a_ring_does_not_change() {
    let view = RingView::of(&moving_table());
    let json = serde_json::to_value(&view).unwrap();
    let node = |id: u64, mark: &str, state: &str, positions: u32, partitions: u32| {
        serde_json::json!({
            "id": id, "mark": mark, "address": format!("127.0.0.1:740{id}"),
            "http_address": format!("127.0.0.1:748{id}"), "zone": "default",
            "weight_percent": 100, "state": state, "positions": positions,
            "primaries": partitions, "replicas": partitions, "leads": partitions,
        })
    };
    let moving = |partition: u32, stage: &str, from: u64| {
        serde_json::json!({
            "partition": partition, "stage": stage, "epoch": 3, "lead": from,
            "nodes": [from], "next_nodes": [3],
        })
    };
    let expected = serde_json::json!({
        "cluster_id": "07070707070707070707070707070707",
        "epoch": 3,
        "partitions": 64,
        "replicas": 1,
        "nodes": [
            node(1, "A", "active", 2, 24), node(2, "B", "active", 2, 40), node(3, "C", "joining", 0, 0),
        ],
        "positions": [
            {"token": "3fffffffffffffff", "node": 1},
            {"token": "7fffffffffffffff", "node": 2},
            {"token": "9fffffffffffffff", "node": 1},
            {"token": "ffffffffffffffff", "node": 2},
        ],
        "stages": {"stable": 61, "copying": 1, "write_both_read_old": 1, "write_both_read_new": 1},
        "moving": [
            moving(4, "copying", 1),
            moving(20, "write_both_read_old", 2),
            moving(44, "write_both_read_new", 2),
        ],
    });
    assert_eq!(json, expected);
    crate::out::assert_documented_under("`ring`", &view);
}
