//! The read path of a feature store: the features of all candidates of a request, within its time.
//!
//! ```text
//! cargo run -p torc-client --example feature_store -- write            < lines of "item f1 f2 f3"
//! cargo run -p torc-client --example feature_store -- rank MS ITEM...
//! ```
//!
//! A ranking service has a few milliseconds. It requests all items in one batch with a deadline,
//! uses the answers that arrive, and ranks an item that is new, or whose node does not answer in
//! time, by the average. Only a read may be abandoned like this, because it changes nothing. Before
//! the other arguments, `--endpoint URL` names a node of the cluster.
#![allow(clippy::cast_precision_loss, reason = "small numbers and figures")]
#![expect(clippy::print_stdout, reason = "the output of a program")]

mod common;

use std::io::stdin;
use std::time::Duration;

use common::Failure;
use torc_client::{Client, ErrorKind};

const FEATURES: usize = 3;
type Features = [f32; FEATURES];
/// The weights of a trained model; hand-written here.
const WEIGHTS: Features = [0.5, 0.3, 0.2];

/// Twelve bytes: four per feature, little-endian.
fn encode(features: &Features) -> Vec<u8> {
    features.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Option<Features> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let features: Features = numbers
        .try_into()
        .ok()
        .map(|all: [[u8; 4]; FEATURES]| all.map(f32::from_le_bytes))?;
    rest.is_empty().then_some(features)
}

fn parse(line: &str) -> Result<(String, Vec<u8>), Failure> {
    let mut words = line.split_whitespace();
    let item = words.next().ok_or("an empty line")?;
    let numbers: Vec<f32> = words.map(str::parse).collect::<Result<_, _>>()?;
    let features: Features = numbers
        .try_into()
        .map_err(|_| format!("not {FEATURES} features: {line}"))?;
    Ok((item.to_owned(), encode(&features)))
}

async fn write(client: &Client) -> Result<(), Failure> {
    let lines: Vec<String> = stdin().lines().collect::<Result<_, _>>()?;
    let records: Vec<_> = lines
        .iter()
        .map(|line| parse(line))
        .collect::<Result<_, _>>()?;
    for outcome in client.batch_put(records).await? {
        outcome?;
    }
    println!("{} items written", lines.len());
    Ok(())
}

/// The features of each item, if they arrived in time.
async fn fetch(client: &Client, items: &[String]) -> Result<Vec<Option<Features>>, Failure> {
    let late = |kind| matches!(kind, ErrorKind::Deadline | ErrorKind::Unavailable);
    let found = match client.batch_get(items.to_vec()).await {
        Ok(found) => found,
        Err(error) if late(error.kind()) => return Ok(vec![None; items.len()]),
        Err(error) => return Err(error.into()),
    };
    let features = found.into_iter().map(|found| match found {
        Ok(value) => Ok(value.and_then(|value| decode(&value.value))),
        Err(error) if late(error.kind()) => Ok(None),
        Err(error) => Err(error.into()),
    });
    features.collect()
}

async fn rank(client: &Client, items: &[String]) -> Result<(), Failure> {
    let features = fetch(client, items).await?;
    let score = |features: &Features| -> f32 {
        let products = features.iter().zip(WEIGHTS).map(|(it, weight)| it * weight);
        products.sum()
    };
    let known: Vec<f32> = features.iter().flatten().map(score).collect();
    let average = known.iter().sum::<f32>() / known.len().max(1) as f32;
    let scores = features.iter().map(|it| it.as_ref().map_or(average, score));
    let mut ranked: Vec<(f32, &String)> = scores.zip(items).collect();
    ranked.sort_by(|left, right| right.0.total_cmp(&left.0));
    for (score, item) in ranked {
        println!("{item} {score:.3}");
    }
    println!("{} of {} by their features", known.len(), items.len());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (client, arguments) = common::connect().await?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write"] => write(&client).await,
        ["rank", ms, _, ..] => {
            let deadline = Duration::from_millis(ms.parse()?);
            // Fetches the topology in advance, so that no request pays for it.
            client.topology().await?;
            rank(&client.with_deadline(deadline), &arguments[2..]).await
        }
        _ => Err("use write, or rank MS ITEM...".into()),
    }
}
