//! Any bytes are refused as a gate, or answer for every key without panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use torc_fuzz::asked;
use torc_index::Gate;

fuzz_target!(|bytes: &[u8]| {
    let Ok(gate) = Gate::view(bytes) else {
        return;
    };
    assert_eq!(gate.len_bytes(), bytes.len(), "a view is of all its bytes");
    for key in asked() {
        gate.prefetch(&key);
        let answer = gate.may_contain(&key);
        assert!(
            !answer || bytes.len() > 2,
            "a gate of no keys lets none through"
        );
    }
});
