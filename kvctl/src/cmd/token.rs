//! `kvctl token`: bearer tokens, by which clients are known without certificates.

use std::time::Duration;

use clap::builder::ArgPredicate;
use serde::Serialize;
use torc_client::{BearerId, NewToken, Role, Scope, TokenInfo};

use crate::args;
use crate::cli::Global;
use crate::failure::Failure;
use crate::out::{Out, note};
use crate::table::{Align, Table};

/// Create, list or revoke tokens, by which clients are known without certificates, or with which nodes join
///
/// A token is sent over TLS only: with `--token`, `--token-file` or TORC_TOKEN by kvctl, as `authorization: Bearer
/// TOKEN` over gRPC and HTTP, with `AUTH` by Redis clients.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a token and print it. Nobody can be told its secret again.
    Create(CreateArgs),
    /// List the tokens by id, without their secrets.
    List,
    /// Revoke a token: within five seconds no node takes it, nor goes on with what it opened.
    ///
    /// Asking again is harmless. A node that is cut off from the others hears of it when it is back.
    Revoke {
        /// What the token begins with, up to the dot; `list` shows it.
        #[arg(value_name = "ID", value_parser = id)]
        id: BearerId,
    },
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("grants").required(true).multiple(true)))]
struct CreateArgs {
    /// Whose it is, which logs show: 1 to 64 letters, digits, `-`, `_`, `.` and `@`.
    #[arg(
        value_name = "NAME",
        required_unless_present = "join",
        default_value_if("join", ArgPredicate::IsPresent, "join")
    )]
    name: Option<String>,
    /// Instead of roles and scopes: it lets nodes into a secure cluster (`kvd serve --join`), and nothing else.
    #[arg(long, group = "grants", conflicts_with_all = ["roles", "scopes"])]
    join: bool,
    /// With --join: how many nodes it lets in, at most 64.
    #[arg(long, value_name = "N", requires = "join", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    uses: u32,
    /// What it allows in every namespace: read, write, observe or admin, which includes the others; for several,
    /// put commas between them.
    #[arg(
        long = "role",
        value_name = "ROLE",
        value_delimiter = ',',
        group = "grants"
    )]
    roles: Vec<Role>,
    /// What it allows in one namespace, or for its keys that begin with a prefix: read:sessions,
    /// write:sessions/user:. At most 16; give the option several times.
    #[arg(
        long = "scope",
        value_name = "ROLE:NAMESPACE[/PREFIX]",
        group = "grants"
    )]
    scopes: Vec<Scope>,
    /// After which time it ends, for example 12h or 30d, by the clocks of the nodes. If not given: when it is
    /// revoked, and after an hour with --join.
    #[arg(long, value_name = "TIME", value_parser = args::positive_duration)]
    expires: Option<Duration>,
}

/// A token given whole is not told back: it is a secret.
fn id(text: &str) -> Result<BearerId, &'static str> {
    text.parse()
        .map_err(|_| "an id has 16 hexadecimal digits: see `kvctl token list`")
}

/// What `create --output json` prints.
#[derive(Serialize)]
struct Created<'a> {
    #[serde(flatten)]
    info: &'a TokenInfo,
    token: String,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    match args.action {
        Action::Create(args) => create(args, global, out).await,
        Action::List => {
            let tokens = global.client()?.tokens().await?;
            if global.json() {
                return tokens.iter().try_for_each(|token| out.json(token));
            }
            out.line(table(&tokens))
        }
        Action::Revoke { id } => {
            global.client()?.revoke_token(id).await?;
            if global.json() {
                return out.json(&serde_json::json!({ "id": id.to_string() }));
            }
            out.line(format_args!(
                "no node that answers takes the token {id} any more"
            ))
        }
    }
}

/// How long a join token counts unless said otherwise.
const JOIN_TIME: Duration = Duration::from_secs(3_600);

async fn create(args: CreateArgs, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let name = args.name.unwrap_or_default();
    if args.join {
        let lifetime = args.expires.unwrap_or(JOIN_TIME);
        let client = global.client()?;
        let created = client.create_join_token(&name, args.uses, lifetime).await?;
        let (info, token) = (&created.info, created.token.reveal());
        if global.json() {
            return out.json(&Created { info, token });
        }
        note(
            "start the new node with this, `kvd serve --data-dir DIR --join TOKEN`, then `kvctl join-node HOST:PORT`",
        );
        return out.line(token);
    }
    let new = NewToken {
        name,
        roles: args.roles.into_iter().collect(),
        scopes: args.scopes,
        lifetime: args.expires,
    };
    let created = global.client()?.create_token(&new).await?;
    if global.json() {
        return out.json(&Created {
            info: &created.info,
            token: created.reveal(),
        });
    }
    note("keep this: nobody can be told it again");
    out.line(created.reveal())
}

fn table(tokens: &[TokenInfo]) -> Table {
    let mut table = Table::new(&[
        ("id", Align::Left),
        ("name", Align::Left),
        ("may", Align::Left),
        ("created", Align::Left),
        ("expires", Align::Left),
    ]);
    for token in tokens {
        let roles = token.roles.iter().map(|role| role.to_string());
        let scopes = token.scopes.iter().map(ToString::to_string);
        let join = token
            .join_uses
            .map(|uses| format!("join ({} of {uses} used)", token.joined));
        let may: Vec<_> = roles.chain(scopes).chain(join).collect();
        let expires = token.expires_at_ms.map_or_else(|| "never".to_owned(), date);
        let (id, created) = (token.id.to_string(), date(token.created_at_ms));
        table.row([id, token.name.clone(), may.join(" "), created, expires]);
    }
    table
}

fn date(unix_ms: u64) -> String {
    let time = std::time::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    time.map_or_else(
        || "never".to_owned(),
        |time| humantime::format_rfc3339_seconds(time).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> TokenInfo {
        TokenInfo {
            id: BearerId(0xab),
            name: "loader".into(),
            roles: [Role::Write, Role::Observe].into_iter().collect(),
            scopes: vec!["read:sessions/user:".parse().unwrap()],
            created_at_ms: 1_700_000_000_000,
            expires_at_ms: None,
            join_uses: Some(2),
            joined: 1,
        }
    }

    #[test]
    fn a_token_is_shown_with_what_it_allows() {
        let table = table(&[token()]).to_string();
        for shown in [
            "00000000000000ab",
            "write observe read:sessions/user: join (1 of 2 used)",
            "2023-11-14T22:13:20Z",
            "never",
        ] {
            assert!(table.contains(shown), "{table}");
        }
    }

    #[test]
    fn what_is_printed_for_programs_is_documented() {
        crate::out::assert_documented(&Created {
            info: &token(),
            token: "ID.SECRET".into(),
        });
    }

    #[test]
    fn a_token_is_no_id_and_is_not_told_back() {
        let token = format!("{:016x}.{}", 1, "c0".repeat(32));
        let refused = id(&token).unwrap_err();
        assert!(!refused.contains("c0"), "{refused}");
    }
}
