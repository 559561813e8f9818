//! Errors in the words of Redis, which clients and users know.

/// Bytes that are not a request. The connection cannot continue, because the start of the next
/// request is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is malformed or too high.
    #[error("Protocol error: invalid multibulk length")]
    ArgumentCount,
    /// The length of an argument is malformed, negative or too high.
    #[error("Protocol error: invalid bulk length")]
    ArgumentLength,
    /// An argument does not start with `$`.
    #[error("Protocol error: expected '$', got '{0}'")]
    ExpectedArgument(char),
    /// An argument is longer or shorter than announced.
    #[error("Protocol error: an argument does not end where its length says")]
    ArgumentEnd,
    /// A line has no end.
    #[error("Protocol error: too big inline request")]
    LongLine,
    /// A quotation mark of an inline command is unbalanced.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// The arguments together exceed the limit of a request.
    #[error("Protocol error: the request is longer than {most} bytes")]
    LongRequest {
        /// The limit, bytes.
        most: usize,
    },
}

/// A refused command. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no such command.
    #[error("ERR unknown command '{name}', with args beginning with: {args}")]
    Unknown {
        /// Its first characters.
        name: String,
        /// The first characters of its arguments.
        args: String,
    },
    /// There is no such subcommand.
    #[error("ERR unknown subcommand '{subcommand}' of {command}")]
    UnknownSubcommand {
        /// The command.
        command: &'static str,
        /// Its first characters.
        subcommand: String,
    },
    /// Too many arguments or too few.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    /// An option is unknown, or contradicts another.
    #[error("ERR syntax error")]
    Syntax,
    /// Not a whole number of 64 bits.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// Not a number.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// Adding overflows.
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    /// `DECRBY` of the lowest number.
    #[error("ERR decrement would overflow")]
    DecrementOverflow,
    /// The sum is not a finite number.
    #[error("ERR increment would produce NaN or Infinity")]
    NotFinite,
    /// An expiry that is not positive, or too far away.
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(&'static str),
    /// `NX` beside `XX`, `GT` or `LT`.
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    ExpireNx,
    /// `GT` beside `LT`.
    #[error("ERR GT and LT options at the same time are not compatible")]
    ExpireGtLt,
    /// An unknown option of `EXPIRE`.
    #[error("ERR Unsupported option {0}")]
    ExpireOption(String),
    /// An invalid cursor of `SCAN`.
    #[error("ERR invalid cursor")]
    Cursor,
    /// The value would exceed the limit.
    #[error(
        "ERR string exceeds maximum allowed size: the value would have {len} bytes, at most {most} are allowed"
    )]
    TooLong {
        /// The length that it would have, bytes.
        len: usize,
        /// The limit, bytes.
        most: usize,
    },
    /// An unsupported version of the protocol.
    #[error("NOPROTO unsupported protocol version")]
    Protocol,
    /// The name of a connection contains spaces or control characters, or is too long.
    #[error(
        "ERR Client names cannot contain spaces, newlines or special characters. Limit: 256 bytes."
    )]
    ClientName,
    /// A client's description of itself contains spaces or control characters, or is too long.
    #[error("ERR {0} cannot contain spaces, newlines or special characters. Limit: 256 bytes.")]
    ClientInfo(&'static str),
    /// A command that Redis has and Torc refuses.
    #[error("ERR {name} is not supported: {advice}")]
    Refused {
        /// The command.
        name: &'static str,
        /// Why, and what to do instead.
        advice: &'static str,
    },
}
