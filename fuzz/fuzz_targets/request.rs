//! Any bytes of a client are refused as a request, or decoded in bounded memory (`-malloc_limit_mb`), and what was decoded
//! is affordable again. The first byte chooses the request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use torc_proto::codec::{Shaped, is_affordable};
use torc_proto::{ScanPosition, digest_from_wire, v1};

fn check<M: Message + Default + Shaped>(bytes: &[u8]) -> Option<M> {
    if !is_affordable(M::shape(), bytes) {
        return None;
    }
    let message = M::decode(bytes).ok()?;
    assert!(is_affordable(M::shape(), &message.encode_to_vec()));
    Some(message)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 10 {
        0 => drop(check::<v1::BatchGetRequest>(bytes)),
        1 => drop(check::<v1::BatchPutRequest>(bytes)),
        2 => drop(check::<v1::SessionRequest>(bytes)),
        3 => drop(check::<v1::SketchKeysRequest>(bytes)),
        4 => drop(check::<v1::WriteBackupRequest>(bytes)),
        5 => drop(check::<v1::CreateTokenRequest>(bytes)),
        6 => drop(check::<v1::EnrolNodeRequest>(bytes)),
        7 => drop(check::<v1::ChangeGenerationRequest>(bytes)),
        8 => {
            if let Some(get) = check::<v1::GetRequest>(bytes) {
                let _ = digest_from_wire(&get.digest);
            }
        }
        _ => {
            // A position that is understood says the same again.
            if let Some(scan) = check::<v1::ScanRequest>(bytes)
                && let Ok(position) = ScanPosition::from_bytes(&scan.after)
            {
                let again = ScanPosition::from_bytes(&position.to_bytes());
                assert_eq!(again, Ok(position));
            }
        }
    }
});
