//! Writes the seed corpora: `cargo run --example seed_corpus`, in this directory.
//!
//! A seed is a valid encoding, so that the fuzzer begins behind the checks of the header. Few
//! and small: coverage is found by mutation, not by size.

use std::error::Error;
use std::fs;
use std::path::Path;

use prost::Message as _;
use torc_fuzz::digests;
use torc_index::paper::gigahash::{Encoding, GigaHash, Settings};
use torc_index::{Gate, Mphf};
use torc_proto::{ScanPosition, v1};
use torc_record::Digest;
use torc_ring::Token;
use torc_store::testing::{sample_keyless, sample_log, sample_numbered, sample_slice};

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
        let message: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(digits)
            .collect::<Result<_, _>>()?;
        // Shorter than 128 bytes: the varint of its length is one byte.
        let length = u8::try_from(message.len())?;
        write("link", kind, &[&[length], &message[..]].concat())?;
    }
    Ok(())
}

/// Requests of clients; the first byte says which, as in the target.
fn write_requests() -> Result<(), Box<dyn Error>> {
    let get = v1::GetRequest {
        key: "k".into(),
        ..v1::GetRequest::default()
    };
    let put = v1::PutRequest {
        key: "k".into(),
        value: "v".into(),
        ..v1::PutRequest::default()
    };
    let after = ScanPosition::At(Token(7)).to_bytes();
    let scan = v1::ScanRequest {
        after,
        ..v1::ScanRequest::default()
    };
    let gets = v1::BatchGetRequest {
        items: vec![get.clone(); 3],
        ..v1::BatchGetRequest::default()
    };
    let puts = v1::BatchPutRequest {
        items: vec![put; 3],
        ..v1::BatchPutRequest::default()
    };
    for (kind, name, message) in [
        (0, "batch-get", gets.encode_to_vec()),
        (1, "batch-put", puts.encode_to_vec()),
        (8, "get", get.encode_to_vec()),
        (9, "scan", scan.encode_to_vec()),
    ] {
        write("request", name, &[&[kind], &message[..]].concat())?;
    }
    for (name, bytes) in [
        ("ping", "PING\r\n"),
        ("hello", "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"),
        (
            "set",
            "*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nEX\r\n$2\r\n10\r\n",
        ),
        (
            "scan",
            "*6\r\n$4\r\nSCAN\r\n$1\r\n0\r\n$5\r\nMATCH\r\n$2\r\nk*\r\n$5\r\nCOUNT\r\n$1\r\n9\r\n",
        ),
        ("two", "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
    ] {
        write("resp", name, bytes.as_bytes())?;
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
        write(
            "slice",
            &format!("{keys}-numbered"),
            &sample_numbered(keys)?,
        )?;
        write(
            "slice",
            &format!("{keys}-keyless"),
            &sample_keyless(keys, 3)?,
        )?;
    }
    for batches in 0..4 {
        write("log", &format!("{batches}-batches"), &sample_log(batches))?;
    }
    write_requests()?;
    write_messages()
}
