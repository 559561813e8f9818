//! One store on a disk that can crash.
//!
//! | command | does |
//! |---|---|
//! | `open`, `close` | opens the store and prints what it found; closes it |
//! | `put k=a 10`, `delete k 20` | a durable write of this version |
//! | `get k`, `trace k` | the record; where it was looked up |
//! | `drop k`, `purge k 20` | drops the partition of k; collects in it up to a version |
//! | `flush`, `compact` | runs now, and prints the report |
//! | `manifest`, `files` | the content of the manifest; all files except the log's |
//! | `stop before=rename MANIFEST` | the machine stops at the next such call, or after `after=2` more of them |
//! | `crash nothing`, `crash everything` | it stops now, if it has not; this much of the unsynced data survives |
//! | `flip MANIFEST 600`, `cut MANIFEST 80`, `remove MANIFEST` | damages a file: a bit, the end, the whole file |
//! | `forge 9` | adds an entry of this kind to the manifest, with correct checksums |
//! | `choose busy 5 5 6 100` | which slices of these lengths are compacted; `most=8` may stay |

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use goldenscript::{ArgumentConsumer, Command, Context, Runner};
use torc_record::{
    Ballot, Digest, Epoch, HybridTime, Key, NamespaceId, NodeSlot, Record, ReplicaBatch, State,
};
use torc_store::testing::{Call, CrashFs, Survives, WaitingStore, compacted};
use torc_store::{LogTail, Recovery, Store, Verdict};

use crate::common::{CLUSTER, DIR, apply, block_on, open, partition_of};
use crate::files::{self, count};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Default)]
pub(crate) struct World {
    fs: CrashFs,
    store: Option<Store>,
}

fn ballot(time: u64) -> Ballot {
    Ballot {
        epoch: Epoch(1),
        time: HybridTime(time),
        slot: NodeSlot(1),
    }
}

fn record(key: &str, time: u64, state: State) -> Result<Record> {
    let namespace = NamespaceId::DEFAULT;
    Ok(Record {
        namespace,
        digest: Digest::of(&CLUSTER, namespace, key.as_bytes()),
        key: Key::new(key.as_bytes().to_vec())?,
        ballot: ballot(time),
        origin: None,
        state,
    })
}

fn say_record(record: &Record) -> String {
    let key = String::from_utf8_lossy(record.key.as_bytes());
    let what = match &record.state {
        State::Tombstone => format!("{key} deleted"),
        State::Value { value, .. } => format!("{key}={}", String::from_utf8_lossy(value)),
    };
    format!("{what} @{}", record.ballot.time.0)
}

fn say_recovery(recovery: &Recovery) -> String {
    if recovery.created {
        return "a new store".to_owned();
    }
    let tail = match recovery.log_tail {
        LogTail::Whole => "whole",
        LogTail::Torn { .. } => "torn, and was cut",
        LogTail::Damaged { .. } => "damaged, and was cut",
    };
    let replayed = recovery.log_entries_replayed;
    format!(
        "{}, {} in slices; {replayed} replayed from the log, which ends {tail}",
        count(recovery.records, "record"),
        recovery.sealed_records
    )
}

fn path(name: &str) -> PathBuf {
    let name = match name.split_once('-') {
        Some((kind, number)) if number.len() < 20 => format!("{kind}-{number:0>20}"),
        _ => name.to_owned(),
    };
    Path::new(DIR).join(name)
}

/// `segment-1` for a file with twenty digits.
fn short(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split_once('-') {
        Some((kind, number)) => format!("{kind}-{}", number.trim_start_matches('0')),
        None => name.into_owned(),
    }
}

fn next<'a>(args: &mut ArgumentConsumer<'a>, what: &str) -> Result<&'a str> {
    let next = args.next_pos();
    next.ok_or_else(|| format!("which {what}?").into())
}

fn survives(text: &str) -> Result<Survives> {
    match text {
        "nothing" => Ok(Survives::Nothing),
        "everything" => Ok(Survives::Everything),
        other => Err(format!("`{other}` survives no crash: write nothing or everything").into()),
    }
}

impl World {
    fn store(&self) -> Result<&Store> {
        self.store
            .as_ref()
            .ok_or_else(|| "the store is closed".into())
    }

    fn write(&self, args: &mut ArgumentConsumer<'_>) -> Result<String> {
        let (key, state) = match args.next_key() {
            Some((key, value)) => {
                let value = State::Value {
                    value: Bytes::from(value.to_owned()),
                    expires_at_ms: None,
                };
                (key, value)
            }
            None => (next(args, "key")?, State::Tombstone),
        };
        let record = record(key, next(args, "version")?.parse()?, state)?;
        block_on(self.store()?.write(record))?;
        Ok(String::new())
    }

    fn get(&self, key: &str) -> Result<String> {
        let at = record(key, 0, State::Tombstone)?;
        let found = self.store()?.get(at.locator())?;
        Ok(found.map_or_else(|| format!("{key} absent"), |it| say_record(&it)))
    }

    fn trace(&self, key: &str) -> Result<String> {
        let at = record(key, 0, State::Tombstone)?;
        let trace = self.store()?.trace(at.locator())?;
        let mut said = format!("{key} of partition {}:", partition_of(&at));
        match trace.memtable {
            Some((ballot, _)) => write!(said, " memtable has @{};", ballot.time.0)?,
            None => write!(said, " memtable has none;")?,
        }
        let mut slices: Vec<_> = trace.slices.iter().collect();
        slices.sort_by_key(|slice| (slice.segment, slice.row));
        for slice in slices {
            let verdict = match slice.verdict {
                Verdict::Holds {
                    ballot,
                    is_tombstone,
                } => {
                    let deleted = if is_tombstone { "a tombstone " } else { "" };
                    format!("holds {deleted}@{}", ballot.time.0)
                }
                Verdict::GateNegative | Verdict::GateFalsePositive => "has none".to_owned(),
                other => format!("{other:?}"),
            };
            write!(
                said,
                " segment-{} of {} {verdict};",
                slice.segment,
                count(slice.keys, "key")
            )?;
        }
        said.pop();
        Ok(said)
    }

