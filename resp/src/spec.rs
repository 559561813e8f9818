//! The table of commands.

/// The permission that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// None.
    Open,
    /// To read.
    Read,
    /// To write.
    Write,
    /// To read and to write: the command writes, and reveals the stored value.
    ReadAndWrite,
    /// Any: clients ask for it before they send a command with a key.
    Any,
}

/// A command, as `COMMAND` describes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Spec {
    /// Name in lower case.
    pub name: &'static str,
    /// Number of arguments, including the name; negative: at least this many.
    pub arity: i64,
    /// Flags for clients that route.
    pub flags: &'static [&'static str],
    /// Positions of its keys: first, last (from the end if negative), step; 0: no keys.
    pub keys: (i64, i64, i64),
    /// The permission that it needs. [`Command::access`](crate::Command::access) also considers the
    /// options.
    pub access: Access,
    /// Its group in the documentation.
    pub group: &'static str,
    /// A summary.
    pub summary: &'static str,
    /// The first version of Redis with this command.
    pub since: &'static str,
}

impl Spec {
    /// The command of this name, in any case.
    #[must_use]
    pub fn find(name: &[u8]) -> Option<&'static Self> {
        let mut all = SPECS.iter();
        all.find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Its index in [`SPECS`].
    #[must_use]
    pub fn number(&self) -> usize {
        let mut all = SPECS.iter();
        all.position(|spec| spec.name == self.name).unwrap_or(0)
    }

    /// Whether this number of arguments is valid, including the name.
    #[must_use]
    #[expect(
        clippy::cast_possible_wrap,
        reason = "a command has fewer than 2^63 arguments"
    )]
    pub const fn takes(&self, arguments: usize) -> bool {
        let arguments = arguments as i64;
        arguments == self.arity || self.arity < 0 && arguments >= -self.arity
    }

    /// Its categories, named as in access lists of Redis.
    #[must_use]
    pub fn categories(&self) -> Vec<&'static str> {
        let mut categories = Vec::new();
        if self.flags.contains(&"write") {
            categories.push("@write");
        }
        if self.flags.contains(&"readonly") {
            categories.push("@read");
        }
        match self.group {
            "string" => categories.push("@string"),
            "generic" => categories.push("@keyspace"),
            "connection" => categories.push("@connection"),
            _ => {}
        }
        let speed = if self.flags.contains(&"fast") {
            "@fast"
        } else {
            "@slow"
        };
        categories.push(speed);
        categories
    }
}

const READ: &[&str] = &["readonly", "fast"];
const SLOW_READ: &[&str] = &["readonly"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const SLOW_WRITE: &[&str] = &["write", "denyoom"];
const DELETE: &[&str] = &["write", "fast"];
const TALK: &[&str] = &["noscript", "loading", "stale", "fast"];
const LOOK: &[&str] = &["loading", "stale"];
const NONE: (i64, i64, i64) = (0, 0, 0);
const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);

macro_rules! table {
    ($($name:literal $arity:literal $flags:ident $keys:expr, $access:ident $group:literal $since:literal $summary:literal;)*) => {
        &[$(Spec {
            name: $name,
            arity: $arity,
            flags: $flags,
            keys: $keys,
            access: Access::$access,
            group: $group,
            summary: $summary,
            since: $since,
        }),*]
    };
}

