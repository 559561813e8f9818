//! The holders of valid bearer tokens.
//!
//! Derived from a topology and a time. Everything opened in its name shares a [`Holder`], which
//! costs one load to check whether its token was revoked or has expired.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::BearerId;
use super::bearer::{SECRET_LEN, SecretHash};
use super::{BearerToken, Grants};

/// The holder of a bearer token.
#[derive(Debug)]
pub struct Holder {
    /// The token's id.
    pub id: BearerId,
    /// Its name.
    pub name: String,
    /// Its permissions, until the token ends.
    pub grants: Grants,
    has_ended: AtomicBool,
}

impl Holder {
    /// Whether the token was revoked or has expired.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

/// The holders of valid tokens.
#[derive(Debug, Default)]
pub struct Holders(HashMap<BearerId, (SecretHash, Arc<Holder>)>);

impl Holders {
    /// The holders of these tokens that have not expired. Ends those in `self` that are not among
    /// them. `None` if nothing changes. O(tokens).
    #[must_use]
    pub fn next(&self, tokens: &BTreeMap<BearerId, BearerToken>, now_ms: u64) -> Option<Self> {
        // Join tokens are for nodes that are not members yet.
        let counts = |token: &BearerToken| token.join.is_none() && !token.is_expired(now_ms);
        let is_same = |id: &BearerId, token: &BearerToken| {
            let known = self.0.get(id);
            known.is_some_and(|(hash, holder)| *hash == token.hash && holder.grants == token.grants)
        };
        let holder = |(id, token): (&BearerId, &BearerToken)| {
            let known = self.0.get(id).filter(|_| is_same(id, token));
            let holder = known.map_or_else(
                || {
                    Arc::new(Holder {
                        id: *id,
                        name: token.name.clone(),
                        grants: token.grants.clone(),
                        has_ended: AtomicBool::new(false),
                    })
                },
                |(_, holder)| Arc::clone(holder),
            );
            (*id, (token.hash, holder))
        };
        let all = tokens.iter().filter(|(_, token)| counts(token));
        let next: HashMap<_, _> = all.map(holder).collect();
        let stays = |(id, (_, holder)): (&BearerId, &(SecretHash, Arc<Holder>))| {
            next.get(id)
                .is_some_and(|(_, other)| Arc::ptr_eq(holder, other))
        };
        let mut changed = next.len() != self.0.len();
        for known in &self.0 {
            if !stays(known) {
                known.1.1.has_ended.store(true, Ordering::Relaxed);
                changed = true;
            }
        }
        changed.then_some(Self(next))
    }

    /// The holder of the token `id.secret`. `None` does not reveal whether the id or the secret is
    /// wrong. About 100 ns.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<&Arc<Holder>> {
        let (id, secret) = text.split_once('.')?;
        // The characters of a malformed secret need no check: it has another hash.
        if secret.len() != SECRET_LEN {
            return None;
        }
        let hash = SecretHash::of(secret);
        let (known, holder) = self.0.get(&id.parse().ok()?)?;
        (*known == hash).then_some(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Bearer;
    use super::*;

    fn tokens(of: &[(u64, Option<u64>)]) -> BTreeMap<BearerId, BearerToken> {
        let token = |(id, expires_at_ms): &(u64, Option<u64>)| {
            let token = BearerToken {
                name: format!("n{id}"),
                hash: Bearer::new(*id, [*id as u8; 32]).hash(),
                grants: Grants::default(),
                created_at_ms: 0,
                expires_at_ms: *expires_at_ms,
                join: None,
            };
            (BearerId(*id), token)
        };
        of.iter().map(token).collect()
    }

    fn text(id: u64) -> String {
        Bearer::new(id, [id as u8; 32]).reveal()
    }

    #[test]
    fn a_holder_is_found_by_the_whole_token_and_by_nothing_else() {
        let holders = Holders::default().next(&tokens(&[(1, None), (2, None)]), 5);
        let holders = holders.unwrap();
        assert_eq!(holders.find(&text(1)).unwrap().name, "n1");
        let mixed = Bearer::new(1, [2; 32]).reveal();
        for wrong in [
            &mixed,
            &text(3),
            &text(1)[1..],
            &format!("{}0", text(1)),
            "",
        ] {
            assert!(holders.find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn who_was_revoked_or_has_expired_learns_it_and_the_others_stay_the_same() {
        let before = Holders::default();
        let first = before.next(&tokens(&[(1, None), (2, Some(10)), (3, None)]), 5);
        let first = first.unwrap();
        let held: Vec<_> = (1..=3)
            .map(|id| Arc::clone(first.find(&text(id)).unwrap()))
            .collect();
        assert!(
            first
                .next(&tokens(&[(1, None), (2, Some(10)), (3, None)]), 9)
                .is_none()
        );
        let second = first
            .next(&tokens(&[(1, None), (2, Some(10))]), 10)
            .unwrap();
        let ended: Vec<_> = held.iter().map(|holder| holder.has_ended()).collect();
        assert_eq!(ended, [false, true, true]);
        assert!(Arc::ptr_eq(second.find(&text(1)).unwrap(), &held[0]));
        assert!(second.find(&text(2)).is_none() && second.find(&text(3)).is_none());
    }

    #[test]
    fn an_id_that_means_another_token_now_ends_the_former_one() {
        let first = Holders::default().next(&tokens(&[(1, None)]), 0).unwrap();
        let held = Arc::clone(first.find(&text(1)).unwrap());
        let mut other = tokens(&[(1, None)]);
        other.get_mut(&BearerId(1)).unwrap().hash = Bearer::new(1, [9; 32]).hash();
        let second = first.next(&other, 0).unwrap();
        assert!(held.has_ended() && second.find(&text(1)).is_none());
    }
}
