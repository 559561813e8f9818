//! W3C trace context: the trace that an operation belongs to, and its parent span.

use bytes::Bytes;

/// The header of a trace context, in HTTP and in gRPC metadata.
pub const TRACEPARENT: &str = "traceparent";

/// Length as bytes: trace id, span id, flags.
const LEN: usize = 16 + 8 + 1;
/// Length as text, `00-{trace id}-{span id}-{flags}`.
const TEXT_LEN: usize = 55;
const SAMPLED: u8 = 1;

/// A span of a trace, as passed on with requests on its behalf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    is_sampled: bool,
}

impl TraceContext {
    /// `None` if an id is all zeros, which the standard forbids.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], is_sampled: bool) -> Option<Self> {
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(Self {
            trace_id,
            span_id,
            is_sampled,
        })
    }

    /// Parses a `traceparent`. `None` if it is malformed: the standard requires ignoring it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        // A later version may append fields.
        let is_later = text.get(..2).is_some_and(|it| it != "00" && it != "ff");
        let has_length = bytes.len() == TEXT_LEN
            || is_later && bytes.get(TEXT_LEN).is_some_and(|it| *it == b'-');
        if !has_length || (!is_later && !text.starts_with("00")) {
            return None;
        }
        let dashes = [2, 35, 52].map(|at| bytes[at]);
        let [_version] = hex(&bytes[..2])?;
        let trace_id = hex(&bytes[3..35])?;
        let span_id = hex(&bytes[36..52])?;
        let [flags] = hex(&bytes[53..55])?;
        let context = Self::new(trace_id, span_id, flags & SAMPLED != 0)?;
        (dashes == [b'-'; 3]).then_some(context)
    }

    /// Its form as a `traceparent`.
    #[must_use]
    pub fn to_traceparent(&self) -> String {
        let (trace_id, span_id) = (self.trace_id_text(), u64::from_be_bytes(self.span_id));
        format!(
            "00-{trace_id}-{span_id:016x}-{:02x}",
            u8::from(self.is_sampled)
        )
    }

    /// Parses the field of a message. `None` if it is malformed.
    #[must_use]
    pub fn from_wire(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let (trace_id, rest) = bytes.split_first_chunk()?;
        let (span_id, flags) = rest.split_first_chunk()?;
        Self::new(*trace_id, *span_id, flags[0] & SAMPLED != 0)
    }

    /// Its form as the field of a message: trace id, span id, flags.
    #[must_use]
    pub fn to_wire(&self) -> Bytes {
        let flags = [u8::from(self.is_sampled)];
        [&self.trace_id[..], &self.span_id, &flags].concat().into()
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn with_span(self, span_id: [u8; 8]) -> Option<Self> {
        Self::new(self.trace_id, span_id, self.is_sampled)
    }

    /// The trace.
    #[must_use]
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The trace, as logs show it: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id_text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace_id))
    }

    /// The span.
    #[must_use]
    pub const fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// Whether spans of this trace are recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.is_sampled
    }
}

/// Lower-case digits only, as the standard requires.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_standards_example_is_read_and_written() {
        let context = TraceContext::parse(TEXT).unwrap();
        assert_eq!(context.to_traceparent(), TEXT);
        assert_eq!(context.trace_id_text(), &TEXT[3..35]);
        assert!(context.is_sampled());
        assert_eq!(TraceContext::from_wire(&context.to_wire()), Some(context));
        let other = TraceContext::parse(&TEXT.replace("-01", "-02")).unwrap();
        assert!(!other.is_sampled(), "flags that mean something else");
        let later = TEXT.replacen("00", "01", 1);
        assert_eq!(TraceContext::parse(&later), Some(context));
        assert_eq!(TraceContext::parse(&(later + "-more")), Some(context));
    }

    #[test]
    fn whatever_is_malformed_is_ignored() {
        let trace_id = &TEXT[3..35];
        for text in [
            String::new(),
            TEXT[1..].to_owned(),
            format!("{TEXT}-more"),
            format!("{TEXT}0"),
            TEXT.to_uppercase(),
            TEXT.replacen("00", "ff", 1),
            TEXT.replacen("00", "0x", 1),
            TEXT.replacen('-', "_", 1),
            TEXT.replace(trace_id, &"0".repeat(32)),
            TEXT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            TEXT.replace("00f067aa0ba902b7", "00f067aa0ba902bé"),
            "é".repeat(28),
        ] {
            assert_eq!(TraceContext::parse(&text), None, "{text:?}");
        }
        let wire = TraceContext::parse(TEXT).unwrap().to_wire();
        for len in [0, 24] {
            assert_eq!(TraceContext::from_wire(&wire[..len]), None);
        }
        assert_eq!(TraceContext::from_wire(&[0; 25]), None);
        assert_eq!(TraceContext::from_wire(&[1; 26]), None);
    }
}
