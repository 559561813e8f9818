use super::*;
use crate::format::{BadRow, Problem};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A store in memory. Each batch takes a varying number of turns, so that batches in flight
/// overtake each other. Fails according to a script.
#[derive(Clone, Default)]
struct Memory {
    rows: Arc<Mutex<HashMap<Bytes, Bytes>>>,
    calls: Arc<AtomicUsize>,
    busy: Arc<AtomicUsize>,
    most_busy: Arc<AtomicUsize>,
    /// The outcomes of a key, one character per store: `+` for stored, `u` for unknown, `.` for not
    /// yet, `-` for refused. A capital `U` (unknown) or `N` (not yet) repeats for ever. After the
    /// last character: `+`.
    script: Arc<Mutex<HashMap<Bytes, String>>>,
}

impl Memory {
    fn failing(script: &[(&str, &str)]) -> Self {
        let memory = Self::default();
        let script = script
            .iter()
            .map(|(key, fate)| (key_of(key), (*fate).to_owned()));
        *memory.script.lock().unwrap() = script.collect();
        memory
    }

    async fn store(self, rows: Vec<Row>) -> Vec<Stored> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let busy = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_busy.fetch_max(busy, Ordering::Relaxed);
        for _ in 0..(call * 7919 % 13) {
            tokio::task::yield_now().await;
        }
        self.busy.fetch_sub(1, Ordering::Relaxed);
        rows.into_iter().map(|row| self.store_one(row)).collect()
    }

    fn store_one(&self, row: Row) -> Stored {
        let mut script = self.script.lock().unwrap();
        let fate = script.get_mut(&row.key).and_then(|fates| {
            let first = fates.chars().next()?;
            if !first.is_ascii_uppercase() {
                fates.remove(0);
            }
            Some(first)
        });
        match fate.unwrap_or('+') {
            '.' | 'N' => return Stored::NotYet(Failure::Interrupted),
            'u' | 'U' => return Stored::Unknown(Failure::Interrupted),
            '-' => return Stored::No(Failure::Interrupted),
            _ => {}
        }
        if row.expires_at_ms == Some(0) {
            return Stored::Expired;
        }
        self.rows.lock().unwrap().insert(row.key, row.value);
        Stored::Yes
    }

    fn stored_keys(&self) -> Vec<String> {
        let rows = self.rows.lock().unwrap();
        let mut keys: Vec<_> = rows
            .keys()
            .map(|key| String::from_utf8(key.to_vec()).unwrap())
            .collect();
        keys.sort();
        keys
    }
}

fn key_of(key: &str) -> Bytes {
    Bytes::copy_from_slice(key.as_bytes())
}

fn numbered(line: u64, key: &str, value: &str) -> Numbered {
    Numbered {
        line,
        row: Row {
            key: key_of(key),
            value: key_of(value),
            expires_at_ms: None,
        },
    }
}

fn options(rows: usize, concurrency: usize) -> LoadOptions {
    LoadOptions {
        limits: BatchLimits {
            rows,
            payload_bytes: 1 << 20,
        },
        concurrency,
        retry: patient(Duration::ZERO),
    }
}

const HOUR: Duration = Duration::from_secs(3_600);
const ATTEMPT: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(10);

fn patient(retry_for: Duration) -> RetryOptions {
    RetryOptions {
        retry_for,
        attempt: ATTEMPT,
        pause: PAUSE,
        on_wait: |_| {},
    }
}

fn trying_again() -> LoadOptions {
    LoadOptions {
        retry: patient(HOUR),
        ..options(4, 1)
    }
}

/// Options whose retries wait for ever for an attempt in doubt.
fn waiting_for_ever() -> LoadOptions {
    LoadOptions {
        retry: RetryOptions {
            attempt: HOUR,
            ..patient(2 * HOUR)
        },
        ..options(2, 2)
    }
}

type Input = Vec<Result<Numbered, ReadError>>;

fn run(input: Input, memory: &Memory, options: LoadOptions) -> (Report, Option<LoadEnd>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let memory = memory.clone();
    runtime.block_on(async move {
        let (sender, rows) = tokio::sync::mpsc::channel(4);
        tokio::spawn(async move {
            for row in input {
                if sender.send(row).await.is_err() {
                    break;
                }
            }
        });
        let store = move |rows| memory.clone().store(rows);
        load(rows, store, options, std::future::pending(), |_| {}).await
    })
}

