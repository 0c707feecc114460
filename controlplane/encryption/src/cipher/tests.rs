//! Bytes from elsewhere. All but openssl's were made with Python's `cryptography` 48.0 and PyNaCl 1.6.2; [`key`] is the bytes 0 to 31
//! (as many as the cipher takes), nonces and IVs are the bytes from 100 on:
//!
//! - AES-GCM: `nonce + AESGCM(key).encrypt(nonce, PLAIN, AAD)`
//! - AES-CBC: `iv + Cipher(AES(key), CBC(iv))` over `PKCS7(128)`; that of 32 bytes is also what `openssl enc -aes-256-cbc` makes
//! - secretbox: `nacl.secret.SecretBox(key).encrypt(PLAIN, nonce)`
//! - seed: info is the bytes 200 to 231, `info + nonce + AESGCM(HKDFExpand(SHA256, 32, info).derive(key)).encrypt(nonce, PLAIN, AAD)`

use super::*;

const PLAIN: &[u8] = br#"{"kind":"Secret"}"#;
const AAD: &[u8] = b"/registry/secrets/default/s";
const NONCE: &str = "6465666768696a6b6c6d6e6f";
const SEEDED: &str = "c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7\
    6465666768696a6b6c6d6e6f58d2a087ea7a0b714eca1496fd9c3ce2b4a475f4cad159cc1c761567350cbd0e0b";

fn key(length: u8) -> Vec<u8> {
    (0..length).collect()
}

fn from<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|n| first + n as u8)
}

fn hex(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

#[test]
fn gcm_is_what_others_make() {
    for (length, sealed) in [
        (16, "614025ccb5669ac0b96d3273f4af5fce4d35d079cf41b0179db3d95a747077ae67"),
        (24, "924ad0153ccb2c02f18287628897ef9ca06e86af0185461f3bd09524b0645d61ba"),
        (32, "3339b50f178d74a41c313a8ba8001edf3f500b37f9deafe01534555041e9170334"),
    ] {
        let stored = hex(&format!("{NONCE}{sealed}"));
        assert_eq!(gcm_seal(&key(length), &from(100), AAD, PLAIN).unwrap(), stored);
        assert_eq!(Algorithm::AesGcm.open(&key(length), AAD, &stored).unwrap(), PLAIN);
        let elsewhere = Algorithm::AesGcm.open(&key(length), b"/registry/secrets/default/t", &stored);
        assert_eq!(elsewhere, Err(CipherError::Authentication), "bound to its place");
    }
}

#[test]
fn cbc_is_what_others_make() {
    let iv = format!("{NONCE}70717273");
    for (length, sealed) in [
        (16, "84dae64f6f36421d0828c8a3d20c4f27e85f41babf54108d611eb5aa6d4b488d"),
        (24, "52efc26e767f4d8852369f65ebadc68c967712f2835ba5aa421d3d9443296c9b"),
        (32, "44283a8a80a45cba29966b60a5c5bdab4a4b98a357c1999c0391ccbce1378672"),
    ] {
        let stored = hex(&format!("{iv}{sealed}"));
        assert_eq!(cbc_seal(&key(length), &from(100), PLAIN).unwrap(), stored);
        assert_eq!(
            Algorithm::AesCbc.open(&key(length), b"anywhere", &stored).unwrap(),
            PLAIN
        );
    }
}

#[test]
fn a_secretbox_is_what_others_make() {
    let sealed = "707172737475767778797a7baa93d2c2be2ff25c283a43ccfaa1df9f799bf2a054d2ecd392ae46f745e1d73a43";
    let stored = hex(&format!("{NONCE}{sealed}"));
    assert_eq!(box_seal(&key(32), &from(100), PLAIN).unwrap(), stored);
    assert_eq!(
        Algorithm::Secretbox.open(&key(32), b"anywhere", &stored).unwrap(),
        PLAIN
    );
}

#[test]
fn a_seeds_value_is_what_others_make() {
    let stored = hex(SEEDED);
    let sealed = seed_seal_with(&key(32), &from(200), &from(100), AAD, PLAIN);
    assert_eq!(sealed.unwrap(), stored);
    assert_eq!(seed_open(&key(32), AAD, &stored).unwrap(), PLAIN);
    assert_eq!(seed_open(&key(31), AAD, &stored), Err(CipherError::KeyLength(31)));
    assert_eq!(seed_open(&key(32), AAD, &stored[..31]), Err(CipherError::Short));
}

#[test]
fn what_is_sealed_is_opened_again_and_never_twice_the_same() {
    for algorithm in [Algorithm::AesGcm, Algorithm::AesCbc, Algorithm::Secretbox] {
        for plain in [&b""[..], b"0123456789abcdef", &[7; 5000]] {
            let (one, other) = (
                algorithm.seal(&key(32), AAD, plain),
                algorithm.seal(&key(32), AAD, plain),
            );
            assert_ne!(one, other, "{algorithm:?}");
            assert_eq!(
                algorithm.open(&key(32), AAD, &one.unwrap()).unwrap(),
                plain,
                "{algorithm:?}"
            );
        }
    }
    let (one, other) = (seed_seal(&key(32), AAD, PLAIN), seed_seal(&key(32), AAD, PLAIN));
    assert_ne!(one, other);
    assert_eq!(seed_open(&key(32), AAD, &one.unwrap()).unwrap(), PLAIN);
}

#[test]
fn damage_is_seen() {
    for (algorithm, short, damaged) in [
        (Algorithm::AesGcm, CipherError::Short, CipherError::Authentication),
        (Algorithm::Secretbox, CipherError::Short, CipherError::Box),
    ] {
        let sealed = algorithm.seal(&key(32), AAD, PLAIN).unwrap();
        assert_eq!(algorithm.open(&key(32), AAD, &sealed[..11]), Err(short));
        for at in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 1;
            assert_eq!(
                algorithm.open(&key(32), AAD, &flipped),
                Err(damaged),
                "{algorithm:?} {at}"
            );
        }
    }
    let cut = Algorithm::AesGcm.open(&key(32), AAD, &[0; 20]);
    assert_eq!(cut, Err(CipherError::Authentication));
    for (bytes, error) in [
        (15, CipherError::Short),
        (16, CipherError::Padding),
        (33, CipherError::Blocks),
    ] {
        assert_eq!(
            Algorithm::AesCbc.open(&key(32), AAD, &vec![0; bytes]),
            Err(error),
            "{bytes}"
        );
    }
    assert_eq!(
        Algorithm::AesGcm.seal(&key(7), AAD, PLAIN),
        Err(CipherError::KeyLength(7))
    );
}
