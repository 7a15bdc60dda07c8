//! Reads certificates, keys and revocation lists from PEM files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use windlass_engine::read_stream_at_most;

use crate::conninfo::{ClientFiles, Roots, TlsRequest};
use crate::error::PostgresError;

type Chain = Vec<CertificateDer<'static>>;
type List = CertificateRevocationListDer<'static>;

fn fault<T>(keyword: &'static str, path: &Path, what: String) -> Result<T, PostgresError> {
    let path = path.into();
    Err(PostgresError::TlsFile {
        keyword,
        path,
        what,
    })
}

/// The certificates of the trusted authorities.
pub(super) fn roots(roots: &Roots) -> Result<Chain, PostgresError> {
    match roots {
        Roots::File(path) => certificates("sslrootcert", path),
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            match found.errors.first() {
                Some(error) if found.certs.is_empty() => {
                    fault("sslrootcert", Path::new("system"), error.to_string())
                }
                _ => Ok(found.certs),
            }
        }
    }
}

/// The client's certificate with the chain to its authority, and its key.
pub(super) fn client(
    files: &ClientFiles,
) -> Result<(Chain, PrivateKeyDer<'static>), PostgresError> {
    let chain = certificates("sslcert", &files.certificate)?;
    Ok((chain, private_key(&files.key)?))
}

/// The revocation lists that the request names, each with its file.
pub(super) fn revocations(request: &TlsRequest) -> Result<Vec<(PathBuf, List)>, PostgresError> {
    let mut paths: Vec<_> = request.revoked.iter().cloned().collect();
    if let Some(directory) = &request.revoked_directory {
        paths.extend(files_in("sslcrldir", directory)?);
    }
    let mut lists = Vec::new();
    for path in paths {
        let text = read("sslcrl", &path)?;
        let found = all(
            "sslcrl",
            &path,
            CertificateRevocationListDer::pem_slice_iter(&text),
        )?;
        lists.extend(found.into_iter().map(|list| (path.clone(), list)));
    }
    Ok(lists)
}

/// The files of a directory. A directory without any list is refused: nobody could then say which
/// certificates are still good, and libpq refuses it too.
fn files_in(keyword: &'static str, directory: &Path) -> Result<Vec<PathBuf>, PostgresError> {
    let listed = std::fs::read_dir(directory).and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<Result<Vec<_>, _>>()
    });
    match listed {
        Ok(paths) if paths.is_empty() => fault(keyword, directory, "it holds no lists".into()),
        Ok(paths) => Ok(paths),
        Err(error) => fault(keyword, directory, error.to_string()),
    }
}

fn certificates(keyword: &'static str, path: &Path) -> Result<Chain, PostgresError> {
    let text = read(keyword, path)?;
    all(keyword, path, CertificateDer::pem_slice_iter(&text))
}

fn all<T>(
    keyword: &'static str,
    path: &Path,
    found: impl Iterator<Item = Result<T, pem::Error>>,
) -> Result<Vec<T>, PostgresError> {
    match found.collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => fault(keyword, path, "it holds none in PEM form".into()),
        Err(error) => fault(keyword, path, error.to_string()),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PostgresError> {
    check_private(path)?;
    let text = read("sslkey", path)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(_) if is_encrypted(&text) => fault("sslkey", path, "it is encrypted".into()),
        Err(error) => fault("sslkey", path, error.to_string()),
    }
}

fn is_encrypted(text: &[u8]) -> bool {
    text.windows(9).any(|window| window == b"ENCRYPTED")
}

/// libpq's rule for key files: 0600 or less if this user owns it, 0640 or less if root does.
fn check_private(path: &Path) -> Result<(), PostgresError> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return fault("sslkey", path, error.to_string()),
    };
    let forbidden = if metadata.uid() == 0 { 0o027 } else { 0o077 };
    if !metadata.is_file() || metadata.mode() & forbidden != 0 {
        let mode = metadata.mode() & 0o777;
        return fault(
            "sslkey",
            path,
            format!("others may read it (mode {mode:04o})"),
        );
    }
    Ok(())
}

/// Largest file that is read. The authorities of a whole system fit several times.
const BYTES_MAX: u64 = 16 << 20;

fn read(keyword: &'static str, path: &Path) -> Result<Vec<u8>, PostgresError> {
    match read_stream_at_most(path, BYTES_MAX) {
        Ok(text) => Ok(text),
        Err(error) => fault(keyword, path, error.to_string()),
    }
}
