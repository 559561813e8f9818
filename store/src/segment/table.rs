//! The table of a segment.

use torc_record::Ballot;
use torc_ring::{Partition, Partitions};

use super::{SLICE_ALIGN, align};
use crate::format::{
    FRAME_LEN, Frame, FrameBuilder, FrameKind, HEADER_LEN, array, ballot_at, ballot_bytes, u32_at,
    u64_at,
};
use crate::slice::{Damage, Reader, SLICE_HEADER_LEN, SliceHeader};

const ROW_LEN: usize = 40;

/// The place of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) partition: Partition,
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// Also in the slice's header, which may be damaged.
    pub(crate) highest: Ballot,
    /// Also in the header: whether its records are of a generation.
    pub(crate) is_generation: bool,
}

pub(crate) fn encode(rows: &[Row], number: u64) -> Vec<u8> {
    let mut frame = FrameBuilder::default();
    for row in rows {
        frame.push(|body| {
            body.extend_from_slice(&row.partition.0.to_le_bytes());
            body.extend_from_slice(&[u8::from(row.is_generation), 0]);
            body.extend_from_slice(&ballot_bytes(row.highest));
            body.extend_from_slice(&row.at.to_le_bytes());
            body.extend_from_slice(&row.len.to_le_bytes());
        });
    }
    frame
        .finish(FrameKind::Slices, 0, (number & 0xffff_ffff) as u32)
        .to_vec()
}

/// Reads the table of a segment from the bytes between its offset and the end of the file.
///
/// # Errors
/// The problem with it.
pub(super) fn decode(
    bytes: &[u8],
    number: u64,
    table_at: u64,
    partitions: Partitions,
) -> Result<Vec<Row>, Damage> {
    if bytes.len() < FRAME_LEN {
        return Err("the table of a segment is cut off");
    }
    let (head, body) = bytes.split_at(FRAME_LEN);
    let salt = (number & 0xffff_ffff) as u32;
    let frame = Frame::decode(&array(head, 0), salt)?;
    if frame.kind != FrameKind::Slices || !frame.fits(body, salt) {
        return Err("the table of a segment fails its checksum");
    }
    let rows: Vec<Row> = body
        .chunks_exact(ROW_LEN)
        .map(|row| Row {
            partition: Partition(u32_at(row, 0)),
            is_generation: row[4] != 0,
            highest: ballot_at(row, 6),
            at: u64_at(row, 24),
            len: u64_at(row, 32),
        })
        .collect();
    let mut end = HEADER_LEN as u64;
    let is_possible = rows.iter().all(|row| {
        let fits = partitions.contains(row.partition)
            && row.at >= end
            && row.at.is_multiple_of(SLICE_ALIGN)
            && row.len >= SLICE_HEADER_LEN as u64
            && row.len <= table_at
            && row.at <= table_at - row.len;
        end = row.at.saturating_add(row.len);
        fits
    });
    if is_possible && rows.len() == frame.count as usize && body.len() % ROW_LEN == 0 {
        Ok(rows)
    } else {
        Err("the table of a segment is impossible")
    }
}

/// Length of a table, bytes.
pub(super) const fn len_of(rows: u32) -> usize {
    FRAME_LEN + rows as usize * ROW_LEN
}

/// Rebuilds the table from the slices themselves, in the order of their offsets. The reader has the
/// file up to the table.
pub(super) fn walk(mut file: Reader<'_>, partitions: Partitions) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut at = HEADER_LEN as u64;
    while at < file.len() {
        match slice_at(&mut file, at, partitions) {
            Some(header) => {
                rows.push(Row {
                    partition: header.partition,
                    at,
                    len: header.len(),
                    highest: header.highest(),
                    is_generation: header.generation().is_some(),
                });
                at = align(at + header.len());
            }
            // The space of a slice that was never received completely; its start was cleared.
            None => at += SLICE_ALIGN,
        }
    }
    rows
}

