//! The lecture's Bloom join: of a large table only the rows travel that may have a partner in the small one.
//!
//! ```text
//! cargo run --release -p torc-sketch --example bloom_join -- SMALL LARGE
//! ```
//!
//! Both are files of lines, of which everything before the first tab is the key. Prints the join, "key, rest of SMALL, rest of LARGE" a
//! line with tabs between, in the order of LARGE; and to the standard error how many rows a filter of SMALL's keys spared. The join is exact: the
//! filter lets strangers through, and the join drops them.

use std::collections::HashMap;
use std::io::{Write as _, stderr, stdout};

use torc_record::{Digest, DigestKey, NamespaceId};
use torc_sketch::bloom::{BloomFilter, BloomShape, GrowingBloom};

type Failure = Box<dyn std::error::Error>;

/// In the service the key is a secret of the cluster.
const CLUSTER: DigestKey = DigestKey([7; 32]);

fn main() -> Result<(), Failure> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let [small, large] = files.as_slice() else {
        return Err("two files are needed: the small table and the large one".into());
    };
    let (small, large) = (read(small)?, read(large)?);

    // The site of the small table sends this.
    let filter = filter_of(&small)?.encode();

    // The site of the large table sends back these rows.
    let filter = BloomFilter::decode(&filter, torc_sketch::bloom::MAX_BITS)?;
    let sent: Vec<(&str, &str)> = rows(&large)
        .filter(|(key, _)| filter.may_contain(&digest(key)))
        .collect();

    let mut partners: HashMap<&str, Vec<&str>> = HashMap::new();
    for (key, rest) in rows(&small) {
        partners.entry(key).or_default().push(rest);
    }
    let (mut out, mut joined, mut strangers) = (stdout().lock(), 0, 0);
    for (key, rest) in &sent {
        let Some(partners) = partners.get(key) else {
            strangers += 1;
            continue;
        };
        for partner in partners {
            writeln!(out, "{key}\t{partner}\t{rest}")?;
            joined += 1;
        }
    }
    let all = rows(&large).count();
    writeln!(
        stderr(),
        "{} of {all} rows of the large table were sent, {strangers} of them in vain; {joined} rows in the join; a filter of {} bytes",
        sent.len(),
        filter.bytes()
    )?;
    Ok(())
}

/// A growing filter counts the different keys; a plain one of that size is sent.
fn filter_of(table: &str) -> Result<BloomFilter, Failure> {
    let mut keys = GrowingBloom::new(1_000, 0.001)?;
    rows(table).for_each(|(key, _)| _ = keys.insert(&digest(key)));
    let mut filter = BloomFilter::new(BloomShape::for_keys(keys.keys(), 0.01)?);
    rows(table).for_each(|(key, _)| _ = filter.insert(&digest(key)));
    Ok(filter)
}

fn digest(key: &str) -> Digest {
    Digest::of(&CLUSTER, NamespaceId::DEFAULT, key.as_bytes())
}

/// Key and rest of each row.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = table.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.split_once('\t').unwrap_or((line, "")))
}

fn read(file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}").into())
}
