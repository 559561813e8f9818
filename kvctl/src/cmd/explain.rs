//! `kvctl explain`: where a key lives and why.

use torc_client::{Explanation, Holds, Member, Stage};
use torc_ring::NodeId;

use crate::args::KeyArgs;
use crate::cli::Global;
use crate::failure::Failure;
use crate::out::Out;
use crate::text;

/// Show where a key lives and why: digest, token, partition, nodes, and what they hold.
///
/// A key without a value has a place too, so that this never ends with exit code 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let key = args.key.key()?;
    let explanation = global.client()?.explain(key.clone()).await?;
    if global.json() {
        out.json(&explanation)
    } else {
        out.line(describe(&key, &explanation))
    }
}

fn describe(key: &[u8], explanation: &Explanation) -> String {
    let e = explanation;
    let mut lines = vec![
        ("key", text::shortened(key, 200)),
        ("digest", e.digest.to_string()),
        (
            "token",
            format!("{}, the first 64 bits of the digest", e.token),
        ),
        (
            "partition",
            format!("{}, tokens {} to {}", e.partition, e.arc_start, e.arc_end),
        ),
        (
            "ring",
            format!(
                "position {} of node {} comes next",
                e.successor.token, e.successor.node
            ),
        ),
        ("epoch", format!("{}, {}", e.epoch, stage(e.stage))),
        ("nodes", nodes(&e.nodes, e)),
    ];
    if !e.next_nodes.is_empty() {
        lines.push(("moving to", nodes(&e.next_nodes, e)));
    }
    lines.push(("lead", nodes(&[e.lead], e)));
    lines.push(("holds", format!("{}, says node {}", held(e), e.answered_by)));
    let lines = lines
        .into_iter()
        .map(|(name, what)| format!("{name:<10} {what}"));
    lines.collect::<Vec<_>>().join("\n")
}

const fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Stable => "stable",
        Stage::Copying => "moving: copying",
        Stage::WriteBothReadOld => "moving: writing to both, reading the old",
        Stage::WriteBothReadNew => "moving: writing to both, reading the new",
    }
}

fn nodes(ids: &[NodeId], explanation: &Explanation) -> String {
    let name = |id: &NodeId| {
        let is_it = |member: &&Member| member.id == *id;
        match explanation.members.iter().find(is_it) {
            Some(member) => format!("{id} ({}, zone {})", member.address, member.zone),
            None => id.to_string(),
        }
    };
    ids.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn held(explanation: &Explanation) -> String {
    let version = match &explanation.version {
        Some(version) => format!(", version {version}"),
        None => String::new(),
    };
    let found = match &explanation.held_in {
        Some(place) => format!(", in the {place}"),
        None => String::new(),
    };
    match explanation.holds {
        Holds::Nothing => format!("nothing{version}{found}"),
        Holds::Tombstone => format!("a tombstone (it was deleted){version}{found}"),
        Holds::Value => {
            let expires = explanation.expires_at_ms.map_or_else(String::new, |at| {
                format!(", expires {}", text::timestamp(at))
            });
            let bytes = text::count(explanation.value_bytes);
            format!("a value of {bytes} bytes{version}{expires}{found}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_client::{MemberState, Position};
    use torc_record::{Digest, Epoch, NodeSlot};
    use torc_ring::{Partition, Token, Zone};

    fn explanation() -> Explanation {
        Explanation {
            digest: Digest([0x11; 16]),
            token: Token(0x1111_1111_1111_1111),
            partition: Partition(273),
            arc_start: Token(0x1110_0000_0000_0000),
            arc_end: Token(0x111f_ffff_ffff_ffff),
            successor: Position {
                token: Token(0x123f_ffff_ffff_ffff),
                node: NodeId(2),
            },
            epoch: Epoch(12),
            stage: Stage::WriteBothReadOld,
            lead: NodeId(2),
            nodes: vec![NodeId(2)],
            next_nodes: vec![NodeId(4)],
            members: vec![Member {
                id: NodeId(2),
                slot: NodeSlot(2),
                address: "127.0.0.1:7402".into(),
                http_address: "127.0.0.1:7482".into(),
                zone: Zone::default(),
                weight_percent: 100,
                state: MemberState::Active,
            }],
            answered_by: NodeId(2),
            holds: Holds::Value,
            version: Some("12.34.2".parse().unwrap()),
            value_bytes: 1_234,
            expires_at_ms: Some(1_700_000_000_000),
            held_in: Some("overlay".into()),
        }
    }

    #[test]
    fn a_key_is_explained_from_its_digest_to_the_record() {
        let expected = "\
key        a\\xff
digest     11111111111111111111111111111111
token      1111111111111111, the first 64 bits of the digest
partition  273, tokens 1110000000000000 to 111fffffffffffff
ring       position 123fffffffffffff of node 2 comes next
epoch      12, moving: writing to both, reading the old
nodes      2 (127.0.0.1:7402, zone default)
moving to  4
lead       2 (127.0.0.1:7402, zone default)
holds      a value of 1,234 bytes, version 12.34.2, expires 2023-11-14T22:13:20.000Z, in the overlay, says node 2";
        assert_eq!(describe(b"a\xff", &explanation()), expected);
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&explanation());
    }

    #[test]
    fn an_absent_key_has_a_place_too() {
        let absent = Explanation {
            holds: Holds::Nothing,
            version: None,
            held_in: None,
            next_nodes: Vec::new(),
            stage: Stage::Stable,
            ..explanation()
        };
        let text = describe(b"k", &absent);
        assert!(text.ends_with("holds      nothing, says node 2"));
        assert!(!text.contains("moving"));
    }
}
