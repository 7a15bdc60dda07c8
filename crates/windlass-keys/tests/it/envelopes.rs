//! Envelopes: who can open them, and what damage does.

use windlass_engine::media::{DataKey, Envelope, Lock, SetId};
use windlass_engine::{KeyFault, Keys};
use windlass_keys::{
    Identity, KeyError, Keyring, Passphrase, Readers, Recipient, WORK_FACTOR_MAX, open_envelope,
};
use zeroize::Zeroizing;

/// The pair whose private key is 32 times the byte 42 (hexadecimal).
pub const IDENTITY: &str =
    "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
pub const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const SET: SetId = SetId([5; 16]);

fn key() -> DataKey {
    DataKey::from_bytes(&[3; 32]).unwrap()
}

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(Zeroizing::new(text.as_bytes().to_vec()))
}

#[test]
fn an_envelope_opens_with_its_identity_and_with_no_other() {
    let identity = Identity::parse(IDENTITY).unwrap();
    assert_eq!(identity.recipient().to_string(), RECIPIENT);
    let recipient = Recipient::parse(RECIPIENT).unwrap();
    let envelope = recipient.envelope(&key()).unwrap();
    assert_eq!(envelope.recipient, RECIPIENT);
    assert!(
        envelope
            .bytes
            .starts_with(b"age-encryption.org/v1\n-> X25519 ")
    );
    let opened = open_envelope(&envelope.bytes, &identity).unwrap().unwrap();
    assert_eq!(opened.bytes(), key().bytes());
    let other = recipient.envelope(&key()).unwrap();
    assert_ne!(other.bytes, envelope.bytes, "each one has its own file key");
    let wrong = passphrase("not an identity");
    assert!(open_envelope(&envelope.bytes, &wrong).unwrap().is_none());
}

#[test]
fn an_envelope_opens_with_its_passphrase_and_with_no_other() {
    let right = passphrase("correct horse");
    let envelope = right.envelope(&key()).unwrap();
    let opened = open_envelope(&envelope.bytes, &right).unwrap().unwrap();
    assert_eq!(opened.bytes(), key().bytes());
    let wrong = passphrase("correct house");
    assert!(open_envelope(&envelope.bytes, &wrong).unwrap().is_none());
    let identity = Identity::parse(IDENTITY).unwrap();
    assert!(open_envelope(&envelope.bytes, &identity).unwrap().is_none());
}

#[test]
fn no_flip_and_no_cut_of_an_envelope_gives_a_key() {
    let identity = Identity::parse(IDENTITY).unwrap();
    let envelope = Recipient::parse(RECIPIENT)
        .unwrap()
        .envelope(&key())
        .unwrap();
    for at in 0..envelope.bytes.len() {
        let mut flipped = envelope.bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        let opened = open_envelope(&flipped, &identity);
        assert!(!matches!(opened, Ok(Some(_))), "byte {at}");
        let cut = open_envelope(&envelope.bytes[..at], &identity);
        assert!(!matches!(cut, Ok(Some(_))), "cut to {at}");
    }
}

#[test]
fn the_work_for_a_passphrase_is_bounded_before_it_is_done() {
    let right = passphrase("x");
    let envelope = right.envelope(&key()).unwrap();
    let text = String::from_utf8_lossy(&envelope.bytes).into_owned();
    let line = text.lines().nth(1).unwrap().to_owned();
    let more = line.rsplit_once(' ').unwrap().0.to_owned();
    for work in ["30", "64", "255"] {
        let asked = format!("{more} {work}");
        let at = envelope
            .bytes
            .windows(line.len())
            .position(|it| it == line.as_bytes());
        let at = at.unwrap();
        let mut forged = envelope.bytes[..at].to_vec();
        forged.extend(asked.as_bytes());
        forged.extend(&envelope.bytes[at + line.len()..]);
        let error = open_envelope(&forged, &right).unwrap_err();
        assert!(matches!(error, KeyError::Envelope(_)), "{error}");
        assert!(error.to_string().contains(&format!("2^{WORK_FACTOR_MAX}")));
    }
}

