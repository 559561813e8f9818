//! Any bytes are refused as a message of the topology group, or what is read of them survives the wire once more. The
//! first byte chooses the call.

#![no_main]

use libfuzzer_sys::fuzz_target;
use torc_fuzz::{CALLS, append_of};
use torc_group::testing::{Call, MAX_ENTRIES, reencode};

/// What a node that forwards this message would send.
fn read(call: Call, json: &[u8]) -> Option<Vec<u8>> {
    reencode(call, json).expect("what was read can be written")
}

/// The entries in a message as it is encoded; `None` without any, and if they are long.
fn entries_in(json: &[u8]) -> Option<&[u8]> {
    let json = str::from_utf8(json).expect("JSON is UTF-8");
    let (_, entries) = json.split_once(r#""entries":["#).expect("an append");
    let (entries, _) = entries
        .rsplit_once(r#"],"leader_commit""#)
        .expect("an append");
    (1..=512)
        .contains(&entries.len())
        .then_some(entries.as_bytes())
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    if let Some(call) = CALLS.get(usize::from(*kind) % (CALLS.len() + 1)) {
        if let Some(json) = read(*call, bytes) {
            assert_eq!(read(*call, &json).as_ref(), Some(&json));
        }
        return;
    }
    // Entries, more often than a message may have them.
    if let Some(json) = read(Call::AppendEntries, &append_of(bytes, 1))
        && let Some(entries) = entries_in(&json)
    {
        let too_many = append_of(entries, MAX_ENTRIES + 1);
        assert!(read(Call::AppendEntries, &too_many).is_none());
    }
});
