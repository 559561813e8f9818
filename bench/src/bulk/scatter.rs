//! Scatters digests to buckets on the disk, and sorts a bucket.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use torc_record::Digest;

use super::input::Input;
use super::{BUCKETS, THREADS};

/// Bytes buffered per write.
const BUFFER: usize = 256 << 10;
/// Bits after those that name a bucket. A digest is placed by these bits; the remaining short runs
/// are then sorted.
const FINE_BITS: u32 = 13;

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
    input.each_part(THREADS, |thread, digests| {
        let mut mine = locked(thread)?;
        digests.iter().try_for_each(|digest| mine.push(digest))
    })?;
    (0..THREADS).try_for_each(|thread| locked(thread)?.finish())
}

/// Reads a bucket and sorts it: places digests by their next bits, which leaves short runs to sort.
pub(super) fn sorted_bucket(dir: &Path, bucket: usize, sorted: &mut Vec<Digest>) -> Result<()> {
    let mut bytes = Vec::new();
    for thread in 0..THREADS {
        let path = run_path(dir, bucket, thread);
        bytes.extend_from_slice(&std::fs::read(&path)?);
        std::fs::remove_file(&path)?;
    }
    let digests = bytes.as_chunks::<16>().0;
    let fine = |digest: &[u8; 16]| {
        let bits = u64::from_be_bytes([digest[1], digest[2], digest[3], digest[4], 0, 0, 0, 0]);
        (bits >> (u64::BITS - FINE_BITS)) as usize
    };
    let mut starts = vec![0_usize; (1 << FINE_BITS) + 1];
    for digest in digests {
        starts[fine(digest) + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    sorted.clear();
    sorted.resize(digests.len(), Digest([0; 16]));
    let mut next = starts.clone();
    for digest in digests {
        let place = &mut next[fine(digest)];
        sorted[*place] = Digest(*digest);
        *place += 1;
    }
    for stretch in starts.windows(2) {
        sorted[stretch[0]..stretch[1]].sort_unstable();
    }
    Ok(())
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
            let (mut sorted, mut all) = (Vec::new(), Vec::new());
            for bucket in 0..BUCKETS {
                sorted_bucket(dir.path(), bucket, &mut sorted).unwrap();
                assert!(sorted.iter().all(|it| usize::from(it.0[0]) == bucket));
                all.extend_from_slice(&sorted);
            }
            assert!(all.is_sorted());
            let wanted = Mutex::new(Vec::new());
            let take = |_, digests: &[Digest]| {
                wanted.lock().unwrap().extend_from_slice(digests);
                Ok(())
            };
            input.each_part(3, take).unwrap();
            let mut wanted = wanted.into_inner().unwrap();
            wanted.sort_unstable();
            assert_eq!(all, wanted);
        }
    }
}
