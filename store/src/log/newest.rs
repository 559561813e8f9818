//! The number of the newest log segment, in a file of its own: a log that has lost its last segments looks complete.

use crate::StoreError;
use crate::directory::Directory;
use crate::meta;

const NAME: &str = "log";

/// Notes the number of a segment that is in place.
pub(super) fn note(dir: &Directory, number: u64) -> Result<(), StoreError> {
    if noted(dir)? == Some(number) {
        return Ok(());
    }
    meta::set(dir, NAME, &number.to_le_bytes())
}

/// The last number that was noted.
///
/// # Errors
/// As [`meta::get`].
pub(crate) fn noted(dir: &Directory) -> Result<Option<u64>, StoreError> {
    let Some(value) = meta::get(dir, NAME)? else {
        return Ok(None);
    };
    let number = <[u8; 8]>::try_from(&value[..]);
    let number = number.map_err(|_| {
        let path = dir.join(&format!("meta-{NAME}"));
        StoreError::corrupt(&path, 0, "it is not the number of a log segment")
    })?;
    Ok(Some(u64::from_le_bytes(number)))
}
