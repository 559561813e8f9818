//! Commands of Redis that Torc refuses, each with advice.

const ATOMIC: &str = "keys lie on different nodes and there are no transactions; use one key, or SET with NX or IFEQ";
const TYPES: &str = "values are strings; keep the structure in one value and replace it with IFEQ";
const CHANNELS: &str = "there are no channels";
const SCRIPTS: &str = "there are no scripts; compute in the client and store with SET and IFEQ";
const WHOLE: &str = "a namespace is not emptied at once; delete keys that SCAN returns";

const REFUSED: &[(&str, &str)] = &[
    (
        "KEYS",
        "it would read the whole namespace before it answers; use SCAN",
    ),
    ("RANDOMKEY", "keys are not counted; use SCAN"),
    (
        "MSETNX",
        "keys lie on different nodes, so several are not set at once; use SET with NX for each",
    ),
    ("MULTI", ATOMIC),
    ("EXEC", ATOMIC),
    ("DISCARD", ATOMIC),
    ("WATCH", ATOMIC),
    ("UNWATCH", ATOMIC),
    ("RENAME", ATOMIC),
    ("RENAMENX", ATOMIC),
    ("COPY", ATOMIC),
    ("FLUSHDB", WHOLE),
    ("FLUSHALL", WHOLE),
    ("EVAL", SCRIPTS),
    ("EVALSHA", SCRIPTS),
    ("SCRIPT", SCRIPTS),
    ("FUNCTION", SCRIPTS),
    ("FCALL", SCRIPTS),
    ("SUBSCRIBE", CHANNELS),
    ("PSUBSCRIBE", CHANNELS),
    ("PUBLISH", CHANNELS),
    ("HSET", TYPES),
    ("HGET", TYPES),
    ("LPUSH", TYPES),
    ("RPUSH", TYPES),
    ("SADD", TYPES),
    ("ZADD", TYPES),
    ("XADD", TYPES),
];

/// The command's name, and why it is refused.
pub(crate) fn find(name: &[u8]) -> Option<(&'static str, &'static str)> {
    let mut all = REFUSED.iter().copied();
    all.find(|(refused, _)| refused.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;

    #[test]
    fn what_is_refused_is_no_command() {
        for (name, _) in REFUSED {
            assert!(Spec::find(name.as_bytes()).is_none(), "{name}");
            assert!(find(name.to_lowercase().as_bytes()).is_some());
        }
    }
}
