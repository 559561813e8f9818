//! Parsed requests.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::args::{Args, shown};
use crate::connection::{
    self, ClientCommand, ClusterCommand, CommandCommand, ConfigCommand, Hello, Secret,
};
use crate::error::CommandError;
use crate::glob::Pattern;
use crate::keyop::{self, Expiry, ExpiryIf, KeyOp, SetIf, SetOp, Unit};
use crate::parser::Request;
use crate::refused;
use crate::reply::Reply;
use crate::spec::{Access, Spec};

/// Times farther away are refused: 2^48 milliseconds are some 8,900 years.
const FARTHEST_MS: i64 = 1 << 48;
/// Keys per page of `SCAN` by default, and the maximum of `COUNT`.
const USUAL_PAGE: i64 = 10;
const LARGEST_PAGE: i64 = 10_000;

/// A command with its entry in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The entry.
    pub spec: &'static Spec,
    /// The command.
    pub command: Command,
}

/// How to combine the replies for several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// A list of them.
    List,
    /// Their sum.
    Sum,
    /// `OK`.
    Done,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// An operation on one key.
    Key(Bytes, KeyOp),
    /// Operations on several keys; together they are not atomic.
    Keys(Vec<(Bytes, KeyOp)>, Join),
    /// A page of keys.
    Scan {
        /// The token where the page starts.
        cursor: u64,
        /// The pattern of the keys.
        pattern: Option<Pattern>,
        /// Number of keys to examine.
        count: usize,
        /// Whether the requested type is a string; there are no values of other types.
        is_string: bool,
    },
    /// An estimate of the number of keys.
    DbSize,
    /// Replies `PONG`, or with these bytes.
    Ping(Option<Bytes>),
    /// Replies with the same bytes.
    Echo(Bytes),
    /// The node's time.
    Time,
    /// Selects a namespace by number.
    Select(i64),
    /// Selects the version of the protocol.
    Hello(Hello),
    /// User and password; `None`: the default user.
    Auth(Option<Bytes>, Secret),
    /// About the connection.
    Client(ClientCommand),
    /// About the cluster.
    Cluster(ClusterCommand),
    /// About the table of commands.
    Command(CommandCommand),
    /// About settings.
    Config(ConfigCommand),
    /// About the node; these sections.
    Info(Vec<Bytes>),
    /// `READONLY`, `READWRITE`, `ASKING`: no effect.
    Nothing,
    /// Restores the connection's initial state.
    Reset,
    /// Ends the connection.
    Quit,
}

impl Command {
    /// Parses a request by its entry in the table.
    ///
    /// # Errors
    /// [`CommandError`]; the connection can continue.
    pub fn parse(request: Request) -> Result<Parsed, CommandError> {
        let spec = Self::spec_of(&request)?;
        let command = of(spec, Args::of(request))?;
        Ok(Parsed { spec, command })
    }

    /// The table's entry for a request, if the number of arguments is valid.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn spec_of(request: &[Bytes]) -> Result<&'static Spec, CommandError> {
        let name = request.first().map(|name| &**name).unwrap_or_default();
        let Some(spec) = Spec::find(name) else {
            return Err(unknown(name, request));
        };
        if !spec.takes(request.len()) {
            return Err(CommandError::Arity(spec.name.to_owned()));
        }
        Ok(spec)
    }

    /// The permission that the command needs with these options.
    #[must_use]
    pub fn access(&self, spec: &Spec) -> Access {
        match self {
            Self::Key(
                _,
                KeyOp::Set(SetOp {
                    tells_old,
                    condition,
                    ..
                }),
            ) if *tells_old || matches!(condition, SetIf::Equal(_)) => Access::ReadAndWrite,
            _ => spec.access,
        }
    }
}

impl Join {
    /// Combines the replies for several keys into one.
    #[must_use]
    pub fn join(self, replies: Vec<Reply>) -> Reply {
        match self {
            Self::List => Reply::Array(replies),
            Self::Done => Reply::OK,
            Self::Sum => Reply::Integer(
                replies
                    .iter()
                    .map(|reply| match reply {
                        Reply::Integer(number) => *number,
                        _ => 0,
                    })
                    .sum(),
            ),
        }
    }
}

