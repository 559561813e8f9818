//! The machine: cores, load, and pinning.

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::process;

/// How many cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// One line about the machine.
pub(crate) fn describe() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, name)| name);
    format!("{} cores of {model}", cores())
}

/// The load averages of the last 1, 5 and 15 minutes: figures from a busy machine are worth little.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    if averages.is_empty() {
        return "unknown".to_owned();
    }
    averages.join(" ")
}

/// How busy the machine was, and this process's share of that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Busy {
    all: Duration,
    ours: Duration,
}

impl Busy {
    /// Totals since the machine and this process were started; `None` if `/proc` does not have
    /// them.
    pub(crate) fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        Some(Self {
            all: process::from_ticks(busy_ticks(&stat)?),
            ours: process::cpu_time_with_children().ok()?,
        })
    }

    /// The share of the processors' busy time since `before` that other processes used, in percent.
    /// Children count as ours once they have ended.
    pub(crate) fn others_percent(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).as_secs_f64();
        let ours = self.ours.saturating_sub(before.ours).as_secs_f64();
        (100.0 * (1.0 - ours / all.max(1e-9))).max(0.0)
    }
}

/// Ticks of all processes, without idling and waiting for disks.
fn busy_ticks(stat: &str) -> Option<u64> {
    let counts = stat.lines().next()?.strip_prefix("cpu ")?;
    let counts = counts.split_whitespace().take(8).enumerate();
    let busy = counts.filter(|(field, _)| ![3, 4].contains(field));
    busy.map(|(_, ticks)| ticks.parse::<u64>().ok()).sum()
}

/// Runs `work` on one core only, with this thread and all threads and processes that it starts
/// meanwhile.
///
/// # Errors
/// The system's error from pinning.
pub(crate) fn on_core<T>(core: usize, work: impl FnOnce() -> T) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only)?;
    let done = work();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core_and_then_its_own_again() {
        let before = cores();
        let first = (0..CpuSet::MAX_CPU)
            .find(|core| sched_getaffinity(None).unwrap().is_set(*core))
            .unwrap();
        assert_eq!(on_core(first, cores).unwrap(), 1);
        assert_eq!(cores(), before);
    }

    #[test]
    fn idling_is_not_working() {
        let stat = "cpu  100 20 3 9000 800 4 5 6 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(138));
    }

    #[test]
    fn what_others_did_is_what_is_left() {
        let busy = |all, ours| Busy {
            all: Duration::from_secs(all),
            ours: Duration::from_secs(ours),
        };
        let percent = busy(150, 50).others_percent(busy(50, 10));
        assert!((percent - 60.0).abs() < 1e-9);
    }

    #[test]
    fn the_load_is_three_numbers() {
        let numbers = load();
        assert!(
            numbers.split(' ').all(|n| n.parse::<f64>().is_ok()),
            "{numbers}"
        );
    }
}
