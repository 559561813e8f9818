//! Commands about the connection, the node or the cluster, without a key.

use std::fmt;

use bytes::Bytes;

use crate::args::{Args, shown};
use crate::error::CommandError;
use crate::number;
use crate::reply::Version;

/// `HELLO`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// The version of the protocol from now on; `None`: unchanged.
    pub version: Option<Version>,
    /// A user and a password.
    pub auth: Option<(Bytes, Secret)>,
    /// The connection's name.
    pub name: Option<Bytes>,
}

/// Bytes that `Debug` must not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Bytes);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// `CLIENT …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCommand {
    /// The connection's number.
    Id,
    /// Its name.
    GetName,
    /// Sets its name.
    SetName(Bytes),
    /// Sets the name of the client library.
    LibName(Bytes),
    /// Sets the version of the client library.
    LibVersion(Bytes),
    /// About this connection.
    Info,
    /// `NO-EVICT`, `NO-TOUCH`: nothing is ever evicted.
    Nothing,
}

/// `CLUSTER …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterCommand {
    /// Ranges of slots with their nodes.
    Slots,
    /// Nodes with their ranges of slots.
    Shards,
    /// A summary.
    Info,
    /// Nodes, one per line.
    Nodes,
    /// This node's name.
    MyId,
    /// The slot of a key.
    KeySlot(Bytes),
}

/// `COMMAND …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandCommand {
    /// The number of commands.
    Count,
    /// Documentation of these commands; of all if none is named.
    Docs(Vec<Bytes>),
    /// The table's entries for these commands; for all if none is named.
    Info(Vec<Bytes>),
    /// All names.
    List,
}

/// `CONFIG …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigCommand {
    /// Settings whose names match one of these globs.
    Get(Vec<Bytes>),
    /// Refused.
    Set,
}

pub(crate) fn hello(mut args: Args) -> Result<Hello, CommandError> {
    let Some(version) = args.next() else {
        return Ok(Hello::default());
    };
    let version = match number::whole(&version) {
        Some(2) => Version::Resp2,
        Some(3) => Version::Resp3,
        Some(_) => return Err(CommandError::Protocol),
        None => return Err(CommandError::NotInteger),
    };
    let mut hello = Hello {
        version: Some(version),
        ..Hello::default()
    };
    while !args.is_empty() {
        if args.take_word("AUTH") {
            hello.auth = Some((args.take()?, Secret(args.take()?)));
        } else if args.take_word("SETNAME") {
            hello.name = Some(name(args.take()?)?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(hello)
}

pub(crate) fn client(mut args: Args) -> Result<ClientCommand, CommandError> {
    let sub = args.take()?;
    let (command, arguments) = match &*sub.to_ascii_uppercase() {
        b"ID" => (Some(ClientCommand::Id), 0),
        b"GETNAME" => (Some(ClientCommand::GetName), 0),
        b"INFO" => (Some(ClientCommand::Info), 0),
        b"SETNAME" | b"NO-EVICT" | b"NO-TOUCH" => (None, 1),
        b"SETINFO" => (None, 2),
        _ => return Err(unknown("CLIENT", &sub)),
    };
    if args.len() != arguments {
        return Err(wrong_count("client", &sub));
    }
    if let Some(command) = command {
        return Ok(command);
    }
    if sub.eq_ignore_ascii_case(b"SETNAME") {
        return Ok(ClientCommand::SetName(name(args.take()?)?));
    }
    if arguments == 1 {
        let is_one = args.take_word("ON") || args.take_word("OFF");
        return is_one
            .then_some(ClientCommand::Nothing)
            .ok_or(CommandError::Syntax);
    }
    let attribute = args.take()?;
    let value = args.take()?;
    match &*attribute.to_ascii_uppercase() {
        b"LIB-NAME" if is_plain(&value) => Ok(ClientCommand::LibName(value)),
        b"LIB-VER" if is_plain(&value) => Ok(ClientCommand::LibVersion(value)),
        b"LIB-NAME" => Err(CommandError::ClientInfo("lib-name")),
        b"LIB-VER" => Err(CommandError::ClientInfo("lib-ver")),
        _ => Err(CommandError::Syntax),
    }
}

pub(crate) fn cluster(mut args: Args) -> Result<ClusterCommand, CommandError> {
    let sub = args.take()?;
    let command = match &*sub.to_ascii_uppercase() {
        b"SLOTS" => ClusterCommand::Slots,
        b"SHARDS" => ClusterCommand::Shards,
        b"INFO" => ClusterCommand::Info,
        b"NODES" => ClusterCommand::Nodes,
        b"MYID" => ClusterCommand::MyId,
        b"KEYSLOT" if args.len() == 1 => return Ok(ClusterCommand::KeySlot(args.take()?)),
        b"KEYSLOT" => return Err(wrong_count("cluster", &sub)),
        _ => return Err(unknown("CLUSTER", &sub)),
    };
    args.end().map_err(|_| wrong_count("cluster", &sub))?;
    Ok(command)
}

pub(crate) fn command(mut args: Args) -> Result<CommandCommand, CommandError> {
    let Some(sub) = args.next() else {
        return Ok(CommandCommand::Info(Vec::new()));
    };
    match &*sub.to_ascii_uppercase() {
        b"DOCS" => Ok(CommandCommand::Docs(args.rest().collect())),
        b"INFO" => Ok(CommandCommand::Info(args.rest().collect())),
        b"COUNT" | b"LIST" if !args.is_empty() => Err(wrong_count("command", &sub)),
        b"COUNT" => Ok(CommandCommand::Count),
        b"LIST" => Ok(CommandCommand::List),
        _ => Err(unknown("COMMAND", &sub)),
    }
}

pub(crate) fn config(mut args: Args) -> Result<ConfigCommand, CommandError> {
    let sub = args.take()?;
    match &*sub.to_ascii_uppercase() {
        b"GET" if args.is_empty() => Err(wrong_count("config", &sub)),
        b"GET" => Ok(ConfigCommand::Get(args.rest().collect())),
        b"SET" | b"RESETSTAT" | b"REWRITE" => Ok(ConfigCommand::Set),
        _ => Err(unknown("CONFIG", &sub)),
    }
}

fn unknown(command: &'static str, sub: &[u8]) -> CommandError {
    let subcommand = shown(sub);
    CommandError::UnknownSubcommand {
        command,
        subcommand,
    }
}

fn wrong_count(command: &str, sub: &[u8]) -> CommandError {
    CommandError::Arity(format!("{command}|{}", shown(sub).to_lowercase()))
}

/// Most bytes of what a client says of itself. Redis has no limit.
const LONGEST_NAME: usize = 256;

/// As in Redis: printable ASCII characters, no spaces.
fn is_plain(text: &[u8]) -> bool {
    text.len() <= LONGEST_NAME && text.iter().all(u8::is_ascii_graphic)
}

fn name(name: Bytes) -> Result<Bytes, CommandError> {
    if is_plain(&name) {
        Ok(name)
    } else {
        Err(CommandError::ClientName)
    }
}
