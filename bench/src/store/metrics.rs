//! The figures of child processes, and their units.

use anyhow::{Context as _, Result};

use crate::report::Metric;

/// In bytes per record: disk, memory, and the parts of Torc's index.
const PER_RECORD: &[&str] = &[
    "disk_per_record",
    "peak_ram_per_record",
    "ram_per_record",
    "anonymous_ram_per_record",
    "mapped_page_cache_per_record",
    "index",
    "index_headers",
    "index_gates",
    "index_mphf",
    "index_offsets",
];

/// All others.
const METRICS: &[Metric] = &[
    Metric::new("durable_puts", "puts/s"),
    Metric::new("load", "records/s"),
    Metric::new("settle", "s"),
    Metric::new("flush_per_core", "records/s"),
    Metric::new("flush_elapsed", "records/s"),
    Metric::new("compaction_per_core", "records/s"),
    Metric::new("compaction_elapsed", "records/s"),
    Metric::new("compactions_per_record", "ratio"),
    Metric::new("open_after_kill_9", "s"),
    Metric::new("open_after_close", "s"),
    Metric::new("get", "ns"),
    Metric::new("get_elapsed", "ns"),
    Metric::new("get_with_digest", "ns"),
    Metric::new("get_in_batch", "ns"),
    Metric::new("get_of_absent", "ns"),
    Metric::new("get_of_absent_elapsed", "ns"),
    Metric::new("get_of_absent_with_digest", "ns"),
    Metric::new("get_of_absent_in_batch", "ns"),
    Metric::new("reads_per_hit", "ratio"),
    Metric::new("reads_per_miss", "ratio"),
    Metric::new("slices_per_partition", "slices"),
    Metric::new("moved", "MiB"),
    Metric::new("read_cpu", "MiB/s"),
    Metric::new("write_cpu", "MiB/s"),
    Metric::new("verify_cpu", "MiB/s"),
    Metric::new("publish_elapsed", "MiB/s"),
    Metric::new("verify_per_record", "ns"),
];

/// The metric with a name.
///
/// # Errors
/// No metric has this name.
pub(super) fn of(name: &str) -> Result<Metric> {
    let per_record = PER_RECORD.iter().find(|known| **known == name);
    let per_record = per_record.map(|name| Metric::new(name, "bytes"));
    let others = METRICS.iter().find(|metric| metric.name == name);
    let found = per_record.or(others.copied());
    found.with_context(|| format!("a child told {name}, which is no metric"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_unit_and_an_unknown_name_none() {
        let others = METRICS.iter().map(|metric| metric.name);
        let names: Vec<&str> = PER_RECORD.iter().copied().chain(others).collect();
        for name in &names {
            let same = names.iter().filter(|other| *other == name).count();
            assert_eq!(same, 1, "{name} would have two units");
            assert_eq!(of(name).unwrap().name, *name);
        }
        assert!(of("gets").is_err(), "what no child tells is no metric");
    }
}
