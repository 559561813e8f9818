//! Counts the accesses of "The evaluation of h(x) requires three memory accesses".

use anyhow::Result;
use torc_index::paper::gigahash::{Encoding, GigaHash, Settings};

use super::super::claim::{Claim, Says};
use super::{Sizes, TABLE_1, urls};
use torc_plot::{Axis, Plot};

const ENCODINGS: [(&str, Encoding); 3] = [
    ("bit-vector", Encoding::BitVector),
    ("Huffman", Encoding::Huffman),
    ("bit-vector and Huffman", Encoding::BitVectorHuffman),
];

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new("GigaHash, abstract: a lookup takes three memory accesses");
    let mut plot = Plot::new(
        "GigaHash: cache lines a lookup reads",
        Axis::linear("c, vertices a key"),
        Axis::linear("lines of 64 bytes"),
    );
    plot.dashed("paper", vec![(0.89, 3.0), (1.15, 3.0)]);
    let keys = urls(sizes.of(400_000), sizes.seed);
    for (name, encoding) in ENCODINGS {
        let mut line = Vec::new();
        for (index, row) in TABLE_1.iter().enumerate() {
            let settings = Settings {
                encoding,
                seed: sizes.seed,
                ..Settings::default().with_vertices_per_key(row.c)
            };
            let bytes = GigaHash::build(&keys, settings)?;
            let function = GigaHash::view(&bytes)?;
            let (mut offsets, mut data, mut asked) = (0, 0, 0);
            for key in keys.iter().step_by(41) {
                let read = function.footprint(key);
                offsets += read.offset_lines;
                data += read.data_lines;
                asked += 1;
            }
            let mean = |lines: usize| lines as f64 / f64::from(asked);
            line.push((row.c, mean(offsets + data)));
            if index == 0 || index + 1 == TABLE_1.len() {
                let case = format!("{name}, c = {:.2}", row.c);
                claim.row(
                    &case,
                    ("lines of offsets", "lines"),
                    Says::Is(1.0),
                    mean(offsets),
                );
                claim.row(
                    &case,
                    ("lines of values", "lines"),
                    Says::Is(2.0),
                    mean(data),
                );
                claim.row(
                    &case,
                    ("lines in all", "lines"),
                    Says::Is(3.0),
                    mean(offsets + data),
                );
            }
        }
        plot.measured(name, line);
    }
    claim.plot(&plot);
    claim.why("The paper counts the offset and two values. Those are places; we count cache lines of 64 bytes, each once.");
    claim.why("Offsets: an entry lies in the group's 172 bytes, whose head is read with it; every 32nd bucket's end is in the next group.");
    claim.why("Bit-vector: a bucket has some 150 bytes, so two values and the bits before them lie in two or three lines side by side.");
    claim.why("Huffman: codes can only be read from the start of the bucket, so its lines up to the later vertex are read: as few, but one after another.");
    Ok(claim)
}
