//! Any bytes are refused as a slice, or answer without panic; also behind forged checksums.

#![no_main]

use libfuzzer_sys::fuzz_target;
use torc_store::testing::read_slice;

fuzz_target!(|bytes: &[u8]| {
    read_slice(bytes);
});
