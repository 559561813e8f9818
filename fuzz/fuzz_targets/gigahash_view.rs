//! Any bytes are refused as a function, or answer below its number of keys, singly and batched.

#![no_main]

use libfuzzer_sys::fuzz_target;
use torc_fuzz::asked;
use torc_index::PerfectHash;
use torc_index::paper::gigahash::GigaHash;

fuzz_target!(|bytes: &[u8]| {
    let Ok(function) = GigaHash::view(bytes) else {
        return;
    };
    let keys = asked();
    let mut batched = Vec::new();
    function.slots(&keys, &mut batched);
    for (key, batched) in keys.iter().zip(batched) {
        let slot = function.slot(key);
        assert!(slot < function.len().max(1), "a slot beyond the last");
        assert_eq!(slot, batched as usize, "batched and single look-ups differ");
    }
});
