//! Messages concatenated in one buffer, each preceded by its length as a varint.

use bytes::{Bytes, BytesMut};
use prost::Message;

use crate::WireError;

pub(super) fn push(into: &mut BytesMut, message: &impl Message) {
    // A growing buffer has room for everything: neither can fail.
    let _ = prost::encode_length_delimiter(message.encoded_len(), into);
    let _ = message.encode(into);
}

/// The parts of a list, at most `limit`. Ends after an error.
pub(super) fn split(
    list: &'static str,
    mut rest: Bytes,
    limit: usize,
) -> impl Iterator<Item = Result<Bytes, WireError>> {
    let mut count = 0;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        count += 1;
        let part = if count > limit {
            Err(WireError::TooMany { list, limit })
        } else {
            first(list, &mut rest)
        };
        if part.is_err() {
            rest.clear();
        }
        Some(part)
    })
}

fn first(list: &'static str, rest: &mut Bytes) -> Result<Bytes, WireError> {
    let len = prost::decode_length_delimiter(&mut *rest)?;
    if len > rest.len() {
        return Err(WireError::TooLong {
            what: list,
            len,
            limit: rest.len(),
        });
    }
    Ok(rest.split_to(len))
}
