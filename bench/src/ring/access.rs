//! The cost of checking a client's permissions.
//!
//! A message of a session costs the check of its token's scopes; a unary request also costs the
//! lookup of the token. The worst token has 16 scopes and matches none.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use torc_ring::topology::{
    Bearer, BearerToken, Grants, Holder, Holders, MAX_BEARER_TOKENS, MAX_SCOPES, Role, Scope,
};

use super::timing::{LOOKUP, each};
use crate::records;
use crate::report::{Report, TORC};

/// The maximum number of tokens of a cluster.
pub(super) struct Tokens {
    texts: Vec<String>,
    holders: Holders,
    worst: Arc<Holder>,
}

impl Tokens {
    pub(super) fn all() -> Result<Self> {
        let mut random = records::Random::of(3);
        let mut tokens = BTreeMap::new();
        let mut texts = Vec::new();
        for _ in 0..MAX_BEARER_TOKENS {
            let mut secret = [0; 32];
            for part in secret.chunks_exact_mut(8) {
                part.copy_from_slice(&random.next().to_le_bytes());
            }
            let bearer = Bearer::new(random.next(), secret);
            let scopes = (0..MAX_SCOPES).map(|number| Scope {
                role: Role::Read,
                namespace: "sessions".to_owned(),
                prefix: format!("user:{number:02}:").into_bytes(),
            });
            let token = BearerToken {
                name: "bench".to_owned(),
                hash: bearer.hash(),
                grants: Grants {
                    scopes: scopes.collect(),
                    ..Grants::default()
                },
                created_at_ms: 0,
                expires_at_ms: None,
                join: None,
            };
            texts.push(bearer.reveal());
            tokens.insert(bearer.id(), token);
        }
        let holders = Holders::default().next(&tokens, 1).context("no tokens")?;
        let worst = Arc::clone(holders.find(&texts[0]).context("no token")?);
        Ok(Self {
            texts,
            holders,
            worst,
        })
    }

    pub(super) fn measure(&self, report: &mut Report, quick: bool) {
        let times = if quick { 10_000 } else { 2_000_000 };
        let keys: Vec<Vec<u8>> = (0..1 << 12)
            .map(|n| format!("user:99:{n}").into_bytes())
            .collect();
        let took = each(&keys, times, |key| {
            let holder = black_box(&*self.worst);
            let may = !holder.has_ended() && holder.grants.allow(Role::Read, "sessions", key);
            black_box(may);
        });
        report.add("scopes of an operation, 16", LOOKUP, TORC, took);
        let took = each(&self.texts, times, |text| {
            black_box(self.holders.find(text));
        });
        report.add("a token of a request, of 4,096", LOOKUP, TORC, took);
    }
}
