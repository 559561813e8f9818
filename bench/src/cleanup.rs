//! Cleans up after a run, however it ends.
//!
//! Normally, processes and directories end with the values that own them. On Ctrl-C or
//! SIGTERM, a thread kills the processes and removes the directories registered here. On
//! SIGKILL, the kernel kills the processes, because they requested this before exec
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

static REGISTERED: Mutex<Registered> = Mutex::new(Registered {
    processes: Vec::new(),
    dirs: Vec::new(),
});

struct Registered {
    processes: Vec<u32>,
    dirs: Vec<PathBuf>,
}

fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Another program and its arguments.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BoundArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// A command that runs a program until the thread that starts it ends.
///
/// # Errors
/// The path of this program is unknown.
pub(crate) fn bound(program: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(BOUND).arg(program);
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
    registered().dirs.push(dir.path().to_owned());
    Ok(dir)
}

/// Registers a started process.
pub(crate) fn register(process: u32) {
    registered().processes.push(process);
}

/// Unregisters a reaped process: the system may reuse its number.
pub(crate) fn unregister(process: u32) {
    registered().processes.retain(|other| *other != process);
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
    // The lock is held until the end, so that no other process starts.
    let registered = registered();
    let pids = registered.processes.iter();
    for pid in pids.filter_map(|process| Pid::from_raw(*process as i32)) {
        // The process may have ended already.
        let _ = kill_process(pid, Signal::KILL);
    }
    for dir in &registered.dirs {
        for _ in 0..REMOVALS {
            if std::fs::remove_dir_all(dir).is_ok() || !dir.exists() {
                break;
            }
            std::thread::sleep(BETWEEN_REMOVALS);
        }
    }
}
