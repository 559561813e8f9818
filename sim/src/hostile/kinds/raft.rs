//! Forged messages of the topology group: terms, votes, malformed JSON.

use bytes::Bytes;
use serde_json::{Value, json};
use tonic::Code;
use torc_proto::v1;

use super::super::grpc::{Call, Headers, framed_message};
use super::super::kind::{Expected, Kind, expect};
use super::super::target::Shot;

const INVALID: &[Expected] = expect::INVALID;
const NOT_HERE: &[Expected] = &[Expected::Code(Code::Unavailable)];
const SUPERSEDED: &[Expected] = &[Expected::Code(Code::FailedPrecondition)];
/// The highest term that a node accepts.
const MAX_TERM: u64 = 1 << 48;

/// Wraps a message from another node to the attacked one.
fn envelope(shot: &Shot, body: &Value) -> Value {
    json!({
        "cluster": shot.target.table.cluster.to_string(),
        "to": shot.node().id.0,
        "known": null,
        "from": shot.other().id.0,
        "boot": boot(shot.other().boot),
        "body": body,
    })
}

fn boot(boot: torc_ring::topology::Boot) -> Value {
    json!({ "number": boot.number, "draw": boot.draw })
}

fn call(
    name: &str,
    what: &str,
    method: &'static str,
    expects: &'static [Expected],
    message: impl Fn(&Shot) -> Vec<u8> + Send + Sync + 'static,
) -> Kind {
    let path = format!("/torc.v1.TopologyGroup/{method}");
    Kind::call(format!("raft.{name}"), what, expects, move |shot| {
        let json = Bytes::from(message(shot));
        let body = framed_message(&v1::RaftMessage { json });
        Call::new(shot.node().port_of(&path), &*path, Headers::new(), body)
    })
}

fn vote(term: u64, node: u64) -> Value {
    json!({ "leader_id": { "term": term, "node_id": node }, "committed": false })
}

fn leader(term: u64, node: u64) -> Value {
    json!({ "leader_id": { "term": term, "node_id": node }, "committed": true })
}

fn append(shot: &Shot, term: u64, entries: &Value, prev: &Value) -> Value {
    let by = shot.other().id.0;
    json!({ "vote": leader(term, by), "prev_log_id": prev, "entries": entries, "leader_commit": null })
}

fn log_id(index: u64) -> Value {
    json!({ "leader_id": { "term": 1, "node_id": 1 }, "index": index })
}

fn snapshot(shot: &Shot, term: u64) -> Value {
    let by = shot.other().id.0;
    json!({
        "vote": leader(term, by),
        "meta": {
            "last_log_id": null,
            "last_membership": { "log_id": null, "membership": { "configs": [], "nodes": {} } },
            "snapshot_id": "forged",
        },
        "offset": u64::MAX,
        "data": [1, 2, 3],
        "done": true,
    })
}

fn ask(question: &Value, hops: u8) -> Value {
    json!({ "ask": question, "within_ms": u64::MAX, "hops": hops })
}

pub(super) fn all() -> Vec<Kind> {
    let mut kinds = terms();
    kinds.extend(envelopes());
    kinds.extend(texts());
    kinds
}

