//! The ciphers, as upstream lays out what they make: bytes in, bytes out. Pure but for the randomness of nonces.
//!
//! Owns the layouts behind a provider's prefix. Never knows a prefix, a key's name or a configuration.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::aes::{Aes128, Aes192, Aes256};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::consts::U12;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use crypto_secretbox::XSalsa20Poly1305;
use ring::hkdf::{HKDF_SHA256, Prk};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

/// A key, a seed or a value in clear; overwritten when it is let go of.
pub type Secret = Zeroizing<Vec<u8>>;

const GCM_NONCE: usize = 12;
const GCM_TAG: usize = 16;
const CBC_BLOCK: usize = 16;
const BOX_NONCE: usize = 24;
const BOX_TAG: usize = 16;
/// What a key is derived of beside the seed; it stands before the nonce.
const INFO: usize = 32;
/// Least length of a seed, and length of the keys that are derived of it.
pub const SEED_BYTES: usize = 32;

/// Why stored bytes cannot be opened; upstream's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    /// Not even a nonce.
    #[error("the stored data was shorter than the required size")]
    Short,
    /// No whole blocks.
    #[error("the stored data is not a multiple of the block size")]
    Blocks,
    /// Another key's, or damaged.
    #[error("invalid padding on input")]
    Padding,
    /// Another key's, another place's, or damaged.
    #[error("cipher: message authentication failed")]
    Authentication,
    /// The same, of a secretbox: upstream's text, though nothing is too large.
    #[error("output array was not large enough for encryption")]
    Box,
    /// A key of a length the cipher has not.
    #[error("invalid key size {0}")]
    KeyLength(usize),
    /// The system gives none.
    #[error("unable to read sufficient random bytes")]
    Random,
}

/// A way to encrypt with a key that the configuration gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// AES in Galois/counter mode, bound to the key the value is stored under.
    AesGcm,
    /// AES in CBC mode with PKCS#7 padding; nothing is authenticated.
    AesCbc,
    /// XSalsa20 and Poly1305, not bound to where the value is stored.
    Secretbox,
}

impl Algorithm {
    /// Encrypts what is stored under the key `aad`.
    ///
    /// # Errors
    /// For want of randomness, or by a key of a wrong length.
    pub fn seal(self, secret: &[u8], aad: &[u8], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
        match self {
            Self::AesGcm => gcm_seal(secret, &random::<GCM_NONCE>()?, aad, plain),
            Self::AesCbc => cbc_seal(secret, &random::<CBC_BLOCK>()?, plain),
            Self::Secretbox => box_seal(secret, &random::<BOX_NONCE>()?, plain),
        }
    }

    /// Decrypts what was stored under the key `aad`.
    ///
    /// # Errors
    /// See [`CipherError`].
    pub fn open(self, secret: &[u8], aad: &[u8], stored: &[u8]) -> Result<Vec<u8>, CipherError> {
        match self {
            Self::AesGcm => gcm_open(secret, aad, stored),
            Self::AesCbc => cbc_open(secret, stored),
            Self::Secretbox => box_open(secret, stored),
        }
    }
}

/// As AES-GCM with a key of its own for each value, which is derived of a seed.
///
/// # Errors
/// For want of randomness, or by a seed that is too short.
pub fn seed_seal(seed: &[u8], aad: &[u8], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
    seed_seal_with(seed, &random()?, &random()?, aad, plain)
}

fn seed_seal_with(
    seed: &[u8],
    info: &[u8; INFO],
    nonce: &[u8; GCM_NONCE],
    aad: &[u8],
    plain: &[u8],
) -> Result<Vec<u8>, CipherError> {
    let sealed = gcm_seal(&*derived(seed, info)?, nonce, aad, plain)?;
    Ok([info.as_slice(), &sealed].concat())
}

/// Decrypts what [`seed_seal`] made.
///
/// # Errors
/// See [`CipherError`].
pub fn seed_open(seed: &[u8], aad: &[u8], stored: &[u8]) -> Result<Vec<u8>, CipherError> {
    let (info, sealed) = stored.split_at_checked(INFO).ok_or(CipherError::Short)?;
    gcm_open(&*derived(seed, info)?, aad, sealed)
}

/// HKDF's second half alone (RFC 5869 §2.3): the seed is as random as a key.
fn derived(seed: &[u8], info: &[u8]) -> Result<Zeroizing<[u8; SEED_BYTES]>, CipherError> {
    if seed.len() < SEED_BYTES {
        return Err(CipherError::KeyLength(seed.len()));
    }
    let mut key = Zeroizing::new([0; SEED_BYTES]);
    let info = [info];
    let seeded = Prk::new_less_safe(HKDF_SHA256, seed);
    let expanded = seeded.expand(&info, HKDF_SHA256);
    let filled = expanded.and_then(|expanded| expanded.fill(&mut *key));
    filled.map_err(|_| CipherError::KeyLength(seed.len()))?;
    Ok(key)
}

/// Random bytes for keys and nonces.
///
/// # Errors
/// If the system gives none.
pub fn random<const N: usize>() -> Result<[u8; N], CipherError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| CipherError::Random)?;
    Ok(bytes)
}