fn letters(keys: &str) -> Input {
    let lines = keys.chars().zip(1..);
    lines
        .map(|(key, line)| Ok(numbered(line, &key.to_string(), "v")))
        .collect()
}

#[test]
fn everything_is_stored_and_counted() {
    let memory = Memory::default();
    let (report, end) = run(letters("abcdefghij"), &memory, options(3, 2));
    assert!(end.is_none(), "{end:?}");
    assert_eq!(memory.stored_keys().concat(), "abcdefghij");
    let expected = Report {
        records: 10,
        payload_bytes: 20,
        resume_line: 11,
        ..Report::default()
    };
    assert_eq!(report, expected);
}

#[test]
fn no_rows_are_no_failure() {
    let (report, end) = run(Vec::new(), &Memory::default(), options(3, 2));
    assert!(end.is_none());
    assert_eq!(report.resume_line, 1);
}

#[test]
fn concurrency_is_bounded_and_used() {
    let memory = Memory::default();
    let keys: String = ('a'..='z').collect();
    run(letters(&keys), &memory, options(1, 4));
    assert_eq!(memory.most_busy.load(Ordering::Relaxed), 4);
}

#[test]
fn a_malformed_line_ends_the_load_after_everything_before_it_is_stored() {
    let memory = Memory::default();
    let mut input = letters("abc");
    let bad = BadRow {
        line: 4,
        last_line: 6,
        problem: Problem::NotUtf8,
        bytes: Bytes::new(),
    };
    input.push(Err(bad.clone().into()));
    input.push(Ok(numbered(7, "e", "v")));
    let (report, end) = run(input, &memory, options(2, 2));
    assert!(matches!(end, Some(LoadEnd::Input(ReadError::Bad(row))) if row == bad));
    assert_eq!(memory.stored_keys().concat(), "abc");
    assert_eq!((report.records, report.resume_line), (3, 4));
}

#[test]
fn a_row_that_cannot_be_stored_ends_the_load_and_its_line_is_where_to_go_on() {
    let memory = Memory::failing(&[("d", "-")]);
    let keys: String = ('a'..='z').collect();
    let (report, end) = run(letters(&keys), &memory, options(2, 2));
    assert!(matches!(end, Some(LoadEnd::Store(_))));
    assert_eq!(
        (report.failed, report.unknown, report.resume_line),
        (1, 0, 4)
    );
    assert!(
        memory.stored_keys().concat().starts_with("abc"),
        "all before line 4 is stored"
    );
    assert!(report.records < 25, "it stopped");
    assert_eq!(report.records as usize, memory.stored_keys().len());
}

#[test]
fn an_unknown_outcome_outweighs_another_failure() {
    let memory = Memory::failing(&[("a", "-"), ("b", "u")]);
    let (report, end) = run(letters("abcd"), &memory, options(4, 1));
    assert_eq!((report.failed, report.unknown, report.records), (1, 1, 2));
    assert!(matches!(end, Some(LoadEnd::Unknown(_))), "{end:?}");
}

#[test]
fn what_is_not_stored_or_in_doubt_is_sent_again_and_nothing_else() {
    let script = [("b", "uu"), ("c", "."), ("d", "u.")];
    let (report, _) = run(letters("abcd"), &Memory::failing(&script), options(4, 1));
    assert_eq!((report.records, report.unknown, report.failed), (1, 2, 1));
    let memory = Memory::failing(&script);
    let (report, end) = run(letters("abcd"), &memory, trying_again());
    assert!(end.is_none(), "{end:?}");
    assert_eq!((report.records, report.unknown, report.failed), (4, 0, 0));
    assert_eq!(memory.calls.load(Ordering::Relaxed), 3);
    assert_eq!(report.retried, 3 + 2, "b, c and d, then b and d");
}

