//! The records that every suite stores: a URL and what a crawler might keep about it, exactly
//! [`LEN`] bytes of key and value together.
//!
//! Record `i` is a pure function of `i`, so any part of a data set can be generated again without
//! storing it. Keys are unique and in no order. The values end in random digits: they compress
//! about twofold, as such records do.

use std::fmt::Write as _;

/// Bytes of key and value together.
pub(crate) const LEN: usize = 132;

/// A record of a number below 2^32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

const HOSTS: [&str; 8] = [
    "www", "news", "blog", "shop", "docs", "wiki", "media", "archive",
];
const WORDS: [&str; 16] = [
    "about", "article", "bridge", "camera", "city", "coffee", "garden", "guide", "history",
    "island", "journal", "market", "music", "ocean", "recipe", "travel",
];
/// The end of a value.
const END: &str = "\"}";
const LANGUAGES: [&str; 4] = ["en", "de", "fr", "ja"];

/// The key of a record.
pub(crate) fn key(index: u64) -> Vec<u8> {
    let mut random = Random::of(index);
    let host = random.pick(&HOSTS);
    let site = random.below(100);
    let (section, page) = (random.pick(&WORDS), random.pick(&WORDS));
    let id = scattered(index as u32);
    format!("https://{host}{site}.example.com/{section}/{page}-{id:08x}").into_bytes()
}

/// The record with a number.
pub(crate) fn pair(index: u64) -> Pair {
    let key = key(index);
    let value = value(index, LEN - key.len());
    Pair { key, value }
}

fn value(index: u64, len: usize) -> Vec<u8> {
    let mut random = Random::of(index ^ 1 << 40);
    let (language, day) = (random.pick(&LANGUAGES), 1 + random.below(28));
    let mut text =
        format!(r#"{{"status":200,"lang":"{language}","seen":"2025-03-{day:02}","etag":""#);
    while text.len() + END.len() < len {
        // Writing to a String cannot fail.
        let _ = write!(text, "{:016x}", random.next());
    }
    text.truncate(len - END.len());
    text.push_str(END);
    text.into_bytes()
}

/// A number unique to this index: every step is invertible.
fn scattered(index: u32) -> u32 {
    let mut z = index;
    z = (z ^ (z >> 16)).wrapping_mul(0x85eb_ca6b);
    z = (z ^ (z >> 13)).wrapping_mul(0xc2b2_ae35);
    z ^ (z >> 16)
}

/// `SplitMix64` (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator for a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is small, so that the bias does not matter.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_record_has_132_bytes_and_a_json_value() {
        for index in (0..2_000).chain((1 << 32) - 100..1 << 32) {
            let pair = pair(index);
            assert_eq!(pair.key.len() + pair.value.len(), LEN);
            let value: serde_json::Value = serde_json::from_slice(&pair.value).unwrap();
            assert_eq!(value["status"], 200);
        }
    }

    #[test]
    fn the_first_record_stays_the_first() {
        let first = pair(0);
        let key = "https://archive43.example.com/about/travel-00000000";
        assert_eq!(String::from_utf8_lossy(&first.key), key);
        let value =
            r#"{"status":200,"lang":"ja","seen":"2025-03-12","etag":"d6158a35e43f4c23ef2a088a6"}"#;
        assert_eq!(String::from_utf8_lossy(&first.value), value);
    }

    #[test]
    fn keys_are_unique() {
        let keys: HashSet<Vec<u8>> = (0..20_000).map(key).collect();
        assert_eq!(keys.len(), 20_000);
    }
}
