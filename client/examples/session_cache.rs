//! Sessions that expire by themselves.
//!
//! ```text
//! cargo run -p torc-client --example session_cache -- [--ttl-ms MS]  < commands
//! ```
//!
//! Commands, one per line: `login USER` prints the new session's id, `check ID` prints its user and
//! renews it, `logout ID` ends it. A session expires if it was not checked for MS milliseconds
//! (1,800,000). Put `--endpoint URL` before a command to name a node of the cluster.
//!
//! A renewal is a put on condition that the version is the one that was read. Without the
//! condition, a check concurrent with a logout could restore the session.
#![expect(clippy::print_stdout, reason = "the output of a program")]

mod common;

use std::io::stdin;
use std::time::Duration;

use common::Failure;
use torc_client::{Client, Condition, ErrorKind, PutOptions};

struct Sessions {
    client: Client,
    ttl: Duration,
}

impl Sessions {
    fn options(&self, condition: Condition) -> PutOptions {
        PutOptions {
            condition: Some(condition),
            ttl: Some(self.ttl),
            ..PutOptions::default()
        }
    }

    /// Creates a session; its id cannot be guessed.
    async fn login(&self, user: &str) -> Result<String, Failure> {
        let id = format!("{:032x}", rand::random::<u128>());
        let new = self.options(Condition::IfAbsent);
        self.client.put_with(key(&id), user.to_owned(), new).await?;
        Ok(id)
    }

    /// The user of a session.
    async fn check(&self, id: &str) -> Result<Option<String>, Failure> {
        let Some(session) = self.client.get(key(id)).await? else {
            return Ok(None);
        };
        let same = self.options(Condition::IfVersion(session.version));
        let renewed = self.client.put_with(key(id), session.value.clone(), same);
        match renewed.await {
            Ok(_) => {}
            // Another program has renewed or ended it in the meantime.
            Err(error) if error.kind() == ErrorKind::ConditionNotMet => {}
            // Renewed or not: the session as read stays valid for a while.
            Err(error) if error.maybe_applied() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Some(String::from_utf8(session.value.to_vec())?))
    }

    /// Whether there was such a session.
    async fn logout(&self, id: &str) -> Result<bool, Failure> {
        Ok(self.client.delete(key(id)).await?.existed)
    }
}

fn key(id: &str) -> String {
    format!("session:{id}")
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (client, arguments) = common::connect().await?;
    let ttl_ms = match &arguments[..] {
        [] => 1_800_000,
        [flag, ms] if flag == "--ttl-ms" => ms.parse()?,
        _ => return Err("use session_cache [--ttl-ms MS]".into()),
    };
    let ttl = Duration::from_millis(ttl_ms);
    let sessions = Sessions { client, ttl };
    for line in stdin().lines() {
        match line?.split_whitespace().collect::<Vec<_>>()[..] {
            ["login", user] => println!("{}", sessions.login(user).await?),
            ["check", id] => match sessions.check(id).await? {
                Some(user) => println!("{user}"),
                None => println!("no session"),
            },
            ["logout", id] if sessions.logout(id).await? => println!("ended"),
            ["logout", _] => println!("no session"),
            ref other => return Err(format!("no command: {}", other.join(" ")).into()),
        }
    }
    Ok(())
}
