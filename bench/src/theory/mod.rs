//! Claims of the paper, the essay and the lecture, beside our measurements.
//!
//! One file per claim, in a directory per source. A claim fills a [`Claim`]: rows of "source says"
//! and "we measure", why they differ, and a plot. Claims do not pass or fail.
//!
//! Sources: K. Chellapilla, A. Mityagin, D. Charles, GigaHash (WWW 2007); D. Lemire, "Can you
//! implement a hash table without storing the keys?" with its discussion; S. Jiang, Hash methods
//! (lecture, Peking University 2023).
//!
//! Invariants: the seed and the sizes determine everything except times; only the claims `cache` and
//! `matrix` report times.
//!
//! Absent on purpose: peers (the other suites have them), rounds, verdicts.

mod claim;
mod essay;
mod gigahash;
mod lecture;

use std::io::{self, Write as _};

use anyhow::{Context as _, Result, bail};

use crate::machine;
use crate::options::Options;
use crate::plots;
use claim::Claim;

/// What to compare.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Look at this claim only; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Keys of GigaHash's Table 1; without it, 4,000,000. A key takes 30 bytes of memory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..=2_000_000_000))]
    keys: Option<u32>,
    /// Take this many times the trials that are usual: errors shrink with its root
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: u32,
    /// What all that is random is drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The extent of the measurement.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    keys: usize,
    trials: u32,
    quick: bool,
    /// The usual sizes are divided by this.
    divisor: usize,
    seed: u64,
}

impl Sizes {
    /// Trials, items or keys of a claim: `usual`, adjusted by `--trials` and `--quick`.
    fn of(&self, usual: usize) -> usize {
        let times = usual * self.trials as usize;
        (times / self.divisor).max(2)
    }
}

/// The name of a claim, and the function that compares it.
type Entry = (&'static str, fn(&Sizes) -> Result<Claim>);

const CLAIMS: [Entry; 19] = [
    ("proposition", gigahash::proposition::measure),
    ("table1", gigahash::table::measure),
    ("figure1", gigahash::figure::measure),
    ("accesses", gigahash::accesses::measure),
    ("halves", essay::halves::measure),
    ("cache", essay::cache::measure),
    ("cascade", essay::cascade::measure),
    ("balls", lecture::balls::measure),
    ("rehash", lecture::rehash::measure),
    ("positions", lecture::positions::measure),
    ("countmin", lecture::count_min::measure),
    ("sizing", lecture::sizing::measure),
    ("heavy", lecture::heavy::measure),
    ("majority", lecture::majority::measure),
    ("inner", lecture::inner::measure),
    ("bloom", lecture::bloom::measure),
    ("membership", lecture::membership::measure),
    ("rabin", lecture::rabin::measure),
    ("matrix", lecture::matrix::measure),
];

/// Compares claims, and prints and draws each result as soon as it is available.
///
/// # Errors
/// There is no such claim, a structure cannot be built, or a plot cannot be written.
pub(crate) fn run(args: &Args, options: &Options) -> Result<()> {
    let chosen = chosen(&args.only)?;
    let usual = if options.quick { 20_000 } else { 4_000_000 };
    let sizes = Sizes {
        keys: args.keys.unwrap_or(usual) as usize,
        trials: args.trials,
        quick: options.quick,
        divisor: if options.quick { 50 } else { 1 },
        seed: args.seed,
    };
    if let Some(dir) = &options.plot {
        plots::make_dir(dir)?;
    }
    let mut drawn = Ok(());
    for (name, measure) in chosen {
        let claim = measure(&sizes).with_context(|| format!("claim {name}"))?;
        print(name, &claim, options.json)?;
        if let (Some(dir), Some(svg)) = (&options.plot, claim.svg()) {
            drawn = drawn.and(plots::write(dir, name, svg));
        }
    }
    eprintln!("{}; load average: {}", machine::describe(), machine::load());
    drawn
}

fn chosen(only: &[String]) -> Result<Vec<Entry>> {
    let known = |name: &String| CLAIMS.iter().any(|(claim, _)| claim == name);
    if let Some(unknown) = only.iter().find(|name| !known(name)) {
        let names = CLAIMS.map(|(name, _)| name).join(", ");
        bail!("no claim is called {unknown}: there are {names}");
    }
    let is_chosen = |entry: &Entry| only.is_empty() || only.iter().any(|name| name == entry.0);
    Ok(CLAIMS.into_iter().filter(is_chosen).collect())
}

fn print(name: &'static str, claim: &Claim, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        claim.write_json(name, &mut out)?;
    } else {
        writeln!(out, "{name}: {claim}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Sizes = Sizes {
        keys: 5_000,
        trials: 1,
        quick: true,
        divisor: 1_000,
        seed: 3,
    };

    #[test]
    fn every_claim_has_figures_of_both_sides_reasons_and_a_plot() {
        for (name, measure) in CLAIMS {
            let claim = measure(&TINY).unwrap();
            let text = claim.to_string();
            assert!(
                text.contains("source says") && text.contains("we measure"),
                "{name}"
            );
            assert!(text.contains("why they differ"), "{name} has no reasons");
            let plot = claim.svg().unwrap_or_default();
            assert!(
                plot.starts_with("<svg") && plot.ends_with("</svg>\n"),
                "{name}"
            );
            assert!(
                !plot.contains("NaN") && !plot.contains("inf"),
                "{name}: {plot}"
            );
            let mut lines = Vec::new();
            claim.write_json(name, &mut lines).unwrap();
            for line in String::from_utf8(lines).unwrap().lines() {
                let figure: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(figure["suite"], "theory");
                assert!(figure["value"].is_f64(), "{name}: {line}");
            }
        }
    }

    #[test]
    fn claims_are_chosen_by_name() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            chosen(&only).map(|chosen| chosen.len())
        };
        assert_eq!(names(&[]).unwrap(), CLAIMS.len());
        assert_eq!(names(&["inner", "bloom"]).unwrap(), 2);
        let unknown = names(&["magic"]).unwrap_err().to_string();
        assert!(
            unknown.contains("magic") && unknown.contains("table1"),
            "{unknown}"
        );
    }
}
