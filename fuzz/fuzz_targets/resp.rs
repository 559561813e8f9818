//! Any bytes of a Redis client end the connection, or are requests of bounded size, whatever pieces they come in, and a
//! request is refused or understood.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use torc_resp::{Command, Limits, Parser, Reply, Request, Version};

/// The requests of a connection whose bytes come in pieces, and whether it ends with an error.
fn parsed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Request>, bool) {
    let limits = Limits::default();
    let mut parser = Parser::new(limits);
    let (mut buffer, mut all) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&mut buffer) {
                Ok(Some(request)) => {
                    let bytes: usize = request.iter().map(|it| it.len()).sum();
                    assert!((1..=limits.arguments).contains(&request.len()));
                    assert!(bytes <= limits.bytes);
                    all.push(request);
                }
                Ok(None) => break,
                Err(_) => return (all, true),
            }
        }
    }
    (all, false)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = parsed(std::iter::once(bytes));
    let split = parsed(bytes.chunks(3));
    assert_eq!(whole, split);
    for request in whole.0 {
        if let Err(error) = Command::parse(request) {
            let mut out = BytesMut::new();
            Reply::Error(error.to_string()).encode(Version::Resp3, &mut out);
            let lines = out[..].split(|byte| *byte == b'\n').count();
            assert_eq!(lines, 2, "one line, whatever the request holds: {error:?}");
        }
    }
});
