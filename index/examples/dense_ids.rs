//! The paper's application: a web graph's URLs to dense ids, which are rows and columns of its adjacency matrix; and `PageRank` on them.
//!
//! ```text
//! cargo run --release -p torc-index --example dense_ids -- [--edges | --ids]  < links
//! ```
//!
//! Reads links, "from, to" a line with a tab or blanks between. Without a flag, prints the ten pages with the highest `PageRank`. `--edges` prints
//! each link as two ids; `--ids` prints the table back, id and URL. Ids are 0 to n - 1, without gaps, and the same for the same set of URLs.

#![allow(clippy::cast_precision_loss, reason = "small numbers and figures")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _, stdin, stdout};

use torc_index::KeylessSet;
use torc_record::{Digest, DigestKey, NamespaceId};

type Failure = Box<dyn std::error::Error>;

/// In the service the key is a secret of the cluster. The ids depend on it.
const CLUSTER: DigestKey = DigestKey([7; 32]);
/// The usual share of surfers who follow a link.
const DAMPING: f64 = 0.85;

/// URLs by id, and links between ids.
struct Graph<'a> {
    urls: Vec<&'a str>,
    links: Vec<(usize, usize)>,
}

impl<'a> Graph<'a> {
    fn of(text: &'a str) -> Result<Self, Failure> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let links: Vec<(&str, &str)> = lines.map(link).collect::<Result<_, _>>()?;
        let both = links.iter().flat_map(|(from, to)| [*from, *to]);
        let urls: BTreeMap<Digest, &str> = both.map(|url| (digest(url), url)).collect();
        let digests: Vec<Digest> = urls.keys().copied().collect();

        // 8 bits more than the function alone, so that a URL that is not there is noticed.
        let bytes = KeylessSet::build(&digests, 8, 1)?;
        let ids = KeylessSet::view(&bytes)?;
        let id = |url: &str| ids.find(&digest(url)).ok_or("no such URL");
        let mut by_id = vec![""; ids.len()];
        for url in urls.values() {
            by_id[id(url)?] = url;
        }
        let links = links.iter().map(|(from, to)| Ok((id(from)?, id(to)?)));
        Ok(Self {
            links: links.collect::<Result<_, Failure>>()?,
            urls: by_id,
        })
    }

    /// A hundred steps, which leave 0.85^100 = 9e-8 of the error. A page without links leads anywhere.
    fn page_rank(&self) -> Vec<f64> {
        let pages = self.urls.len() as f64;
        let mut degree = vec![0_u32; self.urls.len()];
        self.links.iter().for_each(|(from, _)| degree[*from] += 1);
        let mut rank = vec![1.0 / pages; self.urls.len()];
        for _ in 0..100 {
            let lost = rank.iter().zip(&degree).filter(|(_, degree)| **degree == 0);
            let lost: f64 = lost.map(|(rank, _)| rank).sum();
            let base = (1.0 - DAMPING + DAMPING * lost) / pages;
            let mut next = vec![base; self.urls.len()];
            for (from, to) in &self.links {
                next[*to] += DAMPING * rank[*from] / f64::from(degree[*from]);
            }
            rank = next;
        }
        rank
    }
}

fn link(line: &str) -> Result<(&str, &str), Failure> {
    let mut urls = line.split_whitespace();
    match (urls.next(), urls.next(), urls.next()) {
        (Some(from), Some(to), None) => Ok((from, to)),
        _ => Err(format!("no link: {line:?}").into()),
    }
}

fn digest(url: &str) -> Digest {
    Digest::of(&CLUSTER, NamespaceId::DEFAULT, url.as_bytes())
}

fn main() -> Result<(), Failure> {
    let mut text = String::new();
    stdin().lock().read_to_string(&mut text)?;
    let graph = Graph::of(&text)?;
    let mut out = stdout().lock();
    match std::env::args().nth(1).as_deref() {
        Some("--edges") => {
            for (from, to) in &graph.links {
                writeln!(out, "{from} {to}")?;
            }
        }
        Some("--ids") => {
            for (id, url) in graph.urls.iter().enumerate() {
                writeln!(out, "{id} {url}")?;
            }
        }
        None => {
            let ranks = graph.page_rank();
            let mut pages: Vec<(f64, &str)> = ranks.into_iter().zip(graph.urls).collect();
            pages.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
            for (rank, url) in pages.iter().take(10) {
                writeln!(out, "{rank:.4} {url}")?;
            }
        }
        Some(flag) => return Err(format!("what is {flag}?").into()),
    }
    Ok(())
}
