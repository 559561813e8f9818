//! The stores that are measured.

use std::path::Path;

use anyhow::Result;
#[cfg(not(all(feature = "peers", feature = "rocksdb")))]
use anyhow::bail;

use super::engine::Engine;
use super::grouped::Grouped;
use super::{redb, sled, torc};
use crate::options::NOT_BUILT_IN;
use crate::report::TORC;

/// The stores that are measured, ours first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    Torc,
    #[value(name = "sled")]
    Sled,
    #[value(name = "sled+fdatasync")]
    SledSynced,
    Redb,
    Fjall,
    Lmdb,
    #[value(name = "rocksdb")]
    RocksDb,
}

impl Subject {
    /// Its name in reports, and on the command line of a child.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Torc => TORC,
            Self::Sled => "sled",
            Self::SledSynced => "sled+fdatasync",
            Self::Redb => "redb",
            Self::Fjall => "fjall",
            Self::Lmdb => "lmdb",
            Self::RocksDb => "rocksdb",
        }
    }

    /// Whether this program can measure it.
    pub(super) const fn is_built_in(self) -> bool {
        match self {
            Self::Torc | Self::Sled | Self::SledSynced | Self::Redb => true,
            Self::Fjall | Self::Lmdb => cfg!(feature = "peers"),
            Self::RocksDb => cfg!(feature = "rocksdb"),
        }
    }

    /// Disk space per record of the suite, at most and during the load, bytes. Checked before a
    /// run, so that it does not fill the disk.
    pub(super) const fn disk_bytes_per_record(self) -> u64 {
        match self {
            Self::Torc => 450,
            Self::Sled | Self::SledSynced => 750,
            Self::Redb | Self::Fjall | Self::Lmdb | Self::RocksDb => 400,
        }
    }
}

/// Opens a store in a directory, with its usual settings.
pub(super) fn open(subject: Subject, dir: &Path) -> Result<Box<dyn Engine>> {
    Ok(match subject {
        Subject::Torc => Box::new(torc::Torc::open(dir)?),
        Subject::Sled => Box::new(Grouped::start(sled::Sled::open(dir, sled::Flush::Own)?)?),
        Subject::SledSynced => Box::new(Grouped::start(sled::Sled::open(
            dir,
            sled::Flush::Fdatasync,
        )?)?),
        Subject::Redb => Box::new(Grouped::start(redb::Redb::open(dir)?)?),
        #[cfg(feature = "peers")]
        Subject::Fjall => Box::new(Grouped::start(super::fjall::Fjall::open(dir)?)?),
        #[cfg(feature = "peers")]
        Subject::Lmdb => Box::new(Grouped::start(super::lmdb::Lmdb::open(dir)?)?),
        #[cfg(feature = "rocksdb")]
        Subject::RocksDb => Box::new(Grouped::start(super::rocksdb::RocksDb::open(dir)?)?),
        #[cfg(not(all(feature = "peers", feature = "rocksdb")))]
        _ => bail!("{}: {NOT_BUILT_IN}", subject.name()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records;
    use clap::ValueEnum as _;

    #[test]
    fn every_store_finds_what_was_put_before_and_after_it_was_closed() {
        for subject in built_in() {
            let dir = tempfile::tempdir().unwrap();
            let store = open(subject, dir.path()).unwrap();
            futures::executor::block_on(store.put(records::pair(0))).unwrap();
            store
                .put_many((1..100).map(records::pair).collect())
                .unwrap();
            check(&*store, subject);
            store.settle().unwrap();
            check(&*store, subject);
            store.close().unwrap();
            let store = open(subject, dir.path()).unwrap();
            check(&*store, subject);
            store.close().unwrap();
        }
    }

    fn built_in() -> impl Iterator<Item = Subject> {
        let all = Subject::value_variants().iter().copied();
        all.filter(|subject| subject.is_built_in())
    }

    fn check(store: &dyn Engine, subject: Subject) {
        for index in 0..100 {
            let pair = records::pair(index);
            assert_eq!(
                store.get(&pair.key).unwrap(),
                Some(pair.value.len()),
                "{subject:?}"
            );
        }
        assert_eq!(store.get(&records::key(100)).unwrap(), None, "{subject:?}");
        let keys: Vec<_> = (50..150).map(records::key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        assert_eq!(store.get_many(&keys).unwrap(), 50, "{subject:?}");
    }

    #[test]
    fn a_subject_is_called_the_same_on_the_command_line_and_in_reports() {
        for subject in Subject::value_variants() {
            let value = subject.to_possible_value().unwrap();
            assert_eq!(value.get_name(), subject.name());
        }
    }
}
