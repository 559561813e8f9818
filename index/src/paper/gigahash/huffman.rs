//! Huffman codes of at most 12 bits, decoded with one table lookup per symbol.
//!
//! Package-merge (Larmore and Hirschberg 1990) computes the lengths; it is optimal under the limit.
//! Codes are canonical and written lowest bit first, so that a window of the next 12 bits indexes
//! the table.
//!
//! A table entry is `length << 12 | symbol`.

/// Longest code, bits.
pub(super) const MAX_CODE_BITS: u32 = 12;
const SYMBOL_MASK: u16 = (1 << MAX_CODE_BITS) - 1;

/// The code of a set of symbols `0..counts.len()`.
#[derive(Debug)]
pub(super) struct Code {
    /// Code (written lowest bit first) and length; length 0 if the symbol does not occur.
    codes: Vec<(u32, u32)>,
    bits: u32,
}

impl Code {
    /// The optimal code for symbols that occur `counts[symbol]` times; at most 2^12 symbols.
    pub(super) fn new(counts: &[u64]) -> Self {
        let lengths = lengths(counts);
        let bits = lengths.iter().copied().max().unwrap_or(0);
        Self {
            codes: canonical(&lengths),
            bits,
        }
    }

    /// The code of a symbol that occurs, and its length.
    pub(super) fn of(&self, symbol: u16) -> (u32, u32) {
        self.codes[usize::from(symbol)]
    }

    /// The longest code, bits; 0 if nothing occurs.
    pub(super) const fn bits(&self) -> u32 {
        self.bits
    }

    /// The decoding table: 2^bits entries, one per window.
    pub(super) fn table(&self) -> Vec<u16> {
        let mut table = vec![0; 1 << self.bits];
        for (symbol, &(code, length)) in self.codes.iter().enumerate() {
            if length > 0 {
                let entry = (length as u16) << MAX_CODE_BITS | symbol as u16;
                let windows = table.iter_mut().skip(code as usize).step_by(1 << length);
                windows.for_each(|window| *window = entry);
            }
        }
        table
    }
}

/// Symbol and length of a table entry.
#[inline]
pub(super) const fn split(entry: u16) -> (u16, u32) {
    (entry & SYMBOL_MASK, (entry >> MAX_CODE_BITS) as u32)
}

/// Package-merge: takes the cheapest `2 * (symbols - 1)` items of `MAX_CODE_BITS` generations of
/// pairs; a symbol's length is the number of times that it is among them.
fn lengths(counts: &[u64]) -> Vec<u32> {
    let mut lengths = vec![0; counts.len()];
    let mut leaves: Vec<(u64, Vec<u16>)> = (counts.iter().enumerate())
        .filter(|(_, count)| **count > 0)
        .map(|(symbol, &count)| (count, vec![symbol as u16]))
        .collect();
    leaves.sort_by_key(|(count, _)| *count);
    if let [(_, only)] = leaves.as_slice() {
        lengths[usize::from(only[0])] = 1;
        return lengths;
    }
    let mut items = leaves.clone();
    for _ in 1..MAX_CODE_BITS {
        let mut next = leaves.clone();
        next.extend(items.chunks_exact(2).map(|pair| {
            let symbols = [&pair[0].1[..], &pair[1].1[..]].concat();
            (pair[0].0 + pair[1].0, symbols)
        }));
        next.sort_by_key(|(count, _)| *count);
        items = next;
    }
    let chosen = items.iter().take(2 * leaves.len().saturating_sub(1));
    for symbol in chosen.flat_map(|(_, symbols)| symbols) {
        lengths[usize::from(*symbol)] += 1;
    }
    lengths
}

/// Canonical codes, by length, then by symbol; each reversed, to be written lowest bit first.
fn canonical(lengths: &[u32]) -> Vec<(u32, u32)> {
    let mut codes = vec![(0, 0); lengths.len()];
    let mut next = 0_u32;
    for length in 1..=MAX_CODE_BITS {
        for (code, _) in codes
            .iter_mut()
            .zip(lengths)
            .filter(|(_, own)| **own == length)
        {
            *code = (next.reverse_bits() >> (32 - length), length);
            next += 1;
        }
        next <<= 1;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_textbook() {
        // Cormen, Leiserson, Rivest, Stein, 16.3: the frequencies of a to f in thousands.
        assert_eq!(lengths(&[45, 13, 12, 16, 9, 5]), [1, 3, 3, 3, 4, 4]);
        assert_eq!(
            lengths(&[0, 7, 0]),
            [0, 1, 0],
            "a single symbol still takes a bit"
        );
        assert_eq!(lengths(&[]), [0; 0]);
    }

    #[test]
    fn no_code_is_longer_than_12_bits_and_the_code_is_complete() {
        let fibonacci: Vec<u64> = (0..40)
            .scan((1, 1), |(a, b), _| {
                (*a, *b) = (*b, *a + *b);
                Some(*a)
            })
            .collect();
        let lengths = lengths(&fibonacci);
        assert_eq!(lengths.iter().max(), Some(&12), "unlimited, it would be 39");
        let kraft: u32 = lengths.iter().map(|length| 1 << (12 - length)).sum();
        assert_eq!(kraft, 1 << 12, "no window of the table is without a symbol");
    }

    #[test]
    fn the_table_finds_each_symbol_by_its_code() {
        let code = Code::new(&[45, 13, 0, 12, 16, 9, 5]);
        let table = code.table();
        for symbol in [0, 1, 3, 4, 5, 6] {
            let (bits, length) = code.of(symbol);
            for above in 0..1 << (code.bits() - length) {
                let window = bits | above << length;
                assert_eq!(split(table[window as usize]), (symbol, length));
            }
        }
    }
}
