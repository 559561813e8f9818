//! A rate limiter that all servers share: a token bucket per caller.
//!
//! ```text
//! cargo run -p torc-client --example rate_limiter -- CALLER BURST PER_HOUR REQUESTS
//! ```
//!
//! Makes REQUESTS for CALLER, and prints how many were allowed: BURST at once, and PER_HOUR from
//! then on, across all running programs. Before the other arguments, `--endpoint URL` names a node
//! of the cluster.
//!
//! A bucket is read, changed, and written on condition that its version has not changed: a
//! compare-and-set. The clock is the caller's, so a server whose clock differs sees a bucket fuller
//! or emptier by the tokens of that time.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers and figures"
)]
#![expect(clippy::print_stdout, reason = "the output of a program")]

mod common;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::Failure;
use torc_client::{Client, Condition, ErrorKind, PutOptions};

#[derive(Debug, Clone, Copy)]
struct Limit {
    burst: f64,
    per_ms: f64,
}

/// A bucket: how many requests it allows, and as of when.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at_ms: u64,
}

impl Bucket {
    fn parse(text: &[u8]) -> Option<Self> {
        let (tokens, at_ms) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Self {
            tokens: tokens.parse().ok()?,
            at_ms: at_ms.parse().ok()?,
        })
    }

    /// The bucket without one token; `None` if it is empty.
    fn take(self, limit: Limit, now_ms: u64) -> Option<Self> {
        let flown = now_ms.saturating_sub(self.at_ms) as f64 * limit.per_ms;
        let tokens = (self.tokens + flown).min(limit.burst) - 1.0;
        let at_ms = now_ms.max(self.at_ms);
        (tokens >= 0.0).then_some(Self { tokens, at_ms })
    }
}

/// Whether one more request is allowed.
async fn allows(client: &Client, caller: &str, limit: Limit) -> Result<bool, Failure> {
    let key = format!("bucket:{caller}");
    loop {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        let found = client.get(key.clone()).await?;
        let full = Bucket {
            tokens: limit.burst,
            at_ms: now_ms,
        };
        let (bucket, condition) = match &found {
            Some(found) => (
                Bucket::parse(&found.value).ok_or("not a bucket")?,
                Condition::IfVersion(found.version),
            ),
            None => (full, Condition::IfAbsent),
        };
        let Some(Bucket { tokens, at_ms }) = bucket.take(limit, now_ms) else {
            return Ok(false);
        };
        // A bucket that has had time to fill up again can expire.
        let full_after = Duration::from_millis((limit.burst / limit.per_ms) as u64 + 1);
        let options = PutOptions {
            condition: Some(condition),
            ttl: Some(full_after),
            ..PutOptions::default()
        };
        match client
            .put_with(key.clone(), format!("{tokens} {at_ms}"), options)
            .await
        {
            Ok(_) => return Ok(true),
            // Another request has written in the meantime: read again.
            Err(error) if error.kind() == ErrorKind::ConditionNotMet => {}
            // The token may have been taken, or may be taken later. Denying the request keeps the
            // limit.
            Err(error) if error.maybe_applied() => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (client, arguments) = common::connect().await?;
    let [caller, burst, per_hour, requests] = &arguments[..] else {
        return Err("use rate_limiter CALLER BURST PER_HOUR REQUESTS".into());
    };
    let limit = Limit {
        burst: burst.parse()?,
        per_ms: per_hour.parse::<f64>()? / 3_600_000.0,
    };
    if !(limit.burst >= 1.0 && limit.per_ms > 0.0) {
        return Err("BURST is at least 1 and PER_HOUR above 0".into());
    }
    let mut allowed = 0;
    for _ in 0..requests.parse::<u32>()? {
        allowed += u32::from(allows(&client, caller, limit).await?);
    }
    println!("{allowed} of {requests} allowed");
    Ok(())
}