    fn change(&self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<String> {
        let partition = partition_of(&record(next(args, "key")?, 0, State::Tombstone)?);
        let store = self.store()?;
        if name == "drop" {
            let report = block_on(store.drop_partition(partition))?;
            let records = count(report.records, "record");
            return Ok(format!("partition {partition}: {records} dropped"));
        }
        let batch = ReplicaBatch {
            purge: Some(ballot(next(args, "version")?.parse()?)),
            ..ReplicaBatch::default()
        };
        apply(store, partition, batch)?;
        Ok(String::new())
    }

    fn flush(&self) -> Result<String> {
        let report = block_on(self.store()?.flush())?;
        let (records, slices) = (
            count(report.records, "record"),
            count(report.slices, "slice"),
        );
        Ok(format!("{records} written to {slices}"))
    }

    fn compact(&self) -> Result<String> {
        let report = block_on(self.store()?.compact())?;
        let read = count(report.slices_read, "slice");
        let written = count(report.slices_written, "slice");
        let records = count(report.records, "record");
        Ok(format!("{read} read, {records} written to {written}"))
    }

    fn stop(&self, args: &mut ArgumentConsumer<'_>) -> Result<String> {
        let call = match args.take_key("before").ok_or("before which call?")? {
            "create" => Call::Create,
            "write" => Call::Write,
            "sync" => Call::Sync,
            "sync_dir" => Call::SyncDir,
            "rename" => Call::Rename,
            "remove" => Call::Remove,
            other => return Err(format!("`{other}` is no call that changes a disk").into()),
        };
        let after = args.take_key("after").map_or(Ok(0), str::parse)?;
        let file = match call {
            Call::SyncDir => PathBuf::from(DIR),
            _ => path(next(args, "file")?),
        };
        let (fs, file) = (self.fs.clone(), file.to_string_lossy().into_owned());
        self.fs.before(call, &file, after, move || fs.crash());
        Ok(String::new())
    }

    fn damage(&self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<String> {
        let path = path(next(args, "file")?);
        let mut bytes = self.fs.file(&path).ok_or("no such file")?;
        match name {
            "flip" => {
                let bit: usize = next(args, "bit")?.parse()?;
                *bytes.get_mut(bit / 8).ok_or("no such bit")? ^= 1 << (bit % 8);
            }
            "cut" => bytes.truncate(next(args, "length")?.parse()?),
            _ => {
                self.fs.remove_file(&path);
                return Ok(String::new());
            }
        }
        self.fs.put_file(&path, &bytes);
        Ok(String::new())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        let bytes = self.fs.file(&path("MANIFEST"));
        bytes.ok_or_else(|| "there is no manifest".into())
    }

    fn files(&self) -> String {
        let files = self.fs.files();
        let names = files.iter().map(|path| short(path));
        let names: Vec<_> = names.filter(|name| !name.starts_with("log-")).collect();
        names.join(" ")
    }

    fn choose(args: &mut ArgumentConsumer<'_>) -> Result<String> {
        let most = args.take_key("most").map_or(Ok(8), str::parse)?;
        let is_idle = next(args, "urgency")? == "idle";
        let mut lens = Vec::new();
        while let Some(len) = args.next_pos() {
            lens.push(len.parse::<u64>()?);
        }
        let many = compacted(&lens, most, is_idle);
        let words = |lens: &[u64]| {
            let words: Vec<_> = lens.iter().map(u64::to_string).collect();
            words.join(" ")
        };
        if many == 0 {
            return Ok(format!("{}: none", words(&lens)));
        }
        let (taken, left) = lens.split_at(many);
        Ok(format!("[{}] {}", words(taken), words(left))
            .trim_end()
            .to_owned())
    }
}

impl Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &Context) -> Result<String> {
        let mut args = command.consume_args();
        let args = &mut args;
        let said = match command.name.as_str() {
            "open" => {
                let (store, recovery) = open(&self.fs)?;
                self.store = Some(store);
                say_recovery(&recovery)
            }
            "close" => {
                block_on(self.store.take().ok_or("the store is closed")?.close())?;
                String::new()
            }
            "put" | "delete" => self.write(args)?,
            "get" => self.get(next(args, "key")?)?,
            "trace" => self.trace(next(args, "key")?)?,
            "drop" | "purge" => self.change(&command.name, args)?,
            "flush" => self.flush()?,
            "compact" => self.compact()?,
            "manifest" => files::say(&self.manifest()?),
            "files" => self.files(),
            "stop" => self.stop(args)?,
            "crash" => {
                self.fs.crash();
                self.store = None;
                self.fs = self.fs.image(survives(next(args, "part")?)?);
                String::new()
            }
            "flip" | "cut" | "remove" => self.damage(&command.name, args)?,
            "forge" => {
                let forged = files::forge(&self.manifest()?, next(args, "kind")?.parse()?);
                self.fs.put_file(&path("MANIFEST"), &forged);
                String::new()
            }
            "choose" => Self::choose(args)?,
            other => return Err(format!("`{other}` is no command").into()),
        };
        args.reject_next()?;
        Ok(said)
    }
}
