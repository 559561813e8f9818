//! The disk of a [`CrashFs`](super::CrashFs), and what a crash leaves of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    pub(super) bytes: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Change>,
    /// Changes that a failed sync dropped.
    pub(super) doomed: Vec<Change>,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Create {
        path: PathBuf,
        inode: usize,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        inode: usize,
    },
    Remove {
        path: PathBuf,
    },
}

impl Inode {
    pub(super) fn image(&self, dice: Option<&mut Dice>) -> Self {
        let mut bytes = self.durable.clone();
        if let Some(dice) = dice {
            for change in self.doomed.iter().chain(&self.pending) {
                if dice.toss() {
                    change.apply_torn(&mut bytes, dice);
                }
            }
        }
        Self {
            durable: bytes.clone(),
            bytes,
            ..Self::default()
        }
    }
}

impl Change {
    pub(super) fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => file.resize(*len, 0),
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*offset..end].copy_from_slice(bytes);
            }
        }
    }

    /// As `apply`, but may apply only some sectors or a prefix of a write.
    pub(super) fn apply_torn(&self, file: &mut Vec<u8>, dice: &mut Dice) {
        let Self::Write { offset, bytes } = self else {
            return self.apply(file);
        };
        match dice.below(3) {
            0 => self.apply(file),
            1 => {
                let kept = dice.below(bytes.len() + 1);
                let prefix = bytes[..kept].to_vec();
                Self::Write {
                    offset: *offset,
                    bytes: prefix,
                }
                .apply(file);
            }
            _ => {
                let mut at = 0;
                while at < bytes.len() {
                    let to_border = SECTOR_BYTES - (offset + at) % SECTOR_BYTES;
                    let end = bytes.len().min(at + to_border);
                    if dice.toss() {
                        let sector = bytes[at..end].to_vec();
                        Self::Write {
                            offset: offset + at,
                            bytes: sector,
                        }
                        .apply(file);
                    }
                    at = end;
                }
            }
        }
    }
}

impl NameChange {
    pub(super) fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Create { path, inode } => {
                names.insert(path.clone(), *inode);
            }
            Self::Rename { from, to, inode } => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
        }
    }

    pub(super) fn dir(&self) -> Option<&Path> {
        match self {
            Self::Create { path, .. } | Self::Remove { path } => path.parent(),
            Self::Rename { to, .. } => to.parent(),
        }
    }
}

/// Splitmix64: a seed reproduces a crash.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn toss(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}
