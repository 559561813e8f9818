//! Helpers shared by the tests of several structures.

use torc_record::Digest;

use crate::SeedStream;

/// A digest derived from a number: as random as a real one.
pub(crate) fn digest(key: u64) -> Digest {
    let mut seeds = SeedStream::new(key);
    Digest(seeds.next_u128().to_be_bytes())
}

/// Two hexadecimal digits per byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