fn slice_at(file: &mut Reader<'_>, at: u64, partitions: Partitions) -> Option<SliceHeader> {
    let header = file.bytes(at..at + SLICE_HEADER_LEN as u64).ok()?;
    let header = SliceHeader::decode(header).ok()?;
    if header.partitions != partitions || header.len() > file.len() - at {
        return None;
    }
    let index = file.bytes(at..at + header.index_len() as u64).ok()?;
    header.fits(index).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::tests::unhex;
    use crate::slice::Rest;
    use crate::testing::sample_slice;
    use proptest::prelude::*;

    fn partitions() -> Partitions {
        Partitions::new(16).unwrap()
    }

    fn row(partition: u32, at: u64, len: u64) -> Row {
        Row {
            partition: Partition(partition),
            at,
            len,
            highest: Ballot {
                epoch: torc_record::Epoch(3),
                time: torc_record::HybridTime(4),
                slot: torc_record::NodeSlot(5),
            },
            is_generation: false,
        }
    }

    fn rows() -> Vec<Row> {
        vec![row(5, 64, 350), row(5, 448, 400), row(9, 896, 161)]
    }

    #[test]
    fn the_bytes_of_a_table_do_not_change() {
        let bytes = encode(&rows(), 7);
        let golden = unhex(
            "05000000 0000 0300000000000000 0400000000000000 0500 4000000000000000 5e01000000000000
             05000000 0000 0300000000000000 0400000000000000 0500 c001000000000000 9001000000000000
             09000000 0000 0300000000000000 0400000000000000 0500 8003000000000000 a100000000000000",
        );
        assert_eq!(bytes[FRAME_LEN..], golden);
        let frame = Frame::decode(&array(&bytes, 0), 7).unwrap();
        assert_eq!((frame.kind, frame.count), (FrameKind::Slices, 3));
        assert_eq!(decode(&bytes, 7, 1088, partitions()), Ok(rows()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_table_is_refused() {
        let good = encode(&rows(), 7);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, 7, 1088, partitions()).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(
                decode(&good[..len], 7, 1088, partitions()).is_err(),
                "cut to {len}"
            );
        }
        assert!(
            decode(&good, 8, 1088, partitions()).is_err(),
            "of another segment"
        );
    }

    #[test]
    fn rows_that_cannot_be_are_refused() {
        for (bad, why) in [
            (row(16 * 8, 64, 200), "no such partition"),
            (row(5, 65, 200), "not aligned"),
            (row(5, 0, 200), "in the header"),
            (row(5, 64, 127), "shorter than a header"),
            (row(5, 64, 1025), "beyond the table"),
            (row(5, 64, u64::MAX), "a sum beyond all numbers"),
            (row(5, !63, 200), "a place beyond all files"),
        ] {
            assert!(
                decode(&encode(&[bad], 7), 7, 1088, partitions()).is_err(),
                "{why}"
            );
        }
        let overlapping = [row(5, 64, 350), row(6, 384, 200)];
        assert!(decode(&encode(&overlapping, 7), 7, 1088, partitions()).is_err());
    }

    /// A file of slices, with gaps of this many steps before them.
    fn file(keys_and_gaps: &[(u64, u64)]) -> (Vec<u8>, Vec<Row>) {
        let mut bytes = vec![0; HEADER_LEN];
        let mut rows = Vec::new();
        for (keys, gap) in keys_and_gaps {
            let slice = sample_slice(*keys).unwrap();
            let at = align(bytes.len() as u64) + gap * SLICE_ALIGN;
            rows.push(Row {
                highest: SliceHeader::decode(&slice).unwrap().highest(),
                ..row(5, at, slice.len() as u64)
            });
            bytes.resize(at as usize, 0xAA);
            bytes.extend_from_slice(&slice);
        }
        bytes.resize(align(bytes.len() as u64) as usize, 0);
        (bytes, rows)
    }

    fn walk_bytes(bytes: &[u8], partitions: Partitions) -> Vec<Row> {
        walk(Reader::new(Rest::Memory(bytes)), partitions)
    }

    proptest! {
        #[test]
        fn a_walk_finds_every_slice_and_nothing_else(
            slices in proptest::collection::vec((1_u64..20, 0_u64..4), 0..6),
        ) {
            let (bytes, rows) = file(&slices);
            prop_assert_eq!(walk_bytes(&bytes, partitions()), rows);
            prop_assert_eq!(walk_bytes(&bytes, Partitions::DEFAULT), vec![]);
        }

        #[test]
        fn a_walk_over_any_bytes_ends(mut bytes: Vec<u8>, table_at: u64, at: prop::sample::Index) {
            walk_bytes(&bytes, partitions());
            let (slices, _) = file(&[(3, 0), (4, 0)]);
            let at = at.index(slices.len());
            bytes.extend_from_slice(&slices[at..]);
            walk_bytes(&bytes, partitions());
            let _ = decode(&bytes, 7, table_at, partitions());
        }
    }
}
