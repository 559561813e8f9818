//! Reading a checkpoint back on opening.

use torc_ring::Partitions;

use super::decode_totals;
use crate::directory::Directory;
use crate::format::{FileKind, Frame, FrameKind, FrameReader, Next, u64_at};
use crate::manifest::CheckpointFile;
use crate::packed::Packed;
use crate::{PartitionSummary, Seq, StoreError};

const SEQ_LEN: usize = 8;

/// Gives every record of a checkpoint with its number to `apply`, in ring
/// order. Returns what they come to.
///
/// # Errors
/// [`StoreError::Corrupt`] with the place unless every byte is as it was written,
/// [`StoreError::NewerFormat`], [`StoreError::Io`].
pub(crate) fn read(
    dir: &Directory,
    partitions: Partitions,
    file: CheckpointFile,
    through: Seq,
    apply: impl FnMut(Seq, &Packed),
) -> Result<PartitionSummary, StoreError> {
    let path = dir.checkpoint_path(file.number);
    let mut reader = FrameReader::open(&**dir.fs(), &path, FileKind::Checkpoint)?;
    let header = *reader.header();
    let fits = header.number == file.number
        && header.seq == through.0
        && header.partitions == partitions.count()
        && reader.size() == file.len;
    if !fits {
        return Err(StoreError::corrupt(
            &path,
            0,
            "it is not the one the manifest names",
        ));
    }
    let mut reading = Reading {
        through,
        apply,
        last: None,
        frames: 0,
        found: PartitionSummary::default(),
    };
    loop {
        let (frame, body, at) = match reader.next()? {
            Next::Frame(frame, body, at) => (frame, body, at),
            Next::Bad(what) => return Err(reader.corrupt(what)),
            Next::End => return Err(reader.corrupt("the totals are missing")),
        };
        let read = reading.frame(frame, body);
        if let Some(totals) = read.map_err(|what| StoreError::corrupt(&path, at, what))? {
            return match reader.next()? {
                Next::End => Ok(totals),
                _ => Err(reader.corrupt("bytes after the totals")),
            };
        }
    }
}

struct Reading<F> {
    through: Seq,
    apply: F,
    last: Option<Packed>,
    frames: u64,
    found: PartitionSummary,
}

