//! Returns unused memory from the allocator to the system.
//!
//! mimalloc keeps pages of freed memory for a second, in case they are used again, with what is in them. So
//! its next page of small blocks is all in memory before any block of it is used, and a node that has done its
//! work keeps 6 to 13 MiB more. Here, it returns each page at once. It keeps freed memory for the thread
//! that freed it, too: a node that is idle after a flush would keep all of it.

use std::ffi::{c_int, c_long};

use mimalloc as _;

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

/// Returns this thread's free memory and every free page of the process to the system. Takes some
/// milliseconds.
pub(crate) fn release() {
    // SAFETY: mimalloc is linked in, and lets any thread call this at any time.
    unsafe { mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
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
