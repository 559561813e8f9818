//! The state of a connection, and commands without a key.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use torc_access::caller::Caller;
use torc_proto::{Access as Needed, Fault};
use torc_resp::{
    Access, ClientCommand, ClusterCommand, Command, CommandCommand, CommandError, ConfigCommand,
    Hello, Limits, Parsed, Reply, Request, Secret, Spec, Version, key_slot,
};
use torc_ring::topology::Role;
use torc_telemetry::clock::unix_ms;

use super::burst::{Burst, Place};
use super::{cluster, errors, info, scan, table};
use crate::Server;

/// Fields of `CLIENT INFO` that clients read and that Torc does not have or measure.
const UNKNOWN: &str = "idle=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 \
                       rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r";

/// What to do after taking a request.
pub(super) enum Step {
    /// Take the next request.
    On,
    /// Answer this command after those before it, because it is not part of the burst.
    Aside(Box<Parsed>),
    /// Answer, then close the connection.
    End,
}

/// A client's connection.
pub(super) struct Session {
    server: Arc<Server>,
    /// The caller by the connection's certificate.
    door: Caller,
    /// The same caller, or the holder of the token sent since.
    caller: Caller,
    id: u64,
    began: Instant,
    version: Version,
    database: u32,
    name: Bytes,
    library: Bytes,
    library_version: Bytes,
}

impl Session {
    pub(super) fn new(server: Arc<Server>, caller: Caller, id: u64) -> Self {
        Self {
            server,
            door: caller.clone(),
            caller,
            id,
            began: Instant::now(),
            version: Version::Resp2,
            database: 0,
            name: Bytes::new(),
            library: Bytes::new(),
            library_version: Bytes::new(),
        }
    }

    pub(super) const fn version(&self) -> Version {
        self.version
    }

    /// The limits of the next request.
    pub(super) fn limits(&self) -> Limits {
        let cluster = self.server.node.cluster();
        match self.caller.check(Needed::Client, cluster) {
            Ok(()) => Limits::default(),
            Err(_) => Limits::UNAUTHENTICATED,
        }
    }

