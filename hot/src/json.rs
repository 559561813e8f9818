//! The cluster's answer as JSON, for HTTP, with the same fields as `kvctl` prints.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use torc_proto::v1::{HotHistory, HotKey, HotKeysResponse, HotNode};

/// The answer, with the fields that `kvctl hot-keys --output json` prints.
#[must_use]
pub fn to_json(answer: &HotKeysResponse) -> Value {
    let majority = answer.majority.as_ref();
    json!({
        "answered_by": answer.answered_by,
        "from_ms": answer.from_ms,
        "to_ms": answer.to_ms,
        "accesses": answer.accesses,
        "error_bound": answer.error_bound,
        "delta": answer.delta,
        "complete_from": answer.complete_from,
        "keys": answer.keys.iter().map(key_json).collect::<Vec<_>>(),
        "majority": majority.map(|it| json!({ "digest": hex(&it.digest), "certain": it.certain })),
        "nodes": answer.nodes.iter().map(node_json).collect::<Vec<_>>(),
        "history": answer.history.as_ref().map(history_json),
    })
}

fn history_json(history: &HotHistory) -> Value {
    let mut series = history.series.iter().map(|it| &it.accesses);
    json!({
        "from_ms": history.from_ms,
        "step_ms": history.step_ms,
        "accesses": series.next(),
        "keys": series.collect::<Vec<_>>(),
    })
}

fn key_json(key: &HotKey) -> Value {
    let text = std::str::from_utf8(&key.key).ok();
    let is_told = !key.key.is_empty();
    let nodes = key.nodes.iter();
    let nodes = nodes.map(|it| json!({ "node": it.node, "estimate": it.estimate }));
    json!({
        "digest": hex(&key.digest),
        "namespace": key.namespace,
        "key": text.filter(|_| is_told),
        "key_base64": text.is_none().then(|| STANDARD.encode(&key.key)),
        "estimate": key.estimate,
        "share": key.share,
        "nodes": nodes.collect::<Vec<_>>(),
        "new": key.is_new,
    })
}

fn node_json(node: &HotNode) -> Value {
    let moment = |ms| Some(ms).filter(|ms: &u64| *ms != 0);
    json!({
        "node": node.node,
        "accesses": node.accesses,
        "from_ms": moment(node.from_ms),
        "to_ms": moment(node.to_ms),
        "problem": Some(&node.problem).filter(|problem| !problem.is_empty()),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
