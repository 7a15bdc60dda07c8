//! The words for keys, and the files that they name.

use std::os::unix::fs::PermissionsExt;

use windlass_keys::{KeyError, KeyWord, Keyring, Readers, check_words};

use crate::envelopes::{IDENTITY, RECIPIENT};

#[test]
fn a_word_names_one_key_and_never_holds_a_secret() {
    let parsed = |word: &str| KeyWord::parse(word);
    assert!(matches!(
        parsed(&format!("age:{RECIPIENT}")),
        Ok(KeyWord::Age(_))
    ));
    assert!(matches!(parsed(RECIPIENT), Ok(KeyWord::Age(_))));
    assert_eq!(parsed("fd:7").unwrap(), KeyWord::Descriptor(7));
    assert_eq!(
        parsed("command:vault read 'a b'").unwrap(),
        KeyWord::Command(vec!["vault".into(), "read".into(), "a b".into()])
    );
    let mistyped = RECIPIENT.replace("lqzr", "lqzq");
    assert!(matches!(parsed(&mistyped), Err(KeyError::Recipient(_))));
    for wrong in [
        "",
        "age:",
        "fd:",
        "fd:x",
        "command:",
        "command:'",
        "file:/x",
        "identity-file:",
    ] {
        assert!(parsed(wrong).is_err(), "{wrong:?}");
    }
    for secret in [
        IDENTITY.to_owned(),
        format!("age:{IDENTITY}"),
        format!("identity:{IDENTITY}"),
        "passphrase:correct horse".to_owned(),
    ] {
        let error = parsed(&secret).unwrap_err();
        assert!(matches!(error, KeyError::SecretInWords));
        let shown = format!("{error} {error:?} {:?}", error.hint());
        assert!(
            !shown.contains("GFPYYSJZ") && !shown.contains("horse"),
            "{shown}"
        );
    }
    assert!(check_words(&[format!("age:{RECIPIENT}")]).is_ok());
}

#[test]
fn a_file_that_others_may_read_is_refused_as_libpq_refuses_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("id");
    std::fs::write(&path, IDENTITY).unwrap();
    let word = format!("identity-file:{}", path.display());
    let is_root = std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap()) == 0;
    for (mode, is_right) in [
        (0o600, true),
        (0o400, true),
        (0o640, is_root),
        (0o644, false),
        (0o660, false),
        (0o604, false),
        (0o666, false),
    ] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let added = Keyring::default().add(std::slice::from_ref(&word));
        assert_eq!(added.is_ok(), is_right, "{mode:o}");
        if let Err(error) = added {
            assert!(error.hint().unwrap().contains("chmod 600"), "{error}");
        }
    }
}

#[test]
fn a_file_without_what_it_should_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("id");
    let refused = |kind: &str, content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = Keyring::default().add(&[format!("{kind}:{}", path.display())]);
        let error = error.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("GFPYYSJZ"), "{shown}");
    };
    refused("identity-file", b"");
    refused("identity-file", b"# only a comment\n");
    refused("identity-file", b"correct horse\n");
    refused("identity-file", &IDENTITY.as_bytes()[..60]);
    refused("identity-file", &vec![b'x'; 100_000]);
    refused("passphrase-file", b"\n");
    let only = Keyring::default()
        .add(&[format!("age:{RECIPIENT}")])
        .unwrap_err();
    assert!(matches!(only, KeyError::OnlyEncrypts(_)));
    assert!(matches!(Readers::of_words(&[]), Err(KeyError::Nobody)));
}