fn file(dir: &tempfile::TempDir, name: &str, content: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn ring(words: &[String]) -> Keyring {
    let ring = Keyring::default();
    ring.add(words).unwrap();
    ring
}

#[test]
fn a_set_for_several_readers_opens_with_each_of_them_and_says_who_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let identity = format!(
        "identity-file:{}",
        file(&dir, "id", &format!("# made\n{IDENTITY}\n"))
    );
    let words = format!("passphrase-file:{}", file(&dir, "words", "correct horse\n"));
    let command = format!("command:cat {}", file(&dir, "printed", "correct horse"));
    let readers = Readers::of_words(&[format!("age:{RECIPIENT}"), words.clone()]).unwrap();
    let lock = readers.encryption(SET).unwrap().lock;
    assert_eq!(lock.recipients(), [RECIPIENT, "passphrase"]);
    for word in [identity.clone(), words, command] {
        let key = ring(&[word]).open(SET, &lock).unwrap();
        assert_eq!(key.check_for(SET), lock.check);
    }
    let none = Keyring::default().open(SET, &lock);
    assert_eq!(none.unwrap_err(), KeyFault::NoKey);
    let wrong = format!("passphrase-file:{}", file(&dir, "wrong", "correct house\n"));
    assert_eq!(
        ring(&[wrong]).open(SET, &lock).unwrap_err(),
        KeyFault::WrongKey
    );
    // An envelope with the key of another set opens, and counts for nothing.
    let other = Readers::of_words(std::slice::from_ref(&identity)).unwrap();
    let other = other.encryption(SET).unwrap().lock;
    let mixed = Lock {
        check: lock.check,
        envelopes: other.envelopes,
    };
    assert_eq!(
        ring(&[identity]).open(SET, &mixed).unwrap_err(),
        KeyFault::WrongKey
    );
}

#[test]
fn a_key_that_cannot_be_had_says_why_and_not_what() {
    let lock = Lock {
        check: key().check_for(SET),
        envelopes: vec![Envelope {
            recipient: "passphrase".into(),
            bytes: vec![1, 2, 3],
        }],
    };
    let failed = ring(&["command:false".to_owned()]).open(SET, &lock);
    let Err(KeyFault::Failed(why)) = failed else {
        panic!("{failed:?}")
    };
    assert!(why.contains("the command of a key, false, failed"), "{why}");
}

/// The store of secrets is down. Another key opens the set, and without one every set says why.
#[test]
fn a_key_that_fails_keeps_no_other_from_opening_and_is_named_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let identity = file(&dir, "id", &format!("{IDENTITY}\n"));
    let readers = Readers::of_words(&[format!("age:{RECIPIENT}")]).unwrap();
    let lock = readers.encryption(SET).unwrap().lock;
    let failing = "command:false".to_owned();
    for other in [
        format!("identity-file:{identity}"),
        format!("command:cat {identity}"),
    ] {
        for words in [
            [failing.clone(), other.clone()],
            [other.clone(), failing.clone()],
        ] {
            let key = ring(&words).open(SET, &lock).unwrap();
            assert_eq!(key.check_for(SET), lock.check);
        }
    }
    let ring = ring(&[failing]);
    for _ in 0..2 {
        let failed = ring.open(SET, &lock);
        assert!(matches!(failed, Err(KeyFault::Failed(_))), "{failed:?}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_break_the_reader_of_envelopes(
        middle in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        text in "[-> A-Za-z0-9+/\n]{0,200}",
    ) {
        let identity = Identity::parse(IDENTITY).unwrap();
        let begins = b"age-encryption.org/v1\n-> ".to_vec();
        for bytes in [middle.clone(), [begins, text.into_bytes(), middle].concat()] {
            let opened = open_envelope(&bytes, &identity);
            proptest::prop_assert!(!matches!(opened, Ok(Some(_))));
        }
    }
}