fn unknown(name: &[u8], request: &[Bytes]) -> CommandError {
    if let Some((name, advice)) = refused::find(name) {
        return CommandError::Refused { name, advice };
    }
    let args = request.iter().skip(1).take(8);
    let args: Vec<_> = args.map(|arg| format!("'{}'", shown(arg))).collect();
    CommandError::Unknown {
        name: shown(name),
        args: args.join(" "),
    }
}

fn of(spec: &Spec, mut args: Args) -> Result<Command, CommandError> {
    Ok(match spec.name {
        "get" | "set" | "incr" | "setnx" | "setex" | "psetex" | "getset" | "getdel" | "getex"
        | "incrby" | "decr" | "decrby" | "incrbyfloat" | "append" | "strlen" | "getrange"
        | "substr" | "expire" | "pexpire" | "expireat" | "pexpireat" | "ttl" | "pttl"
        | "expiretime" | "pexpiretime" | "persist" | "type" => {
            Command::Key(args.take()?, key_op(spec.name, args)?)
        }
        "mget" => each(args, &KeyOp::Get, Join::List),
        "del" | "unlink" => each(args, &KeyOp::Del, Join::Sum),
        "exists" | "touch" => each(args, &KeyOp::Exists, Join::Sum),
        "mset" => mset(args)?,
        "scan" => scan(args)?,
        "dbsize" => Command::DbSize,
        "ping" => {
            let text = args.next();
            args.end().map_err(|_| CommandError::Arity("ping".into()))?;
            Command::Ping(text)
        }
        "echo" => Command::Echo(args.take()?),
        "time" => Command::Time,
        "select" => Command::Select(args.take_whole()?),
        "hello" => Command::Hello(connection::hello(args)?),
        "auth" => {
            let first = args.take()?;
            let second = args.next();
            args.end()?;
            match second {
                Some(password) => Command::Auth(Some(first), Secret(password)),
                None => Command::Auth(None, Secret(first)),
            }
        }
        "client" => Command::Client(connection::client(args)?),
        "cluster" => Command::Cluster(connection::cluster(args)?),
        "command" => Command::Command(connection::command(args)?),
        "config" => Command::Config(connection::config(args)?),
        "info" => Command::Info(args.rest().collect()),
        "reset" => Command::Reset,
        "quit" => Command::Quit,
        _ => Command::Nothing,
    })
}

fn each(args: Args, op: &KeyOp, join: Join) -> Command {
    Command::Keys(args.rest().map(|key| (key, op.clone())).collect(), join)
}

fn mset(args: Args) -> Result<Command, CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Arity("mset".into()));
    }
    let mut args = args.rest();
    let mut pairs = Vec::with_capacity(args.len() / 2);
    while let (Some(key), Some(value)) = (args.next(), args.next()) {
        pairs.push((key, KeyOp::Set(SetOp::plain(value))));
    }
    Ok(Command::Keys(pairs, Join::Done))
}

