//! `kvctl ca rotate`: replaces the authority of a secure cluster in steps.

use std::time::Duration;

use serde::Serialize;
use torc_client::{Authorities, NodeId, RotationAction, RotationStep};
use torc_tls::CertificateFacts;

use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};

const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Replace the authority of a secure cluster in three steps, without an outage.
///
/// 1. `kvctl ca rotate`: nodes create a new authority and trust both. Now let clients trust
///    both: profiles learn it with their next command; for other clients, replace the file with the
///    output of `kvctl ca show --pem`.
/// 2. `kvctl ca rotate --issue`: nodes get certificates of the new authority. Now issue new
///    client certificates.
/// 3. `kvctl ca rotate --finish`: nodes trust the new authority alone.
///
/// Each step waits until every node has done it; until then, nodes refuse the next step. After an
/// interruption, repeat the command. First remove nodes that are lost for good (`kvctl leave-node
/// --dead`).
///
/// Needs the role admin, and a cluster founded with --secure.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    step: Step,
    /// Return as soon as the nodes have agreed on the step; they continue by themselves.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, clap::Args)]
struct Step {
    /// Step 2: issue certificates with the new authority.
    #[arg(long, group = "rotation")]
    issue: bool,
    /// Step 3: trust the new authority alone.
    #[arg(long, group = "rotation")]
    finish: bool,
    /// Abort the rotation; only before step 2.
    #[arg(long, group = "rotation")]
    abort: bool,
}

impl Step {
    const fn action(&self) -> RotationAction {
        if self.issue {
            RotationAction::Issue
        } else if self.finish {
            RotationAction::Finish
        } else if self.abort {
            RotationAction::Abort
        } else {
            RotationAction::Begin
        }
    }
}

/// The progress of a rotation, as JSON.
#[derive(Debug, Serialize)]
struct State<'a> {
    rotation: u32,
    step: String,
    /// SHA-256 of the authorities; the first issues certificates.
    authorities: Vec<String>,
    nodes: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    node: NodeId,
    address: &'a str,
    done: bool,
    problem: Option<&'a str>,
}

fn state(of: &Authorities) -> Result<State<'_>, Failure> {
    let facts = CertificateFacts::of_pem(&of.trusted.concat(), "the cluster".as_ref());
    let facts = facts.map_err(|error| Failure::Usage(error.to_string()))?;
    let nodes = of.members.iter().map(|member| Row {
        node: member.node,
        address: &member.address,
        done: member.done,
        problem: member.problem.as_deref(),
    });
    Ok(State {
        rotation: of.rotation,
        step: of.step.to_string(),
        authorities: facts.iter().map(|it| it.digest.to_string()).collect(),
        nodes: nodes.collect(),
    })
}

/// Prints the progress of a rotation, and each node's.
pub(super) fn show(of: &Authorities, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if global.json() {
        return out.json(&state(of)?);
    }
    let step = match of.step {
        RotationStep::Trust => {
            "step 1 of 3: nodes trust both authorities; the old one issues certificates"
        }
        RotationStep::Issue => {
            "step 2 of 3: nodes trust both authorities; the new one issues certificates"
        }
        RotationStep::Finished => "none running",
    };
    out.line(format_args!("rotation  {step}"))?;
    for member in &of.members {
        let done = if member.done { "done" } else { "not done yet" };
        let problem = member.problem.as_ref().map(|it| format!("; {it}"));
        out.line(format_args!(
            "  node {} ({})  {done}{}",
            member.node,
            member.address,
            problem.unwrap_or_default()
        ))?;
    }
    Ok(())
}

fn waiting(of: &Authorities) -> String {
    let names = of.waiting().map(|member| {
        let problem = member.problem.as_ref().map(|it| format!(": {it}"));
        format!(
            "{} ({}){}",
            member.node,
            member.address,
            problem.unwrap_or_default()
        )
    });
    names.collect::<Vec<_>>().join("; ")
}

pub(crate) async fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let mut now = client.rotate_authority(args.step.action()).await?;
    let mut told = String::new();
    while !args.no_wait && now.waiting().next().is_some() {
        let waits = waiting(&now);
        if waits != told {
            note(format_args!("waiting for nodes: {waits}"));
            told = waits;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        now = client.authorities().await.map_err(|error| {
            Failure::from(error).after("nodes continue the step: see `kvctl ca show`")
        })?;
    }
    // Also update the profile.
    client.topology().await?;
    show(&now, global, out)?;
    if !global.json() {
        note(next(now.step));
    }
    Ok(())
}

const fn next(step: RotationStep) -> &'static str {
    match step {
        RotationStep::Trust => {
            "next: let clients trust both (profiles learn it with their next command; for others, `kvctl ca show --pem` prints the file), then \
             `kvctl ca rotate --issue`"
        }
        RotationStep::Issue => {
            "next: replace client certificates of the old authority (`kvctl cert issue`), then `kvctl ca rotate --finish`"
        }
        RotationStep::Finished => "nodes trust one authority alone; `kvctl ca show` shows it",
    }
}

#[cfg(test)]
mod tests {
    use torc_client::RotationMember;

    use super::*;

    fn authorities() -> Authorities {
        let member = |node, done, problem: Option<&str>| RotationMember {
            node: NodeId(node),
            address: format!("h{node}:1"),
            done,
            problem: problem.map(str::to_owned),
        };
        let authority = torc_tls::Authority::new().unwrap();
        Authorities {
            rotation: 1,
            step: RotationStep::Trust,
            trusted: vec![authority.certificate().to_owned()],
            members: vec![
                member(1, true, None),
                member(2, false, Some("does not answer")),
                member(3, false, None),
            ],
        }
    }

    #[test]
    fn what_is_printed_is_documented() {
        crate::out::assert_documented(&state(&authorities()).unwrap());
    }

    #[test]
    fn those_that_are_waited_for_are_named_with_why() {
        let told = waiting(&authorities());
        assert_eq!(told, "2 (h2:1): does not answer; 3 (h3:1)");
    }
}
