//! Shared by the commands that move partitions: show the plan, watch the progress, declare
//! a node dead.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use torc_client::{Change, ChangeKind, Client, NodeId, Plan, Transition};

use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};
use crate::progress::{self, ProgressRate, Sight, sight};
use crate::table::{Align, Table};
use crate::text;

/// How to carry out a change.
#[derive(Debug, clap::Args)]
pub(super) struct ChangeArgs {
    /// Print the plan and change nothing.
    #[arg(long)]
    pub(super) plan: bool,
    /// Partitions to move at a time. Default: 512.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) parallel: Option<u32>,
    /// Return as soon as the nodes have agreed on the change; the cluster continues by itself.
    #[arg(long, conflicts_with = "plan")]
    pub(super) no_wait: bool,
}

/// Whether the leaving node is dead.
#[derive(Debug, clap::Args)]
pub(super) struct DeadArgs {
    /// If the leaving node does not answer, declare it dead for good without asking. It loses
    /// its vote and must never come back.
    #[arg(long, visible_alias = "yes")]
    dead: bool,
}

impl DeadArgs {
    /// Whether to declare a node dead: only if it does not answer and the user confirms. A node
    /// that answers takes part in the change.
    pub(super) async fn is_dead(
        &self,
        client: &Client,
        node: NodeId,
        only_plan: bool,
    ) -> Result<bool, Failure> {
        let status = client.status().await?;
        let silent = status
            .nodes
            .iter()
            .find(|it| it.member.id == node && !it.reachable);
        let Some(silent) = silent else {
            return Ok(false);
        };
        let address = silent.member.address.clone();
        if self.dead {
            note(format_args!(
                "node {node} ({address}) does not answer: declaring it dead"
            ));
            return Ok(true);
        }
        if only_plan {
            note(format_args!(
                "node {node} ({address}) does not answer: to carry this out, restart it or pass `--dead`"
            ));
            return Ok(true);
        }
        if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
            note(format_args!(
                "node {node} ({address}) does not answer. If you declare it dead, it loses its vote \
                 and must never come back. Type yes to declare it dead:"
            ));
            let mut answer = String::new();
            let read = std::io::stdin().read_line(&mut answer);
            if read.is_ok() && answer.trim() == "yes" {
                return Ok(true);
            }
        }
        Err(Failure::NotDeclaredDead { node, address })
    }
}

/// What `--output json` prints, once, at the end.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    /// `planned`, `nothing_to_do`, `started`, `done` or `aborted`.
    state: &'static str,
    plan: &'a Plan,
    /// Number of the new transition.
    transition_id: Option<u64>,
    /// Its figures when it ended.
    transition: Option<Transition>,
}

/// Says that a change is done already.
fn nothing_to_do(plan: &Plan) -> String {
    match (plan.kind, plan.node) {
        (ChangeKind::Join, Some(node)) => {
            format!(
                "node {node} ({}) is already a member: nothing to do",
                plan.address
            )
        }
        (kind, _) => format!(
            "the {} is already done: nothing to do",
            progress::name(kind)
        ),
    }
}

/// Prints a plan without carrying it out.
pub(super) fn show_plan(plan: &Plan, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if !global.json() {
        return out.line(describe(plan));
    }
    out.json(&Outcome {
        state: "planned",
        plan,
        transition_id: None,
        transition: None,
    })
}

/// Shows a change that was committed and watches it until it is done.
pub(super) async fn follow(
    client: &Client,
    change: &Change,
    args: &ChangeArgs,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    if !global.json() && change.transition.is_some() {
        out.line(describe(&change.plan))?;
        out.flush()?;
    }
    let mut last = None;
    let state = match change.transition {
        None => "nothing_to_do",
        Some(_) if args.no_wait => "started",
        Some(id) => {
            note("(interrupting this command does not stop the change)");
            last = watch(client, id, change.plan.kind, global.timeout()).await?;
            match &last {
                Some(last) if last.aborted => "aborted",
                _ => "done",
            }
        }
    };
    let name = progress::name(change.plan.kind);
    if global.json() {
        out.json(&Outcome {
            state,
            plan: &change.plan,
            transition_id: change.transition,
            transition: last,
        })?;
        return match state {
            "aborted" => Err(Failure::Aborted { change: name }),
            _ => Ok(()),
        };
    }
    match (state, last) {
        ("nothing_to_do", _) => out.line(nothing_to_do(&change.plan)),
        ("started", _) => out.line(format_args!(
            "the {name} has started: watch it with `kvctl status --watch`"
        )),
        (_, Some(last)) if last.aborted => Err(Failure::Aborted { change: name }),
        (_, Some(last)) => out.line(progress::ended(&last)),
        (_, None) => out.line(format_args!("{name} done")),
    }
}

