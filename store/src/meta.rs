//! Small durable values by name: the identity of a node.
//!
//! Each is a file of a header and one frame, replaced atomically; see
//! [`Directory::publish`]. Not for frequent writes: each costs three syncs.

use std::path::PathBuf;

use crate::StoreError;
use crate::directory::{Directory, META_PREFIX};
use crate::format::{FileKind, FrameBuilder, FrameKind, HEADER_LEN, Header, draw_salt};
use crate::manifest::single_frame;

/// Longest value, bytes.
pub(crate) const MAX_META_LEN: usize = 1 << 20;
const MAX_NAME_LEN: usize = 64;

/// The value of a name, if it was ever set.
///
/// # Errors
/// [`StoreError::BadMetaName`], [`StoreError::Corrupt`], [`StoreError::NewerFormat`],
/// [`StoreError::Io`].
pub(crate) fn get(dir: &Directory, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let name = file_name(name)?;
    let path: PathBuf = dir.join(&name);
    let Some(bytes) = dir.read(&name)? else {
        return Ok(None);
    };
    let corrupt = |offset, what| StoreError::corrupt(&path, offset as u64, what);
    let head = bytes.first_chunk::<HEADER_LEN>();
    let head = head.ok_or_else(|| corrupt(0, "the header is cut off"))?;
    let header = Header::decode(FileKind::Meta, head, &path)?;
    single_frame(&bytes, &header, FrameKind::Meta)
        .map(|value| Some(value.to_vec()))
        .map_err(|what| corrupt(HEADER_LEN, what))
}

/// Durably sets the value of a name.
///
/// # Errors
/// [`StoreError::BadMetaName`], [`StoreError::MetaTooLong`] and those of
/// [`Directory::publish`].
pub(crate) fn set(dir: &Directory, name: &str, value: &[u8]) -> Result<(), StoreError> {
    let name = file_name(name)?;
    if value.len() > MAX_META_LEN {
        return Err(StoreError::MetaTooLong {
            len: value.len(),
            max: MAX_META_LEN,
        });
    }
    let header = Header {
        kind: FileKind::Meta,
        number: 0,
        seq: 0,
        salt: draw_salt(),
        partitions: 0,
    };
    let mut frame = FrameBuilder::default();
    frame.push(|body| body.extend_from_slice(value));
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(frame.finish(FrameKind::Meta, 0, header.salt));
    dir.publish(&name, &bytes)
}

fn file_name(name: &str) -> Result<String, StoreError> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if (1..=MAX_NAME_LEN).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(format!("{META_PREFIX}{name}"));
    }
    Err(StoreError::BadMetaName {
        name: name.chars().take(80).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::CrashFs;
    use std::path::Path;
    use std::sync::Arc;

    fn dir(fs: &CrashFs) -> Directory {
        Directory::open(Arc::new(fs.clone()), Path::new("/d")).unwrap()
    }

    #[test]
    fn a_value_is_read_as_it_was_set_last() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        assert_eq!(get(&dir, "node").unwrap(), None);
        for value in [&b"one"[..], b"", &[7; 5000]] {
            set(&dir, "node", value).unwrap();
            assert_eq!(get(&dir, "node").unwrap().unwrap(), value);
        }
    }

    #[test]
    fn names_and_lengths_are_bounded() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        let long = "x".repeat(65);
        for name in ["", "a/b", "..", "A", "a b", &long] {
            assert!(matches!(
                get(&dir, name),
                Err(StoreError::BadMetaName { .. })
            ));
            assert!(matches!(
                set(&dir, name, b""),
                Err(StoreError::BadMetaName { .. })
            ));
        }
        let too_long = set(&dir, "n", &vec![0; MAX_META_LEN + 1]);
        assert!(matches!(too_long, Err(StoreError::MetaTooLong { .. })));
        assert!(fs.files().is_empty(), "nothing was changed");
    }

    #[test]
    fn every_flipped_bit_of_a_value_is_refused() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        set(&dir, "node", b"incarnation 7").unwrap();
        let path = Path::new("/d/meta-node");
        let good = fs.file(path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs.put_file(path, &bad);
            assert!(get(&dir, "node").is_err(), "bit {bit}");
        }
    }
}
