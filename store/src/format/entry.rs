//! The entries of a log batch.

use torc_record::{Ballot, HybridTime, ReplicaFacts};
use torc_ring::Partition;

use super::{BALLOT_LEN, ballot_at, ballot_bytes, u32_at, u64_at};
use crate::packed::Packed;
use crate::partition::{META_LEN, facts_at, facts_bytes};

const DROP: u8 = 16;
const PURGE: u8 = 17;
const META: u8 = 18;
const CEILING: u8 = 19;
const PARTITION_LEN: usize = 5;
const PURGE_LEN: usize = PARTITION_LEN + BALLOT_LEN;
const FACTS_LEN: usize = PARTITION_LEN + META_LEN;
const CEILING_LEN: usize = 9;

/// An entry of the log; its number is its position in the log.
///
/// The first byte is the kind: 1 to 3 are packed records. The partition's number follows in four
/// bytes, except for the ceiling.
///
/// | kind | | then |
/// |---|---|---|
/// | 16 | drop | |
/// | 17 | purge | watermark: epoch (8), hybrid time (8), node slot (2) |
/// | 18 | facts | [`ReplicaFacts`], 60 bytes |
/// | 19 | ceiling of the node's clock | hybrid time (8), no partition |
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Record(Packed),
    /// Removes everything that the partition held before this entry.
    Drop(Partition),
    /// Removes what a collection up to this watermark drops.
    Purge(Partition, Ballot),
    /// Sets the facts of the partition.
    Meta(Partition, ReplicaFacts),
    /// The node's clock stays below this time, or below a higher one of an earlier entry.
    Ceiling(HybridTime),
}

impl Entry {
    /// Reads the entry at the start of `bytes` and advances past it.
    ///
    /// # Errors
    /// The problem with the bytes.
    pub(crate) fn take(bytes: &mut &[u8]) -> Result<Self, &'static str> {
        let (len, what) = match bytes.first() {
            Some(&DROP) => (PARTITION_LEN, "a dropped partition is cut off"),
            Some(&PURGE) => (PURGE_LEN, "a purge is cut off"),
            Some(&META) => (FACTS_LEN, "the facts of a partition are cut off"),
            Some(&CEILING) => (CEILING_LEN, "a ceiling is cut off"),
            _ => {
                let packed = Packed::parse(bytes)?;
                *bytes = &bytes[packed.bytes().len()..];
                return Ok(Self::Record(packed));
            }
        };
        let (entry, rest) = bytes.split_at_checked(len).ok_or(what)?;
        *bytes = rest;
        Ok(match entry[0] {
            DROP => Self::Drop(Partition(u32_at(entry, 1))),
            PURGE => Self::Purge(Partition(u32_at(entry, 1)), ballot_at(entry, PARTITION_LEN)),
            META => {
                let meta = facts_at(entry, PARTITION_LEN);
                Self::Meta(Partition(u32_at(entry, 1)), meta)
            }
            _ => Self::Ceiling(HybridTime(u64_at(entry, 1))),
        })
    }

    /// The partition that the entry names; a record's partition follows from its digest.
    pub(crate) fn partition(&self) -> Option<Partition> {
        match self {
            Self::Drop(partition) | Self::Purge(partition, _) | Self::Meta(partition, _) => {
                Some(*partition)
            }
            Self::Record(_) | Self::Ceiling(_) => None,
        }
    }

    pub(crate) fn put_drop(partition: Partition, out: &mut Vec<u8>) {
        put_partition(DROP, partition, out);
    }

    pub(crate) fn put_purge(partition: Partition, watermark: Ballot, out: &mut Vec<u8>) {
        put_partition(PURGE, partition, out);
        out.extend_from_slice(&ballot_bytes(watermark));
    }

    pub(crate) fn put_meta(partition: Partition, meta: &ReplicaFacts, out: &mut Vec<u8>) {
        put_partition(META, partition, out);
        out.extend_from_slice(&facts_bytes(meta));
    }

    pub(crate) fn put_ceiling(time: HybridTime, out: &mut Vec<u8>) {
        out.push(CEILING);
        out.extend_from_slice(&time.0.to_le_bytes());
    }
}

fn put_partition(kind: u8, partition: Partition, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&partition.0.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::tests::{record, unhex, value};
    use crate::partition::tests::meta;

    fn all() -> Vec<Entry> {
        vec![
            Entry::Record(Packed::of(&record(b"k", 1, value(b"v"))).unwrap()),
            Entry::Drop(Partition(0x0201)),
            Entry::Purge(Partition(3), meta().collected),
            Entry::Meta(Partition(4), meta()),
            Entry::Ceiling(HybridTime(0x0807)),
        ]
    }

    fn put(entry: &Entry) -> Vec<u8> {
        let mut out = Vec::new();
        match entry {
            Entry::Record(packed) => out.extend_from_slice(packed.bytes()),
            Entry::Drop(partition) => Entry::put_drop(*partition, &mut out),
            Entry::Purge(partition, upto) => Entry::put_purge(*partition, *upto, &mut out),
            Entry::Meta(partition, meta) => Entry::put_meta(*partition, meta, &mut out),
            Entry::Ceiling(time) => Entry::put_ceiling(*time, &mut out),
        }
        out
    }

    #[test]
    fn entries_are_taken_one_after_the_other_and_no_cut_one_is() {
        let bytes: Vec<u8> = all().iter().flat_map(put).collect();
        let mut rest = &bytes[..];
        for entry in all() {
            assert_eq!(Entry::take(&mut rest), Ok(entry));
        }
        assert!(rest.is_empty());
        for entry in all() {
            let bytes = put(&entry);
            for len in 0..bytes.len() {
                assert!(
                    Entry::take(&mut &bytes[..len]).is_err(),
                    "{entry:?} cut to {len}"
                );
            }
        }
    }

    #[test]
    fn the_bytes_of_entries_do_not_change() {
        assert_eq!(put(&all()[1]), [16, 1, 2, 0, 0]);
        let golden = "11 03000000 0400000000000000 0500000000000000 0600";
        assert_eq!(put(&all()[2]), unhex(golden));
        let facts = put(&all()[3]);
        assert_eq!((facts.len(), &facts[..5]), (65, &[18, 4, 0, 0, 0][..]));
        assert_eq!(put(&all()[4]), unhex("13 0708000000000000"));
    }
}
