//! Errors in Redis' words, which clients and users know.

/// Bytes that are no request. The connection cannot go on: nobody knows where the next request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count of arguments is no number, or too high.
    #[error("Protocol error: invalid multibulk length")]
    ArgumentCount,
    /// The length of an argument is no number, negative or too high.
    #[error("Protocol error: invalid bulk length")]
    ArgumentLength,
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{0}'")]
    ExpectedArgument(char),
    /// An argument is longer or shorter than was said.
    #[error("Protocol error: an argument does not end where its length says")]
    ArgumentEnd,
    /// A line has no end.
    #[error("Protocol error: too big inline request")]
    LongLine,
    /// A quotation mark of an inline command has no partner.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// All arguments together are longer than a request may be.
    #[error("Protocol error: the request is longer than {most} bytes")]
    LongRequest {
        /// Bytes that it may have.
        most: usize,
    },
}

/// A command that is not carried out. Nothing was changed.
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
    #[error("ERR unknown subcommand '{subcommand}'. Try {command} HELP.")]
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
    /// Adding gives no number.
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
    /// An option of `EXPIRE` that there is not.
    #[error("ERR Unsupported option {0}")]
    ExpireOption(String),
    /// A cursor of `SCAN` that is none.
    #[error("ERR invalid cursor")]
    Cursor,
    /// The value would be longer than values may be.
    #[error(
        "ERR string exceeds maximum allowed size: the value would have {len} bytes, at most {most} are allowed"
    )]
    TooLong {
        /// Bytes that it would have.
        len: usize,
        /// Bytes that it may have.
        most: usize,
    },
    /// A version of the protocol that there is not.
    #[error("NOPROTO unsupported protocol version")]
    Protocol,
    /// `SELECT` of what is no number.
    #[error("ERR invalid DB index")]
    DbIndex,
    /// The name of a connection holds spaces or control characters.
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
    /// What a client says of itself holds spaces or control characters.
    #[error("ERR {0} cannot contain spaces, newlines or special characters.")]
    ClientInfo(&'static str),
    /// Redis knows it; Torc refuses it.
    #[error("ERR {name} is not supported: {advice}")]
    Refused {
        /// The command.
        name: &'static str,
        /// Why, and what to do instead.
        advice: &'static str,
    },
}
