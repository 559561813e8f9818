//! Ingest of slices from another node, and slices to send to one.
//!
//! A slice is transferred byte for byte. The receiver writes it to its final place, in a
//! segment that several ingests share, and checks it there: the digest of its bytes, the
//! checksum of every record, and that the received index finds every key. It builds nothing.
//! When no ingest of the segment is in progress any more, the segment is completed and added
//! to the manifest, and all its slices take effect at once.
//!
//! An abandoned ingest leaves its space in the segment unused until the next compaction.

mod buffers;
mod file;
mod pace;
mod queue;
mod sealed;
mod thread;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use torc_record::{Ballot, Digest, DigestKey, NamespaceId, to_usize};
use torc_ring::Partition;

pub use file::SliceInfo;
pub(crate) use queue::Ingests;
pub use sealed::{SealedPartition, SealedSlice};
pub(crate) use thread::run;

use self::buffers::Whole;
use self::file::{IngestFile, Ready, Region, Verified};
use crate::commit::Done;
use crate::shared::Shared;
use crate::slice::{
    Damage, KeylessLayout, Kind, Rest, SLICE_DIGEST_LEN, SLICE_HEADER_LEN, SliceHeader, SliceView,
};
use crate::{Seq, StoreError};

/// Limit on the slices of an ingest.
const MAX_SLICES: usize = 256;
/// Limit on the bytes of an ingest.
const MAX_LEN: u64 = 1 << 40;
/// Limit on the bytes that an ingest keeps in memory until they are verified: those of small
/// slices. Others are read again from the file.
const MAX_KEPT: u64 = 8 << 20;

/// The slices of one partition being received. Dropping it abandons them.
///
/// Call [`write`](Self::write) for all bytes, then [`verify`](Self::verify), then
/// [`publish`](Self::publish).
#[derive(Debug)]
pub struct Ingest {
    shared: Arc<Shared>,
    partition: Partition,
    file: Arc<IngestFile>,
    regions: Vec<Region>,
    /// Index of the slice being received, and the number of its bytes received.
    current: usize,
    received: u64,
    /// For a slice that is written piece by piece.
    hasher: blake3::Hasher,
    /// The bytes so far of a slice that is written when it is complete.
    gathered: Vec<u8>,
    /// Complete slices, by their indices among the announced ones.
    kept: BTreeMap<usize, Whole>,
    kept_bytes: u64,
    verified: Vec<Verified>,
    is_over: bool,
}

