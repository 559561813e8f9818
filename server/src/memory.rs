//! Returns unused memory from the allocator to the system.
//!
//! mimalloc keeps pages of freed memory for a second, in case they are used again, with what is in them. So
//! its next page of small blocks is all in memory before any block of it is used, and a node that has done its
//! work keeps 6 to 13 MiB more. Here, it returns each page at once. It keeps freed memory for the thread
//! that freed it, or had allocated it, too: a node that is idle after a flush would keep all of it. So the thread of
//! a flush returns its memory at the end, and each thread of a runtime when it is idle next.

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mimalloc as _;
use tokio::runtime::Builder;

/// `mi_option_purge_delay`: how long mimalloc keeps a page of freed memory, ms.
const PURGE_DELAY: c_int = 15;

unsafe extern "C" {
    fn mi_collect(force: bool);
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// From now on, each page of freed memory returns to the system at once, unless `MIMALLOC_PURGE_DELAY` is
/// set. Call it first of all.
pub fn return_pages_at_once() {
    // SAFETY: mimalloc is linked in, checks the option's number, and lets any thread call this at any time.
    unsafe { mi_option_set_default(PURGE_DELAY, 0) }
}

/// How often [`release`] was called.
static RELEASES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// [`RELEASES`] when this thread last returned its memory.
    static RELEASED: Cell<u64> = const { Cell::new(0) };
}

/// Returns this thread's free memory and every free page of the process to the system. Takes some
/// milliseconds. The threads of [`frugal`] runtimes return theirs when they are idle next.
pub(crate) fn release() {
    RELEASES.fetch_add(1, Ordering::Relaxed);
    collect();
}

/// Makes the threads of a runtime return unused memory to the system. A worker does when it is idle after a flush, a
/// compaction or an ingest. A thread for blocking work ends after a second without any.
pub fn frugal(runtime: &mut Builder) -> &mut Builder {
    let release_if_due = || {
        if is_due() {
            collect();
        }
    };
    let runtime = runtime.on_thread_park(release_if_due);
    runtime.thread_keep_alive(Duration::from_secs(1))
}

/// Whether [`release`] was called since this thread last asked.
fn is_due() -> bool {
    let releases = RELEASES.load(Ordering::Relaxed);
    RELEASED.replace(releases) != releases
}

fn collect() {
    // SAFETY: mimalloc is linked in, and lets any thread call this at any time.
    unsafe { mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    /// What a worker had received of a load stayed in its heap for good.
    #[test]
    fn each_thread_returns_its_memory_once_after_another_one_has() {
        while is_due() {}
        std::thread::spawn(release).join().unwrap();
        assert!(is_due());
    }

    #[test]
    fn the_option_has_the_number_that_mimalloc_gives_it() {
        // SAFETY: as above.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1_000, "the default, which no other option has");
        return_pages_at_once();
        assert_eq!(delay(), 0);
    }
}