/// Asks for the status until the transition has ended. Returns its last figures.
///
/// The change continues without kvctl, so a lost endpoint is not a failure: the client
/// library asks other nodes. Only a long silence of all nodes is one.
pub(super) async fn watch(
    client: &Client,
    id: u64,
    kind: ChangeKind,
    timeout: Duration,
) -> Result<Option<Transition>, Failure> {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    const LONGEST_PAUSE: Duration = Duration::from_millis(500);
    let longest_silence = timeout.max(Duration::from_secs(120));
    let mut display = Display::new(progress::name(kind));
    let (mut pause, mut heard) = (FIRST_PAUSE, Instant::now());
    loop {
        match client.status().await {
            Ok(status) => {
                heard = Instant::now();
                match sight(&status, id) {
                    Sight::NotYet => {}
                    Sight::Running(transition) => display.show(transition),
                    Sight::Ended(transition) => {
                        display.clear();
                        return Ok(transition.cloned());
                    }
                }
            }
            Err(last) if heard.elapsed() > longest_silence => {
                display.clear();
                return Err(Failure::LostSight {
                    change: progress::name(kind),
                    silent_s: heard.elapsed().as_secs(),
                    last,
                });
            }
            Err(error) => display.silence(&error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Progress on stderr: a bar on a terminal, else occasional lines.
struct Display {
    bar: Option<ProgressBar>,
    name: &'static str,
    started: Instant,
    rate: ProgressRate,
    last_line: Option<Instant>,
}

impl Display {
    /// Time between lines if there is no terminal.
    const LINE_EVERY: Duration = Duration::from_secs(5);

    fn new(name: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(1).with_style(style)
        });
        Self {
            bar,
            name,
            started: Instant::now(),
            rate: ProgressRate::default(),
            last_line: None,
        }
    }

    fn show(&mut self, transition: &Transition) {
        self.rate.note(self.started.elapsed(), transition);
        let figures = progress::figures(transition, &self.rate);
        match &self.bar {
            Some(bar) => {
                bar.set_length(transition.partitions_total.into());
                bar.set_position(transition.partitions_done.into());
                bar.set_message(figures);
            }
            None => self.line(&figures),
        }
    }

    fn silence(&mut self, error: &torc_client::Error) {
        let text = format!("no answer, retrying ({})", text::one_line(error.message()));
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => self.line(&text),
        }
    }

    fn line(&mut self, text: &str) {
        let due = self
            .last_line
            .is_none_or(|last| last.elapsed() >= Self::LINE_EVERY);
        if due {
            note(format_args!("{}: {text}", self.name));
            self.last_line = Some(Instant::now());
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A plan as text. For a change that runs or is done, the cluster plans nothing.
fn describe(plan: &Plan) -> String {
    let losses = describe_losses(plan);
    if let Some(running) = plan.waits_for {
        return format!(
            "{losses}transition {running} must end before this change can be planned\n"
        );
    }
    if plan.shares.is_empty() {
        let name = progress::name(plan.kind);
        return format!("the {name} has already started: nothing more to plan");
    }
    let who = match (plan.kind, plan.node, plan.replaced) {
        (ChangeKind::Alter, _, _) => {
            let replicas = plan.replicas_after.unwrap_or_default();
            progress::altered(&plan.namespaces, replicas)
        }
        (ChangeKind::Leave | ChangeKind::Reweight, Some(node), _) => {
            format!("node {node} ({})", plan.address)
        }
        (_, _, Some(old)) => format!("node {old} by {}", plan.address),
        _ => plan.address.clone(),
    };
    let mut table = Table::new(&[
        ("node", Align::Left),
        ("partitions", Align::Right),
        ("then", Align::Right),
        ("receives", Align::Right),
        ("sends", Align::Right),
    ]);
    let bytes = |number| match number {
        0 => "-".to_owned(),
        some => text::bytes(some),
    };
    for share in &plan.shares {
        table.row([
            share.node.to_string(),
            text::count(share.partitions_before.into()),
            text::count(share.partitions_after.into()),
            bytes(share.bytes_in),
            bytes(share.bytes_out),
        ]);
    }
    let moves = match plan.replicas_before {
        Some(before) => format!(
            "changes {} from {}, moves",
            text::counted(plan.partitions_moved.into(), "partition"),
            text::replicas(before)
        ),
        None => format!(
            "moves {} (minimum: {:.1}),",
            text::counted(plan.partitions_moved.into(), "partition"),
            plan.minimum_moved
        ),
    };
    format!(
        "{} of {who}, planned on epoch {}\n\
         {moves} {} in {}\n\
         load of the busiest node over the mean: {:.3}, then {:.3}\n{losses}\n{table}\n",
        progress::name(plan.kind),
        plan.based_on_epoch,
        text::bytes(plan.bytes),
        text::counted(plan.records, "record"),
        plan.peak_to_mean_before,
        plan.peak_to_mean_after,
    )
}

/// What continuing without the dead nodes loses; empty without dead nodes.
fn describe_losses(plan: &Plan) -> String {
    if plan.losses.is_empty() {
        return String::new();
    }
    let goes = plan.replaced.or(plan.node).into_iter();
    let dead: Vec<_> = goes.chain(plan.lost_with.iter().copied()).collect();
    let dead: Vec<String> = dead.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "without {} {} (dead, or not responding):\n",
        if dead.len() == 1 { "node" } else { "nodes" },
        dead.join(", ")
    );
    for losses in &plan.losses {
        let [majority, minority, none] = [losses.majority, losses.minority, losses.none]
            .map(|partitions| text::count(partitions.into()));
        let _ = writeln!(
            text,
            "  partitions with {}: {majority} keep a majority, {minority} have fewer left, \
             {none} have none",
            text::replicas(losses.replicas),
        );
    }
    if plan.losses.iter().any(|it| it.minority + it.none > 0) {
        text += "  this needs --force for each of these nodes that is lost for good. Partitions \
                 with fewer than a\n  majority left lose the writes that only dead nodes acknowledged; \
                 those with none left lose all keys\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_client::{Losses, NodeShare};
    use torc_record::Epoch;

    fn plan() -> Plan {
        let share = |node, before, after, bytes_in, bytes_out| NodeShare {
            node: NodeId(node),
            partitions_before: before,
            partitions_after: after,
            bytes_in,
            bytes_out,
        };
        Plan {
            based_on_epoch: Epoch(12),
            kind: ChangeKind::Join,
            node: None,
            replaced: None,
            address: "127.0.0.1:7404".into(),
            namespaces: Vec::new(),
            replicas_before: None,
            replicas_after: None,
            partitions_moved: 1_024,
            minimum_moved: 1_024.0,
            bytes: 32 << 20,
            records: 250_000,
            peak_to_mean_before: 1.0007,
            peak_to_mean_after: 1.0,
            shares: vec![
                share(1, 1_366, 1_024, 0, 32 << 20),
                share(4, 0, 1_024, 32 << 20, 0),
            ],
            losses: Vec::new(),
            lost_with: Vec::new(),
            waits_for: None,
        }
    }

    #[test]
    fn a_plan_shows_what_moves_and_who_gives_and_takes() {
        let expected = "\
join of 127.0.0.1:7404, planned on epoch 12
moves 1,024 partitions (minimum: 1024.0), 32.0 MiB in 250,000 records
load of the busiest node over the mean: 1.001, then 1.000

node  partitions   then  receives     sends
1          1,366  1,024         -  32.0 MiB
4              0  1,024  32.0 MiB         -
";
        assert_eq!(describe(&plan()), expected);
    }

    #[test]
    fn a_plan_without_the_dead_says_what_is_lost() {
        let losses = |replicas, majority, minority, none| Losses {
            replicas,
            majority,
            minority,
            none,
        };
        let plan = Plan {
            kind: ChangeKind::Replace,
            replaced: Some(NodeId(1)),
            node: Some(NodeId(4)),
            lost_with: vec![NodeId(2)],
            losses: vec![losses(3, 1, 63, 0), losses(1, 30, 0, 34)],
            waits_for: Some(9),
            ..plan()
        };
        let expected = "\
without nodes 1, 2 (dead, or not responding):
  partitions with 3 replicas: 1 keep a majority, 63 have fewer left, 0 have none
  partitions with 1 replica: 30 keep a majority, 0 have fewer left, 34 have none
  this needs --force for each of these nodes that is lost for good. Partitions with fewer than a
  majority left lose the writes that only dead nodes acknowledged; those with none left lose all keys
transition 9 must end before this change can be planned
";
        assert_eq!(describe(&plan), expected);
        let plan = Plan {
            waits_for: None,
            ..plan
        };
        assert!(describe(&plan).contains("34 have none"));
    }

    #[test]
    fn asked_again_there_is_nothing_more_to_plan() {
        let plan = Plan {
            shares: Vec::new(),
            ..plan()
        };
        let expected = "the join has already started: nothing more to plan";
        assert_eq!(describe(&plan), expected);
    }

    #[test]
    fn who_leaves_is_named_by_id_and_address() {
        let plan = Plan {
            kind: ChangeKind::Leave,
            node: Some(NodeId(3)),
            ..plan()
        };
        assert!(
            describe(&plan).starts_with("removal of node 3 (127.0.0.1:7404), planned on epoch 12")
        );
    }

    #[test]
    fn a_replacement_names_both_nodes() {
        let plan = Plan {
            kind: ChangeKind::Replace,
            node: Some(NodeId(5)),
            replaced: Some(NodeId(3)),
            ..plan()
        };
        assert!(describe(&plan).starts_with("replacement of node 3 by 127.0.0.1:7404, planned"));
    }

    #[test]
    fn a_plan_of_an_alteration_names_every_namespace_that_changes() {
        let plan = Plan {
            kind: ChangeKind::Alter,
            address: String::new(),
            namespaces: vec!["default".into(), "urls".into()],
            replicas_before: Some(1),
            replicas_after: Some(3),
            ..plan()
        };
        let expected = "\
alteration of `default`, `urls` to 3 replicas, planned on epoch 12
changes 1,024 partitions from 1 replica, moves 32.0 MiB in 250,000 records
load of the busiest node over the mean: 1.001, then 1.000
";
        assert!(describe(&plan).starts_with(expected), "{}", describe(&plan));
    }

    #[test]
    fn the_json_of_a_plan_does_not_change() {
        let outcome = Outcome {
            state: "planned",
            plan: &plan(),
            transition_id: None,
            transition: None,
        };
        let expected = concat!(
            r#"{"state":"planned","plan":{"based_on_epoch":12,"kind":"join","node":null,"#,
            r#""replaced":null,"address":"127.0.0.1:7404","namespaces":[],"replicas_before":null,"#,
            r#""replicas_after":null,"partitions_moved":1024,"minimum_moved":1024.0,"#,
            r#""bytes":33554432,"records":250000,"peak_to_mean_before":1.0007,"#,
            r#""peak_to_mean_after":1.0,"shares":["#,
            r#"{"node":1,"partitions_before":1366,"partitions_after":1024,"bytes_in":0,"bytes_out":33554432},"#,
            r#"{"node":4,"partitions_before":0,"partitions_after":1024,"bytes_in":33554432,"bytes_out":0}],"#,
            r#""losses":[],"lost_with":[],"waits_for":null},"#,
            r#""transition_id":null,"transition":null}"#,
        );
        assert_eq!(serde_json::to_string(&outcome).unwrap(), expected);
        crate::out::assert_documented(&outcome);
    }
}
