//! `torc-sim`: runs seeds, hunts mutants, replays a seed; injects faults into real processes.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]

#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod hostile;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use serde_json::json;
use torc_replication::{Mutation, Mutations};
use torc_sim::{Hunt, PLAN, Profile, Report, Tally, Trace, hunt, run, run_seed, shrink};

#[derive(Debug, Parser)]
#[command(
    about = "Test Torc's replication: a deterministic simulation, faults in real processes, hostile clients"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run many seeds with all rules intact; fails if a seed shows a violation.
    Run {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Threads.
        #[arg(long, default_value_t = 1)]
        threads: u64,
        /// Run only this profile. Default: as the campaign chooses.
        #[arg(long)]
        profile: Option<String>,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Break each rule in turn; fails if a broken rule is not detected within --seconds.
    Mutants {
        /// Break only this rule.
        #[arg(long)]
        only: Option<String>,
        /// Seconds per rule.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Print the plan with the found seeds, in the form of the source.
        #[arg(long)]
        plan: bool,
        /// First seed. Default: the seed known to detect the mutant.
        #[arg(long)]
        seed: Option<u64>,
        /// Print one JSON object per line instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Print the events of a seed.
    Replay {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// Profile of the seed. Default: the campaign's.
        #[arg(long)]
        profile: Option<String>,
        /// Rule to break.
        #[arg(long)]
        mutant: Option<String>,
        /// Find and print a smaller failing run.
        #[arg(long)]
        shrink: bool,
    },
    /// Run seeds that attach, promote and roll back generations; fails if a seed shows a violation,
    /// or if a broken rule is not detected.
    Generations {
        /// How many.
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
    },
    /// Inject faults into a cluster of real processes and check the clients' histories.
    #[cfg(feature = "cluster")]
    Cluster(cluster::Options),
    /// Run hostile clients against a cluster of real processes, beside an honest client.
    #[cfg(feature = "cluster")]
    Hostile(hostile::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run {
            seeds,
            seed,
            threads,
            profile,
            json,
        } => profile_named(profile).map(|profile| campaign(seeds, seed, threads, profile, json)),
        Command::Mutants {
            only,
            seconds,
            plan,
            seed,
            json,
        } => mutation_named(only).map(|only| mutants(only, seconds, plan, seed, json)),
        Command::Replay {
            seed,
            profile,
            mutant,
            shrink,
        } => profile_named(profile).and_then(|profile| {
            let mutant = mutation_named(mutant)?;
            Ok(replay(seed, profile, mutant, shrink))
        }),
        Command::Generations { seeds } => Ok(generations(seeds)),
        #[cfg(feature = "cluster")]
        Command::Cluster(options) => cluster::run(&options).map_err(|error| error.to_string()),
        #[cfg(feature = "cluster")]
        Command::Hostile(options) => hostile::run(&options).map_err(|error| error.to_string()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            say_error(&message);
            ExitCode::from(2)
        }
    }
}

fn profile_named(name: Option<String>) -> Result<Option<Profile>, String> {
    let Some(name) = name else {
        return Ok(None);
    };
    let found = Profile::ALL.into_iter().find(|p| p.name() == name);
    found.map(Some).ok_or_else(|| {
        let names: Vec<_> = Profile::ALL.iter().map(|p| p.name()).collect();
        format!(
            "`{name}` is not a profile: choose one of {}",
            names.join(", ")
        )
    })
}

fn mutation_named(name: Option<String>) -> Result<Option<Mutation>, String> {
    let Some(name) = name else {
        return Ok(None);
    };
    let found = Mutation::ALL.into_iter().find(|m| mutant_name(*m) == name);
    found.map(Some).ok_or_else(|| {
        let names: Vec<_> = Mutation::ALL.iter().map(|m| mutant_name(*m)).collect();
        format!(
            "`{name}` is not a mutant: choose one of {}",
            names.join(", ")
        )
    })
}

/// Converts `NoEpochFence` to `no-epoch-fence`.
fn mutant_name(mutation: Mutation) -> String {
    let mut name = String::new();
    for letter in format!("{mutation:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command line measures itself"
)]
fn now() -> Instant {
    Instant::now()
}

fn one(seed: u64, profile: Option<Profile>) -> Report {
    match profile {
        None => run_seed(seed),
        Some(profile) => run(seed, profile, Mutations::NONE, Trace::hashing()),
    }
}

fn generations(seeds: u64) -> bool {
    use torc_sim::generations::{Broken, run};
    let started = now();
    let (mut gets, mut switches, mut transitions, mut violations) = (0, 0, 0, 0_u64);
    for seed in 0..seeds {
        let summary = run(seed, None);
        gets += summary.gets;
        switches += summary.switches;
        transitions += summary.transitions;
        if let Some(violation) = summary.violation {
            violations += 1;
            say(&format!("seed {seed}: {violation}"));
        }
    }
    let missed = Broken::ALL.iter().filter(|broken| {
        let noticed = |seed: u64| run(seed, Some(**broken)).violation.is_some();
        !(0..seeds).any(noticed)
    });
    let missed: Vec<_> = missed.collect();
    let seconds = started.elapsed().as_secs_f64();
    say(&format!(
        "{seeds} seeds, {gets} gets, {switches} switches, {transitions} transitions, {violations} violations; \
         of {} broken rules not detected: {missed:?}; {seconds:.0} s",
        Broken::ALL.len()
    ));
    violations == 0 && missed.is_empty()
}

fn campaign(seeds: u64, first: u64, threads: u64, profile: Option<Profile>, json: bool) -> bool {
    let started = now();
    let next = AtomicU64::new(first);
    let last = first.saturating_add(seeds);
    let worker = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return tally;
            }
            tally.add(seed, &one(seed, profile));
        }
    };
    let mut total = Tally::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            match worker.join() {
                Ok(tally) => total.merge(tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    total.violations.sort_unstable();
    let seconds = started.elapsed().as_secs_f64();
    print_tally(&total, seconds, profile, json);
    total.violations.is_empty()
}

fn print_tally(total: &Tally, seconds: f64, profile: Option<Profile>, json: bool) {
    let rate = total.seeds as f64 / seconds.max(1e-9);
    let share = |part: u64| part as f64 / (total.answered as f64).max(1.0);
    if json {
        let object = json!({
            "seeds": total.seeds,
            "operations": total.operations,
            "violations": total.violations.len(),
            "undecided": total.undecided,
            "seeds_per_s": rate.round(),
            "fast_share": share(total.fast),
            "unknown": total.unknown,
            "violating_seeds": total.violations.iter().take(100).collect::<Vec<_>>(),
            "faults": total.faults.0,
        });
        say(&object.to_string());
        return;
    }
    say(&format!(
        "{} seeds, {} operations, {} violations, {} undecided, {rate:.0} seeds/s",
        total.seeds,
        total.operations,
        total.violations.len(),
        total.undecided
    ));
    say(&format!(
        "{:.0} % of answers after one round, {} outcomes unknown",
        100.0 * share(total.fast),
        total.unknown
    ));
    for (name, count) in &total.faults.0 {
        say(&format!("  {name:<12}{count:>12}"));
    }
    let of = profile.map_or(String::new(), |it| format!(" --profile {}", it.name()));
    for seed in total.violations.iter().take(20) {
        say(&format!(
            "violated by seed {seed}: replay --seed {seed}{of}"
        ));
    }
}

fn mutants(
    only: Option<Mutation>,
    seconds: u64,
    plan: bool,
    first: Option<u64>,
    json: bool,
) -> bool {
    let mut all = true;
    for entry in PLAN {
        if only.is_some_and(|only| only != entry.mutation) {
            continue;
        }
        let started = now();
        let limit = Duration::from_secs(seconds);
        let from = first.unwrap_or(if plan { 0 } else { entry.known });
        let mut caught = hunt(entry, from, || started.elapsed() < limit);
        if plan && caught.is_none() {
            // Too rare for the time of a plan.
            let mut once = Some(());
            caught = hunt(entry, entry.known, || once.take().is_some());
        }
        all &= caught.is_some();
        let took = started.elapsed().as_secs_f64();
        let found = caught.map(|caught| caught.seed);
        report_hunt(entry, found, took, plan, json);
    }
    all
}

/// As Clippy wants a number in source code.
fn as_literal(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b'_')).into_owned()
}