#[test]
fn a_row_in_doubt_waits_until_nodes_have_dropped_it_and_others_do_not() {
    let run_for = |script: &str, options| {
        let begun = Instant::now();
        let (report, end) = run(letters("ab"), &Memory::failing(&[("b", script)]), options);
        assert!(end.is_none() && report.records == 2, "{report:?} {end:?}");
        begun.elapsed()
    };
    assert!(run_for("..", waiting_for_ever()) >= 2 * PAUSE);
    assert!(run_for("u", trying_again()) >= ATTEMPT + PAUSE);
    assert!(run_for("u.u", trying_again()) >= 2 * (ATTEMPT + PAUSE) + PAUSE);
}

#[test]
fn retries_end_and_the_row_stays_in_doubt() {
    let memory = Memory::failing(&[("b", "U")]);
    let options = LoadOptions {
        retry: patient(5 * ATTEMPT),
        ..options(4, 1)
    };
    let (report, end) = run(letters("abcd"), &memory, options);
    assert!(matches!(end, Some(LoadEnd::Unknown(_))), "{end:?}");
    assert_eq!((report.unknown, report.resume_line), (1, 2));
    assert!((1..=4).contains(&report.retried), "{report:?}");
}

#[test]
fn a_cluster_that_never_took_a_row_is_not_waited_for() {
    let memory = Memory::failing(&[("a", "N"), ("b", "N")]);
    let (report, end) = run(letters("ab"), &memory, waiting_for_ever());
    assert!(matches!(end, Some(LoadEnd::Store(_))), "{end:?}");
    assert_eq!((report.retried, report.resume_line), (0, 1));
}

/// Earlier, a node that died during the first batches ended the load.
#[test]
fn the_very_first_rows_are_sent_again_too_if_they_are_in_doubt() {
    let memory = Memory::failing(&[("a", "u"), ("b", "u.")]);
    let (report, end) = run(letters("ab"), &memory, trying_again());
    assert!(end.is_none(), "{end:?}");
    assert_eq!((report.records, report.retried), (2, 3));
}

#[test]
fn an_outage_is_told_once() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let options = LoadOptions {
        retry: RetryOptions {
            on_wait: |_| _ = TOLD.fetch_add(1, Ordering::Relaxed),
            ..patient(HOUR)
        },
        ..options(4, 1)
    };
    let memory = Memory::failing(&[("b", "."), ("c", ".."), ("d", "...")]);
    let (report, end) = run(letters("abcd"), &memory, options);
    assert!(end.is_none() && report.records == 4, "{report:?}");
    assert_eq!(TOLD.load(Ordering::Relaxed), 1);
}

#[test]
fn a_row_that_is_refused_ends_what_others_wait_for() {
    let memory = Memory::failing(&[("b", "U"), ("d", "-")]);
    let (report, end) = run(letters("abcd"), &memory, waiting_for_ever());
    assert!(matches!(end, Some(LoadEnd::Unknown(_))), "{end:?}");
    assert_eq!((report.unknown, report.failed), (1, 1));
}

#[test]
fn refused_at_the_second_try_does_not_make_the_first_known() {
    let memory = Memory::failing(&[("b", "u-")]);
    let (report, end) = run(letters("ab"), &memory, trying_again());
    assert_eq!((report.records, report.unknown, report.failed), (1, 1, 0));
    assert!(matches!(end, Some(LoadEnd::Unknown(_))), "{end:?}");
}

#[test]
fn told_to_stop_it_does_not_wait_for_a_cluster_that_fails() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let memory = Memory::failing(&[("b", "U")]);
    let calls = memory.clone();
    let (report, end) = runtime.block_on(async {
        let (sender, rows) = tokio::sync::mpsc::channel(16);
        for row in letters("ab") {
            sender.send(row).await.unwrap();
        }
        // The file has ended: only the row in doubt is left.
        drop(sender);
        let stop = async {
            while calls.stored_keys().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let store = move |rows| memory.clone().store(rows);
        load(rows, store, waiting_for_ever(), stop, |_| {}).await
    });
    assert!(matches!(end, Some(LoadEnd::Unknown(_))), "{end:?}");
    assert_eq!((report.records, report.resume_line), (1, 2));
}

#[test]
fn expired_rows_are_left_out_and_counted() {
    let mut input = letters("ab");
    if let Ok(numbered) = &mut input[1] {
        numbered.row.expires_at_ms = Some(0);
    }
    let (report, end) = run(input, &Memory::default(), options(4, 1));
    assert!(end.is_none());
    assert_eq!(
        (report.records, report.expired, report.resume_line),
        (1, 1, 3)
    );
}

