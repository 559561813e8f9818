//! Bearer tokens: their permissions, and their life in the topology.

use std::collections::BTreeMap;

use super::replica_tests;
use super::*;

const HOUR_MS: u64 = 3_600_000;

const GOLDEN: &str = concat!(
    r#"{"name":"n","hash":[230,188,113,50,172,107,75,36,162,172,146,48,207,"#,
    r#"126,197,117,138,23,203,236,21,119,141,70,49,80,186,154,140,22,173,6],"#,
    r#""grants":{"everywhere":2,"scopes":[{"role":"Read","namespace":"n","prefix":[112]}]},"created_at_ms":3600000,"expires_at_ms":null,"join":null}"#,
);

fn founded() -> Topology {
    replica_tests::founded(1, 1, 1)
}

fn grants(roles: &[Role], scopes: &[&str]) -> Grants {
    Grants {
        everywhere: roles.iter().copied().collect(),
        scopes: scopes.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

fn token(name: &str, grants: Grants) -> BearerToken {
    BearerToken {
        name: name.to_owned(),
        hash: Bearer::new(7, [1; 32]).hash(),
        grants,
        created_at_ms: HOUR_MS,
        expires_at_ms: None,
        join: None,
    }
}

fn create(topology: &mut Topology, id: u64, token: BearerToken) -> Result<Outcome, TopologyError> {
    let id = BearerId(id);
    topology.apply(Command::CreateBearerToken { id, token })
}

#[test]
fn a_bearer_is_read_as_it_is_written_and_shown_nowhere_else() {
    let bearer = Bearer::new(0xab, [0xc0; 32]);
    let text = bearer.reveal();
    assert_eq!(text, format!("00000000000000ab.{}", "c0".repeat(32)));
    assert_eq!(text.parse(), Ok(bearer.clone()));
    assert_eq!(format!("{bearer:?}"), "Bearer(00000000000000ab.…)");
    assert_eq!(format!("{:?}", bearer.hash()), "SecretHash(..)");
    // Golden: the form that the topology group stores on disk.
    let stored = serde_json::to_string(&token("n", grants(&[Role::Write], &["read:n/p"])));
    assert_eq!(stored.unwrap(), GOLDEN);
    let (id, secret) = text.split_once('.').unwrap();
    for wrong in [
        String::new(),
        id.to_owned(),
        format!("{id}."),
        format!("{id}.{}", secret.to_uppercase()),
        format!("{id}.{secret}0"),
        format!("{}.{secret}", &id[1..]),
        format!("+{}.{secret}", &id[1..]),
        format!("{id}:{secret}"),
    ] {
        let refused = wrong.parse::<Bearer>().unwrap_err();
        assert!(!refused.to_string().contains(secret), "{refused}");
    }
}

#[test]
fn a_scope_is_a_role_a_namespace_and_what_keys_begin_with() {
    for text in ["read:sessions", "write:sessions/user:", "read:a/b/c"] {
        let scope: Scope = text.parse().unwrap();
        assert_eq!(scope.to_string(), text);
    }
    for text in ["", "read", "read:", "read:/x", "root:sessions", "sessions"] {
        assert!(text.parse::<Scope>().is_err(), "{text}");
    }
}

#[test]
fn a_grant_reaches_what_it_names_and_nothing_else() {
    let some = grants(&[], &["read:sessions", "write:sessions/user:"]);
    let allowed = |role, namespace, key: &str| some.allow(role, namespace, key.as_bytes());
    assert!(allowed(Role::Read, "sessions", "anything"));
    assert!(allowed(Role::Write, "sessions", "user:1"));
    assert!(
        !allowed(Role::Write, "sessions", "user"),
        "a part of the prefix"
    );
    assert!(!allowed(Role::Write, "sessions", "admin:1"));
    assert!(!allowed(Role::Read, "session", "k") && !allowed(Role::Read, "sessions2", "k"));
    assert!(some.allow_somewhere(Role::Write) && !some.allow_somewhere(Role::Observe));
    assert!(some.know_of("sessions") && !some.know_of("default"));
    let all = grants(&[Role::Admin], &[]);
    assert!(all.allow(Role::Write, "any", b"k") && all.know_of("any"));
    assert!(!grants(&[], &[]).allow_somewhere(Role::Read));
}

#[test]
fn a_token_is_created_once_and_gone_once_it_is_revoked() {
    let mut topology = founded();
    let before = topology.epoch();
    let new = token("loader", grants(&[Role::Write], &["read:sessions"]));
    create(&mut topology, 1, new.clone()).unwrap();
    assert!(
        topology.epoch() > before,
        "nodes wait for members to have heard of it"
    );
    let created = topology.clone();
    create(&mut topology, 1, new.clone()).unwrap();
    assert_eq!(topology, created, "repeating it is harmless");
    let other = token("other", grants(&[Role::Admin], &[]));
    assert!(
        create(&mut topology, 1, other).is_err(),
        "the id is another's"
    );
    assert_eq!(topology.bearer_tokens()[&BearerId(1)], new);

    let json = serde_json::to_string(&topology).unwrap();
    assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology);
    let routed = format!("{:?}", topology.routing());
    assert!(!routed.contains("loader"), "clients get none of it");

    let id = BearerId(1);
    topology.apply(Command::RevokeBearerToken { id }).unwrap();
    assert!(topology.bearer_tokens().is_empty());
    let revoked = topology.clone();
    topology.apply(Command::RevokeBearerToken { id }).unwrap();
    assert_eq!(topology, revoked);
}

#[test]
fn what_is_out_of_bounds_is_refused_and_changes_nothing() {
    let mut topology = founded();
    let before = topology.clone();
    let long = |len: usize| format!("read:n/{}", "p".repeat(len));
    let many: Vec<String> = (0..17).map(|n| format!("read:n{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let fine = || grants(&[Role::Read], &[]);
    let expired = BearerToken {
        expires_at_ms: Some(HOUR_MS),
        ..token("n", fine())
    };
    for refused in [
        token("", fine()),
        token("a b", fine()),
        token(&"n".repeat(65), fine()),
        token("n", grants(&[], &[])),
        token("n", grants(&[], &many)),
        token("n", grants(&[], &[&long(257)])),
        token("n", grants(&[], &["admin:n"])),
        token("n", grants(&[Role::Read], &["read:n"])),
        token("n", grants(&[Role::Admin], &["read:n"])),
        expired,
    ] {
        let error = create(&mut topology, 1, refused).unwrap_err();
        assert!(matches!(error, TopologyError::Setting { .. }), "{error}");
    }
    assert_eq!(topology, before);
    create(&mut topology, 1, token("n", grants(&[], &many[..16]))).unwrap();
    create(&mut topology, 2, token("n", grants(&[], &[&long(256)]))).unwrap();
}

#[test]
fn there_are_so_many_tokens_and_expired_ones_make_room() {
    let mut topology = founded();
    let ending = BearerToken {
        expires_at_ms: Some(2 * HOUR_MS),
        ..token("ends", grants(&[Role::Read], &[]))
    };
    let lasting = || token("lasts", grants(&[Role::Read], &[]));
    let mut stored = serde_json::to_value(&topology).unwrap();
    let tokens: BTreeMap<BearerId, BearerToken> = (0..MAX_BEARER_TOKENS as u64 - 1)
        .map(|id| (BearerId(id), lasting()))
        .chain([(BearerId(u64::MAX), ending)])
        .collect();
    stored["bearer_tokens"] = serde_json::to_value(&tokens).unwrap();
    topology = serde_json::from_value(stored).unwrap();
    assert_eq!(
        create(&mut topology, 5_000, lasting()),
        Err(TopologyError::TooManyBearerTokens)
    );
    let later = BearerToken {
        created_at_ms: 3 * HOUR_MS,
        ..lasting()
    };
    create(&mut topology, 5_000, later).unwrap();
    assert!(!topology.bearer_tokens().contains_key(&BearerId(u64::MAX)));

    let mut topology = founded();
    let long: Vec<String> = (0..16)
        .map(|n| format!("read:n{n}/{}", "p".repeat(256)))
        .collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let fitting =
        (0..).take_while(|id| create(&mut topology, *id, token("n", grants(&[], &long))).is_ok());
    let fitting = fitting.count();
    assert!(
        (200..300).contains(&fitting),
        "{fitting}: a MiB of names and scopes"
    );
}

fn join_token(most: u32) -> BearerToken {
    BearerToken {
        expires_at_ms: Some(2 * HOUR_MS),
        join: Some(JoinUses {
            most,
            by: Vec::new(),
        }),
        ..token("join", Grants::default())
    }
}

#[test]
fn a_join_token_lets_in_as_many_keys_as_it_says_and_each_as_often_as_it_asks() {
    let mut topology = founded();
    create(&mut topology, 1, join_token(2)).unwrap();
    let hash = Bearer::new(1, [1; 32]).hash();
    let come = |topology: &mut Topology, id, hash, key, at_ms| {
        topology.apply(Command::UseJoinToken {
            id: BearerId(id),
            hash,
            by: KeyDigest([key; 32]),
            at_ms,
        })
    };
    let other = Bearer::new(1, [2; 32]).hash();
    let before = topology.clone();
    create(
        &mut topology,
        2,
        token("loader", grants(&[Role::Admin], &[])),
    )
    .unwrap();
    for (id, hash) in [(1, other), (2, hash), (3, hash)] {
        let refused = come(&mut topology, id, hash, 1, HOUR_MS);
        assert_eq!(refused, Err(TopologyError::UnknownJoinToken), "{id}");
    }
    topology = before;
    let id = BearerId(1);
    assert_eq!(
        come(&mut topology, 1, hash, 1, 2 * HOUR_MS),
        Err(TopologyError::JoinTokenExpired { id })
    );
    come(&mut topology, 1, hash, 1, HOUR_MS).unwrap();
    let once = topology.clone();
    come(&mut topology, 1, hash, 1, HOUR_MS).unwrap();
    assert_eq!(topology, once, "the same node asks again");
    come(&mut topology, 1, hash, 2, HOUR_MS).unwrap();
    let full = topology.clone();
    let refused = come(&mut topology, 1, hash, 3, HOUR_MS);
    assert_eq!(refused, Err(TopologyError::JoinTokenUsed { id, most: 2 }));
    assert_eq!(topology, full);
    let json = serde_json::to_string(&topology).unwrap();
    assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology);
    topology.apply(Command::RevokeBearerToken { id }).unwrap();
    let refused = come(&mut topology, 1, hash, 1, HOUR_MS);
    assert_eq!(refused, Err(TopologyError::UnknownJoinToken), "revoked");
}

#[test]
fn a_join_token_expires_and_allows_nothing_else() {
    let mut topology = founded();
    let lasting = BearerToken {
        expires_at_ms: None,
        ..join_token(1)
    };
    let reading = BearerToken {
        grants: grants(&[Role::Read], &[]),
        ..join_token(1)
    };
    for refused in [lasting, reading, join_token(0), join_token(65)] {
        let error = create(&mut topology, 1, refused).unwrap_err();
        assert!(matches!(error, TopologyError::Setting { .. }), "{error}");
    }
    let bearer = Bearer::new(1, [1; 32]);
    create(&mut topology, 1, join_token(1)).unwrap();
    let holders = Holders::default().next(topology.bearer_tokens(), HOUR_MS);
    let known = holders.is_some_and(|it| it.find(&bearer.reveal()).is_some());
    assert!(!known, "no client is known by it");
}
