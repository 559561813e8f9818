//! `kvctl token`: manages bearer tokens, which identify clients without certificates.

use std::time::Duration;

use clap::builder::ArgPredicate;
use serde::Serialize;
use torc_client::{BearerId, NewToken, Role, Scope, TokenInfo};

use crate::args;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};
use crate::table::{Align, Table};
use crate::text;

/// Create, list or revoke tokens, which identify clients without certificates or let nodes join
///
/// Tokens need TLS. Pass one to kvctl with `--token-file`, TORC_TOKEN or `--token`, to gRPC and
/// HTTP as `authorization: Bearer TOKEN`, and to Redis clients as the password of `AUTH`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a token and print it. The cluster cannot show its secret again.
    Create(CreateArgs),
    /// List tokens by id, without their secrets.
    List,
    /// Revoke a token. Within five seconds, nodes refuse it and close what it opened.
    ///
    /// Repeating the command is harmless. If a node has not confirmed it after five seconds, as when
    /// it is cut off from the others, the command names it and exits with 3: the node may accept the
    /// token until it reconnects.
    Revoke {
        /// Id of the token: its part before the dot, as `list` shows it.
        #[arg(value_name = "ID", value_parser = id)]
        id: BearerId,
    },
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("grants").required(true).multiple(true)))]
struct CreateArgs {
    /// Name of its owner, which logs show: 1 to 64 letters, digits, `-`, `_`, `.` and `@`.
    #[arg(
        value_name = "NAME",
        required_unless_present = "join",
        default_value_if("join", ArgPredicate::IsPresent, "join")
    )]
    name: Option<String>,
    /// Create a token that only lets nodes join a secure cluster (`kvd serve --join`), without
    /// roles and scopes.
    #[arg(long, group = "grants", conflicts_with_all = ["roles", "scopes"])]
    join: bool,
    /// With --join: number of nodes that may join with it, at most 64.
    #[arg(long, value_name = "N", requires = "join", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    uses: u32,
    /// Roles in every namespace, separated by commas: read, write, observe, or admin, which
    /// includes the others.
    #[arg(
        long = "role",
        value_name = "ROLE",
        value_delimiter = ',',
        group = "grants"
    )]
    roles: Vec<Role>,
    /// Role in one namespace, or for its keys with a prefix: read:sessions,
    /// write:sessions/user:. Repeat the option for up to 16 scopes.
    #[arg(
        long = "scope",
        value_name = "ROLE:NAMESPACE[/PREFIX]",
        group = "grants"
    )]
    scopes: Vec<Scope>,
    /// Lifetime by the nodes' clocks, for example 12h or 30d. Default: until revoked, or one hour
    /// with --join.
    #[arg(long, value_name = "TIME", value_parser = args::positive_duration)]
    expires: Option<Duration>,
}

/// The error must not repeat the text: it may be a whole token.
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
            let unconfirmed = global.client()?.revoke_token(id).await?;
            if global.json() {
                let id = id.to_string();
                out.json(&serde_json::json!({ "id": id, "unconfirmed": unconfirmed }))?;
            }
            if !unconfirmed.is_empty() {
                let nodes = text::nodes(&unconfirmed);
                return Err(Failure::StillAccepted { id, nodes });
            }
            if global.json() {
                return Ok(());
            }
            out.line(format_args!("every node now refuses the token {id}"))
        }
    }
}

/// Default lifetime of a join token.
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
            "start the new node with `kvd serve --data-dir DIR --join TOKEN`, then run `kvctl join-node HOST:PORT`",
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
    note("keep this token: the cluster cannot show it again");
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
