//! `SCAN` and `DBSIZE`, from pages of the native scan.
//!
//! A cursor is a token: the position on the ring where the next page starts. It takes no memory on
//! the node, is valid on every node and after any change of the ring, and misses no key that exists
//! throughout the scan. A cursor of 0 means both the start and the end.
//!
//! All keys of one token come in one page, because a cursor cannot point between them.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "an estimate"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use torc_proto::v1::ScanRequest;
use torc_proto::{Fault, ScanPosition};
use torc_resp::{Pattern, Reply};
use torc_ring::Token;

use crate::Server;

/// After this time, a page is returned with the keys found so far.
const PAGE_TIME: Duration = Duration::from_millis(500);
/// Time limit for an estimate of the number of keys.
const SIZE_TIME: Duration = Duration::from_secs(5);
/// Keys that an estimate is based on: its error is about 3 percent.
const SAMPLE: usize = 1_000;

/// What the client wants in a page.
pub(super) struct Wanted {
    pub(super) cursor: u64,
    /// Keys to examine.
    pub(super) count: usize,
    pub(super) pattern: Option<Pattern>,
    /// Return no keys, only the cursor.
    pub(super) none: bool,
}

/// Keys in ring order, and the token at which the next page starts; `None` at the end.
struct Page {
    keys: Vec<(Token, Bytes)>,
    next: Option<u64>,
}

/// A page of keys, and the cursor of the next page.
pub(super) async fn page(
    server: &Arc<Server>,
    database: u32,
    wanted: Wanted,
) -> Result<Reply, Fault> {
    let page = read(server, database, wanted.cursor, wanted.count, PAGE_TIME).await?;
    let matches = |key: &Bytes| {
        let pattern = wanted.pattern.as_ref();
        !wanted.none && pattern.is_none_or(|pattern| pattern.matches(key))
    };
    let keys = page.keys.into_iter().map(|(_, key)| key).filter(matches);
    Ok(Reply::Array(vec![
        Reply::text(page.next.unwrap_or(0).to_string()),
        Reply::Array(keys.map(Reply::Bulk).collect()),
    ]))
}

/// The number of keys of a database: exact if there are few, else extrapolated from the part of the
/// ring that the first keys cover.
pub(super) async fn size(server: &Arc<Server>, database: u32) -> Result<Reply, Fault> {
    let page = read(server, database, 0, SAMPLE, SIZE_TIME).await?;
    let count = page.keys.len();
    Ok(match page.next {
        None => Reply::len(count),
        Some(next) => {
            let part = next as f64 / 2_f64.powi(64);
            Reply::Integer((count as f64 / part).round() as i64)
        }
    })
}

/// Reads `count` keys from a token on, or fewer if that takes longer than `time`.
async fn read(
    server: &Arc<Server>,
    database: u32,
    from: u64,
    count: usize,
    time: Duration,
) -> Result<Page, Fault> {
    let request = ScanRequest {
        namespace: server.namespace(database),
        after: ScanPosition::At(Token(from)).to_bytes(),
        // The extra key shows where the next page begins.
        limit: count as u64 + 1,
        keys_only: true,
        ..ScanRequest::default()
    };
    let mut pages = server.node.scan(request)?;
    let mut keys = Vec::new();
    let mut position = ScanPosition::At(Token(from));
    let until = tokio::time::Instant::now() + time;
    loop {
        // Without progress past `from`, the next page would begin where this one did, so this read
        // has no timeout.
        let page = if position.token() == Token(from) {
            pages.next().await
        } else {
            match tokio::time::timeout_at(until, pages.next()).await {
                Ok(page) => page,
                Err(_) => return Ok(cut(keys, &position, from)),
            }
        };
        let Some(page) = page else {
            return Ok(cut(keys, &position, from));
        };
        let page = page?;
        position = ScanPosition::from_bytes(&page.cursor)?;
        for entry in page.entries {
            keys.push((token_of(server, database, &entry.key)?, entry.key));
        }
        if page.done && keys.len() <= count {
            return Ok(Page { keys, next: None });
        }
        if keys.len() > count {
            return Ok(cut(keys, &position, from));
        }
    }
}

fn token_of(server: &Server, database: u32, key: &Bytes) -> Result<Token, Fault> {
    let table = server.node.routing()?;
    let namespace = torc_proto::find_namespace(&table, &server.namespace(database))?;
    let digest = table.digest(namespace, key);
    Ok(Token::of(&digest))
}

/// Ends a page before the keys of the token that the scan has reached.
fn cut(mut keys: Vec<(Token, Bytes)>, position: &ScanPosition, from: u64) -> Page {
    let Token(at) = position.token();
    let next = match position {
        ScanPosition::At(_) => Some(at),
        // All keys of the page have one token. With 64-bit tokens that does not happen by chance.
        ScanPosition::After { .. } if at == from => at.checked_add(1),
        ScanPosition::After { .. } => {
            keys.retain(|(token, _)| token.0 < at);
            Some(at)
        }
    };
    Page { keys, next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::{Digest, Key};

    fn after(token: u64) -> ScanPosition {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&token.to_be_bytes());
        ScanPosition::After {
            digest: Digest(digest),
            key: Key::new(Bytes::from("key")).unwrap(),
        }
    }

    fn keys(tokens: &[u64]) -> Vec<(Token, Bytes)> {
        let key = |token: &u64| (Token(*token), Bytes::from("key"));
        tokens.iter().map(key).collect()
    }

    #[test]
    fn keys_of_one_token_stay_together_and_every_page_gets_on() {
        let tokens = |page: &Page| {
            page.keys
                .iter()
                .map(|(token, _)| token.0)
                .collect::<Vec<_>>()
        };
        let page = cut(keys(&[3, 5, 5]), &after(5), 0);
        assert_eq!((tokens(&page), page.next), (vec![3], Some(5)));
        let page = cut(keys(&[5, 5]), &after(5), 5);
        assert_eq!((tokens(&page), page.next), (vec![5, 5], Some(6)));
        let page = cut(keys(&[3]), &ScanPosition::At(Token(9)), 0);
        assert_eq!((tokens(&page), page.next), (vec![3], Some(9)));
        let page = cut(keys(&[u64::MAX]), &after(u64::MAX), u64::MAX);
        assert_eq!(page.next, None, "that was the end");
    }
}
