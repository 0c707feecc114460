//! FNV-32a, upstream's checksum of what a kubelet leaves for the next one (kubelet contract §2). Pure.

const OFFSET: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// The hash of these bytes.
pub(crate) fn fnv32a(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(OFFSET, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME))
}
