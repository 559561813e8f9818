//! The peer redb 2: one table, one transaction per batch, committed with its immediate durability.
//! Gets share a read transaction, which is renewed after a commit: the fastest way that redb
//! offers. Its cache is 1 GiB, its default.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use anyhow::Result;
use redb::{Database, Durability, ReadOnlyTable, TableDefinition};

use super::engine::touched;
use super::grouped::Peer;
use crate::records::Pair;

type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

pub(super) struct Redb {
    db: Database,
    reading: RwLock<Option<Table>>,
}

impl Redb {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let db = Database::create(dir.join("records.redb"))?;
        let begun = db.begin_write()?;
        begun.open_table(TABLE)?;
        begun.commit()?;
        Ok(Self {
            db,
            reading: RwLock::new(None),
        })
    }

    fn begin_reading(&self) -> Result<()> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        *self.reading.write().unwrap_or_else(PoisonError::into_inner) = Some(table);
        Ok(())
    }
}

fn len_of(table: &Table, key: &[u8]) -> Result<Option<usize>> {
    Ok(table.get(key)?.map(|value| touched(value.value())))
}

impl Peer for Redb {
    fn commit(&self, batch: &[Pair]) -> Result<()> {
        // Pages that a reader holds cannot be reused.
        *self.reading.write().unwrap_or_else(PoisonError::into_inner) = None;
        let mut begun = self.db.begin_write()?;
        begun.set_durability(Durability::Immediate);
        {
            let mut table = begun.open_table(TABLE)?;
            for pair in batch {
                table.insert(&*pair.key, &*pair.value)?;
            }
        }
        Ok(begun.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        loop {
            if let Some(table) = &*self.reading.read().unwrap_or_else(PoisonError::into_inner) {
                return len_of(table, key);
            }
            self.begin_reading()?;
        }
    }
}
