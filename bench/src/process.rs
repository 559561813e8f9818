//! Processes, watched through `/proc`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Memory that a process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident_bytes: u64,
    /// The maximum so far.
    pub(crate) peak_bytes: u64,
}

/// Processor time of a process, in user mode and in the kernel. In steps of a clock tick, usually
/// 10 ms.
///
/// # Errors
/// There is no such process.
pub(crate) fn cpu_time(process: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let [own, _] = ticks_of(&stat).context("/proc/PID/stat is not as it should be")?;
    Ok(from_ticks(own))
}

/// Processor time of this process and of all its children that have ended.
///
/// # Errors
/// `/proc` is missing.
pub(crate) fn cpu_time_with_children() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let [own, children] = ticks_of(&stat).context("/proc/self/stat is not as it should be")?;
    Ok(from_ticks(own + children))
}

/// The parent of a process.
///
/// # Errors
/// There is no such process.
pub(crate) fn parent(process: u32) -> Result<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let parent = after_name(&stat).and_then(|mut fields| fields.nth(1)?.parse().ok());
    parent.context("/proc/PID/stat is not as it should be")
}

/// Converts a time that the kernel counts in clock ticks.
pub(crate) fn from_ticks(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs_f64(ticks as f64 / per_second as f64)
}

/// The fields from the third one on: the name, field 2, may contain anything but ends at the last
/// bracket.
fn after_name(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

/// Ticks of the process and of its reaped children, fields 14 to 17.
fn ticks_of(stat: &str) -> Option<[u64; 2]> {
    let fields = after_name(stat)?.skip(11).take(4);
    let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    match ticks[..] {
        [user, system, of_children_user, of_children_system] => {
            Some([user + system, of_children_user + of_children_system])
        }
        _ => None,
    }
}

/// The resident memory of a process, and its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resident {
    /// All resident memory.
    pub(crate) bytes: u64,
    /// Memory of the process alone. The rest is mapped files: page cache, which the kernel reclaims
    /// when it needs room.
    pub(crate) anonymous_bytes: u64,
}

/// Walks all mappings: some milliseconds per gigabyte.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub(crate) fn resident(process: u32) -> Result<Resident> {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let bytes =
        |name| bytes_of(&rollup, name).with_context(|| format!("smaps_rollup without {name}"));
    Ok(Resident {
        bytes: bytes("Rss:")?,
        anonymous_bytes: bytes("Anonymous:")?,
    })
}

/// Processor time of this process's threads with a given name, to the nanosecond.
///
/// # Errors
/// `/proc` is missing.
pub(crate) fn cpu_time_of_threads(name: &str) -> Result<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // A thread may end during this loop.
        let (Ok(comm), Ok(times)) = (
            std::fs::read_to_string(task.join("comm")),
            std::fs::read_to_string(task.join("schedstat")),
        ) else {
            continue;
        };
        if comm.trim_end() == name {
            let first = times.split(' ').next();
            let spent = first.and_then(|text| text.parse::<u64>().ok());
            nanos += spent.context("/proc/PID/task/TID/schedstat is not as it should be")?;
        }
    }
    Ok(Duration::from_nanos(nanos))
}

/// Processor time of the calling thread.
pub(crate) fn cpu_time_of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of the calling thread since [`cpu_time_of_this_thread`] gave `begun`.
pub(crate) fn cpu_time_since(begun: Duration) -> Duration {
    cpu_time_of_this_thread().saturating_sub(begun)
}

/// # Errors
/// There is no such process.
pub(crate) fn memory(process: u32) -> Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let bytes =
        |name| bytes_of(&status, name).with_context(|| format!("/proc/PID/status without {name}"));
    Ok(Memory {
        resident_bytes: bytes("VmRSS:")?,
        peak_bytes: bytes("VmHWM:")?,
    })
}

fn bytes_of(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Disk space of the files under a directory, bytes.
///
/// # Errors
/// A directory cannot be read.
pub(crate) fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // Files may be removed during this loop.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        bytes += metadata.blocks() * 512;
        if metadata.is_dir() {
            bytes += disk_bytes(&entry.path())?;
        }
    }
    Ok(bytes)
}

/// Free bytes on the disk of a directory.
///
/// # Errors
/// The directory is missing.
pub(crate) fn free_bytes(dir: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(disk.f_bavail * disk.f_frsize)
}

/// The path of a program, if it is installed.
pub(crate) fn installed(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_cannot_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 4 3 20 0 1 0 12 0 0";
        assert_eq!(ticks_of(stat), Some([300, 7]));
    }

    #[test]
    fn memory_is_told_in_kibibytes() {
        assert_eq!(
            bytes_of("VmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n", "VmRSS:"),
            Some(1 << 20)
        );
        let own = memory(std::process::id()).unwrap();
        assert!(0 < own.resident_bytes && own.resident_bytes <= own.peak_bytes);
    }

    #[test]
    fn what_is_resident_is_anonymous_or_of_files() {
        let held = vec![1_u8; 64 << 20];
        let own = resident(std::process::id()).unwrap();
        assert!(own.anonymous_bytes >= 64 << 20, "the vector is ours");
        assert!(
            own.bytes > own.anonymous_bytes,
            "the program is a mapped file"
        );
        drop(held);
    }

    #[test]
    fn the_time_of_a_thread_is_counted_under_its_name_and_only_there() {
        let worker = std::thread::Builder::new().name("bench-worker".to_owned());
        let spent = worker.spawn(|| {
            let begun = cpu_time_of_this_thread();
            while cpu_time_since(begun) < Duration::from_millis(20) {}
            cpu_time_of_threads("bench-worker").unwrap()
        });
        assert!(spent.unwrap().join().unwrap() >= Duration::from_millis(15));
        assert_eq!(
            cpu_time_of_threads("nobody").unwrap(),
            Duration::ZERO,
            "no thread has this name"
        );
    }

    #[test]
    fn a_disk_has_room_and_an_absent_directory_has_none() {
        assert!(free_bytes(Path::new("/")).unwrap() > 0);
        assert!(free_bytes(Path::new("/no/such/place")).is_err());
    }

    #[test]
    fn disk_bytes_are_those_of_all_files_below() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        let before = disk_bytes(dir.path()).unwrap();
        std::fs::write(dir.path().join("below/file"), [1; 10_000]).unwrap();
        assert!(disk_bytes(dir.path()).unwrap() >= before + 10_000);
    }
}
