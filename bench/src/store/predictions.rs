//! What was expected of Torc's store: the figures of a throw-away log and hash map on a
//! machine of the same kind, before the store was written.

use crate::report::Prediction;

const HELD: &str = "1000000 records";

pub(super) const PREDICTIONS: &[Prediction] = &[
    puts("1 writers", "6,800; fjall 9,900, sled 12,500, redb 5,300"),
    puts(
        "64 writers",
        "184,000; fjall 166,000, sled 100,000, redb 46,000",
    ),
    puts(
        "256 writers",
        "381,000; fjall 268,000, sled 126,000, redb 71,000",
    ),
    held("get", "200; redb 820, sled 1,800, fjall 2,850"),
    held("ram_per_record", "232; redb 229, fjall 287, sled 388"),
    held("disk_per_record", "140; redb 210, fjall 278, sled 355"),
    held("open_after_kill_9", "0.4; redb 0.2, sled 0.3, fjall 1.7"),
];

const fn puts(case: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case,
        metric: "durable_puts",
        expected,
    }
}

const fn held(metric: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case: HELD,
        metric,
        expected,
    }
}
