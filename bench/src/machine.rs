//! The machine that is measured on: how many cores, how busy, and who runs where.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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

/// The load averages of the last 1, 5 and 15 minutes: figures taken on a busy machine are
/// worth little.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    if averages.is_empty() {
        return "unknown".to_owned();
    }
    averages.join(" ")
}

/// Runs `work` with this thread, and whatever threads and processes it starts meanwhile,
/// on one core alone.
///
/// # Errors
/// What the system said of the pinning.
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
    fn the_load_is_three_numbers() {
        let numbers = load();
        assert!(
            numbers.split(' ').all(|n| n.parse::<f64>().is_ok()),
            "{numbers}"
        );
    }
}
