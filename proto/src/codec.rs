//! Decodes messages after checking how much memory that needs.
//!
//! A repeated field of empty messages takes two bytes per element on the wire and a hundred times
//! as much decoded. So the decoder first scans the bytes, without allocating, and counts every
//! element of a repeated field with its size, including those in nested messages. `build.rs`
//! derives the fields of each message from the descriptors, so no message is missing. prost reports
//! what is wrong with an invalid message.

use std::marker::PhantomData;

use bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

use crate::{Fault, Reason, v1};

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

/// Initial size of a call's buffers, bytes. tonic's default is 8 KiB, many times a short message; the
/// allocator fetches and returns whole pages for it.
pub const BUFFER_LEN: usize = 1 << 10;
/// A stream of messages is sent in pieces of about this many bytes.
const PIECE_LEN: usize = 32 << 10;
/// Memory that decoding any message may take in addition to its bytes.
const FREE: usize = 1 << 20;
/// Additional memory for each byte of a request: 64 MiB at most for 16 MiB.
const PER_BYTE_OF_A_REQUEST: usize = 4;
/// Additional memory for each byte of an answer: a topology of many small partitions takes more.
const PER_BYTE_OF_AN_ANSWER: usize = 32;
/// Memory of a `Bytes` or a `String`, without its contents.
const BYTES_LEN: usize = size_of::<bytes::Bytes>();
const NUMBER_LEN: usize = size_of::<u64>();
/// The maximum depth of prost.
const MAX_DEPTH: usize = 100;

/// The fields of a message that can take memory.
pub struct Shape {
    is_request: bool,
    fields: &'static [Field],
}

struct Field {
    number: u32,
    is_repeated: bool,
    element: Element,
}

enum Element {
    Number,
    Bytes,
    /// A message, with its size decoded.
    Message(&'static Shape, usize),
}

/// A message of the interface.
pub trait Shaped {
    /// Its shape.
    fn shape() -> &'static Shape;
}

/// prost's codec, which refuses messages that would take too much memory to decode.
#[derive(Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: prost::Message + Default + Send + 'static,
    U: prost::Message + Default + Shaped + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = SizedEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        SizedEncoder(ProstCodec::<T, T>::raw_encoder(buffers()))
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<U, U>::raw_decoder(buffers()))
    }
}

/// prost's encoder, which grows the buffer once for a message, whatever its length.
#[derive(Debug)]
pub struct SizedEncoder<T>(<ProstCodec<T, T> as Codec>::Encoder)
where
    T: prost::Message + Default + Send + 'static;

impl<T> Encoder for SizedEncoder<T>
where
    T: prost::Message + Default + Send + 'static,
{
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        self.0.encode(message, buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_LEN, PIECE_LEN)
}

/// See [`BoundedCodec`].
#[derive(Debug)]
pub struct BoundedDecoder<U>(<ProstCodec<U, U> as Codec>::Decoder)
where
    U: prost::Message + Default + Send + 'static;

