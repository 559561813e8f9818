//! What a batch of the log is made of.

use torc_ring::Partition;

use super::u32_at;
use crate::packed::Packed;

const DROP: u8 = 16;
const DROP_LEN: usize = 5;

/// One entry of the log; its number is its place in the log.
///
/// Its first byte is its kind: 1 to 3 are those of a packed record, 16 is the drop of
/// the partition whose number follows in four bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Record(Packed),
    /// Everything the partition held before this entry is gone.
    Drop(Partition),
}

impl Entry {
    /// Reads the entry at the start of `bytes` and takes it off.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn take(bytes: &mut &[u8]) -> Result<Self, &'static str> {
        let (entry, len) = match bytes.first() {
            Some(&DROP) if bytes.len() >= DROP_LEN => {
                (Self::Drop(Partition(u32_at(bytes, 1))), DROP_LEN)
            }
            Some(&DROP) => return Err("a dropped partition is cut off"),
            _ => {
                let packed = Packed::parse(bytes)?;
                let len = packed.bytes().len();
                (Self::Record(packed), len)
            }
        };
        *bytes = &bytes[len..];
        Ok(entry)
    }

    pub(crate) fn put_drop(partition: Partition, out: &mut Vec<u8>) {
        out.push(DROP);
        out.extend_from_slice(&partition.0.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::tests::{record, value};

    #[test]
    fn entries_are_taken_one_after_the_other() {
        let packed = Packed::of(&record(b"k", 1, value(b"v"))).unwrap();
        let mut bytes = packed.bytes().to_vec();
        Entry::put_drop(Partition(0x0201), &mut bytes);
        assert_eq!(&bytes[bytes.len() - 5..], [16, 1, 2, 0, 0]);
        let mut rest = &bytes[..];
        assert_eq!(Entry::take(&mut rest), Ok(Entry::Record(packed)));
        assert_eq!(Entry::take(&mut rest), Ok(Entry::Drop(Partition(0x0201))));
        assert!(rest.is_empty());
        assert_eq!(
            Entry::take(&mut &bytes[..3]),
            Err("a record is cut off in its head")
        );
        let cut = bytes.len() - 5..bytes.len() - 1;
        assert_eq!(
            Entry::take(&mut &bytes[cut]),
            Err("a dropped partition is cut off")
        );
    }
}
