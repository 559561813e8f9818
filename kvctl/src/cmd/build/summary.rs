//! What a build tells of itself.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use torc_build::Manifest;

use crate::cmd::generation::{bits_per_key, failure, hex};
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::text;

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Summary {
    generation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    records: u64,
    payload_bytes: u64,
    duplicates: u64,
    files: u64,
    file_bytes: u64,
    index_bits_per_key: f64,
    rows_resumed: u64,
    seconds: f64,
    records_per_s: f64,
    peak_memory_bytes: Option<u64>,
}

pub(super) struct Built {
    pub(super) manifest: Manifest,
    index_bytes: u64,
    /// Rows that an earlier, interrupted run has taken.
    taken: u64,
    read_for: Duration,
    elapsed: Duration,
    /// The URL that its manifest was sent to.
    pub(super) sent: Option<String>,
}

impl Built {
    pub(super) fn of(
        dir: &Path,
        manifest: Manifest,
        taken: u64,
        (read_for, elapsed): (Duration, Duration),
    ) -> Result<Self, Failure> {
        let generation = torc_build::Generation::open(dir).map_err(failure)?;
        let index_bytes = generation.index_bytes();
        Ok(Self {
            manifest,
            index_bytes,
            taken,
            read_for,
            elapsed,
            sent: None,
        })
    }

    fn summary(&self) -> Summary {
        let manifest = &self.manifest;
        let seconds = self.elapsed.as_secs_f64().max(1e-6);
        Summary {
            generation: hex(&manifest.digest()),
            url: self.sent.clone(),
            records: manifest.records,
            payload_bytes: manifest.payload_bytes,
            duplicates: manifest.duplicates,
            files: manifest.files.len() as u64,
            file_bytes: manifest.file_bytes(),
            index_bits_per_key: bits_per_key(self.index_bytes, manifest.records),
            rows_resumed: self.taken,
            seconds,
            records_per_s: manifest.records.saturating_sub(self.taken) as f64 / seconds,
            peak_memory_bytes: peak_memory_bytes(),
        }
    }

    pub(super) fn print(&self, dir: &Path, global: &Global, out: &mut Out) -> Result<(), Failure> {
        let summary = self.summary();
        if global.json() {
            return out.json(&summary);
        }
        // The rate of a run that read only some of the rows says nothing.
        let (resumed, rate) = if self.taken > 0 {
            let taken = text::count(self.taken);
            (format!(" ({taken} from before)"), String::new())
        } else {
            let rate = text::count(summary.records_per_s as u64);
            (String::new(), format!("; {rate} records/s"))
        };
        out.line(format!(
            "built {}{resumed} ({}) in {}: {} to read, {} to sort and build{rate}",
            text::counted(summary.records, "key"),
            text::bytes(summary.payload_bytes),
            text::duration(self.elapsed),
            text::duration(self.read_for),
            text::duration(self.elapsed.saturating_sub(self.read_for)),
        ))?;
        if summary.duplicates > 0 {
            let rows = text::counted(summary.duplicates, "row");
            out.line(format!("{rows} left out as duplicates"))?;
        }
        let memory = summary.peak_memory_bytes.map_or_else(String::new, |peak| {
            format!("; {} of memory at most", text::bytes(peak))
        });
        out.line(format!(
            "{} in {} ({}); {:.2} bits of index per key{memory}; generation {}",
            summary.url.unwrap_or_else(|| dir.display().to_string()),
            text::counted(summary.files, "file"),
            text::bytes(summary.file_bytes),
            summary.index_bits_per_key,
            &summary.generation[..16],
        ))
    }
}

/// The most memory that this process has had resident; `None` if the system does not tell.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&Summary {
            generation: String::new(),
            url: Some(String::new()),
            records: 0,
            payload_bytes: 0,
            duplicates: 0,
            files: 0,
            file_bytes: 0,
            index_bits_per_key: 0.0,
            rows_resumed: 0,
            seconds: 0.0,
            records_per_s: 0.0,
            peak_memory_bytes: Some(0),
        });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_of_memory_is_that_of_the_process() {
        let before = peak_memory_bytes().unwrap();
        let most = vec![1_u8; 64 << 20];
        assert_eq!(std::hint::black_box(most)[5], 1);
        assert!(peak_memory_bytes().unwrap() >= before.max(64 << 20));
    }
}
