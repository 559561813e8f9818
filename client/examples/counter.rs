//! A counter: adds one to a key, some number of times, by compare-and-set.
//!
//! ```text
//! cargo run -p torc-client --example counter -- KEY TIMES
//! ```
//!
//! Any number of these programs may count at the same time, including those in Go and Java, and
//! `INCR` of Redis clients. Before the other arguments, `--endpoint URL` names a node of the
//! cluster.
#![expect(clippy::print_stdout, reason = "the output of a program")]

mod common;

use common::Failure;
use torc_client::{Client, Condition, ErrorKind, PutOptions};

/// Adds one, and returns the sum.
async fn add_one(client: &Client, key: &str) -> Result<u64, Failure> {
    loop {
        let found = client.get(key.to_owned()).await?;
        let (sum, condition) = match &found {
            Some(found) => (
                std::str::from_utf8(&found.value)?.parse::<u64>()? + 1,
                Condition::IfVersion(found.version),
            ),
            None => (1, Condition::IfAbsent),
        };
        let options = PutOptions {
            condition: Some(condition),
            ..PutOptions::default()
        };
        match client
            .put_with(key.to_owned(), sum.to_string(), options)
            .await
        {
            Ok(_) => return Ok(sum),
            // Another program has written in the meantime: read again.
            Err(error) if error.kind() == ErrorKind::ConditionNotMet => {}
            Err(error) if error.maybe_applied() => {
                return Err(format!("one may have been added, or may be later: {error}").into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (client, arguments) = common::connect().await?;
    let [key, times] = &arguments[..] else {
        return Err("use counter KEY TIMES".into());
    };
    for _ in 0..times.parse::<u32>()? {
        println!("{}", add_one(&client, key).await?);
    }
    Ok(())
}
