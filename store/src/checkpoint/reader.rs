//! Reading a checkpoint back on opening.

use torc_ring::Partitions;

use super::decode_totals;
use crate::directory::Directory;
use crate::format::{FileKind, Frame, FrameKind, FrameReader, Next, u64_at};
use crate::manifest::CheckpointFile;
use crate::packed::Packed;
use crate::{PartitionSummary, Seq, StoreError};

const SEQ_LEN: usize = 8;

/// Gives every record of a checkpoint with its number and fingerprint to `apply`, in ring
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
    apply: impl FnMut(Seq, &Packed, u128),
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

impl<F: FnMut(Seq, &Packed, u128)> Reading<F> {
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
            let fingerprint = packed.fingerprint();
            self.found.add(&packed, fingerprint);
            (self.apply)(seq, &packed, fingerprint);
            self.last = Some(packed);
        }
        if body.is_empty() {
            Ok(())
        } else {
            Err("a frame of more records than it says")
        }
    }
}
