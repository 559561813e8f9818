//! Damaged files: every flipped bit is reported or harmless, and never gives wrong data. `rot.rs`
//! covers bits flipped in slices.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{DIR, Model, apply, block_on, open, options, partition_of, put, tombstone};
use torc_record::{HybridTime, ReplicaBatch, ReplicaFacts, StoredVersion, StoredVersions};
use torc_store::testing::{CrashFs, Survives, WaitingStore};
use torc_store::{LogTail, Store, StoreError};

/// A store with a segment of slices, followed by two full log segments and one with two batches,
/// and metadata.
/// Returns its models from the flush on, each with one entry more.
fn damaged_at_rest(close: bool) -> (CrashFs, Vec<Model>) {
    let fs = CrashFs::new();
    let mut options = options(DIR);
    options.log_segment_bytes = 1024;
    let (store, _) = Store::open_with(options, Arc::new(fs.clone())).unwrap();
    let mut model = Model::default();
    model.meta.insert("node".to_owned(), b"identity".to_vec());
    store.meta_set("node", b"identity").unwrap();
    let mut models = Vec::new();
    block_on(async {
        for key in 0..6 {
            model.write(put(key, 1, vec![key as u8; 40]));
            store.write(put(key, 1, vec![key as u8; 40])).await.unwrap();
        }
        store.flush().await.unwrap();
        for key in 3..12 {
            let record = match key {
                5 => tombstone(key, 2),
                _ => put(key, 2, vec![key as u8; 200]),
            };
            models.push(model.clone());
            model.write(record.clone());
            store.write(record).await.unwrap();
        }
    });
    models.push(model);
    if close {
        block_on(store.close()).unwrap();
    }
    let image = fs.image(Survives::Nothing);
    (image, models)
}

/// Allowed results of opening the damaged store.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Reported,
    Harmless,
    LastBatchCut,
}

fn judge(fs: &CrashFs, models: &[Model], place: &str) -> Verdict {
    let store = match open(fs) {
        Ok((store, _)) => store,
        Err(error) => {
            let names_the_place = matches!(
                error,
                StoreError::Corrupt { .. }
                    | StoreError::LostBatch { .. }
                    | StoreError::NewerFormat { .. }
                    | StoreError::PartitionsDiffer { .. }
            );
            assert!(names_the_place, "{place}: {error}");
            return Verdict::Reported;
        }
    };
    if let Err(StoreError::Corrupt { .. } | StoreError::NewerFormat { .. }) = store.meta_get("node")
    {
        return Verdict::Reported;
    }
    let (whole, before_last) = (&models[models.len() - 1], &models[models.len() - 2]);
    if whole.difference(&store).is_none() {
        return Verdict::Harmless;
    }
    before_last.check(&store, place);
    Verdict::LastBatchCut
}

