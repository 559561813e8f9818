//! `COMMAND`: the table of commands, for clients that route by it.

use bytes::Bytes;
use torc_resp::{Reply, SPECS, Spec};

pub(super) fn count() -> Reply {
    Reply::len(SPECS.len())
}

pub(super) fn list() -> Reply {
    Reply::Array(SPECS.iter().map(|spec| Reply::text(spec.name)).collect())
}

/// The table entries of these commands, or of all.
pub(super) fn info(names: &[Bytes]) -> Reply {
    if names.is_empty() {
        return Reply::Array(SPECS.iter().map(line).collect());
    }
    let line_of = |name: &Bytes| Spec::find(name).map_or(Reply::Null, line);
    Reply::Array(names.iter().map(line_of).collect())
}

/// The documentation of these commands, or of all.
pub(super) fn docs(names: &[Bytes]) -> Reply {
    let wanted: Vec<&Spec> = if names.is_empty() {
        SPECS.iter().collect()
    } else {
        names.iter().filter_map(|name| Spec::find(name)).collect()
    };
    let field = |name: &str, value: &str| (Reply::text(name), Reply::text(value));
    let docs = wanted.into_iter().map(|spec| {
        let fields = vec![
            field("summary", spec.summary),
            field("since", spec.since),
            field("group", spec.group),
        ];
        (Reply::text(spec.name), Reply::Map(fields))
    });
    Reply::Map(docs.collect())
}

fn line(spec: &Spec) -> Reply {
    let words =
        |words: &[&'static str]| Reply::Set(words.iter().map(|word| Reply::Simple(word)).collect());
    let (first, last, step) = spec.keys;
    Reply::Array(vec![
        Reply::text(spec.name),
        Reply::Integer(spec.arity),
        words(spec.flags),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Integer(step),
        words(&spec.categories()),
        // Tips, key specifications, subcommands: none.
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
    ])
}