/// All commands, the most frequent first.
pub const SPECS: &[Spec] = table! {
    "get" 2 READ ONE, Read "string" "1.0.0" "Returns the value of a key.";
    "set" -3 SLOW_WRITE ONE, Write "string" "1.0.0" "Sets the value of a key, and when it expires.";
    "incr" 2 WRITE ONE, ReadAndWrite "string" "1.0.0" "Adds 1 to the whole number of a key.";
    "del" -2 DELETE ALL, Write "generic" "1.0.0" "Deletes keys.";
    "mget" -2 READ ALL, Read "string" "1.0.0" "Returns the values of keys, each read by itself.";
    "mset" -3 SLOW_WRITE (1, -1, 2), Write "string" "1.0.1" "Sets the values of keys, each by itself.";
    "exists" -2 READ ALL, Read "generic" "1.0.0" "Counts the keys that have a value.";
    "expire" -3 DELETE ONE, Write "generic" "1.0.0" "Sets in how many seconds a value expires.";
    "ttl" 2 READ ONE, Read "generic" "1.0.0" "Returns the seconds until a value expires.";
    "ping" -1 TALK NONE, Open "connection" "1.0.0" "Answers.";
    "setnx" 3 WRITE ONE, Write "string" "1.0.0" "Sets the value of a key that has none.";
    "setex" 4 SLOW_WRITE ONE, Write "string" "2.0.0" "Sets the value of a key, and in how many seconds it expires.";
    "psetex" 4 SLOW_WRITE ONE, Write "string" "2.6.0" "Sets the value of a key, and in how many milliseconds it expires.";
    "getset" 3 WRITE ONE, ReadAndWrite "string" "1.0.0" "Sets the value of a key; returns the old one.";
    "getdel" 2 DELETE ONE, ReadAndWrite "string" "6.2.0" "Deletes a key; returns its value.";
    "getex" -2 DELETE ONE, ReadAndWrite "string" "6.2.0" "Returns the value of a key, and sets when it expires.";
    "unlink" -2 DELETE ALL, Write "generic" "4.0.0" "Deletes keys, as DEL does.";
    "touch" -2 READ ALL, Read "generic" "3.2.1" "Counts the keys that have a value.";
    "incrby" 3 WRITE ONE, ReadAndWrite "string" "1.0.0" "Adds to the whole number of a key.";
    "decr" 2 WRITE ONE, ReadAndWrite "string" "1.0.0" "Takes 1 from the whole number of a key.";
    "decrby" 3 WRITE ONE, ReadAndWrite "string" "1.0.0" "Takes from the whole number of a key.";
    "incrbyfloat" 3 WRITE ONE, ReadAndWrite "string" "2.6.0" "Adds to the number of a key.";
    "append" 3 WRITE ONE, Write "string" "2.0.0" "Adds bytes at the end of a value; returns its length.";
    "strlen" 2 READ ONE, Read "string" "2.2.0" "Returns the length of a value.";
    "getrange" 4 SLOW_READ ONE, Read "string" "2.4.0" "Returns a part of a value.";
    "substr" 4 SLOW_READ ONE, Read "string" "1.0.0" "Returns a part of a value, as GETRANGE does.";
    "pexpire" -3 DELETE ONE, Write "generic" "2.6.0" "Sets in how many milliseconds a value expires.";
    "expireat" -3 DELETE ONE, Write "generic" "1.2.0" "Sets when a value expires, Unix seconds.";
    "pexpireat" -3 DELETE ONE, Write "generic" "2.6.0" "Sets when a value expires, Unix milliseconds.";
    "pttl" 2 READ ONE, Read "generic" "2.6.0" "Returns the milliseconds until a value expires.";
    "expiretime" 2 READ ONE, Read "generic" "7.0.0" "Returns when a value expires, Unix seconds.";
    "pexpiretime" 2 READ ONE, Read "generic" "7.0.0" "Returns when a value expires, Unix milliseconds.";
    "persist" 2 DELETE ONE, Write "generic" "2.2.0" "Makes a value never expire.";
    "type" 2 READ ONE, Read "generic" "1.0.0" "Returns `string` for a key that has a value.";
    "scan" -2 SLOW_READ NONE, Read "generic" "2.8.0" "Returns keys, page by page, in the order of the ring.";
    "dbsize" 1 READ NONE, Read "server" "1.0.0" "Estimates the number of keys.";
    "time" 1 TALK NONE, Open "server" "2.6.0" "Returns the node's time, Unix seconds and microseconds.";
    "echo" 2 TALK NONE, Open "connection" "1.0.0" "Returns its argument.";
    "hello" -1 TALK NONE, Open "connection" "6.0.0" "Chooses the protocol's version; tells about the server.";
    "auth" -2 TALK NONE, Open "connection" "1.0.0" "Identifies the client by a token of the cluster.";
    "select" 2 TALK NONE, Open "connection" "1.0.0" "Chooses the namespace by its number.";
    "client" -2 TALK NONE, Open "connection" "2.4.0" "Names the connection, and tells about it.";
    "command" -1 LOOK NONE, Open "server" "2.8.13" "Tells about commands.";
    "quit" -1 TALK NONE, Open "connection" "1.0.0" "Closes the connection.";
    "reset" 1 TALK NONE, Open "connection" "6.2.0" "Makes the connection as it began.";
    "readonly" 1 TALK NONE, Open "cluster" "3.0.0" "Changes nothing: any node answers any key.";
    "readwrite" 1 TALK NONE, Open "cluster" "3.0.0" "Changes nothing: any node answers any key.";
    "asking" 1 TALK NONE, Open "cluster" "3.0.0" "Changes nothing: any node answers any key.";
    "cluster" -2 LOOK NONE, Any "cluster" "3.0.0" "Tells about nodes and slots.";
    "config" -2 LOOK NONE, Any "server" "2.0.0" "Tells settings that clients ask for.";
    "info" -1 LOOK NONE, Any "server" "1.0.0" "Tells about the node.";
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_lower_case_and_found_in_any_case() {
        let names: BTreeSet<_> = SPECS.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), SPECS.len());
        for (number, spec) in SPECS.iter().enumerate() {
            assert_eq!(spec.name, spec.name.to_lowercase());
            let found = Spec::find(spec.name.to_uppercase().as_bytes()).unwrap();
            assert_eq!(found.number(), number);
            assert!(spec.takes(spec.arity.unsigned_abs() as usize));
            assert_eq!(spec.takes(40), spec.arity < 0);
        }
        assert!(Spec::find(b"").is_none() && Spec::find(b"\xff").is_none());
    }

    #[test]
    fn what_writes_takes_a_role_that_may() {
        for spec in SPECS {
            let writes = spec.flags.contains(&"write");
            let may = matches!(spec.access, Access::Write | Access::ReadAndWrite);
            assert_eq!(writes, may, "{}", spec.name);
            let has_keys = spec.keys != NONE;
            assert!(
                !has_keys || spec.access != Access::Open,
                "{} opens keys to everybody",
                spec.name
            );
        }
    }
}
