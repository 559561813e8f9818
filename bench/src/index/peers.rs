//! The peers: `ptr_hash`, the PHastR of sux and the PHast+ of ph.
//!
//! None hashes a key again: each gets 64 bits that depend on the digest and on its own seed, by one
//! multiplication. All build on one thread.

#![expect(
    clippy::inline_always,
    reason = "the peers ask for a hash that is free, as it is in their own benchmarks"
)]

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

use anyhow::{Context as _, Result};
use dsi_progress_logger::no_logging;
use mem_dbg::{MemSize as _, SizeFlags};
use ph::GetSize as _;
use ph::phast::{Function2, Params, ShiftOnlyWrapped, bits_per_seed_to_100_bucket_size};
use ph::seeds::Bits8;
use ptr_hash::{CompactPtrHash, DefaultPtrHash, PtrHashParams};
use sux::func::PHastR;
use sux::utils::{FromSlice, ToSig};
use torc_record::Digest;

use super::Turn;
use super::subject::{BATCH, Function};

/// Builds and measures every peer once.
pub(super) fn measure(turn: &mut Turn<'_>, keys: &[Digest]) -> Result<()> {
    let keys: Vec<Key> = keys.iter().copied().map(Key).collect();
    turn.subject = "ptr_hash";
    let built = turn.build(|| PtrDefault::build(&keys))?;
    turn.ask(&built);
    turn.subject = "ptr_hash compact";
    let built = turn.build(|| PtrCompact::build(&keys))?;
    turn.ask(&built);
    turn.subject = "sux PHastR";
    let built = turn.build(|| SuxPhastr::build(&keys))?;
    turn.ask(&built);
    turn.subject = "ph PHast+";
    let built = turn.build(|| Ok(PhastPlus::build(&keys)))?;
    turn.ask(&built);
    Ok(())
}

/// A digest as the peers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Key(Digest);

impl Key {
    #[inline(always)]
    fn seeded(&self, seed: u64) -> u64 {
        let factor = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        self.0.low() ^ self.0.high().wrapping_mul(factor)
    }
}

impl Hash for Key {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.low());
        state.write_u64(self.0.high());
    }
}

/// The seeded hash of a key, in the form that `ptr_hash` and ph require.
#[derive(Debug, Clone, Copy, Default)]
struct Seeded;

/// Computes [`Key::seeded`] from what [`Key`] writes.
struct SeededHasher {
    seed: u64,
    key: [u64; 2],
}

impl Hasher for SeededHasher {
    #[inline(always)]
    fn write_u64(&mut self, half: u64) {
        self.key = [self.key[1], half];
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        let factor = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        self.key[0] ^ self.key[1].wrapping_mul(factor)
    }
}

impl ph::BuildSeededHasher for Seeded {
    type Hasher = SeededHasher;

    #[inline(always)]
    fn build_hasher(&self, seed: u64) -> SeededHasher {
        SeededHasher { seed, key: [0; 2] }
    }
}

impl ptr_hash::hash::KeyHasher<Key> for Seeded {
    type H = u64;

    #[inline(always)]
    fn hash(key: &Key, seed: u64) -> u64 {
        key.seeded(seed)
    }
}

impl ToSig<[u64; 1]> for Key {
    #[inline(always)]
    fn to_sig(key: impl Borrow<Self>, seed: u64) -> [u64; 1] {
        [key.borrow().seeded(seed)]
    }
}

/// `ptr_hash` with its default parameters.
struct PtrDefault(DefaultPtrHash<Seeded, Key>);

impl PtrDefault {
    fn build(keys: &[Key]) -> Result<Self> {
        let built = DefaultPtrHash::try_new(keys, PtrHashParams::default_fast());
        Ok(Self(built.context("ptr_hash found no function")?))
    }
}

/// `ptr_hash` with its compact parameters.
struct PtrCompact(CompactPtrHash<Seeded, Key>);

impl PtrCompact {
    fn build(keys: &[Key]) -> Result<Self> {
        let built = CompactPtrHash::try_new(keys, PtrHashParams::default_compact());
        Ok(Self(built.context("ptr_hash found no compact function")?))
    }
}

macro_rules! ptr_hash_function {
    ($($subject:ty),*) => {$(
        impl Function for $subject {
            fn bytes(&self) -> usize {
                let (pilots, remap) = self.0.bits_per_element();
                ((pilots + remap) * self.0.n() as f64 / 8.0) as usize
            }

            #[inline]
            fn slot(&self, digest: &Digest) -> usize {
                self.0.index(&Key(*digest))
            }

            #[inline]
            fn slots(&self, digests: &[Digest; BATCH], out: &mut Vec<u32>) -> bool {
                let slots = self.0.index_batch(digests.map(Key));
                out.extend(slots.map(|slot| slot as u32));
                true
            }
        }
    )*};
}

ptr_hash_function!(PtrDefault, PtrCompact);

/// The PHastR of sux.
struct SuxPhastr(PHastR<Key>);

impl SuxPhastr {
    fn build(keys: &[Key]) -> Result<Self> {
        PHastR::try_new(FromSlice::new(keys), no_logging![]).map(Self)
    }
}

impl Function for SuxPhastr {
    fn bytes(&self) -> usize {
        self.0.mem_size(SizeFlags::default())
    }

    #[inline]
    fn slot(&self, digest: &Digest) -> usize {
        self.0.get(Key(*digest))
    }

    #[inline]
    fn slots(&self, digests: &[Digest; BATCH], out: &mut Vec<u32>) -> bool {
        let keys = digests.map(Key);
        let slots = self.0.get_batch(keys.each_ref());
        out.extend(slots.map(|slot| slot as u32));
        true
    }
}

/// The PHast+ of ph, wrapping with factor 3.
struct PhastPlus(Function2<Bits8, ShiftOnlyWrapped<3>, ph::phast::DefaultCompressedArray, Seeded>);

impl PhastPlus {
    fn build(keys: &[Key]) -> Self {
        let params = Params::new(Bits8, bits_per_seed_to_100_bucket_size(8));
        Self(Function2::with_slice_p_hash_sc(
            keys,
            &params,
            Seeded,
            ShiftOnlyWrapped::<3>,
        ))
    }
}

impl Function for PhastPlus {
    fn bytes(&self) -> usize {
        self.0.size_bytes()
    }

    #[inline]
    fn slot(&self, digest: &Digest) -> usize {
        self.0.get(&Key(*digest))
    }

    fn slots(&self, _: &[Digest; BATCH], _: &mut Vec<u32>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::digests;
    use super::*;

    fn check(name: &str, function: &impl Function, digests: &[Digest]) {
        let mut slots: Vec<_> = digests.iter().map(|digest| function.slot(digest)).collect();
        let (batches, _) = digests.as_chunks::<BATCH>();
        let mut batched = Vec::new();
        if function.slots(&batches[0], &mut batched) {
            let batched: Vec<_> = batched.into_iter().map(|slot| slot as usize).collect();
            assert_eq!(batched, slots[..BATCH], "{name}");
        }
        slots.sort_unstable();
        assert!(slots.into_iter().eq(0..digests.len()), "{name}");
    }

    #[test]
    fn every_peer_gives_each_key_a_slot_of_its_own() {
        let digests = digests::sorted(10_000);
        let keys: Vec<Key> = digests.iter().copied().map(Key).collect();
        check("ptr_hash", &PtrDefault::build(&keys).unwrap(), &digests);
        check("compact", &PtrCompact::build(&keys).unwrap(), &digests);
        check("sux", &SuxPhastr::build(&keys).unwrap(), &digests);
        check("ph", &PhastPlus::build(&keys), &digests);
    }
}