    /// Adds a request to the burst. A request without a key gets its reply at once.
    pub(super) fn take(&mut self, request: Request, burst: &mut Burst) -> Step {
        // A browser that another site's page sends here, as Redis has it: its headers and body are no commands.
        let is = |word: &[u8]| {
            request
                .first()
                .is_some_and(|it| it.eq_ignore_ascii_case(word))
        };
        if is(b"POST") || is(b"Host:") {
            return Step::End;
        }
        let spec = match Command::spec_of(&request) {
            Ok(spec) => spec,
            Err(error) => {
                let known = request.first().and_then(|name| Spec::find(name));
                burst.ready(known.map(Spec::number), self.version, refused(&error));
                return Step::On;
            }
        };
        let number = spec.number();
        let parsed = self.may(spec, spec.access).map_err(|fault| denied(&fault));
        let parsed = parsed.and_then(|()| {
            let parsed = Command::parse(request).map_err(|error| refused(&error))?;
            let access = parsed.command.access(spec);
            self.may(spec, access).map_err(|fault| denied(&fault))?;
            let reached = self.reaches(&parsed.command, access);
            reached.map_err(|fault| denied(&fault))?;
            Ok(parsed)
        });
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(reply) => {
                burst.ready(Some(number), self.version, reply);
                return Step::On;
            }
        };
        let database = self.database;
        match parsed.command {
            Command::Key(key, op) => {
                burst.one(number, self.version, Place { database, key }, op);
            }
            Command::Keys(ops, join) => {
                burst.several(number, self.version, database, (ops, join));
            }
            Command::Scan { .. } | Command::DbSize | Command::Cluster(_) | Command::Command(_) => {
                return Step::Aside(Box::new(parsed));
            }
            Command::Quit => {
                burst.ready(Some(number), self.version, Reply::OK);
                return Step::End;
            }
            other => {
                let reply = self.at_once(other);
                // The reply to `HELLO` uses the version that it requests.
                burst.ready(Some(number), self.version, reply);
            }
        }
        Step::On
    }

    /// Refuses a command that the caller may not use on any key.
    fn may(&self, spec: &Spec, access: Access) -> Result<(), Fault> {
        if self.caller.is_anyone() || access == Access::Open {
            return Ok(());
        }
        let cluster = self.server.node.cluster();
        let needed: &[Needed] = match access {
            Access::Open => &[],
            Access::Any => &[Needed::Client],
            Access::Read => &[Needed::Read],
            Access::Write => &[Needed::Write],
            Access::ReadAndWrite => &[Needed::Read, Needed::Write],
        };
        let mut needed = needed.iter();
        let checked = needed.try_for_each(|needed| self.caller.check(*needed, cluster));
        checked.inspect_err(|fault| self.server.node.denied(&self.caller, spec.name, fault))
    }

    /// Refuses a command on keys outside the caller's scopes.
    fn reaches(&self, command: &Command, access: Access) -> Result<(), Fault> {
        if !self.caller.is_scoped() {
            return Ok(());
        }
        let namespace = self.server.namespace(self.database);
        let may = |key: &[u8]| {
            let mut roles = roles_of(access).iter();
            roles.try_for_each(|role| self.server.node.may(&self.caller, *role, &namespace, key))
        };
        match command {
            Command::Key(key, _) => may(key),
            Command::Keys(ops, _) => ops.iter().try_for_each(|(key, _)| may(key)),
            // These reveal all keys.
            Command::Scan { .. } | Command::DbSize => may(b""),
            _ => Ok(()),
        }
    }

    /// Answers a command that needs only this node's memory.
    fn at_once(&mut self, command: Command) -> Reply {
        match command {
            Command::Ping(None) => Reply::Simple("PONG"),
            Command::Ping(Some(text)) | Command::Echo(text) => Reply::Bulk(text),
            Command::Time => time(),
            Command::Select(number) => self.select(number),
            Command::Hello(hello) => self.hello(hello),
            Command::Auth(user, password) => self.auth(user.as_deref(), &password),
            Command::Client(command) => self.client(command),
            Command::Config(ConfigCommand::Get(globs)) => info::config(&self.server, globs),
            Command::Config(ConfigCommand::Set) => Reply::Error(
                "ERR clients cannot change settings: see `kvd serve --help`".to_owned(),
            ),
            Command::Info(sections) => info::info(&self.server, &sections),
            Command::Reset => {
                let caller = self.door.clone();
                *self = Self::new(Arc::clone(&self.server), caller, self.id);
                Reply::Simple("RESET")
            }
            _ => Reply::OK,
        }
    }

    fn select(&mut self, number: i64) -> Reply {
        let databases = &self.server.options.databases;
        let known = u32::try_from(number).ok();
        // An empty name: a caller that may not know of all namespaces gets the same answer for a
        // number without a namespace.
        let name = known.and_then(|number| databases.get(&number));
        if !self.caller.may_know_of(name.map_or("", String::as_str)) {
            let message = "NOPERM the token's scopes include no key of that database";
            return Reply::Error(message.to_owned());
        }
        match known.filter(|number| databases.contains_key(number)) {
            Some(number) => {
                self.database = number;
                Reply::OK
            }
            None => Reply::Error("ERR DB index is out of range".to_owned()),
        }
    }

    fn hello(&mut self, hello: Hello) -> Reply {
        if let Some((user, password)) = &hello.auth
            && let Reply::Error(text) = self.auth(Some(user), password)
        {
            return Reply::Error(text);
        }
        self.version = hello.version.unwrap_or(self.version);
        if let Some(name) = hello.name {
            self.name = name;
        }
        let version = match self.version {
            Version::Resp2 => 2,
            Version::Resp3 => 3,
        };
        let field = |name: &str, value: Reply| (Reply::text(name), value);
        Reply::Map(vec![
            field("server", Reply::text("redis")),
            field("version", Reply::text(info::REDIS_VERSION)),
            field("proto", Reply::Integer(version)),
            field("id", Reply::Integer(self.id.cast_signed())),
            field("mode", Reply::text("standalone")),
            field("role", Reply::text("master")),
            field("modules", Reply::Array(Vec::new())),
        ])
    }

    /// Accepts a token as its id and secret, or whole as the password of the default user.
    fn auth(&mut self, user: Option<&[u8]>, password: &Secret) -> Reply {
        if self.door.is_anyone() {
            return without_tls(user);
        }
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        let password = text(&password.0);
        let found = match user {
            None | Some(b"default") => self.server.node.holder(password),
            Some(id) => {
                let token = format!("{}.{password}", text(id));
                self.server.node.holder(&token)
            }
        };
        match found {
            Ok(holder) => {
                self.caller = self.door.with_token(holder);
                Reply::OK
            }
            Err(fault) => {
                self.server.node.denied(&self.door, "AUTH", &fault);
                wrong_pass()
            }
        }
    }

    fn client(&mut self, command: ClientCommand) -> Reply {
        match command {
            ClientCommand::Id => return Reply::Integer(self.id.cast_signed()),
            ClientCommand::GetName if self.name.is_empty() => return Reply::Null,
            ClientCommand::GetName => return Reply::Bulk(self.name.clone()),
            ClientCommand::Info => return Reply::Text(self.about()),
            ClientCommand::SetName(name) => self.name = name,
            ClientCommand::LibName(name) => self.library = name,
            ClientCommand::LibVersion(version) => self.library_version = version,
            ClientCommand::Nothing => {}
        }
        Reply::OK
    }

    fn about(&self) -> String {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let resp = match self.version {
            Version::Resp2 => 2,
            Version::Resp3 => 3,
        };
        format!(
            "id={} name={} age={} flags=N db={} {UNKNOWN} cmd=client|info user=default lib-name={} lib-ver={} \
             resp={resp}\n",
            self.id,
            text(&self.name),
            self.began.elapsed().as_secs(),
            self.database,
            text(&self.library),
            text(&self.library_version),
        )
    }

    /// Answers a command on its own. Returns its index in the table, and the reply.
    pub(super) async fn aside(&self, parsed: Parsed) -> (usize, Reply) {
        let reply = match parsed.command {
            Command::Scan {
                cursor,
                pattern,
                count,
                is_string,
            } => {
                let wanted = scan::Wanted {
                    cursor,
                    count,
                    pattern: pattern.filter(|_| is_string),
                    none: !is_string,
                };
                scan::page(&self.server, self.database, wanted).await
            }
            Command::DbSize => scan::size(&self.server, self.database).await,
            Command::Cluster(ClusterCommand::KeySlot(key)) => {
                Ok(Reply::Integer(key_slot(&key).into()))
            }
            Command::Cluster(command) => cluster::answer(&self.server, &command).await,
            Command::Command(CommandCommand::Count) => Ok(table::count()),
            Command::Command(CommandCommand::List) => Ok(table::list()),
            Command::Command(CommandCommand::Docs(names)) => Ok(table::docs(&names)),
            Command::Command(CommandCommand::Info(names)) => Ok(table::info(&names)),
            _ => Ok(Reply::OK),
        };
        let reply = reply.unwrap_or_else(|fault| Reply::Error(errors::text(&fault)));
        (parsed.spec.number(), reply)
    }
}

