//! `kvctl explain`: shows where a key lives and why.

use std::time::Duration;

use torc_client::{
    Explanation, HotEstimate, Member, Quorum, RecordKind, ReplicaRecord, SliceTrace, SliceVerdict,
    Stage, Version,
};
use torc_ring::NodeId;

use crate::args::KeyArgs;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::text;

/// Show where a key lives and why: digest, token, partition, nodes, and what each node holds.
///
/// Works for absent keys too: never exits with 1.
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
        out.line(describe(&key, &explanation, text::now_ms()))
    }
}

fn describe(key: &[u8], explanation: &Explanation, now_ms: u64) -> String {
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
                "followed by position {} of node {}",
                e.successor.token, e.successor.node
            ),
        ),
        ("epoch", format!("{}, {}", e.epoch, stage(e.stage))),
        ("nodes", nodes(&e.nodes, e)),
    ];
    if !e.next_nodes.is_empty() {
        lines.push(("moving to", nodes(&e.next_nodes, e)));
    }
    if !e.excluded.is_empty() {
        lines.push(("dead", nodes(&e.excluded, e)));
    }
    lines.push(("lead", nodes(&[e.lead], e)));
    lines.push(("quorums", quorums(e)));
    lines.push((
        "holds",
        format!("{}, according to node {}", held(e, now_ms), e.answered_by),
    ));
    if e.replicas.len() > 1 {
        let expired = e.expires_at_ms.is_some_and(|at| at <= now_ms);
        let expired = e.version.as_ref().filter(|_| expired);
        let replicas = e.replicas.iter();
        let replicas = replicas.map(|it| ("replica", replica(it, expired)));
        lines.extend(replicas);
    }
    lines.extend(e.hot.iter().map(|hot| ("accesses", accesses(hot))));
    let slices = e.slices.iter();
    lines.extend(slices.map(|slice| ("slice", described(slice, e.fingerprint_bits))));
    let lines = lines
        .into_iter()
        .map(|(name, what)| format!("{name:<10} {what}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn quorums(e: &Explanation) -> String {
    let of = |quorum: &Quorum| {
        let ids: Vec<_> = quorum.of.iter().map(NodeId::to_string).collect();
        match &ids[..] {
            [only] => format!("node {only}"),
            [all @ .., last] if quorum.needed as usize == ids.len() => {
                format!("nodes {} and {last}", all.join(", "))
            }
            [others @ .., last] => {
                let others = others.join(", ");
                format!("any {} of nodes {others} and {last}", quorum.needed)
            }
            [] => "no node".to_owned(),
        }
    };
    let accept: Vec<_> = e.accept_quorums.iter().map(of).collect();
    let read = of(&e.read_quorum);
    if accept.is_empty() {
        return format!("a read needs {read}; a static namespace takes no writes");
    }
    format!(
        "a read needs {read}; a write needs {}",
        accept.join(", and ")
    )
}

/// What a replica holds. The version that the answering node knows to have expired is `expired`.
fn replica(record: &ReplicaRecord, expired: Option<&Version>) -> String {
    let is_expired = expired.is_some() && expired == record.version.as_ref();
    let what = match (record.holds, &record.problem) {
        (Some(RecordKind::Nothing), _) => "nothing".to_owned(),
        (Some(RecordKind::Tombstone), _) => "a tombstone".to_owned(),
        (Some(RecordKind::Value), _) if is_expired => "an expired value".to_owned(),
        (Some(RecordKind::Value), _) => "a value".to_owned(),
        (None, problem) => {
            let problem = problem.as_deref().map(text::one_line);
            return format!(
                "node {} did not answer: {}",
                record.node,
                problem.unwrap_or_default()
            );
        }
    };
    let version = record.version.as_ref();
    let version = version.map_or_else(String::new, |it| format!(", version {it}"));
    format!("node {} holds {what}{version}", record.node)
}

fn accesses(hot: &HotEstimate) -> String {
    if hot.estimate == 0 {
        return "none recently".to_owned();
    }
    let span = Duration::from_millis(hot.to_ms.saturating_sub(hot.from_ms));
    format!(
        "{} to {} of this node's {} in the last {}",
        text::count(hot.estimate.saturating_sub(hot.error_bound)),
        text::count(hot.estimate),
        text::accesses(hot.accesses),
        text::duration(span),
    )
}

fn described(slice: &SliceTrace, fingerprint_bits: u32) -> String {
    let verdict = match slice.verdict {
        SliceVerdict::GateNegative if fingerprint_bits > 0 => {
            "the fingerprint in the key's slot differs".to_owned()
        }
        SliceVerdict::Holds if fingerprint_bits > 0 => {
            format!(
                "the fingerprint in slot {} is that of the key, in {fingerprint_bits} bits",
                slice.slot
            )
        }
        SliceVerdict::GateNegative => "the Bloom gate says no".to_owned(),
        SliceVerdict::GateFalsePositive => {
            format!(
                "the Bloom gate says maybe, but slot {} holds a different key",
                slice.slot
            )
        }
        SliceVerdict::Holds => {
            let what = if slice.tombstone {
                "a tombstone"
            } else {
                "a value"
            };
            let version = slice.version.as_ref();
            let version = version.map_or_else(String::new, |it| format!(", version {it}"));
            format!(
                "the Bloom gate says maybe, slot {} holds {what}{version}",
                slice.slot
            )
        }
        SliceVerdict::Damaged => format!("damaged: slot {} is unreadable", slice.slot),
        _ => "unknown to this release of kvctl".to_owned(),
    };
    format!(
        "{}.{}, {} in {}: {verdict}",
        slice.segment,
        slice.row,
        text::counted(slice.keys, "key"),
        text::counted(slice.bytes, "byte"),
    )
}

const fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Stable => "stable",
        Stage::Copying => "moving: copying",
        Stage::WriteBothReadOld => "moving: writing to both, reading from the old",
        Stage::WriteBothReadNew => "moving: writing to both, reading from the new",
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

fn held(explanation: &Explanation, now_ms: u64) -> String {
    let version = match &explanation.version {
        Some(version) => format!(", version {version}"),
        None => String::new(),
    };
    let found = match &explanation.held_in {
        Some(place) if place == "slice" => ", in a slice".to_owned(),
        Some(place) => format!(", in the {place}"),
        None => String::new(),
    };
    match explanation.holds {
        RecordKind::Nothing => format!("nothing{version}{found}"),
        RecordKind::Tombstone => format!("a tombstone (deleted or expired){version}{found}"),
        RecordKind::Value => {
            let expires = explanation.expires_at_ms.map_or_else(String::new, |at| {
                let verb = if at <= now_ms { "expired" } else { "expires" };
                format!(", {verb} {}", text::timestamp(at))
            });
            let bytes = text::counted(explanation.value_bytes, "byte");
            let probably = match explanation.fingerprint_bits {
                0 => "",
                _ => "probably ",
            };
            format!("{probably}a value of {bytes}{version}{expires}{found}")
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
                peer_address: "127.0.0.1:7502".into(),
                http_address: "127.0.0.1:7482".into(),
                zone: Zone::default(),
                weight_percent: 100,
                state: MemberState::Active,
                release: "0.2.0".into(),
                oldest_level: 1,
                newest_level: 1,
            }],
            read_quorum: Quorum::majority_of(&[NodeId(2)]),
            accept_quorums: vec![
                Quorum::majority_of(&[NodeId(2)]),
                Quorum::majority_of(&[NodeId(4)]),
            ],
            excluded: Vec::new(),
            replicas: vec![
                ReplicaRecord {
                    node: NodeId(2),
                    holds: Some(RecordKind::Value),
                    version: Some("12.34.2".parse().unwrap()),
                    problem: None,
                },
                ReplicaRecord {
                    node: NodeId(4),
                    holds: None,
                    version: None,
                    problem: Some("no answer".into()),
                },
            ],
            answered_by: NodeId(2),
            holds: RecordKind::Value,
            version: Some("12.34.2".parse().unwrap()),
            value_bytes: 1_234,
            expires_at_ms: Some(1_700_000_000_000),
            held_in: Some("slice".into()),
            fingerprint_bits: 0,
            slices: vec![
                SliceTrace {
                    segment: 3,
                    row: 17,
                    keys: 2_400,
                    bytes: 400_000,
                    slot: 1_999,
                    verdict: SliceVerdict::Holds,
                    version: Some("12.34.2".parse().unwrap()),
                    tombstone: false,
                },
                SliceTrace {
                    segment: 4,
                    row: 0,
                    keys: 7,
                    bytes: 1_500,
                    slot: 2,
                    verdict: SliceVerdict::GateNegative,
                    version: None,
                    tombstone: false,
                },
            ],
            hot: Some(HotEstimate {
                from_ms: 1_700_000_000_000,
                to_ms: 1_700_000_060_000,
                accesses: 12_345,
                estimate: 1_006,
                error_bound: 6,
            }),
        }
    }

    #[test]
    fn a_key_is_explained_from_its_digest_to_the_record() {
        let expected = "\
key        a\\xff
digest     11111111111111111111111111111111
token      1111111111111111, the first 64 bits of the digest
partition  273, tokens 1110000000000000 to 111fffffffffffff
ring       followed by position 123fffffffffffff of node 2
epoch      12, moving: writing to both, reading from the old
nodes      2 (127.0.0.1:7402, zone default)
moving to  4
lead       2 (127.0.0.1:7402, zone default)
quorums    a read needs node 2; a write needs node 2, and node 4
holds      a value of 1,234 bytes, version 12.34.2, expires 2023-11-14T22:13:20.000Z, in a slice, according to node 2
replica    node 2 holds a value, version 12.34.2
replica    node 4 did not answer: no answer
accesses   1,000 to 1,006 of this node's 12,345 accesses in the last 1 min
slice      3.17, 2,400 keys in 400,000 bytes: the Bloom gate says maybe, slot 1999 holds a value, version 12.34.2
slice      4.0, 7 keys in 1,500 bytes: the Bloom gate says no";
        assert_eq!(describe(b"a\xff", &explanation(), 0), expected);
        let later = describe(b"a\xff", &explanation(), 1_700_000_000_000);
        assert!(
            later.contains(", expired 2023-11-14T22:13:20.000Z"),
            "{later}"
        );
        assert!(later.contains("node 2 holds an expired value"), "{later}");
    }

    #[test]
    fn of_a_static_namespace_one_replica_answers_and_a_fingerprint_decides() {
        let mut e = explanation();
        e.read_quorum = Quorum {
            needed: 1,
            of: vec![NodeId(2), NodeId(4)],
        };
        e.accept_quorums = Vec::new();
        e.fingerprint_bits = 16;
        let text = describe(b"k", &e, 0);
        let has = |line: &str| assert!(text.contains(line), "{text}");
        has("a read needs any 1 of nodes 2 and 4; a static namespace takes no writes");
        has("the fingerprint in slot 1999 is that of the key, in 16 bits");
        has("the fingerprint in the key's slot differs");
    }

    #[test]
    fn the_json_is_documented() {
        let explanation = Explanation {
            members: Vec::new(),
            ..explanation()
        };
        crate::out::assert_documented_under("`explain`", &explanation);
    }

    #[test]
    fn an_absent_key_has_a_place_too() {
        let absent = Explanation {
            holds: RecordKind::Nothing,
            version: None,
            held_in: None,
            slices: Vec::new(),
            next_nodes: Vec::new(),
            stage: Stage::Stable,
            hot: None,
            replicas: Vec::new(),
            ..explanation()
        };
        let text = describe(b"k", &absent, 0);
        assert!(text.ends_with("holds      nothing, according to node 2"));
        assert!(!text.contains("moving"));
    }
}