impl Ingest {
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        partition: Partition,
        slices: &[SliceInfo],
    ) -> Result<Self, StoreError> {
        let least = (SLICE_HEADER_LEN + SLICE_DIGEST_LEN) as u64;
        let lens = slices.iter().map(|slice| slice.len);
        let is_possible = slices.len() <= MAX_SLICES
            && lens.clone().all(|len| (least..=MAX_LEN).contains(&len))
            && lens.sum::<u64>() <= MAX_LEN;
        if !is_possible {
            let what = "impossible slice lengths";
            return Err(StoreError::BadIngest { partition, what });
        }
        let (file, regions) = shared.ingests.reserve(slices, || {
            let partitions = shared.options.partitions;
            let created = IngestFile::create(&shared.dir, partitions, shared.next_segment());
            created.inspect_err(|error| shared.health.note(error))
        })?;
        Ok(Self {
            shared: Arc::clone(shared),
            partition,
            file,
            regions,
            current: 0,
            received: 0,
            hasher: blake3::Hasher::new(),
            gathered: Vec::new(),
            kept: BTreeMap::new(),
            kept_bytes: 0,
            verified: Vec::new(),
            is_over: false,
        })
    }

    /// Takes the next bytes of the slices, one slice after another. Blocks on the file. Small
    /// slices are gathered and kept until they are verified, up to 8 MiB in total. Prefer pieces of
    /// about 100 KB: larger ones are more expensive to allocate.
    ///
    /// # Errors
    /// [`StoreError::BadIngest`]: too many bytes, or a slice other than the announced one.
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`]. Drop the ingest then.
    pub fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        let held = bytes.len();
        while !bytes.is_empty() {
            let Some(&region) = self.regions.get(self.current) else {
                return Err(self.bad("more bytes than were announced"));
            };
            let left = region.info.len - self.received;
            let now = bytes.split_to(bytes.len().min(to_usize(left)));
            if self.kept_bytes + region.info.len <= MAX_KEPT {
                self.gather(&region, now, held)?;
            } else {
                self.write_through(&region, &now)?;
            }
        }
        Ok(())
    }

    /// Takes a piece of a slice that is written when it is complete. The piece came in a message of
    /// `held` bytes.
    fn gather(&mut self, region: &Region, now: Bytes, held: usize) -> Result<(), StoreError> {
        self.received += now.len() as u64;
        // A part of a message would keep the whole message in memory.
        let whole = if now.len() as u64 == region.info.len && now.len() == held {
            Whole::Piece(now)
        } else {
            if self.gathered.capacity() == 0 {
                let buffers = &self.shared.ingests.buffers;
                self.gathered = buffers.take(to_usize(region.info.len));
            }
            self.gathered.extend_from_slice(&now);
            if self.received < region.info.len {
                return Ok(());
            }
            Whole::Gathered(std::mem::take(&mut self.gathered))
        };
        let content = whole.bytes().split_last_chunk::<SLICE_DIGEST_LEN>();
        let content = content.map(|(content, _)| content).unwrap_or_default();
        self.hasher.update(content);
        self.end_slice(region)?;
        self.put(whole.bytes(), region.at)?;
        self.kept_bytes += region.info.len;
        self.kept.insert(self.current - 1, whole);
        Ok(())
    }

    /// Takes a piece of a slice that is too large to keep.
    fn write_through(&mut self, region: &Region, now: &[u8]) -> Result<(), StoreError> {
        let left = region.info.len - self.received;
        let content_left = left.saturating_sub(SLICE_DIGEST_LEN as u64);
        let content = now.len().min(to_usize(content_left));
        self.hasher.update(&now[..content]);
        self.put(now, region.at + self.received)?;
        self.received += now.len() as u64;
        if self.received == region.info.len {
            self.end_slice(region)?;
        }
        Ok(())
    }

    /// Writes at the pace of all ingests.
    fn put(&self, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        self.file.write(bytes, at)?;
        let shared = &self.shared;
        shared.ingests.pace.wrote(
            bytes.len() as u64,
            || shared.table.cold_reads(),
            || self.file.sync(),
            std::thread::sleep,
        )
    }

    /// Checks the complete slice against the announced one, then moves on to the next.
    fn end_slice(&mut self, region: &Region) -> Result<(), StoreError> {
        let digest = self.hasher.finalize();
        if *digest.as_bytes() != region.info.digest {
            return Err(self.bad("its digest differs from the announced one"));
        }
        self.hasher.reset();
        self.current += 1;
        self.received = 0;
        Ok(())
    }

    /// Checks that all bytes were received and that the index finds every key; with the cluster's
    /// key, also that every record has its key's digest. Reads all bytes again, those of kept
    /// slices from memory, at about 1 GB/s.
    ///
    /// # Errors
    /// [`StoreError::BadIngest`], [`StoreError::Io`]. Drop the ingest then.
    pub fn verify(&mut self, cluster: Option<&DigestKey>) -> Result<(), StoreError> {
        if self.current < self.regions.len() {
            return Err(self.bad("fewer bytes than were announced"));
        }
        let kept = std::mem::take(&mut self.kept);
        let mut verified = Vec::with_capacity(self.regions.len());
        for (place, region) in self.regions.iter().enumerate() {
            let kept = kept.get(&place).map(Whole::bytes);
            let checked = self.checked(region, kept, cluster);
            verified.push(checked.map_err(|what| self.bad(what))?);
        }
        self.verified = verified;
        for whole in kept.into_values() {
            self.shared.ingests.buffers.give_back(whole);
        }
        Ok(())
    }

    /// The partition of the slices.
    #[must_use]
    pub const fn partition(&self) -> Partition {
        self.partition
    }

    /// Bytes of the announced slices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.info.len).sum()
    }

    /// Records of the verified slices.
    #[must_use]
    pub fn records(&self) -> u64 {
        let headers = self.verified.iter().map(|it| it.header.held());
        headers.map(|held| held.records).sum()
    }

    /// Whether all records of the verified slices are of a generation or an ordinary namespace, none has a later
    /// version, and how they keep its keys: without them but with these widths, or with them, each numbered if
    /// `is_numbered`.
    #[must_use]
    pub fn is_of(
        &self,
        (of, version): (NamespaceId, Ballot),
        keyless: Option<KeylessLayout>,
        is_numbered: bool,
    ) -> bool {
        let kind = match keyless {
            Some(layout) => Kind::Keyless(layout),
            None if is_numbered => Kind::Numbered,
            None => Kind::Records,
        };
        self.verified.iter().all(|it| {
            let header = &it.header;
            let is_of = if of.is_generation() {
                header.generation() == Some(of)
            } else {
                it.namespace == Some(of)
            };
            is_of && header.kind() == kind && header.highest() <= version
        })
    }

    /// Checks a slice against the announced one, in memory or in the file.
    fn checked(
        &self,
        region: &Region,
        kept: Option<&[u8]>,
        cluster: Option<&DigestKey>,
    ) -> Result<Verified, Damage> {
        let all = match kept {
            Some(bytes) => Rest::Memory(bytes),
            None => Rest::File {
                file: self.file.file(),
                at: region.at,
                len: region.info.len,
            },
        };
        let header = SliceHeader::decode(&all.copy(0, SLICE_HEADER_LEN)?)?;
        let partitions = self.shared.options.partitions;
        if header.partition != self.partition || header.partitions != partitions {
            return Err("a slice of another partition");
        }
        if header.kind() != Kind::Records && header.generation().is_none() {
            return Err("a slice of a kind that only generations have");
        }
        let end = all.len().saturating_sub(SLICE_DIGEST_LEN as u64);
        if all.copy(end, SLICE_DIGEST_LEN)? != region.info.digest {
            return Err("its digest is not at its end");
        }
        let index = all.copy(0, header.index_len())?;
        let rest = all.behind(index.len() as u64);
        let view = SliceView::behind(&header, &index, rest)?;
        let (first, is_mixed) = (Cell::new(None), Cell::new(false));
        view.verify(|namespace, key: &[u8]| {
            let before = first.replace(Some(namespace));
            is_mixed.set(is_mixed.get() || before.is_some_and(|before| before != namespace));
            Some(Digest::of(cluster?, namespace, key))
        })?;
        Ok(Verified {
            at: region.at,
            namespace: first.get().filter(|_| !is_mixed.get()),
            header,
            index,
        })
    }

    /// Durably puts the slices in force, together with those of other ingests. Returns the number
    /// of the last log entry before that. A drop or wipe of the partition applied before this call
    /// (not before the first poll of the future) does not affect the slices; a later one does.
    ///
    /// # Errors
    /// [`StoreError::BadIngest`] if they were not verified, or the partition was dropped
    /// during this call; [`StoreError::Damaged`] if it has slices that cannot be read: drop it
    /// first; [`StoreError::OutOfSpace`], [`StoreError::Io`], [`StoreError::Closed`]: nothing
    /// was changed. [`StoreError::Failed`]: they may be in force.
    pub fn publish(mut self) -> impl Future<Output = Result<Seq, StoreError>> + Send + use<> {
        let (done, outcome) = tokio::sync::oneshot::channel();
        if self.verified.len() == self.regions.len() {
            self.hand_over(done);
        } else {
            // Cannot fail: the receiver is in this function.
            let _ = done.send(Err(self.bad("it was not verified")));
        }
        async move { outcome.await.unwrap_or(Err(StoreError::Closed)) }
    }

    fn hand_over(&mut self, done: Done<Seq>) {
        let verified = std::mem::take(&mut self.verified);
        self.is_over = true;
        let ready = Ready {
            partition: self.partition,
            verified,
            after: self.shared.last_seq(),
            done,
        };
        self.shared.ingests.deliver(&self.file, ready);
    }

    fn bad(&self, what: &'static str) -> StoreError {
        StoreError::BadIngest {
            partition: self.partition,
            what,
        }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        for whole in std::mem::take(&mut self.kept).into_values() {
            self.shared.ingests.buffers.give_back(whole);
        }
        if !self.is_over {
            self.file.give_up(&self.regions);
            self.shared.ingests.wake();
        }
    }
}
