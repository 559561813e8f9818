//! What the fuzz targets and their seeds share.

use torc_group::testing::Call;
use torc_record::Digest;
use torc_ring::topology::Bearer;

/// SplitMix64 (Steele, Lea, Flood 2014): the digests of a seed.
pub fn digests(seed: u64) -> impl Iterator<Item = Digest> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    std::iter::repeat_with(move || {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&next().to_be_bytes());
        bytes[8..].copy_from_slice(&next().to_be_bytes());
        Digest(bytes)
    })
}

/// A handful of digests to ask hostile bytes for: spread ones, and those of the corners.
pub fn asked() -> Vec<Digest> {
    let corners = [Digest([0; 16]), Digest([0xff; 16]), Digest([0x80; 16])];
    corners.into_iter().chain(digests(1).take(29)).collect()
}

/// The calls of the topology group, by the first byte of an input.
pub const CALLS: [Call; 4] = [
    Call::AppendEntries,
    Call::InstallSnapshot,
    Call::Vote,
    Call::Propose,
];

/// A message of the topology group.
pub fn group_message(body: &[u8]) -> Vec<u8> {
    let head =
        br#"{"cluster":"07070707070707070707070707070707","to":2,"known":{"number":1,"draw":7},
        "from":1,"boot":{"number":2,"draw":8},"at":"a:1","body":"#;
    [head, body, b"}"].concat()
}

/// A message that appends an entry `count` times.
pub fn append_of(entry: &[u8], count: usize) -> Vec<u8> {
    let entries = vec![entry; count].join(&b","[..]);
    let head =
        br#"{"vote":{"leader_id":{"term":1,"node_id":1},"committed":true},"prev_log_id":null,
        "leader_commit":null,"entries":["#;
    group_message(&[&head[..], &entries, b"]}"].concat())
}

/// The token that a node knows.
pub fn bearer() -> Bearer {
    Bearer::new(7, [0xc0; 32])
}
