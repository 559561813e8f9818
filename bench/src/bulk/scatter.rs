//! Scatters digests to buckets on the disk, and sorts a bucket.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use torc_record::Digest;

use super::input::Input;
use super::{BUCKETS, THREADS};

/// Rows read at a time: few, which stay in the cache.
const ROWS: usize = 1 << 16;
/// Bytes buffered per write.
const BUFFER: usize = 256 << 10;
/// The bits that a group of digests, which share 16, is arranged by: in a bucket of four million
/// they leave a few digests to sort.
const FINE_BITS: u32 = 11;

/// The output of one scattering thread.
struct Runs(Vec<(File, Vec<u8>)>);

impl Runs {
    fn create(dir: &Path, thread: usize) -> Result<Self> {
        let runs = (0..BUCKETS).map(|bucket| {
            let file = File::create(run_path(dir, bucket, thread));
            let file = file.context("a bucket cannot be made: are 1,024 open files allowed?")?;
            Ok((file, Vec::with_capacity(BUFFER)))
        });
        Ok(Self(runs.collect::<Result<_>>()?))
    }

    fn push(&mut self, digest: &Digest) -> Result<()> {
        let (file, buffer) = &mut self.0[usize::from(digest.0[0])];
        buffer.extend_from_slice(&digest.0);
        if buffer.len() >= BUFFER {
            file.write_all(buffer)?;
            buffer.clear();
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        for (file, buffer) in &mut self.0 {
            file.write_all(buffer)?;
            buffer.clear();
        }
        Ok(())
    }
}

/// Scatters all digests of the input.
pub(super) fn scatter(dir: &Path, input: &Input) -> Result<()> {
    let runs: Result<Vec<_>> = (0..THREADS)
        .map(|thread| Ok(Mutex::new(Runs::create(dir, thread)?)))
        .collect();
    let runs = runs?;
    // Each thread has its own value, so the lock is never contended.
    let locked = |thread: usize| {
        let locked = runs[thread].lock();
        locked.map_err(|_| anyhow::anyhow!("a thread panicked"))
    };
    input.each_part(THREADS, ROWS, |thread, digests| {
        let mut mine = locked(thread)?;
        digests.iter().try_for_each(|digest| mine.push(digest))
    })?;
    (0..THREADS).try_for_each(|thread| locked(thread)?.finish())
}

/// Reads a bucket into `bytes`, and removes it from the disk.
pub(super) fn take_bucket(dir: &Path, bucket: usize, bytes: &mut Vec<u8>) -> Result<()> {
    bytes.clear();
    for thread in 0..THREADS {
        let path = run_path(dir, bucket, thread);
        let mut file = File::open(&path)?;
        bytes.reserve_exact(usize::try_from(file.metadata()?.len())?);
        file.read_to_end(bytes)?;
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

/// Sorts a bucket: arranges its digests by their next bits, then each group by the bits after
/// those while it is in the cache, and sorts the short rest.
pub(super) fn sort(bucket: &[u8], sorted: &mut Vec<Digest>, group: &mut Vec<Digest>) {
    let digests = bucket.as_chunks::<16>().0;
    sorted.clear();
    sorted.resize(digests.len(), Digest([0; 16]));
    let digests = digests.iter().copied().map(Digest);
    let groups = arrange(digests, sorted, 1 << 8, |digest| digest.0[1].into());
    for of_group in groups.windows(2) {
        let sorted = &mut sorted[of_group[0]..of_group[1]];
        group.clear();
        group.extend_from_slice(sorted);
        let fine = |digest: &Digest| {
            let bits = u16::from_be_bytes([digest.0[2], digest.0[3]]);
            usize::from(bits >> (u16::BITS - FINE_BITS))
        };
        let starts = arrange(group.iter().copied(), sorted, 1 << FINE_BITS, fine);
        for run in starts.windows(2) {
            sorted[run[0]..run[1]].sort_unstable();
        }
    }
}

/// Arranges digests by a number less than `count`. Returns where each number's digests start, and
/// the end.
pub(super) fn arrange(
    digests: impl Iterator<Item = Digest> + Clone,
    out: &mut [Digest],
    count: usize,
    number: impl Fn(&Digest) -> usize,
) -> Vec<usize> {
    let mut starts = vec![0; count + 1];
    for digest in digests.clone() {
        starts[number(&digest) + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut next = starts.clone();
    for digest in digests {
        let place = &mut next[number(&digest)];
        out[*place] = digest;
        *place += 1;
    }
    starts
}

fn run_path(dir: &Path, bucket: usize, thread: usize) -> PathBuf {
    dir.join(format!("{bucket:03}-{thread}.run"))
}

#[cfg(test)]
mod tests {
    use super::super::input::Kind;
    use super::*;

    #[test]
    fn every_digest_is_in_its_bucket_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for kind in [Kind::Digests, Kind::Urls] {
            let input = Input::create(dir.path(), kind, 20_000).unwrap();
            scatter(dir.path(), &input).unwrap();
            let (mut bytes, mut sorted, mut group) = (Vec::new(), Vec::new(), Vec::new());
            let mut all = Vec::new();
            for bucket in 0..BUCKETS {
                take_bucket(dir.path(), bucket, &mut bytes).unwrap();
                sort(&bytes, &mut sorted, &mut group);
                assert!(sorted.iter().all(|it| usize::from(it.0[0]) == bucket));
                all.extend_from_slice(&sorted);
            }
            assert!(all.is_sorted());
            let wanted = Mutex::new(Vec::new());
            let take = |_, digests: &[Digest]| {
                wanted.lock().unwrap().extend_from_slice(digests);
                Ok(())
            };
            input.each_part(3, 1 << 10, take).unwrap();
            let mut wanted = wanted.into_inner().unwrap();
            wanted.sort_unstable();
            assert_eq!(all, wanted);
        }
    }
}