fn key_op(name: &str, mut args: Args) -> Result<KeyOp, CommandError> {
    let op = match name {
        "set" => return set(args),
        "getex" => return getex(args),
        "expire" => return expire("expire", 1_000, Expiry::In, args),
        "pexpire" => return expire("pexpire", 1, Expiry::In, args),
        "expireat" => return expire("expireat", 1_000, Expiry::At, args),
        "pexpireat" => return expire("pexpireat", 1, Expiry::At, args),
        "get" => KeyOp::Get,
        "incr" => KeyOp::IncrBy(1),
        "decr" => KeyOp::IncrBy(-1),
        "incrby" => KeyOp::IncrBy(args.take_whole()?),
        "decrby" => {
            let by = args.take_whole()?.checked_neg();
            KeyOp::IncrBy(by.ok_or(CommandError::DecrementOverflow)?)
        }
        "incrbyfloat" => {
            let by = args.take()?;
            keyop::check_float(&by)?;
            KeyOp::IncrByFloat(by)
        }
        "setnx" => KeyOp::Set(SetOp {
            condition: SetIf::Absent,
            tells_number: true,
            ..SetOp::plain(args.take()?)
        }),
        "setex" => set_in("setex", 1_000, &mut args)?,
        "psetex" => set_in("psetex", 1, &mut args)?,
        "getset" => KeyOp::Set(SetOp {
            tells_old: true,
            ..SetOp::plain(args.take()?)
        }),
        "getdel" => KeyOp::GetDel,
        "append" => KeyOp::Append(args.take()?),
        "strlen" => KeyOp::Strlen,
        "getrange" | "substr" => KeyOp::GetRange(args.take_whole()?, args.take_whole()?),
        "ttl" => KeyOp::Ttl(Unit::Seconds),
        "pttl" => KeyOp::Ttl(Unit::Milliseconds),
        "expiretime" => KeyOp::ExpireTime(Unit::Seconds),
        "pexpiretime" => KeyOp::ExpireTime(Unit::Milliseconds),
        "persist" => KeyOp::Persist,
        _ => KeyOp::Type,
    };
    args.end()?;
    Ok(op)
}

/// A positive time in units of this many milliseconds, not too far away.
fn positive(command: &'static str, unit_ms: i64, args: &mut Args) -> Result<i64, CommandError> {
    let time = args.take_whole()?;
    let ms = time
        .checked_mul(unit_ms)
        .filter(|ms| *ms > 0 && *ms <= FARTHEST_MS);
    ms.ok_or(CommandError::ExpireTime(command))
}

fn set_in(command: &'static str, unit_ms: i64, args: &mut Args) -> Result<KeyOp, CommandError> {
    let expiry = Expiry::In(positive(command, unit_ms, args)?);
    Ok(KeyOp::Set(SetOp {
        expiry,
        ..SetOp::plain(args.take()?)
    }))
}

/// Takes an option for the expiry of a value, if it comes next.
fn expiry(command: &'static str, args: &mut Args) -> Result<Option<Expiry>, CommandError> {
    for (word, unit_ms) in [("EX", 1_000), ("PX", 1)] {
        if args.take_word(word) {
            return positive(command, unit_ms, args).map(|ms| Some(Expiry::In(ms)));
        }
    }
    for (word, unit_ms) in [("EXAT", 1_000), ("PXAT", 1)] {
        if args.take_word(word) {
            return positive(command, unit_ms, args).map(|ms| Some(Expiry::At(ms)));
        }
    }
    Ok(None)
}

fn set(mut args: Args) -> Result<KeyOp, CommandError> {
    let mut set = SetOp::plain(args.take()?);
    let mut times = None;
    while !args.is_empty() {
        if let Some(expiry) = expiry("set", &mut args)? {
            once(&mut times, expiry)?;
        } else if args.take_word("KEEPTTL") {
            once(&mut times, Expiry::Keep)?;
        } else if args.take_word("GET") {
            set.tells_old = true;
        } else {
            let condition = if args.take_word("NX") {
                SetIf::Absent
            } else if args.take_word("XX") {
                SetIf::Present
            } else if args.take_word("IFEQ") {
                SetIf::Equal(args.take()?)
            } else {
                return Err(CommandError::Syntax);
            };
            if set.condition != SetIf::Always && set.condition != condition {
                return Err(CommandError::Syntax);
            }
            set.condition = condition;
        }
    }
    set.expiry = times.unwrap_or(Expiry::Never);
    Ok(KeyOp::Set(set))
}