impl<U> Decoder for BoundedDecoder<U>
where
    U: prost::Message + Default + Shaped + Send + 'static,
{
    type Item = U;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let message = source.chunk();
        // tonic passes the whole message in one piece.
        let is_whole = message.len() == source.remaining();
        if !is_whole || !is_affordable(U::shape(), message) {
            let why = "the message would take too much memory decoded: send fewer items at a time";
            return Err(Fault::new(Reason::Invalid, why).into());
        }
        self.0.decode(source)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Whether decoding a message takes no more memory than [`BoundedCodec`] allows: 1 MiB, and four
/// bytes for each byte of a request. O(bytes), without allocating.
#[must_use]
pub fn is_affordable(shape: &Shape, message: &[u8]) -> bool {
    let per_byte = if shape.is_request {
        PER_BYTE_OF_A_REQUEST
    } else {
        PER_BYTE_OF_AN_ANSWER
    };
    let mut left = FREE.saturating_add(message.len().saturating_mul(per_byte));
    spend(shape, message, MAX_DEPTH, &mut left).is_some()
}

/// Subtracts the memory of a message's elements from `left`; `None` if it is not enough.
fn spend(shape: &Shape, message: &[u8], depth: usize, left: &mut usize) -> Option<()> {
    let mut rest = message;
    while !rest.is_empty() {
        let Some((number, payload)) = next_field(&mut rest) else {
            return Some(());
        };
        let Some(field) = shape.fields.iter().find(|field| field.number == number) else {
            continue;
        };
        let len = match &field.element {
            _ if !field.is_repeated => 0,
            Element::Number => NUMBER_LEN * payload.map_or(1, packed),
            Element::Bytes => BYTES_LEN,
            Element::Message(_, len) => *len,
        };
        // A growing vector takes the same amount again.
        *left = left.checked_sub(2 * len)?;
        if let (Element::Message(shape, _), Some(payload)) = (&field.element, payload) {
            spend(shape, payload, depth.checked_sub(1)?, left)?;
        }
    }
    Some(())
}

/// The number of packed numbers: varints, each of which ends with a byte below 128, or numbers of
/// fixed length.
fn packed(numbers: &[u8]) -> usize {
    let ends = numbers.iter().filter(|byte| **byte < 0x80).count();
    ends.max(numbers.len().div_ceil(4))
}

/// The next field's number, and its bytes if it has a length. `None` if it is malformed.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(u32, Option<&'a [u8]>)> {
    let key = varint(rest)?;
    let number = u32::try_from(key >> 3).ok()?;
    match key & 7 {
        0 => varint(rest).map(|_| (number, None)),
        1 => take(rest, 8).map(|_| (number, None)),
        2 => {
            let len = usize::try_from(varint(rest)?).ok()?;
            take(rest, len).map(|payload| (number, Some(payload)))
        }
        5 => take(rest, 4).map(|_| (number, None)),
        // The start or end of a group, whose content is skipped field by field.
        3 | 4 => Some((0, None)),
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    fn is_fine<M: prost::Message + Shaped>(message: &M) -> bool {
        is_affordable(M::shape(), &message.encode_to_vec())
    }

    #[test]
    fn as_many_empty_items_as_fit_into_a_message_are_refused() {
        let items = crate::MAX_MESSAGE_LEN / 2 - 8;
        // Field 1 with length 0, repeated: prost would decode it into gigabytes.
        let bomb = [0x0a, 0].repeat(items);
        assert!(!is_affordable(v1::BatchGetRequest::shape(), &bomb));
        assert!(!is_affordable(v1::BatchPutRequest::shape(), &bomb));
        assert!(!is_affordable(v1::BatchGetResponse::shape(), &bomb));
        // Bytes instead of messages, and nested messages.
        let bomb = [0x32, 0].repeat(items);
        assert!(!is_affordable(v1::ScanRequest::shape(), &bomb));
        let inner = [0x12, 0].repeat(items / 2);
        let namespace = v1::SketchedNamespace::default().encode_to_vec();
        assert!(namespace.is_empty());
        let mut bomb = vec![0x22];
        prost::encode_length_delimiter(inner.len(), &mut bomb).unwrap();
        bomb.extend(&inner);
        assert!(!is_affordable(v1::SketchKeysRequest::shape(), &bomb));
        // A single field of a message in many pieces, which prost merges.
        let piece = [0x0a, 2, 0x32, 0].repeat(items / 2);
        assert!(!is_affordable(v1::GetTopologyResponse::shape(), &piece));
    }

    #[test]
    fn what_is_allowed_otherwise_is_affordable() {
        let get = v1::GetRequest {
            key: vec![7; 3].into(),
            ..v1::GetRequest::default()
        };
        let batch = v1::BatchGetRequest {
            items: vec![get; crate::MAX_BATCH_ITEMS],
        };
        assert!(is_fine(&batch));
        let partitions = v1::SummarizeRequest {
            partitions: (0..1 << 16).collect(),
        };
        assert!(is_fine(&partitions));
        let state = v1::PartitionState {
            nodes: vec![1, 2, 3],
            config: Some(v1::Config {
                members: vec![v1::Membership::default(); 3],
                ..v1::Config::default()
            }),
            ..v1::PartitionState::default()
        };
        let topology = v1::Topology {
            changed: vec![state; 1 << 16],
            ..v1::Topology::default()
        };
        assert!(is_fine(&v1::GetTopologyResponse {
            topology: Some(topology)
        }));
    }

    #[test]
    fn garbage_is_left_to_prost() {
        let mut seed = 7_u64;
        for len in 0..2_000 {
            let garbage: Vec<u8> = (0..len % 64)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 56) as u8
                })
                .collect();
            assert!(is_affordable(v1::BatchPutRequest::shape(), &garbage));
        }
    }
}
