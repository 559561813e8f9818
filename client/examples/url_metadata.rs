//! A store of a crawler's metadata about URLs.
//!
//! ```text
//! cargo run -p torc-client --example url_metadata -- store      < lines of "URL, status, bytes, title" with tabs between
//! cargo run -p torc-client --example url_metadata -- show URL...
//! cargo run -p torc-client --example url_metadata -- search TEXT
//! ```
//!
//! Shows batches, in which each item succeeds or fails on its own, and a scan that searches values on the nodes. Put
//! `--endpoint URL` before a command to name a node of the cluster.
#![expect(clippy::print_stdout, reason = "the output of a program")]

mod common;

use std::io::stdin;

use common::Failure;
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use torc_client::{Client, ScanOptions};

/// Lines stored per call. The library splits the batch by node.
const AT_A_TIME: usize = 500;

#[derive(Debug, Serialize, Deserialize)]
struct Page {
    status: u16,
    bytes: u64,
    title: String,
}

/// Parses a URL and its page.
fn parse(line: &str) -> Result<(String, Vec<u8>), Failure> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [url, status, bytes, title] = columns[..] else {
        return Err(format!("not four columns: {line}").into());
    };
    let page = Page {
        status: status.parse()?,
        bytes: bytes.parse()?,
        title: title.to_owned(),
    };
    Ok((url.to_owned(), serde_json::to_vec(&page)?))
}

async fn store(client: &Client) -> Result<(), Failure> {
    let lines: Vec<String> = stdin().lines().collect::<Result<_, _>>()?;
    for some in lines.chunks(AT_A_TIME) {
        let records: Vec<_> = some
            .iter()
            .map(|line| parse(line))
            .collect::<Result<_, _>>()?;
        for (outcome, line) in client.batch_put(records).await?.into_iter().zip(some) {
            // Storing the same page again is harmless, so a second run may repeat a row in doubt.
            outcome.map_err(|error| format!("{line}: {error}"))?;
        }
    }
    println!("{} pages stored", lines.len());
    Ok(())
}

async fn show(client: &Client, urls: &[String]) -> Result<(), Failure> {
    let found = client.batch_get(urls.to_vec()).await?;
    for (url, found) in urls.iter().zip(found) {
        match found? {
            Some(value) => {
                let page: Page = serde_json::from_slice(&value.value)?;
                println!(
                    "{url}: {}, {} bytes, {}",
                    page.status, page.bytes, page.title
                );
            }
            None => println!("{url}: not known"),
        }
    }
    Ok(())
}

async fn search(client: &Client, text: &str) -> Result<(), Failure> {
    let options = ScanOptions {
        contains: vec![text.to_owned().into()],
        ..ScanOptions::default()
    };
    let found = client.scan(options).try_collect::<Vec<_>>().await?;
    for entry in &found {
        println!("{}", String::from_utf8_lossy(&entry.key));
    }
    println!("{} pages", found.len());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (client, arguments) = common::connect().await?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["store"] => store(&client).await,
        ["show", ..] => show(&client, &arguments[1..]).await,
        ["search", text] => search(&client, text).await,
        _ => Err("use store, show URL... or search TEXT".into()),
    }
}
