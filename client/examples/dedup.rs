//! A dedup index: prints the lines that are new.
//!
//! ```text
//! cargo run -p torc-client --example dedup -- SOURCE  < lines
//! ```
//!
//! Prints the lines that are new, and reports to standard error where the others were seen first.
//! Any number of these programs may run at the same time, on any number of machines: a line is new
//! to exactly one of them. SOURCE, with the number of the line, identifies the claim; use a
//! different SOURCE for each run.
//!
//! A claim is a put on condition that the key has no value. Its outcome may be in doubt if a node
//! dies. The program must not repeat it blindly, because it may have succeeded: the stored value
//! shows whose claim it was. Before the other arguments, `--endpoint URL` names a node of the
//! cluster.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of a program"
)]

mod common;

use std::io::stdin;

use common::Failure;
use torc_client::{Client, Condition, ErrorKind, PutOptions};

/// Who has claimed a line: this claim, or an earlier one.
async fn claimed_by(client: &Client, line: &str, claim: &str) -> Result<String, Failure> {
    // 32 bytes, however long the line is.
    let key = blake3::hash(line.as_bytes()).as_bytes().to_vec();
    let first = PutOptions {
        condition: Some(Condition::IfAbsent),
        ..PutOptions::default()
    };
    loop {
        let put = client.put_with(key.clone(), claim.to_owned(), first).await;
        match put {
            Ok(_) => return Ok(claim.to_owned()),
            Err(error) if error.kind() == ErrorKind::ConditionNotMet => {}
            Err(error) if error.maybe_applied() => {}
            Err(error) => return Err(error.into()),
        }
        // No value: the claim in doubt has not happened. If it happens later, the next claim finds
        // it.
        if let Some(found) = client.get(key.clone()).await? {
            return Ok(String::from_utf8(found.value.to_vec())?);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (client, arguments) = common::connect().await?;
    let [source] = &arguments[..] else {
        return Err("use dedup SOURCE".into());
    };
    for (number, line) in (1..).zip(stdin().lines()) {
        let (line, claim) = (line?, format!("{source}:{number}"));
        let owner = claimed_by(&client, &line, &claim).await?;
        if owner == claim {
            println!("{line}");
        } else {
            eprintln!("{claim}: seen in {owner}");
        }
    }
    Ok(())
}
