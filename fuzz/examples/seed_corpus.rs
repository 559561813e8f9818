//! Writes the seed corpora: `cargo run --example seed_corpus`, in this directory.
//!
//! A seed is a valid encoding, so that the fuzzer begins behind the checks of the header. Few
//! and small: coverage is found by mutation, not by size.

use std::error::Error;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost::Message as _;
use torc_fuzz::{CALLS, append_of, bearer, digests, group_message};
use torc_group::testing::reencode;
use torc_index::paper::gigahash::{Encoding, GigaHash, Settings};
use torc_index::{Gate, Mphf};
use torc_proto::{ScanPosition, v1};
use torc_record::Digest;
use torc_ring::Token;
use torc_store::testing::{sample_keyless, sample_log, sample_numbered, sample_slice};
use torc_tls::{Authority, Identity, Key};

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

/// Commands as JSON, of all shapes; `BYTES` stands for 32 bytes.
const COMMANDS: &[&str] = &[
    r#"{"Found":{"cluster":"07070707070707070707070707070707","digest_key":BYTES,"partitions":16,"replicas":3,"positions":64,"members":[]}}"#,
    r#"{"Enrol":{"incarnation":"07070707070707070707070707070707","address":"a:1","peer_address":"a:2","http_address":"a:3","zone":"z","weight":100,"release":{"version":"1","levels":{"oldest":1,"newest":1}}}}"#,
    r#"{"Relocate":{"node":1,"address":"a:1","peer_address":"a:2","http_address":"a:3"}}"#,
    r#"{"Begin":{"kind":{"Replace":{"old":1,"new":2}},"based_on":3,"parallel":1,"planned":{"records":0,"bytes":0},"at_ms":1,"force":false}}"#,
    r#"{"Report":{"node":1,"reports":[{"partition":1,"reached":{"Copied":2},"moved":{"records":0,"bytes":0},"at_ms":1}]}}"#,
    r#"{"WriteOff":{"node":1,"at_ms":1}}"#,
    r#"{"CreateNamespace":{"name":"n","mode":"Linearizable","replicas":null}}"#,
    r#"{"ReserveGeneration":{"namespace":"n","merge":true,"at_ms":1}}"#,
    r#"{"ReserveNamespace":{"new":{"name":"n","mode":"Linearizable","replicas":null},"above":1,"replaces":true}}"#,
    r#"{"CreateBearerToken":{"id":"0000000000000007","token":{"name":"t","hash":BYTES,"grants":{"everywhere":1,"scopes":[]},"created_at_ms":1,"expires_at_ms":2,"join":null}}}"#,
    r#"{"Rotate":{"rotation":1,"to":"Issue"}}"#,
    r#"{"Once":{"request":1,"command":{"RollBack":{"namespace":"n"}}}}"#,
];

/// Writes messages of the topology group. The first byte names the call, as the target expects.
fn write_group() -> Result<(), Box<dyn Error>> {
    let vote = r#"{"leader_id":{"term":1,"node_id":1},"committed":false}"#;
    let membership = r#"{"configs":[[1,2]],"nodes":{"1":{"addr":"a:1"},"2":{"addr":"b:1"}}}"#;
    let entry = |payload: &str| {
        format!(
            r#"{{"log_id":{{"leader_id":{{"term":1,"node_id":1}},"index":2}},"payload":{payload}}}"#
        )
    };
    let snapshot = format!(
        r#"{{"vote":{vote},"meta":{{"last_log_id":null,"last_membership":{{"log_id":null,"membership":{membership}}},"snapshot_id":"1"}},"offset":0,"data":[1,2],"done":true}}"#
    );
    let ask = |ask: &str| format!(r#"{{"ask":{ask},"within_ms":250,"hops":1}}"#);
    let mut messages = vec![
        (1, "snapshot".to_owned(), group_message(snapshot.as_bytes())),
        (
            2,
            "vote".to_owned(),
            group_message(format!(r#"{{"vote":{vote},"last_log_id":null}}"#).as_bytes()),
        ),
        (
            3,
            "read-index".to_owned(),
            group_message(ask(r#""ReadIndex""#).as_bytes()),
        ),
    ];
    let membership = format!(r#"{{"Membership":{membership}}}"#);
    for (name, payload) in [("blank", r#""Blank""#), ("membership", &membership)] {
        let entry = entry(payload);
        write(
            "group",
            &format!("entry-{name}"),
            &[&[4], entry.as_bytes()].concat(),
        )?;
        messages.push((0, format!("append-{name}"), append_of(entry.as_bytes(), 2)));
    }
    let bytes = format!("{:?}", [7; 32]);
    for (number, command) in COMMANDS.iter().enumerate() {
        let command = command.replace("BYTES", &bytes);
        let entry = entry(&format!(r#"{{"Normal":{command}}}"#));
        messages.push((
            0,
            format!("append-{number}"),
            append_of(entry.as_bytes(), 1),
        ));
    }
    let retreat = r#"{"Retreat":{"node":1}}"#;
    for (name, depth) in [("commit", 0), ("deep", 40)] {
        let once = r#"{"Once":{"request":1,"command":"#.repeat(depth);
        let end = "}}".repeat(depth);
        let commit = ask(&format!(r#"{{"Commit":{once}{retreat}{end}}}"#));
        messages.push((3, name.to_owned(), group_message(commit.as_bytes())));
    }
    for (kind, name, json) in messages {
        if reencode(CALLS[usize::from(kind)], &json)?.is_none() {
            return Err(format!("{name} is no message of the topology group").into());
        }
        write("group", &name, &[&[kind], &json[..]].concat())?;
    }
    Ok(())
}

/// Writes what a stranger presents. The first byte names its kind, as the target expects.
fn write_identities() -> Result<(), Box<dyn Error>> {
    let token = format!("{}.{}", bearer().reveal(), "ab".repeat(32));
    for (name, text) in [
        ("node", "torc://any/node/7"),
        ("client", "torc://c1/client/bob@x/read+write+observe+admin"),
        ("bearer", &bearer().reveal()),
        ("pinned", &token),
        ("join", &format!("{token}@[::1]:7400")),
    ] {
        write("identity", name, &[&[3], text.as_bytes()].concat())?;
    }
    // Keys are random, so these are other ones each time.
    let authority = Authority::new()?;
    let client: Identity = "torc://any/client/bob/read".parse()?;
    let leaf = authority.issue(&client, &["localhost".into(), "::1".into()], 1)?;
    let request = Key::new()?.request()?;
    for (name, kind, pem) in [
        ("authority", 0, authority.certificate()),
        ("certificate", 0, &leaf.certificate),
        ("request", 1, &request),
    ] {
        let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = BASE64_STANDARD.decode(base64)?;
        write("identity", name, &[&[kind], &der[..]].concat())?;
        write(
            "identity",
            &format!("{name}-pem"),
            &[&[2], pem.as_bytes()].concat(),
        )?;
    }
    Ok(())
}

/// Writes values of headers.
fn write_headers() -> Result<(), Box<dyn Error>> {
    for (name, value) in [
        ("timeout", "250m"),
        ("longest-timeout", "99999999H"),
        (
            "trace",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        (
            "later-trace",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ),
        ("bearer", &format!("Bearer {}", bearer().reveal())),
        ("cluster", "07070707070707070707070707070707"),
    ] {
        write("headers", name, value.as_bytes())?;
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
    write_group()?;
    write_identities()?;
    write_headers()?;
    write_messages()
}
