//! What is asked of every store.

use std::path::Path;

use anyhow::Result;
use futures::future::BoxFuture;

use super::grouped::Grouped;
use super::{fjall, redb, sled, torc};
use crate::records::Pair;
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
        }
    }
}

/// A store that is open, to be used from many threads.
pub(super) trait Engine: Send + Sync {
    /// Stores a record; done when it is as durable as this store makes it.
    fn put(&self, pair: Pair) -> BoxFuture<'_, Result<()>>;

    /// Stores many records as one batch, as durably.
    fn put_many(&self, pairs: Vec<Pair>) -> Result<()>;

    /// The length of a key's value.
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;

    /// Closes in order.
    fn close(self: Box<Self>) -> Result<()>;
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
        Subject::Fjall => Box::new(Grouped::start(fjall::Fjall::open(dir)?)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records;
    use clap::ValueEnum as _;

    #[test]
    fn every_store_finds_what_was_put_before_and_after_it_was_closed() {
        for subject in Subject::value_variants() {
            let dir = tempfile::tempdir().unwrap();
            let store = open(*subject, dir.path()).unwrap();
            futures::executor::block_on(store.put(records::pair(0))).unwrap();
            store
                .put_many((1..100).map(records::pair).collect())
                .unwrap();
            check(&*store, *subject);
            store.close().unwrap();
            let store = open(*subject, dir.path()).unwrap();
            check(&*store, *subject);
            store.close().unwrap();
        }
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
    }

    #[test]
    fn a_subject_is_called_the_same_on_the_command_line_and_in_reports() {
        for subject in Subject::value_variants() {
            let value = subject.to_possible_value().unwrap();
            assert_eq!(value.get_name(), subject.name());
        }
    }
}
