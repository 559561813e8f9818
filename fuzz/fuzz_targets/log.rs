//! Any bytes are refused as a segment of the log or the body of a batch, or are replayed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use torc_store::testing::read_log;

fuzz_target!(|bytes: &[u8]| {
    // What is wrong with them is for people.
    let _ = read_log(bytes);
});