fn terms() -> Vec<Kind> {
    let of_vote = |shot: &Shot, term: u64| json!({ "vote": vote(term, shot.other().id.0), "last_log_id": log_id(u64::MAX) });
    let entries = json!([]);
    let bytes = |shot: &Shot, body: &Value| envelope(shot, body).to_string().into_bytes();
    let none = entries.clone();
    let also_none = entries.clone();
    let still_none = entries.clone();
    vec![
        call("vote.term-highest", "a vote for the highest term", "Vote", INVALID, move |shot| {
            bytes(shot, &of_vote(shot, u64::MAX))
        }),
        call("vote.term-beyond", "a vote for a term that no elections come to", "Vote", INVALID, move |shot| {
            bytes(shot, &of_vote(shot, MAX_TERM + 1))
        }),
        call("vote.short-log", "a vote for a node with an empty log", "Vote", expect::ANSWERED, move |shot| {
            bytes(shot, &json!({ "vote": vote(MAX_TERM, shot.other().id.0), "last_log_id": null }))
        }),
        call("vote.old-term", "a vote for a term that is over", "Vote", expect::ANSWERED, move |shot| {
            bytes(shot, &of_vote(shot, 0))
        }),
        call("append.term-highest", "entries of a leader of the highest term", "AppendEntries", INVALID, move |shot| {
            bytes(shot, &append(shot, u64::MAX, &entries, &Value::Null))
        }),
        call("append.term-beyond", "entries of a term that no elections come to", "AppendEntries", INVALID, move |shot| {
            bytes(shot, &append(shot, MAX_TERM + 1, &none, &Value::Null))
        }),
        call("append.old-term", "entries of a leader of long ago", "AppendEntries", expect::ANSWERED, move |shot| {
            bytes(shot, &append(shot, 0, &also_none, &Value::Null))
        }),
        call("append.far-index", "entries of long ago, behind the highest index", "AppendEntries", expect::ANSWERED, move |shot| {
            bytes(shot, &append(shot, 0, &still_none, &log_id(u64::MAX)))
        }),
        call("append.many-entries", "50,000 entries of a leader of long ago", "AppendEntries", INVALID, move |shot| {
            let entry = json!({ "log_id": log_id(7), "payload": "Blank" });
            bytes(shot, &append(shot, 0, &vec![entry; 50_000].into(), &Value::Null))
        }),
        call("snapshot.term-highest", "a snapshot of a leader of the highest term", "InstallSnapshot", INVALID, move |shot| {
            bytes(shot, &snapshot(shot, u64::MAX))
        }),
        call("snapshot.old-term", "a snapshot of a leader of long ago", "InstallSnapshot", expect::ANSWERED, move |shot| {
            bytes(shot, &snapshot(shot, 0))
        }),
        call("append.own-name", "entries in the node's own name, of a later term", "AppendEntries", INVALID, move |shot| {
            let mut forged = append(shot, 7_000, &json!([]), &Value::Null);
            forged["vote"] = leader(7_000, shot.node().id.0);
            bytes(shot, &forged)
        }),
        call("vote.third-name", "a vote that asks for a third node", "Vote", INVALID, move |shot| {
            let forged = json!({ "vote": vote(7_000, u64::MAX), "last_log_id": log_id(u64::MAX) });
            bytes(shot, &forged)
        }),
        call("append.forged-leader", "a leader of the highest term that is believed", "AppendEntries", expect::REFUSED, move |shot| {
            bytes(shot, &append(shot, MAX_TERM, &json!([]), &Value::Null))
        })
        .known("who names a member and a term that elections may come to is followed, and nobody can be elected \
                after the highest; with TLS only a node may"),
    ]
}

fn envelopes() -> Vec<Kind> {
    let question = || ask(&json!("ReadIndex"), 1);
    let changed = |name: &str, what: &str, expects, change: fn(&mut Value, &Shot)| {
        call(name, what, "Propose", expects, move |shot| {
            let mut envelope = envelope(shot, &question());
            change(&mut envelope, shot);
            envelope.to_string().into_bytes()
        })
    };
    vec![
        changed("wrong-cluster", "a message for another cluster", NOT_HERE, |envelope, _| {
            envelope["cluster"] = json!("e".repeat(32));
        }),
        changed("wrong-node", "a message for another node", NOT_HERE, |envelope, shot| {
            envelope["to"] = json!(shot.other().id.0);
        }),
        changed("older-start", "a message from a start that is over", SUPERSEDED, |envelope, _| {
            envelope["boot"] = json!({ "number": 0, "draw": 0 });
        }),
        changed("no-member", "a question from a node that is no member", expect::TOLD, |envelope, _| {
            envelope["from"] = json!(u64::MAX);
        }),
        changed("endless-hops", "a question that is to be handed on 255 times", expect::TOLD, |envelope, _| {
            envelope["body"] = ask(&json!("ReadIndex"), 255);
        }),
        changed("unknown-command", "a command that no release knows", INVALID, |envelope, _| {
            envelope["body"] = ask(&json!({ "Commit": { "Destroy": {} } }), 1);
        }),
        changed("known-start", "a later start of the node itself, as others are said to know it", expect::REFUSED, |envelope, _| {
            envelope["known"] = json!({ "number": u64::MAX, "draw": 1 });
        })
        .known("the node believes that it is an older copy and leaves the topology group; with TLS only a \
                node may"),
    ]
}

fn texts() -> Vec<Kind> {
    let text = |name: &str, what: &str, text: fn() -> Vec<u8>| {
        call(name, what, "AppendEntries", INVALID, move |_| text())
    };
    vec![
        text("json.cut", "JSON that ends early", || {
            b"{\"cluster\":\"".to_vec()
        }),
        text("json.deep", "arrays a million deep", || {
            vec![b'['; 1_000_000]
        }),
        text("json.long-number", "a number of a million digits", || {
            vec![b'9'; 1_000_000]
        }),
        text("json.long-string", "a name of a million letters", || {
            let name = "n".repeat(1_000_000);
            format!("{{\"{name}\":1}}").into_bytes()
        }),
        text(
            "json.many-fields",
            "200,000 fields that no message has",
            || {
                let fields: Vec<String> = (0..200_000)
                    .map(|field| format!("\"f{field}\":{{}}"))
                    .collect();
                format!("{{{}}}", fields.join(",")).into_bytes()
            },
        ),
        text("json.not-utf8", "text that is not UTF-8", || {
            b"{\"cluster\":\"\xff\xfe\"}".to_vec()
        }),
        text("json.null", "nothing", || b"null".to_vec()),
    ]
}
