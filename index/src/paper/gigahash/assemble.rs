//! Encodes the values of solved buckets.

use super::MAX_BUCKET_KEYS;
use super::bits::BitWriter;
use super::huffman::Code;
use super::layout::{Header, Offset, OffsetWriter};
use super::settings::{Settings, vertices};
use super::solved::SolvedRange;

/// How a value is encoded.
enum ValueCode {
    Fixed(u32),
    Huffman(Code),
}

impl ValueCode {
    fn of(&self, value: u16) -> (u32, u32) {
        match self {
            Self::Fixed(width) => (u32::from(value), *width),
            Self::Huffman(code) => code.of(value),
        }
    }

    fn width(&self) -> u32 {
        match self {
            Self::Fixed(width) => *width,
            Self::Huffman(code) => code.bits(),
        }
    }
}

/// The bytes of the function; `ranges` must cover all buckets.
pub(super) fn assemble(
    ranges: &[SolvedRange],
    settings: Settings,
    buckets: u32,
    keys: usize,
) -> Vec<u8> {
    let code = value_code(ranges, settings);
    let mut offsets = OffsetWriter::default();
    let mut data = BitWriter::default();
    let mut slot = 0;
    for range in ranges {
        let mut values = &range.values[..];
        for bucket in &range.buckets {
            offsets.push(Offset {
                slot,
                data: data.len() as u64,
                attempt: bucket.attempt,
            });
            slot += u64::from(bucket.keys);
            if bucket.keys > 0 {
                let count = vertices(bucket.keys.into(), settings.vertices_per_1024_keys);
                let (own, others) = values.split_at(count);
                values = others;
                write_bucket(own, settings, &code, &mut data);
            }
        }
    }
    offsets.push(Offset {
        slot,
        data: data.len() as u64,
        attempt: 0,
    });
    let header = Header {
        encoding: settings.encoding,
        prefix_bits: settings.prefix_bits,
        width: code.width() as u8,
        buckets,
        keys: keys as u32,
        vertices_per_1024_keys: settings.vertices_per_1024_keys,
        seed: settings.seed,
        data_bytes: data.len() as u64,
    };
    join(&header, &code, &offsets.into_bytes(), &data.into_bytes())
}

fn join(header: &Header, code: &ValueCode, offsets: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(header.data_start() + data.len());
    header.write(&mut bytes);
    if let ValueCode::Huffman(code) = code {
        bytes.extend(code.table().into_iter().flat_map(u16::to_le_bytes));
    }
    bytes.extend_from_slice(offsets);
    bytes.extend_from_slice(data);
    bytes
}

fn value_code(ranges: &[SolvedRange], settings: Settings) -> ValueCode {
    let mut counts = vec![0_u64; MAX_BUCKET_KEYS];
    for value in ranges.iter().flat_map(|range| &range.values) {
        counts[usize::from(*value)] += 1;
    }
    if settings.encoding.has_bit_vector() {
        counts[0] = 0;
    }
    if settings.encoding.has_code() {
        return ValueCode::Huffman(Code::new(&counts));
    }
    let largest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    ValueCode::Fixed(usize::BITS - largest.leading_zeros())
}

fn write_bucket(values: &[u16], settings: Settings, code: &ValueCode, data: &mut BitWriter) {
    let skips_zeros = settings.encoding.has_bit_vector();
    if skips_zeros {
        for value in values {
            data.push(u32::from(*value != 0), 1);
        }
    }
    for value in values.iter().filter(|value| !skips_zeros || **value != 0) {
        let (bits, count) = code.of(*value);
        data.push(bits, count);
    }
    data.align();
}
