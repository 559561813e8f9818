//! The expectations for Torc's store: for puts, the figures of a prototype log on a machine of the
//! same kind; for sealed records, the computed sizes of index and records, and the targets.

use crate::report::Prediction;

const MILLION: &str = "1000000 records";
const TEN_MILLION: &str = "10000000 records";
const MOVED: &str = "slices moved in one process";

/// Notes under the table.
pub(super) const NOTES: &[&str] = &[
    "torc is the store of one node, which is the same whatever the number of replicas",
    "sled: its flush is sync_file_range, not an fsync: it may lose acknowledged puts in a power cut",
    "redb, fjall, sled, lmdb, rocksdb: one committer thread shares each commit among the waiting writers",
    "torc's gets include hashing the key, get_with_digest does not; get_in_batch: 100 keys a call, one by one where a store has no batched get",
    "caches of sled, redb, fjall and rocksdb: 1 GiB each; gets by processor time of the reading thread, from a warm page cache; *_elapsed on the clock",
    "flush_per_core and compaction_per_core: records by processor time of the flush and the compaction thread, writing and syncing included",
];

pub(super) const PREDICTIONS: &[Prediction] = &[
    of(
        "1 writers",
        "durable_puts",
        "6,800; fjall 9,900, sled 12,500, redb 5,300",
    ),
    of(
        "64 writers",
        "durable_puts",
        "184,000; fjall 166,000, sled 100,000, redb 46,000",
    ),
    of(
        "256 writers",
        "durable_puts",
        "381,000; fjall 268,000, sled 126,000, redb 71,000",
    ),
    of(MILLION, "get", "500; redb 820, sled 1,800, fjall 2,850"),
    of(MILLION, "get_of_absent", "250"),
    of(
        MILLION,
        "disk_per_record",
        "190; redb 210, fjall 278, sled 355",
    ),
    of(
        MILLION,
        "open_after_kill_9",
        "0.1; redb 0.2, sled 0.3, fjall 1.7",
    ),
    of(MILLION, "reads_per_hit", "1.00"),
    of(MILLION, "reads_per_miss", "at most 0.011"),
    of(
        MILLION,
        "index",
        "4.5: 64 bytes of header for 244 keys, and edges of the function",
    ),
    of(
        TEN_MILLION,
        "get",
        "700, less than every peer; redb 4,400, sled 10,700, fjall 9,600",
    ),
    of(TEN_MILLION, "get_of_absent", "350"),
    of(TEN_MILLION, "index", "below 4"),
    of(TEN_MILLION, "reads_per_hit", "1.00"),
    of(TEN_MILLION, "reads_per_miss", "at most 0.011"),
    of(TEN_MILLION, "flush_per_core", "at least 1,000,000"),
    of(TEN_MILLION, "anonymous_ram_per_record", "4"),
    of(
        MOVED,
        "verify_cpu",
        "500: a BLAKE3 of each key, 100 ns, and the bytes themselves",
    ),
];

const fn of(case: &'static str, metric: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case,
        metric,
        expected,
    }
}
