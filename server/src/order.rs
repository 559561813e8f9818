//! Order among the writes of one key.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use torc_record::Digest;

const STRIPES: usize = 4096;

/// Lets blind writes of a key run side by side, and gives a write whose outcome
/// depends on the present value its key for itself. Keys share stripes, which costs
/// some waiting and no correctness: an operation holds one stripe at a time.
#[derive(Debug)]
pub(crate) struct KeyOrder {
    stripes: Vec<RwLock<()>>,
}

/// Held while a write is under way.
#[derive(Debug)]
pub(crate) enum Held<'a> {
    Alone { _guard: RwLockWriteGuard<'a, ()> },
    Shared { _guard: RwLockReadGuard<'a, ()> },
}

impl KeyOrder {
    pub(crate) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
        }
    }

    pub(crate) async fn hold(&self, digest: &Digest, alone: bool) -> Held<'_> {
        let stripe = &self.stripes[(digest.low() % STRIPES as u64) as usize];
        if alone {
            Held::Alone {
                _guard: stripe.write().await,
            }
        } else {
            Held::Shared {
                _guard: stripe.read().await,
            }
        }
    }
}
