//! The lecture's Chrome: a client decides by itself that a URL is harmless, and asks the server about the few others.
//!
//! ```text
//! cargo run --release -p torc-sketch --example safe_browsing -- LIST  < urls
//! ```
//!
//! LIST is a file of malicious URLs, one a line, that the server has; the client has a Bloom filter of them. Prints each URL of the
//! standard input with "harmless" or "malicious"; and to the standard error how often the server was asked. No malicious URL is called harmless, ever.

use std::collections::HashSet;
use std::io::{BufRead as _, Write as _, stderr, stdin, stdout};

use torc_record::{Digest, DigestKey, NamespaceId};
use torc_sketch::bloom::{BloomFilter, BloomShape, MAX_BITS};

type Failure = Box<dyn std::error::Error>;

/// Known to server and clients.
const CLUSTER: DigestKey = DigestKey([7; 32]);
/// Of harmless URLs the server is asked about this share.
const RATE: f64 = 0.01;

/// Has the list.
struct Server {
    malicious: HashSet<Digest>,
    asked: u64,
}

impl Server {
    fn of(list: &str) -> Self {
        let urls = list.lines().filter(|line| !line.is_empty());
        Self {
            malicious: urls.map(|url| digest(url.as_bytes())).collect(),
            asked: 0,
        }
    }

    /// What clients download.
    fn filter(&self) -> Result<Vec<u8>, Failure> {
        let shape = BloomShape::for_keys(self.malicious.len() as u64, RATE)?;
        let mut filter = BloomFilter::new(shape);
        self.malicious.iter().for_each(|url| _ = filter.insert(url));
        Ok(filter.encode())
    }

    fn is_malicious(&mut self, url: &Digest) -> bool {
        self.asked += 1;
        self.malicious.contains(url)
    }
}

fn main() -> Result<(), Failure> {
    let list = std::env::args()
        .nth(1)
        .ok_or("a file of malicious URLs is needed")?;
    let mut server = Server::of(&read(&list)?);
    let downloaded = server.filter()?;
    let client = BloomFilter::decode(&downloaded, MAX_BITS)?;
    let (mut out, mut urls, mut found) = (stdout().lock(), 0_u64, 0_u64);
    for line in stdin().lock().split(b'\n') {
        let url = line?;
        let digest = digest(&url);
        let is_malicious = client.may_contain(&digest) && server.is_malicious(&digest);
        (urls, found) = (urls + 1, found + u64::from(is_malicious));
        let verdict = if is_malicious {
            "malicious"
        } else {
            "harmless"
        };
        writeln!(out, "{verdict}\t{}", String::from_utf8_lossy(&url))?;
    }
    writeln!(
        stderr(),
        "{urls} URLs, {found} malicious; the server was asked {} times; the client holds {} bytes for a list of {}",
        server.asked,
        downloaded.len(),
        server.malicious.len()
    )?;
    Ok(())
}

fn digest(url: &[u8]) -> Digest {
    Digest::of(&CLUSTER, NamespaceId::DEFAULT, url)
}

fn read(file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}").into())
}
