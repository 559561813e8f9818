//! Cleans up after a run, however it ends.
//!
//! Normally, processes and directories end with the values that own them. On Ctrl-C or
//! SIGTERM, a thread kills this program's children and removes the directories registered here.
//! On SIGKILL, the kernel kills the children, because they requested this before exec
//! ([`bound`]); directories stay.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// The hidden subcommand with which this program executes another one.
const BOUND: &str = "bound";
/// Attempts to remove a directory: a killed process may still be writing to it.
const REMOVALS: u32 = 50;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(20);
/// The exit code that a shell reports for an interrupted program.
const INTERRUPTED: i32 = 130;

static DIRS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn dirs() -> MutexGuard<'static, Vec<PathBuf>> {
    DIRS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Another program and its arguments.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BoundArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// The words that, before a command, run it until the thread that starts it ends.
///
/// # Errors
/// The path of this program is unknown.
pub(crate) fn binding() -> io::Result<[OsString; 2]> {
    Ok([std::env::current_exe()?.into(), BOUND.into()])
}

/// A command that runs a program until the thread that starts it ends.
///
/// # Errors
/// The path of this program is unknown.
pub(crate) fn bound(program: &Path) -> io::Result<Command> {
    let [own, bound] = binding()?;
    let mut command = Command::new(own);
    command.arg(bound).arg(program);
    Ok(command)
}

/// Replaces this process by the program. Returns only on failure.
///
/// # Errors
/// The program cannot be run.
pub(crate) fn become_bound(args: &BoundArgs) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let Some((program, args)) = args.command.split_first() else {
        return Ok(());
    };
    Err(Command::new(program).args(args).exec().into())
}

/// Creates a directory under `parent`, or under the directory for temporary files.
///
/// # Errors
/// It cannot be created.
pub(crate) fn scratch(parent: Option<&Path>) -> io::Result<TempDir> {
    let dir = parent.map_or_else(tempfile::tempdir, tempfile::tempdir_in)?;
    dirs().push(dir.path().to_owned());
    Ok(dir)
}

/// Cleans up and ends this process on a termination signal.
///
/// # Errors
/// No thread, or no signal handler.
pub(crate) fn on_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let (mut interrupted, mut terminated) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
        });
        clean_up();
        std::process::exit(INTERRUPTED);
    })?;
    Ok(())
}

fn clean_up() {
    // A process that is started from now on ends with this one.
    for child in children() {
        // The process may have ended already.
        let _ = kill_process(child, Signal::KILL);
    }
    for dir in &*dirs() {
        for _ in 0..REMOVALS {
            if std::fs::remove_dir_all(dir).is_ok() || !dir.exists() {
                break;
            }
            std::thread::sleep(BETWEEN_REMOVALS);
        }
    }
}

/// The processes that this one has started.
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |process: std::fs::DirEntry| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let parent = crate::process::parent(pid).ok()?;
        (parent == own).then(|| Pid::from_raw(pid.cast_signed()))?
    };
    processes.filter_map(child).collect()
}
