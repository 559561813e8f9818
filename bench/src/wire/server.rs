//! Servers as processes, started on the servers' core.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpStream;
use torc_testkit::Process;

use super::SERVER_CORE;
use crate::process;
use crate::{cleanup, machine};

/// Time limit for a server to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The command of an installed program, without output.
///
/// # Errors
/// The path of this program is unknown.
pub(super) fn command(program: &str) -> Result<Option<Command>> {
    let program = process::installed(program);
    program.map(|program| command_of(&program)).transpose()
}

/// The command of a program, without output.
///
/// # Errors
/// The path of this program is unknown.
pub(super) fn command_of(program: &Path) -> Result<Command> {
    let mut command = cleanup::bound(program)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command)
}

/// Starts a server on the servers' core and waits until it listens.
///
/// # Errors
/// It ends, or never listens.
pub(super) async fn start(command: &mut Command, address: SocketAddr) -> Result<Process> {
    let process = machine::on_core(SERVER_CORE, || Process::start(command))??;
    listening(process, command, address).await
}

/// Like [`start`], on any core that the system chooses.
///
/// # Errors
/// As [`start`].
pub(super) async fn start_anywhere(command: &mut Command, address: SocketAddr) -> Result<Process> {
    let process = Process::start(command)?;
    listening(process, command, address).await
}

async fn listening(
    mut process: Process,
    command: &Command,
    address: SocketAddr,
) -> Result<Process> {
    let give_up = Instant::now() + START_TIMEOUT;
    let program = command.get_args().nth(1).unwrap_or_default().display();
    loop {
        let listens = TcpStream::connect(address).await.is_ok();
        // If our server failed to start, another process may be listening.
        if let Some(status) = process.ended() {
            bail!("{program} has ended: {status}");
        }
        if listens {
            return Ok(process);
        }
        if Instant::now() > give_up {
            bail!("{program} does not listen on {address}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Creates a directory for a peer.
///
/// # Errors
/// It cannot be created.
pub(super) fn own_dir(dir: &Path, name: &str) -> Result<std::path::PathBuf> {
    let own = dir.join(name);
    std::fs::create_dir(&own).with_context(|| format!("cannot make {}", own.display()))?;
    Ok(own)
}
