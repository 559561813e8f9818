//! Writes the seed corpora: `cargo run --example seed_corpus`, in this directory.
//!
//! A seed is a valid encoding, so that the fuzzer begins behind the checks of the header. Few
//! and small: coverage is found by mutation, not by size.

use std::error::Error;
use std::fs;
use std::path::Path;

use torc_fuzz::digests;
use torc_index::gigahash::{Encoding, GigaHash, Settings};
use torc_index::{Gate, Mphf};
use torc_record::Digest;
use torc_store::testing::{sample_log, sample_slice};

fn sorted(keys: usize) -> Vec<Digest> {
    let mut digests: Vec<_> = digests(keys as u64).take(keys).collect();
    digests.sort_unstable();
    digests
}

fn write(target: &str, name: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(name), bytes)?;
    Ok(())
}

/// One of each message between replicas, in hexadecimal, as the tests of the wire format have it.
const MESSAGES: &str = include_str!("../../proto/src/link/golden.txt");

/// Batches of one message.
fn write_messages() -> Result<(), Box<dyn Error>> {
    for line in MESSAGES.lines() {
        let (kind, hex) = line.split_once(' ').ok_or("a kind and its bytes")?;
        let digits = |at| u8::from_str_radix(hex.get(at..at + 2).unwrap_or(""), 16);
        let message: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect::<Result<_, _>>()?;
        // Shorter than 128 bytes: the varint of its length is one byte.
        let length = u8::try_from(message.len())?;
        write("link", kind, &[&[length], &message[..]].concat())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    for keys in [0, 1, 2, 24, 300] {
        let keys = sorted(keys);
        let name = format!("{}-keys", keys.len());
        write("mphf_view", &name, &Mphf::build(&keys, 1)?)?;
        write("gate_view", &name, &Gate::build(&keys, 0.01)?)?;
        let encodings = [
            ("bit-vector", Encoding::BitVector),
            ("huffman", Encoding::Huffman),
            ("both", Encoding::BitVectorHuffman),
        ];
        for (encoded, encoding) in encodings {
            let settings = Settings {
                encoding,
                ..Settings::default()
            };
            let bytes = GigaHash::build(&keys, settings)?;
            write("gigahash_view", &format!("{name}-{encoded}"), &bytes)?;
        }
    }
    for keys in [1, 2, 5, 40] {
        write("slice", &format!("{keys}-keys"), &sample_slice(keys)?)?;
    }
    for batches in 0..4 {
        write("log", &format!("{batches}-batches"), &sample_log(batches))?;
    }
    write_messages()
}