fn getex(mut args: Args) -> Result<KeyOp, CommandError> {
    let mut times = None;
    while !args.is_empty() {
        if let Some(expiry) = expiry("getex", &mut args)? {
            once(&mut times, expiry)?;
        } else if args.take_word("PERSIST") {
            once(&mut times, Expiry::Never)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(times.map_or(KeyOp::Get, KeyOp::GetEx))
}

fn once(times: &mut Option<Expiry>, expiry: Expiry) -> Result<(), CommandError> {
    match times.replace(expiry) {
        None => Ok(()),
        Some(_) => Err(CommandError::Syntax),
    }
}

fn expire(
    command: &'static str,
    unit_ms: i64,
    expiry: fn(i64) -> Expiry,
    mut args: Args,
) -> Result<KeyOp, CommandError> {
    let time = args.take_whole()?;
    let ms = time.checked_mul(unit_ms).filter(|ms| *ms <= FARTHEST_MS);
    let ms = ms.ok_or(CommandError::ExpireTime(command))?;
    let (mut has_one, mut has_none) = (None, None);
    let (mut later, mut sooner) = (None, None);
    while let Some(option) = args.next() {
        match &*option.to_ascii_uppercase() {
            b"NX" => has_none = Some(false),
            b"XX" => has_one = Some(true),
            b"GT" => later = Some(Ordering::Greater),
            b"LT" => sooner = Some(Ordering::Less),
            _ => return Err(CommandError::ExpireOption(shown(&option))),
        }
    }
    if has_none.is_some() && (has_one.is_some() || later.or(sooner).is_some()) {
        return Err(CommandError::ExpireNx);
    }
    if later.is_some() && sooner.is_some() {
        return Err(CommandError::ExpireGtLt);
    }
    let when = ExpiryIf {
        has_one: has_one.or(has_none),
        order: later.or(sooner),
    };
    Ok(KeyOp::Expire(expiry(ms), when))
}

fn scan(mut args: Args) -> Result<Command, CommandError> {
    let cursor = args.take()?;
    let cursor = std::str::from_utf8(&cursor)
        .ok()
        .and_then(|it| it.parse().ok());
    let cursor = cursor.ok_or(CommandError::Cursor)?;
    let (mut pattern, mut count, mut is_string) = (None, USUAL_PAGE, true);
    while !args.is_empty() {
        if args.take_word("MATCH") {
            pattern = Some(Pattern::new(args.take()?));
        } else if args.take_word("COUNT") {
            count = args.take_whole()?;
        } else if args.take_word("TYPE") {
            is_string = args.take()?.eq_ignore_ascii_case(b"string");
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if count < 1 {
        return Err(CommandError::Syntax);
    }
    Ok(Command::Scan {
        cursor,
        pattern,
        count: usize::try_from(count.min(LARGEST_PAGE)).map_err(|_| CommandError::Syntax)?,
        is_string,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SPECS;
    use proptest::prelude::*;

    fn request(text: &str) -> Request {
        let words = text
            .split(' ')
            .map(|word| Bytes::copy_from_slice(word.as_bytes()));
        words.collect()
    }

    fn parse(text: &str) -> Result<Command, String> {
        let parsed = Command::parse(request(text));
        parsed
            .map(|parsed| parsed.command)
            .map_err(|error| error.to_string())
    }

    fn set_of(text: &str) -> Result<SetOp, String> {
        match parse(text)? {
            Command::Key(_, KeyOp::Set(set)) => Ok(set),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn set_takes_its_options_in_any_order_and_case() {
        let set = set_of("SET k v px 5 get nx").unwrap();
        assert_eq!(set.expiry, Expiry::In(5));
        assert_eq!(set.condition, SetIf::Absent);
        assert!(set.tells_old);
        assert_eq!(set_of("set k v EXAT 5").unwrap().expiry, Expiry::At(5_000));
        assert_eq!(set_of("set k v KEEPTTL").unwrap().expiry, Expiry::Keep);
        let equal = set_of("set k v ifeq old").unwrap();
        assert_eq!(equal.condition, SetIf::Equal("old".into()));
        for wrong in [
            "NX XX",
            "EX 5 PX 5",
            "EX 5 KEEPTTL",
            "NX IFEQ a",
            "IFEQ",
            "EX",
            "FOO",
            "IFEQ a IFEQ b",
        ] {
            assert_eq!(
                set_of(&format!("SET k v {wrong}")),
                Err("ERR syntax error".into()),
                "{wrong}"
            );
        }
    }

    #[test]
    fn errors_are_in_the_words_of_redis() {
        let cases = [
            ("GET", "ERR wrong number of arguments for 'get' command"),
            ("GET a b", "ERR wrong number of arguments for 'get' command"),
            (
                "MSET a b c",
                "ERR wrong number of arguments for 'mset' command",
            ),
            (
                "PING a b",
                "ERR wrong number of arguments for 'ping' command",
            ),
            (
                "FOO a b",
                "ERR unknown command 'FOO', with args beginning with: 'a' 'b'",
            ),
            ("INCRBY a x", "ERR value is not an integer or out of range"),
            (
                "DECRBY a -9223372036854775808",
                "ERR decrement would overflow",
            ),
            ("INCRBYFLOAT a x", "ERR value is not a valid float"),
            ("SET a b EX 0", "ERR invalid expire time in 'set' command"),
            (
                "SET a b EX 9223372036854775807",
                "ERR invalid expire time in 'set' command",
            ),
            ("SETEX a -1 b", "ERR invalid expire time in 'setex' command"),
            (
                "GETEX a EX -1",
                "ERR invalid expire time in 'getex' command",
            ),
            (
                "EXPIRE a 9223372036854775807",
                "ERR invalid expire time in 'expire' command",
            ),
            (
                "EXPIRE a 1 NX GT",
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ),
            (
                "EXPIRE a 1 GT LT",
                "ERR GT and LT options at the same time are not compatible",
            ),
            ("EXPIRE a 1 AB", "ERR Unsupported option AB"),
            ("SCAN x", "ERR invalid cursor"),
            ("SCAN 0 COUNT 0", "ERR syntax error"),
            ("SELECT x", "ERR value is not an integer or out of range"),
            ("HELLO 4", "NOPROTO unsupported protocol version"),
            ("CLIENT FOO", "ERR unknown subcommand 'FOO' of CLIENT"),
            (
                "CLIENT MAINT_NOTIFICATIONS ON",
                "ERR unknown subcommand 'MAINT_NOTIFICATIONS' of CLIENT",
            ),
            (
                "CLIENT SETNAME",
                "ERR wrong number of arguments for 'client|setname' command",
            ),
            ("CLUSTER FOO", "ERR unknown subcommand 'FOO' of CLUSTER"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        }
        let refused = parse("msetnx a b").unwrap_err();
        assert!(
            refused.starts_with("ERR MSETNX is not supported: "),
            "{refused}"
        );
    }

    #[test]
    fn an_option_that_tells_what_was_stored_takes_both_roles() {
        let access = |text| {
            let parsed = Command::parse(request(text)).unwrap();
            parsed.command.access(parsed.spec)
        };
        assert_eq!(access("SET k v"), Access::Write);
        assert_eq!(access("SET k v GET"), Access::ReadAndWrite);
        // `IFEQ` reveals the value to a client that guesses it.
        assert_eq!(access("SET k v IFEQ a"), Access::ReadAndWrite);
        assert_eq!(access("GETDEL k"), Access::ReadAndWrite);
    }

    #[test]
    fn the_keys_of_every_command_stand_where_the_table_says() {
        for spec in SPECS.iter().filter(|spec| spec.keys.0 > 0) {
            let count = spec.arity.unsigned_abs() as usize;
            let mut words = vec![Bytes::from("1"); count];
            words[0] = spec.name.into();
            words[1] = "the key".into();
            let key = match Command::parse(words).unwrap().command {
                Command::Key(key, _) => key,
                Command::Keys(mut keys, _) => keys.remove(0).0,
                other => panic!("{other:?}"),
            };
            assert_eq!(key, "the key");
        }
    }

    proptest! {
        #[test]
        fn any_arguments_are_understood_or_refused(
            spec in 0..SPECS.len(),
            words in proptest::collection::vec("[A-Za-z0-9*\\-]{0,6}|EX|PX|NX|XX|GET|COUNT|MATCH", 0..8),
        ) {
            let mut request = vec![Bytes::from(SPECS[spec].name)];
            request.extend(words.into_iter().map(Bytes::from));
            let _ = Command::parse(request);
        }
    }
}
