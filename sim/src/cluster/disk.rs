//! A small disk that can be filled: a file system in memory, mounted for one node.
//!
//! Only root may mount. Its files survive the node's process, but not the run.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE_MIB: u64 = 256;
const CHUNK: usize = 16 << 10;

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one at this directory; returns the system's message on failure.
    pub(super) fn mount(at: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={SIZE_MIB}m"),
            "torc-sim",
        ]);
        let done = mount.arg(at).output().map_err(|error| error.to_string())?;
        if done.status.success() {
            return Ok(Self(at.to_owned()));
        }
        Err(String::from_utf8_lossy(&done.stderr).trim().to_owned())
    }

    /// Fills the remaining space.
    pub(super) fn fill(&self) -> io::Result<()> {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.ballast())?;
        let mut chunk = &[0_u8; CHUNK][..];
        loop {
            match file.write(chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull && chunk.len() > 1 => {
                    chunk = &chunk[..chunk.len() / 2];
                }
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees the space again.
    pub(super) fn free(&self) -> io::Result<()> {
        std::fs::remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Nothing to report here: the removal of the directory will fail instead.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
