//! `kvctl put`: stores a value.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use torc_client::{Condition, PutOptions, Version};
use torc_record::MAX_VALUE_LEN;

use crate::args::{KeyArgs, QuorumArgs, positive_duration};
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;

/// Store a value under a key and print its version.
///
/// The value is VALUE, the content of a file or, with `-`, standard input, byte for
/// byte. At most 1 MiB.
///
/// Exit code 4: the condition did not hold, and nothing was stored. Exit code 5: the
/// outcome is unknown; check with `kvctl get` before you retry.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    /// The value, or `-` for standard input.
    #[arg(
        value_name = "VALUE",
        allow_negative_numbers = true,
        required_unless_present = "file",
        conflicts_with = "file"
    )]
    value: Option<OsString>,
    /// Read the value from this file.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Store only if the key has no value.
    #[arg(long, conflicts_with_all = ["if_version", "if_older_than"])]
    if_absent: bool,
    /// Store only if the key has this version, as `put` or `explain` prints it.
    #[arg(long, value_name = "VERSION", conflicts_with = "if_older_than")]
    if_version: Option<Version>,
    /// Store only if the key's version is below this one. A deleted or expired key has the version of
    /// its last write, until nodes collect it; then it has that of the collection.
    #[arg(long, value_name = "VERSION")]
    if_older_than: Option<Version>,
    /// Time until the value expires, for example 10m. Default: never.
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    quorum: QuorumArgs,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Stored {
    version: String,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let key = args.key.key()?;
    let value = value(&args)?;
    let options = PutOptions {
        condition: condition(args.if_absent, args.if_version)
            .or(args.if_older_than.map(Condition::IfOlderThan)),
        ttl: args.ttl,
        ..PutOptions::default()
    };
    let client = args.quorum.of(global.client()?);
    let version = client.put_with(key, value, options).await?;
    let version = version.to_string();
    if global.json() {
        out.json(&Stored { version })
    } else {
        out.line(version)
    }
}

/// The condition that two options name.
pub(super) fn condition(if_absent: bool, if_version: Option<Version>) -> Option<Condition> {
    match if_version {
        Some(version) => Some(Condition::IfVersion(version)),
        None => if_absent.then_some(Condition::IfAbsent),
    }
}

fn value(args: &Args) -> Result<Bytes, Failure> {
    match (&args.value, &args.file) {
        (_, Some(path)) => from_file(path),
        (Some(value), None) if value == "-" => {
            read(std::io::stdin().lock()).map_err(|source| unreadable("standard input", source))
        }
        (Some(value), None) => Ok(Bytes::copy_from_slice(value.as_encoded_bytes())),
        (None, None) => Err(Failure::Usage(
            "no value: pass VALUE, --file or -".to_owned(),
        )),
    }
}

fn from_file(path: &Path) -> Result<Bytes, Failure> {
    let failed = |source| unreadable(&path.display().to_string(), source);
    let file = std::fs::File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    if len > MAX_VALUE_LEN as u64 {
        let path = path.display();
        let why = format!(
            "{path} has {len} bytes, but a value has at most {MAX_VALUE_LEN}: nothing was stored"
        );
        return Err(Failure::OutOfBounds(why));
    }
    read(file).map_err(failed)
}

/// Reads everything, but at most one byte more than a value may have.
fn read(input: impl std::io::Read) -> std::io::Result<Bytes> {
    let mut value = Vec::new();
    input
        .take(MAX_VALUE_LEN as u64 + 1)
        .read_to_end(&mut value)?;
    Ok(Bytes::from(value))
}

fn unreadable(path: &str, source: std::io::Error) -> Failure {
    Failure::File {
        action: "read",
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_input_is_read_just_far_enough_to_be_refused() {
        let value = read(std::io::repeat(7)).unwrap();
        assert_eq!(value.len(), MAX_VALUE_LEN + 1);
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_with_its_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(20_000_000).unwrap();
        let failure = from_file(file.path()).unwrap_err();
        assert_eq!(failure.code() as u8, 6);
        assert!(
            failure.line().contains(" has 20000000 bytes, "),
            "{}",
            failure.line()
        );
    }

    #[test]
    fn a_file_is_taken_byte_for_byte_and_a_missing_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        std::fs::write(&path, b"\xff\n").unwrap();
        assert_eq!(from_file(&path).unwrap(), &b"\xff\n"[..]);
        let failure = from_file(&dir.path().join("absent")).unwrap_err();
        assert!(failure.line().contains("absent"));
        assert_eq!(failure.code() as u8, 2);
    }

    #[test]
    fn the_json_is_documented() {
        let version = "1.2.3".to_owned();
        crate::out::assert_documented(&Stored { version });
    }

    #[test]
    fn options_name_at_most_one_condition() {
        let version: Version = "1.2.3".parse().unwrap();
        assert_eq!(condition(false, None), None);
        assert_eq!(condition(true, None), Some(Condition::IfAbsent));
        assert_eq!(
            condition(false, Some(version)),
            Some(Condition::IfVersion(version))
        );
    }
}