impl<F: FnMut(Seq, &Packed)> Reading<F> {
    /// Takes a frame in; gives the totals if it is theirs and they are right.
    fn frame(
        &mut self,
        frame: Frame,
        body: &[u8],
    ) -> Result<Option<PartitionSummary>, &'static str> {
        if frame.number != self.frames {
            return Err("a frame out of order");
        }
        self.frames += 1;
        match frame.kind {
            FrameKind::Records => self.records(frame.count, body).map(|()| None),
            FrameKind::Totals => {
                let totals = decode_totals(body).ok_or("totals of impossible length")?;
                if totals == self.found {
                    Ok(Some(totals))
                } else {
                    Err("the records do not come to the totals")
                }
            }
            _ => Err("a frame of another kind"),
        }
    }

    fn records(&mut self, count: u32, mut body: &[u8]) -> Result<(), &'static str> {
        for _ in 0..count {
            let (seq, rest) = body
                .split_first_chunk::<SEQ_LEN>()
                .ok_or("a record is cut off")?;
            let seq = Seq(u64_at(seq, 0));
            let packed = Packed::parse(rest)?;
            body = &rest[packed.bytes().len()..];
            let in_order = match &self.last {
                Some(last) => last.position() < packed.position(),
                None => true,
            };
            if !in_order || seq > self.through {
                return Err("a record out of order");
            }
            super::count(&mut self.found, &packed);
            (self.apply)(seq, &packed);
            self.last = Some(packed);
        }
        if body.is_empty() {
            Ok(())
        } else {
            Err("a frame of more records than it says")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::CheckpointWriter;
    use crate::format::{FrameBuilder, HEADER_LEN, Header};
    use crate::packed::tests::{record, value};
    use crate::testing::CrashFs;
    use std::path::Path;
    use std::sync::Arc;
    use torc_record::Digest;

    const FILE: CheckpointFile = CheckpointFile { number: 2, len: 0 };

    fn dir() -> (CrashFs, Directory) {
        let fs = CrashFs::new();
        let dir = Directory::open(Arc::new(fs.clone()), Path::new("/d")).unwrap();
        (fs, dir)
    }

    fn packed(place: u8) -> Packed {
        let mut record = record(b"k", 1, value(&[place]));
        record.digest = Digest([place; 16]);
        Packed::of(&record).unwrap()
    }

    /// Writes a checkpoint through seq 9 that holds these places with these numbers.
    fn written(dir: &Directory, records: &[(u8, u64)]) -> CheckpointFile {
        let writer = CheckpointWriter::create(dir, Partitions::DEFAULT, FILE.number, Seq(9));
        let mut writer = writer.unwrap();
        for (place, seq) in records {
            writer.push(Seq(*seq), &packed(*place)).unwrap();
        }
        let (_, len) = writer.finish().unwrap();
        CheckpointFile { len, ..FILE }
    }

    fn read_back(dir: &Directory, file: CheckpointFile) -> Result<Vec<u64>, String> {
        let mut seqs = Vec::new();
        let apply = |seq: Seq, _: &Packed| seqs.push(seq.0);
        match read(dir, Partitions::DEFAULT, file, Seq(9), apply) {
            Ok(totals) => {
                assert_eq!(totals.records, seqs.len() as u64);
                Ok(seqs)
            }
            Err(StoreError::Corrupt { what, .. }) => Err(what.to_owned()),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_checkpoint_is_read_in_order() {
        let (_, dir) = dir();
        let file = written(&dir, &[(1, 5), (2, 9), (7, 1)]);
        assert_eq!(read_back(&dir, file), Ok(vec![5, 9, 1]));
        let empty = written(&dir, &[]);
        assert_eq!(read_back(&dir, empty), Ok(vec![]));
    }

    #[test]
    fn records_out_of_ring_order_or_from_after_the_rotation_are_refused() {
        let (_, dir) = dir();
        for records in [[(2, 1), (1, 2)], [(1, 1), (1, 2)], [(1, 1), (2, 10)]] {
            let file = written(&dir, &records);
            let refused = Err("a record out of order".to_owned());
            assert_eq!(read_back(&dir, file), refused, "{records:?}");
        }
    }

    #[test]
    fn another_checkpoint_under_the_name_is_refused() {
        let (_, dir) = dir();
        let file = written(&dir, &[(1, 1)]);
        let longer = CheckpointFile {
            len: file.len + 1,
            ..file
        };
        let refused = Err("it is not the one the manifest names".to_owned());
        assert_eq!(read_back(&dir, longer), refused);
    }

    #[test]
    fn a_frame_that_is_missing_or_does_not_add_up_is_refused() {
        let (fs, dir) = dir();
        let salt = 7;
        let header = Header {
            kind: FileKind::Checkpoint,
            number: FILE.number,
            seq: 9,
            salt,
            partitions: Partitions::DEFAULT.count(),
        };
        let read_frames = |frames: &[(FrameKind, u64, Vec<u8>)]| {
            let mut bytes = header.encode().to_vec();
            for (kind, index, body) in frames {
                let mut frame = FrameBuilder::default();
                frame.push(|out| out.extend_from_slice(body));
                bytes.extend_from_slice(frame.seal(*kind, *index, salt));
            }
            fs.put_file(&dir.checkpoint_path(FILE.number), &bytes);
            let len = bytes.len() as u64;
            assert!(len >= HEADER_LEN as u64);
            read_back(&dir, CheckpointFile { len, ..FILE })
        };
        let one = packed(1);
        let mut body = 1_u64.to_le_bytes().to_vec();
        body.extend_from_slice(one.bytes());
        let mut totals = PartitionSummary::default();
        super::super::count(&mut totals, &one);
        let right = super::super::encode_totals(&totals).to_vec();
        totals.fingerprint += 1;
        let wrong = super::super::encode_totals(&totals).to_vec();
        let records = |index| (FrameKind::Records, index, body.clone());

        let refused = |what: &str| Err(what.to_owned());
        let whole = [records(0), (FrameKind::Totals, 1, right.clone())];
        assert_eq!(read_frames(&whole), Ok(vec![1]));
        let cases = [
            (vec![records(0)], "the totals are missing"),
            (
                vec![(FrameKind::Totals, 0, right.clone())],
                "the records do not come to the totals",
            ),
            (
                vec![records(0), (FrameKind::Totals, 1, wrong)],
                "the records do not come to the totals",
            ),
            (
                vec![records(1), (FrameKind::Totals, 2, right.clone())],
                "a frame out of order",
            ),
            (
                vec![records(0), (FrameKind::Batch, 1, right.clone())],
                "a frame of another kind",
            ),
            (
                vec![
                    records(0),
                    (FrameKind::Totals, 1, right.clone()),
                    records(2),
                ],
                "bytes after the totals",
            ),
            (
                vec![records(0), (FrameKind::Totals, 1, vec![0; 39])],
                "totals of impossible length",
            ),
        ];
        for (frames, what) in cases {
            assert_eq!(read_frames(&frames), refused(what));
        }
    }
}
