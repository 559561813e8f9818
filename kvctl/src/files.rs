//! New files, for secrets and for what cannot be made again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::failure::Failure;

/// Creates a file, but never over an existing one.
pub(crate) fn create(path: &Path, mode: u32) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    file.map_err(|source| Failure::file("create", path, source))
}

/// Writes a whole file durably.
pub(crate) fn write(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    file.sync_all()
}