/// Uses the same clock as expiries.
fn time() -> Reply {
    let now_ms = unix_ms();
    let micros = now_ms % 1_000 * 1_000;
    let parts = [now_ms / 1_000, micros].map(|part| Reply::text(part.to_string()));
    Reply::Array(parts.into())
}

const fn roles_of(access: Access) -> &'static [Role] {
    match access {
        Access::Open | Access::Any => &[],
        Access::Read => &[Role::Read],
        Access::Write => &[Role::Write],
        Access::ReadAndWrite => &[Role::Read, Role::Write],
    }
}

fn wrong_pass() -> Reply {
    Reply::Error("WRONGPASS invalid username-password pair or user is disabled.".to_owned())
}

/// Without TLS there are no passwords and no users but the default one, who needs no password.
fn without_tls(user: Option<&[u8]>) -> Reply {
    match user {
        Some(b"default") => Reply::OK,
        Some(_) => wrong_pass(),
        None => Reply::Error(
            "ERR AUTH <password> called without any password configured for the default user. Are you \
             sure your configuration is correct?"
                .to_owned(),
        ),
    }
}

fn refused(error: &CommandError) -> Reply {
    Reply::Error(error.to_string())
}

fn denied(fault: &Fault) -> Reply {
    Reply::Error(errors::text(fault))
}
