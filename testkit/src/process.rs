//! Child processes.

use std::io;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

/// A child process. Dropping it kills it with SIGKILL, like a crash, and waits until it has ended.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// # Errors
    /// The command cannot be run; the message names its program.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn();
        child.map(Self).map_err(|error| {
            let program = command.get_program().display();
            io::Error::new(error.kind(), format!("cannot start {program}: {error}"))
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The child, for its pipes.
    pub const fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// The exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }

    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
