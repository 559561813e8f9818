//! `kvctl profile`: the clusters that `kvctl login` knows.

use std::path::Path;

use serde::Serialize;
use torc_tls::CertificateFacts;

use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::profiles::{Profile, Profiles};
use crate::table::{Align, Table};

/// List, choose or remove the cluster profiles of `kvctl login`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the profiles and mark the current one.
    List,
    /// Make a profile the current one.
    Use {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Remove a profile. Its token stays valid until it expires or you revoke it (`kvctl token
    /// revoke`).
    Remove {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// A profile without its token, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Row<'a> {
    pub(super) profile: &'a str,
    pub(super) endpoints: &'a [String],
    /// SHA-256 of the authority.
    pub(super) sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<bool>,
}

impl<'a> Row<'a> {
    pub(super) fn new(profile: &'a str, of: &'a Profile, current: Option<bool>) -> Self {
        let facts = CertificateFacts::of_pem(&of.authority, Path::new(profile));
        let digest = facts.ok().and_then(|facts| Some(facts.first()?.digest));
        Self {
            profile,
            endpoints: &of.endpoints,
            sha256: digest.map_or_else(String::new, |digest| digest.to_string()),
            current,
        }
    }
}

pub(crate) fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let mut profiles = Profiles::read()?;
    let (name, done) = match &args.action {
        Action::List => return list(&profiles, global, out),
        Action::Use { name } => {
            profiles.choose(name)?;
            (name, "commands use")
        }
        Action::Remove { name } => {
            profiles.remove(name)?;
            (name, "forgot")
        }
    };
    profiles.write()?;
    if global.json() {
        return out.json(&serde_json::json!({ "profile": name }));
    }
    out.line(format_args!("{done} the profile `{name}`"))
}

fn list(profiles: &Profiles, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let rows = profiles
        .iter()
        .map(|(name, profile, is_current)| Row::new(name, profile, Some(is_current)));
    if global.json() {
        return rows.into_iter().try_for_each(|row| out.json(&row));
    }
    let mut table = Table::new(&[
        ("profile", Align::Left),
        ("current", Align::Left),
        ("endpoints", Align::Left),
        ("authority (SHA-256)", Align::Left),
    ]);
    for row in rows {
        let current = if row.current == Some(true) { "*" } else { "" };
        let endpoints = row.endpoints.join(",");
        let short = row.sha256.get(..16).unwrap_or_default().to_owned();
        table.row([row.profile.to_owned(), current.to_owned(), endpoints, short]);
    }
    out.line(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_documented() {
        let profile = Profile {
            endpoints: Vec::new(),
            authority: String::new(),
            token: "id.secret".to_owned(),
        };
        let row = Row::new("p", &profile, Some(true));
        crate::out::assert_documented(&row);
        assert!(!format!("{row:?}").contains("secret"));
    }
}