fn data_files(fs: &CrashFs) -> Vec<PathBuf> {
    let files = fs.files();
    assert!(files.len() >= 7, "{files:?}");
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Flips every fifth bit that was written in the log, whose files are long, and every bit in the
/// other files, one at a time; and one in 57 of the reserved zeros after them. `TORC_FLIP_STEP=1`
/// flips every bit of the log, too.
fn flip_everything(close: bool) -> BTreeSet<(String, Verdict)> {
    let (whole, models) = damaged_at_rest(close);
    let mut verdicts = BTreeSet::new();
    for path in data_files(&whole) {
        if name(&path).starts_with("segment-") {
            continue;
        }
        let good = whole.file(&path).unwrap();
        let used = good
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let step = if name(&path).starts_with("log-") {
            crate::common::flip_step()
        } else {
            1
        };
        let written = (0..used * 8)
            .step_by(step)
            .chain((used * 8..good.len() * 8).step_by(57));
        for bit in written {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let fs = whole.image(Survives::Nothing);
            fs.put_file(&path, &bad);
            let place = format!("bit {} of byte {} of {}", bit % 8, bit / 8, path.display());
            let verdict = judge(&fs, &models, &place);
            verdicts.insert((name(&path), verdict));
        }
    }
    verdicts
}

#[test]
fn every_flipped_bit_of_a_closed_store_is_reported_or_harmless() {
    for (file, verdict) in flip_everything(true) {
        assert_ne!(verdict, Verdict::LastBatchCut, "{file}");
    }
}

#[test]
fn in_a_store_that_was_not_closed_only_the_last_batch_can_pass_for_torn() {
    let verdicts = flip_everything(false);
    let (whole, _) = damaged_at_rest(false);
    let last_log = data_files(&whole)
        .iter()
        .map(|path| name(path))
        .rfind(|name| name.starts_with("log-"));
    for (file, verdict) in verdicts {
        let may_be_cut = Some(&file) == last_log.as_ref();
        assert!(may_be_cut || verdict != Verdict::LastBatchCut, "{file}");
        assert!(
            verdict != Verdict::Harmless || may_be_cut,
            "{file}: every byte counts"
        );
    }
}

/// A store that was not closed, with changed bytes in the last batch of its log, and that log.
fn with_last_batch(change: impl Fn(&mut [u8])) -> (CrashFs, PathBuf) {
    let fs = CrashFs::new();
    let mut options = options(DIR);
    options.log_segment_bytes = 1 << 20;
    let (store, _) = Store::open_with(options, Arc::new(fs.clone())).unwrap();
    let path = Path::new(DIR).join("log-00000000000000000001");
    let end = |fs: &CrashFs| {
        let bytes = fs.file(&path).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
    };
    let first = put(1, 1, vec![1; 700]);
    let facts = ReplicaBatch {
        meta: Some(ReplicaFacts {
            epoch: first.ballot.epoch,
            ..ReplicaFacts::default()
        }),
        ..ReplicaBatch::default()
    };
    apply(&store, partition_of(&first), facts).unwrap();
    block_on(store.write(first)).unwrap();
    let start = end(&fs);
    block_on(store.write(put(2, 1, vec![2; 3000]))).unwrap();
    let fs = fs.image(Survives::Nothing);
    let (mut bytes, end) = (fs.file(&path).unwrap(), end(&fs));
    change(&mut bytes[start..end]);
    fs.put_file(&path, &bytes);
    (fs, path)
}

/// The end of a log that was not closed, with changed bytes in its last batch.
fn tail_of(change: impl Fn(&mut [u8])) -> LogTail {
    let (fs, _) = with_last_batch(change);
    let mut options = options(DIR);
    options.cut_damaged_log = true;
    let (_, recovery) = Store::open_with(options, Arc::new(fs)).unwrap();
    if recovery.log_tail.was_cut() {
        assert_eq!(recovery.records, 1);
    }
    recovery.log_tail
}

#[test]
fn a_damaged_last_batch_is_told_from_a_torn_one_where_that_can_be_known() {
    assert_eq!(tail_of(|_| {}), LogTail::Whole);
    for at in [1, 9, 40, 1000, 3000] {
        let tail = tail_of(|batch| batch[at] ^= 1);
        assert!(
            matches!(tail, LogTail::Damaged { .. }),
            "byte {at}: {tail:?}"
        );
    }
    for (from, to) in [(0, 200), (0, 600), (1000, 2100), (2000, 3081), (20, 3081)] {
        let tail = tail_of(|batch| batch[from..to].fill(0));
        assert!(
            matches!(tail, LogTail::Torn { .. }),
            "{from} to {to} missing: {tail:?}"
        );
    }
    assert_eq!(tail_of(|batch| batch.fill(0)), LogTail::Whole, "none begun");
}

/// A batch that was lost may have held any version, one that was interrupted was never answered.
#[test]
fn a_store_never_forgets_that_a_batch_was_lost() {
    let told = |change: fn(&mut [u8])| {
        let (fs, _) = with_last_batch(change);
        let mut options = options(DIR);
        options.cut_damaged_log = true;
        let (store, _) = Store::open_with(options, Arc::new(fs.clone())).unwrap();
        let before = put(1, 1, vec![1; 700]);
        let (partition, epoch) = (partition_of(&before), before.ballot.epoch);
        let versions = store.take_stored_versions(partition);
        let (again, recovery) = open(&fs.image(Survives::Nothing)).unwrap();
        assert_eq!(recovery.log_tail, LogTail::Whole, "it was cut");
        let later = again.take_stored_versions(partition);
        let bounds = [
            store.highest_in(partition, epoch),
            store.node_ceiling(),
            again.highest_in(partition, epoch),
            again.node_ceiling(),
            later.forgotten,
        ];
        (versions, bounds, StoredVersion::from(&before))
    };
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let began = HybridTime::from_unix_ms(began.as_millis() as u64);
    let (versions, bounds, _) = told(|batch| batch[1000] ^= 1);
    assert_eq!(versions, StoredVersions::UNKNOWN);
    assert!(bounds.iter().all(|it| *it > began), "{bounds:?}, {began:?}");
    let (versions, bounds, before) = told(|batch| batch[1000..2100].fill(0));
    assert_eq!(versions.last, [before]);
    assert_eq!(versions.forgotten, HybridTime::default());
    assert!(bounds.iter().all(|it| *it < began), "{bounds:?}, {began:?}");
}

#[test]
fn a_log_that_may_lack_acknowledged_writes_is_refused_and_left_as_it_is() {
    let (fs, path) = with_last_batch(|batch| batch[1000] ^= 1);
    let before = fs.file(&path);
    for _ in 0..2 {
        let error = open(&fs).unwrap_err();
        assert!(matches!(error, StoreError::LostBatch { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("acknowledged writes may be lost"), "{said}");
        assert!(
            said.contains("--cut-damaged-log"),
            "the way out without another replica: {said}"
        );
        assert_eq!(fs.file(&path), before, "a later start would not see it");
    }
    let (fs, _) = with_last_batch(|batch| batch[1000..2100].fill(0));
    let (_, recovery) = open(&fs).unwrap();
    assert!(
        matches!(recovery.log_tail, LogTail::Torn { .. }),
        "what was interrupted was never acknowledged"
    );
}

#[test]
fn every_length_a_file_is_cut_to_is_reported_or_harmless() {
    for close in [true, false] {
        let (whole, models) = damaged_at_rest(close);
        for path in data_files(&whole) {
            let good = whole.file(&path).unwrap();
            let used = good
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1);
            let step = (used / 60).max(1);
            for len in (0..used).rev().step_by(step) {
                let fs = whole.image(Survives::Nothing);
                fs.put_file(&path, &good[..len]);
                let place = format!("{} cut to {len}", path.display());
                let is_last_log = name(&path) == "log-00000000000000000004";
                match is_last_log.then(|| open(&fs)) {
                    // The last segment, truncated anywhere, is like one that was torn there: a
                    // prefix remains.
                    Some(Ok((store, _))) => {
                        let fits = models
                            .iter()
                            .any(|model| model.difference(&store).is_none());
                        assert!(fits, "{place}");
                    }
                    Some(Err(_)) => {}
                    None => {
                        judge(&fs, &models, &place);
                    }
                }
            }
        }
    }
}

#[test]
fn a_file_that_is_missing_is_named() {
    let (whole, models) = damaged_at_rest(true);
    for path in data_files(&whole) {
        let fs = whole.image(Survives::Nothing);
        fs.remove_file(&path);
        let file = name(&path);
        match open(&fs) {
            Err(error) => assert!(
                error.to_string().contains(&*path.to_string_lossy()),
                "{file}: {error}"
            ),
            Ok((store, _)) => {
                // Missing metadata means that it was never set, and a missing last segment that it
                // was never begun.
                assert!(file.starts_with("meta-") || file.ends_with('4'), "{file}");
                let known = models.iter().any(|model| {
                    let mut model = model.clone();
                    model.meta.retain(|_, _| !file.starts_with("meta-"));
                    model.difference(&store).is_none()
                });
                assert!(known, "{file}");
            }
        }
    }
}

#[test]
fn corruption_before_the_end_names_file_and_offset() {
    let (fs, _) = damaged_at_rest(false);
    let path = Path::new(DIR).join("log-00000000000000000004");
    let mut bytes = fs.file(&path).unwrap();
    bytes[64 + 40] ^= 1;
    fs.put_file(&path, &bytes);
    let error = open(&fs).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/data/log-00000000000000000004 is corrupt at byte 64: the body of a frame fails its \
         checksum. Nothing was changed: keep the directory, start the node with an empty one, \
         and let it replace the old node: `kvctl replace-node OLD-ID ADDRESS --dead`"
    );
}

#[test]
fn rubbish_of_any_length_in_place_of_a_file_is_refused_in_bounded_memory() {
    let (whole, _) = damaged_at_rest(true);
    for path in data_files(&whole) {
        let good = whole.file(&path).unwrap();
        for byte in [0x00, 0x54, 0xff] {
            for len in [0, 1, 63, 64, 65, 96, 5000] {
                let fs = whole.image(Survives::Nothing);
                fs.put_file(&path, &vec![byte; len]);
                let refused = open(&fs).err().or_else(|| {
                    let (store, _) = open(&fs.image(Survives::Nothing)).ok()?;
                    store.meta_get("node").err()
                });
                assert!(
                    refused.is_some(),
                    "{len} of {byte:#x} in {}",
                    path.display()
                );
            }
        }
        let fs = whole.image(Survives::Nothing);
        let mut longer = good.clone();
        longer.extend_from_slice(&[0xab; 100]);
        fs.put_file(&path, &longer);
        let place = format!("{} with 100 bytes more", path.display());
        let (_, models) = damaged_at_rest(true);
        judge(&fs, &models, &place);
    }
}