fn report_hunt(entry: Hunt, seed: Option<u64>, seconds: f64, plan: bool, json: bool) {
    let name = mutant_name(entry.mutation);
    let caught = seed.is_some();
    if plan {
        let known = as_literal(seed.unwrap_or(entry.known));
        let (mutation, profile) = (entry.mutation, entry.profile);
        let missed = if caught { "" } else { " // NOT CAUGHT" };
        say(&format!(
            "    plan(Mutation::{mutation:?}, Profile::{profile:?}, {known}),{missed}"
        ));
    } else if json {
        let object = json!({
            "mutant": name,
            "caught": caught,
            "seed": seed,
            "seconds": seconds,
            "profile": entry.profile.name(),
        });
        say(&object.to_string());
    } else {
        let verdict = if caught { "caught" } else { "NOT CAUGHT" };
        let seed = seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string());
        say(&format!(
            "{name:<28}{verdict:<12}profile {:<12}seed {seed:>8}{seconds:>9.2} s",
            entry.profile.name()
        ));
    }
}

fn replay(seed: u64, profile: Option<Profile>, mutant: Option<Mutation>, smaller: bool) -> bool {
    let profile = profile.unwrap_or(match mutant {
        Some(mutant) => torc_sim::plan_of(mutant).map_or(Profile::Mixed, |plan| plan.profile),
        None => Profile::of_seed(seed),
    });
    let mutations = mutant.map_or(Mutations::NONE, Mutations::only);
    let shrunk = smaller.then(|| shrink(seed, profile, mutations)).flatten();
    let report = if let Some(shrunk) = shrunk {
        say(&format!("seed {} with {:?}", shrunk.seed, shrunk.faults));
        shrunk.report
    } else {
        run(seed, profile, mutations, Trace::writing())
    };
    for line in &report.trace {
        say(line);
    }
    say(&format!(
        "profile {}, {} operations, trace hash {:016x}",
        profile.name(),
        report.operations,
        report.hash
    ));
    match &report.violation {
        Some(violation) => say(&format!("violation: {violation:#?}")),
        None => say("no violation"),
    }
    report.violation.is_none()
}

fn say(line: &str) {
    use std::io::Write;
    // If the reader has closed the pipe, only the printing ends.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn say_error(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