#[test]
fn told_to_stop_it_waits_for_what_is_under_way() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let memory = Memory::default();
    let calls = memory.clone();
    let (report, end) = runtime.block_on(async {
        let (sender, rows) = tokio::sync::mpsc::channel(16);
        for row in letters("abcd") {
            sender.send(row).await.unwrap();
        }
        // The sender stays open: more rows could arrive, as from a pipe.
        let stop = async {
            while calls.calls.load(Ordering::Relaxed) < 2 {
                tokio::task::yield_now().await;
            }
        };
        let store = {
            let memory = memory.clone();
            move |rows| memory.clone().store(rows)
        };
        let result = load(rows, store, options(1, 2), stop, |_| {}).await;
        drop(sender);
        result
    });
    assert!(matches!(end, Some(LoadEnd::Interrupted)));
    assert_eq!(report.records as usize, memory.stored_keys().len());
    assert_eq!(memory.busy.load(Ordering::Relaxed), 0);
    assert_eq!(report.resume_line, report.records + 1);
}

#[test]
fn a_trickle_of_rows_does_not_wait_for_a_full_batch() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let memory = Memory::default();
    runtime.block_on(async {
        let (sender, rows) = tokio::sync::mpsc::channel(16);
        let store = {
            let memory = memory.clone();
            move |rows| memory.clone().store(rows)
        };
        let loading = load(
            rows,
            store,
            options(1000, 2),
            std::future::pending(),
            |_| {},
        );
        let trickle = async {
            for (line, key) in [(1, "a"), (2, "b"), (3, "c")] {
                sender.send(Ok(numbered(line, key, "v"))).await.unwrap();
                while memory.stored_keys().len() < line as usize {
                    tokio::task::yield_now().await;
                }
            }
            drop(sender);
        };
        let ((report, end), ()) = tokio::join!(loading, trickle);
        assert!(end.is_none());
        assert_eq!(report.records, 3);
    });
}

proptest! {
    #[test]
    fn the_last_row_of_a_key_is_the_one_that_stays(
        keys in proptest::collection::vec(0_u8..12, 0..120),
        rows in 1_usize..9,
        concurrency in 1_usize..7,
    ) {
        let memory = Memory::default();
        let row = |(line, key): (usize, &u8)| {
            Ok(numbered(line as u64 + 1, &key.to_string(), &line.to_string()))
        };
        let input = keys.iter().enumerate().map(row).collect();
        let (report, end) = run(input, &memory, options(rows, concurrency));
        prop_assert!(end.is_none());
        prop_assert_eq!(report.records as usize, keys.len());
        let last: HashMap<Bytes, Bytes> = keys.iter().enumerate()
            .map(|(line, key)| (key_of(&key.to_string()), key_of(&line.to_string())))
            .collect();
        prop_assert_eq!(&*memory.rows.lock().unwrap(), &last);
    }

    #[test]
    fn everything_before_the_line_to_go_on_at_is_stored(
        count in 1_u64..60,
        failing in proptest::collection::hash_map(0_u64..60, "[u-]", 0..4),
        rows in 1_usize..9,
        concurrency in 1_usize..7,
    ) {
        let script: Vec<(String, String)> =
            failing.iter().map(|(line, fate)| (line.to_string(), fate.clone())).collect();
        let script: Vec<(&str, &str)> =
            script.iter().map(|(key, fate)| (key.as_str(), fate.as_str())).collect();
        let memory = Memory::failing(&script);
        let input = (0..count).map(|line| Ok(numbered(line + 1, &line.to_string(), "v"))).collect();
        let (report, end) = run(input, &memory, options(rows, concurrency));
        let stored = memory.rows.lock().unwrap();
        prop_assert_eq!(report.records as usize, stored.len());
        for line in 1..report.resume_line {
            prop_assert!(stored.contains_key(&key_of(&(line - 1).to_string())), "line {}", line);
        }
        prop_assert_eq!(end.is_none(), failing.keys().all(|line| *line >= count));
    }
}
