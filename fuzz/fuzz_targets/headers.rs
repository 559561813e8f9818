//! Any text in the headers of a request that name a trace, a deadline, a token or a cluster is ignored or refused, or means
//! what its grammar says; a token is accepted if it is the whole token, and only then.

#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use torc_fuzz::bearer;
use torc_proto::{TraceContext, bearer_of, timeout_of};
use torc_ring::topology::{BearerToken, ClusterId, Grants, Holders};

/// The holders of one token, as a node knows it.
static HOLDERS: LazyLock<Holders> = LazyLock::new(|| {
    let token = BearerToken {
        name: "known".to_owned(),
        hash: bearer().hash(),
        grants: Grants::default(),
        created_at_ms: 0,
        expires_at_ms: None,
        join: None,
    };
    let tokens = BTreeMap::from([(bearer().id(), token)]);
    Holders::default().next(&tokens, 1).expect("a new holder")
});
static KNOWN: LazyLock<String> = LazyLock::new(|| bearer().reveal());

fn trace(context: Option<TraceContext>) {
    if let Some(context) = context {
        let text = context.to_traceparent();
        assert_eq!(TraceContext::parse(&text), Some(context));
        assert_eq!(TraceContext::from_wire(&context.to_wire()), Some(context));
    }
}

/// One to eight digits, and a unit.
fn is_timeout(text: &str) -> bool {
    let digits = text.trim_end_matches(['H', 'M', 'S', 'm', 'u', 'n']);
    text.len() == digits.len() + 1
        && (1..=8).contains(&digits.len())
        && digits.chars().all(|it| it.is_ascii_digit())
}

fuzz_target!(|bytes: &[u8]| {
    trace(TraceContext::from_wire(bytes));
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    trace(TraceContext::parse(text));

    let timeout = timeout_of(text);
    assert_eq!(timeout.is_some(), is_timeout(text));
    assert!(timeout <= Some(Duration::from_secs(99_999_999 * 3600)));

    if let Some(token) = bearer_of(text) {
        assert_eq!(&text.as_bytes()[..7].to_ascii_lowercase(), b"bearer ");
        assert_eq!(HOLDERS.find(token).is_some(), token == *KNOWN);
    }
    if let Ok(cluster) = text.parse::<ClusterId>() {
        assert_eq!(cluster.to_string(), text.to_ascii_lowercase());
    }
});