fn gcm_seal(secret: &[u8], nonce: &[u8; GCM_NONCE], aad: &[u8], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
    fn seal(cipher: &impl Aead<NonceSize = U12>, nonce: &[u8; GCM_NONCE], text: Payload<'_, '_>) -> Option<Vec<u8>> {
        cipher.encrypt(nonce.into(), text).ok()
    }
    let text = Payload { msg: plain, aad };
    let wrong = |_| CipherError::KeyLength(secret.len());
    let sealed = match secret.len() {
        16 => seal(&Aes128Gcm::new_from_slice(secret).map_err(wrong)?, nonce, text),
        24 => seal(
            &AesGcm::<Aes192, U12>::new_from_slice(secret).map_err(wrong)?,
            nonce,
            text,
        ),
        _ => seal(&Aes256Gcm::new_from_slice(secret).map_err(wrong)?, nonce, text),
    };
    // Only for a text of 64 GiB.
    let sealed = sealed.ok_or(CipherError::Authentication)?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn gcm_open(secret: &[u8], aad: &[u8], stored: &[u8]) -> Result<Vec<u8>, CipherError> {
    fn open(cipher: &impl Aead<NonceSize = U12>, nonce: &[u8; GCM_NONCE], text: Payload<'_, '_>) -> Option<Vec<u8>> {
        cipher.decrypt(nonce.into(), text).ok()
    }
    let (nonce, msg) = stored.split_first_chunk().ok_or(CipherError::Short)?;
    if msg.len() < GCM_TAG {
        return Err(CipherError::Authentication);
    }
    let text = Payload { msg, aad };
    let wrong = |_| CipherError::KeyLength(secret.len());
    let opened = match secret.len() {
        16 => open(&Aes128Gcm::new_from_slice(secret).map_err(wrong)?, nonce, text),
        24 => open(
            &AesGcm::<Aes192, U12>::new_from_slice(secret).map_err(wrong)?,
            nonce,
            text,
        ),
        _ => open(&Aes256Gcm::new_from_slice(secret).map_err(wrong)?, nonce, text),
    };
    opened.ok_or(CipherError::Authentication)
}

fn cbc_seal(secret: &[u8], iv: &[u8; CBC_BLOCK], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
    fn seal<C: KeyIvInit + BlockEncryptMut>(secret: &[u8], iv: &[u8], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
        let cipher = C::new_from_slices(secret, iv).map_err(|_| CipherError::KeyLength(secret.len()))?;
        Ok(cipher.encrypt_padded_vec_mut::<Pkcs7>(plain))
    }
    let sealed = match secret.len() {
        16 => seal::<cbc::Encryptor<Aes128>>(secret, iv, plain),
        24 => seal::<cbc::Encryptor<Aes192>>(secret, iv, plain),
        _ => seal::<cbc::Encryptor<Aes256>>(secret, iv, plain),
    };
    Ok([iv.as_slice(), &sealed?].concat())
}

fn cbc_open(secret: &[u8], stored: &[u8]) -> Result<Vec<u8>, CipherError> {
    fn open<C: KeyIvInit + BlockDecryptMut>(secret: &[u8], iv: &[u8], text: &[u8]) -> Result<Vec<u8>, CipherError> {
        let cipher = C::new_from_slices(secret, iv).map_err(|_| CipherError::KeyLength(secret.len()))?;
        let opened = cipher.decrypt_padded_vec_mut::<Pkcs7>(text);
        opened.map_err(|_| CipherError::Padding)
    }
    let (iv, text) = stored.split_at_checked(CBC_BLOCK).ok_or(CipherError::Short)?;
    if !text.len().is_multiple_of(CBC_BLOCK) {
        return Err(CipherError::Blocks);
    }
    match secret.len() {
        16 => open::<cbc::Decryptor<Aes128>>(secret, iv, text),
        24 => open::<cbc::Decryptor<Aes192>>(secret, iv, text),
        _ => open::<cbc::Decryptor<Aes256>>(secret, iv, text),
    }
}

fn secretbox(secret: &[u8]) -> Result<XSalsa20Poly1305, CipherError> {
    XSalsa20Poly1305::new_from_slice(secret).map_err(|_| CipherError::KeyLength(secret.len()))
}

fn box_seal(secret: &[u8], nonce: &[u8; BOX_NONCE], plain: &[u8]) -> Result<Vec<u8>, CipherError> {
    let sealed = secretbox(secret)?.encrypt(nonce.into(), plain);
    Ok([nonce.as_slice(), &sealed.map_err(|_| CipherError::Box)?].concat())
}

fn box_open(secret: &[u8], stored: &[u8]) -> Result<Vec<u8>, CipherError> {
    if stored.len() < BOX_NONCE + BOX_TAG {
        return Err(CipherError::Short);
    }
    let (nonce, sealed) = stored.split_at(BOX_NONCE);
    let opened = secretbox(secret)?.decrypt(nonce.into(), sealed);
    opened.map_err(|_| CipherError::Box)
}

#[cfg(test)]
mod tests;
