//! Claims of many keys and their answers, packed, because they are most of the cost of a batch of
//! gets.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint};
use torc_record::{
    Ballot, DIGEST_LEN, Digest, Epoch, HybridTime, Key, MAX_KEY_LEN, NamespaceId, NodeSlot,
};
use torc_replication::{Claim, Locator, MAX_CLAIMS};
use torc_ring::{Partitions, Token};

use crate::WireError;

/// Approximate length of a claim without its key, bytes.
const CLAIM_LEN: usize = 40;

pub(super) fn claims_to_wire(claims: &[Claim]) -> Bytes {
    let keys = claims.iter().map(|claim| claim.at.key.as_bytes().len());
    let mut bytes = BytesMut::with_capacity(keys.map(|len| len + CLAIM_LEN).sum());
    for claim in claims {
        let (at, version) = (&claim.at, &claim.version);
        bytes.put_u8(claim.is_absent.into());
        encode_varint(at.namespace.0.into(), &mut bytes);
        bytes.put_slice(&at.digest.0);
        encode_varint(claim.epoch.0, &mut bytes);
        encode_varint(version.epoch.0, &mut bytes);
        bytes.put_u64_le(version.time.0);
        encode_varint(version.slot.0.into(), &mut bytes);
        encode_varint(at.key.as_bytes().len() as u64, &mut bytes);
        bytes.put_slice(at.key.as_bytes());
    }
    bytes.freeze()
}

/// The claims, each in the partition of its key. Their keys share the bytes.
pub(super) fn claims_from_wire(
    mut bytes: Bytes,
    partitions: Partitions,
) -> Result<Vec<Claim>, WireError> {
    let mut claims = Vec::with_capacity((bytes.len() / CLAIM_LEN).min(MAX_CLAIMS));
    while !bytes.is_empty() {
        if claims.len() == MAX_CLAIMS {
            let (list, limit) = ("claims", MAX_CLAIMS);
            return Err(WireError::TooMany { list, limit });
        }
        claims.push(claim_from_wire(&mut bytes, partitions)?);
    }
    Ok(claims)
}

fn claim_from_wire(bytes: &mut Bytes, partitions: Partitions) -> Result<Claim, WireError> {
    const FIELD: WireError = WireError::Field { field: "claims" };
    let is_absent = match bytes.try_get_u8().map_err(|_| FIELD)? {
        0 => false,
        1 => true,
        _ => return Err(FIELD),
    };
    let namespace = NamespaceId(narrow(decode_varint(bytes)?)?);
    let mut digest = [0; DIGEST_LEN];
    bytes.try_copy_to_slice(&mut digest).map_err(|_| FIELD)?;
    let digest = Digest(digest);
    let epoch = Epoch(decode_varint(bytes)?);
    let version = Ballot {
        epoch: Epoch(decode_varint(bytes)?),
        time: HybridTime(bytes.try_get_u64_le().map_err(|_| FIELD)?),
        slot: NodeSlot(narrow(decode_varint(bytes)?)?),
    };
    let len: usize = narrow(decode_varint(bytes)?)?;
    if len > MAX_KEY_LEN.min(bytes.len()) {
        return Err(FIELD);
    }
    let key = Key::new(bytes.split_to(len))?;
    let partition = partitions.holding(namespace, Token::of(&digest));
    if !partitions.contains(partition) {
        return Err(WireError::Misplaced { partition });
    }
    Ok(Claim {
        partition,
        epoch,
        at: Locator {
            namespace,
            digest,
            key,
        },
        version,
        is_absent,
    })
}

fn narrow<T: TryFrom<u64>>(number: u64) -> Result<T, WireError> {
    let field = "claims";
    T::try_from(number).map_err(|_| WireError::Field { field })
}

pub(super) fn bits_to_wire(bits: &[bool]) -> Bytes {
    let byte = |bits: &[bool]| {
        let bits = bits.iter().rev();
        bits.fold(0, |byte, bit| byte << 1 | u8::from(*bit))
    };
    bits.chunks(8).map(byte).collect()
}

/// All bits of the bytes: the requester knows how many of them count.
pub(super) fn bits_from_wire(bytes: &[u8]) -> Result<Vec<bool>, WireError> {
    if bytes.len() > MAX_CLAIMS / 8 {
        let (list, limit) = ("bits", MAX_CLAIMS);
        return Err(WireError::TooMany { list, limit });
    }
    let bits = bytes
        .iter()
        .flat_map(|byte| (0..8).map(move |at| byte >> at & 1 == 1));
    Ok(bits.collect())
}
