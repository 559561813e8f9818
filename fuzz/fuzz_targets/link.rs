//! Any bytes are refused as a batch of messages between replicas, or what is read of them
//! survives the wire once more.

#![no_main]

use libfuzzer_sys::fuzz_target;
use torc_proto::link::{envelope_from_bytes, envelope_from_wire, envelope_to_wire, split_batch};
use torc_ring::Partitions;

fuzz_target!(|bytes: &[u8]| {
    let Ok(parts) = split_batch(bytes.to_vec().into()) else {
        return;
    };
    for part in parts {
        for count in [1, 4096] {
            let partitions = Partitions::new(count).expect("a power of two");
            if let Ok((envelope, _)) = envelope_from_bytes(part.clone(), partitions) {
                let again = envelope_from_wire(envelope_to_wire(envelope.clone()), partitions);
                assert_eq!(again, Ok(envelope));
            }
        }
    }
});
