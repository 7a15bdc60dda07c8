//! Checks a server's certificate: libpq's rules, built on webpki's checks.
//!
//! libpq accepts two things that webpki alone does not. One is a server that shows the very
//! certificate that the user trusts (self-signed, as PostgreSQL's manual makes it). The other is a
//! name that is only in the certificate's common name, if it has no alternative names.
//!
//! Invariants
//! - Without roots, the only check is that the server has its certificate's key.
//! - If there are revocation lists, a certificate whose state they do not give is refused.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder,
};
use x509_cert::Certificate;
use x509_cert::der::{Decode, Tag, Tagged};

use crate::conninfo::{TlsMode, TlsRequest};
use crate::error::PostgresError;
use crate::tls::files;

/// X.509's common name.
const COMMON_NAME: &str = "2.5.4.3";
/// X.509's extension of alternative names.
const ALTERNATIVE_NAMES: &str = "2.5.29.17";

/// What a server's certificate is checked against.
#[derive(Debug)]
pub(super) struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// `None`: no authority is trusted, and none is needed.
    trusted: Option<Trusted>,
}

#[derive(Debug)]
struct Trusted {
    roots: Vec<CertificateDer<'static>>,
    anchors: Vec<TrustAnchor<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
    names_checked: bool,
}

impl Verifier {
    pub(super) fn new(
        request: &TlsRequest,
        provider: &CryptoProvider,
    ) -> Result<Self, PostgresError> {
        let trusted = match &request.roots {
            Some(_) => Some(Trusted::new(request)?),
            None if request.mode >= TlsMode::VerifyCa => {
                return Err(PostgresError::TlsFile {
                    keyword: "sslrootcert",
                    path: "~/.postgresql/root.crt".into(),
                    what: "there is no root certificate".into(),
                });
            }
            None => None,
        };
        Ok(Self {
            algorithms: provider.signature_verification_algorithms,
            trusted,
        })
    }
}

impl Trusted {
    fn new(request: &TlsRequest) -> Result<Self, PostgresError> {
        let roots = match &request.roots {
            Some(roots) => files::roots(roots)?,
            None => Vec::new(),
        };
        let mut anchors = Vec::new();
        for root in &roots {
            // If one root of many cannot be read, that is no reason to fail: it just signs nothing
            // here.
            if let Ok(anchor) = webpki::anchor_from_trusted_cert(root) {
                anchors.push(anchor.to_owned());
            }
        }
        let mut revoked = Vec::new();
        for (path, list) in files::revocations(request)? {
            let list = OwnedCertRevocationList::from_der(&list);
            revoked.push(list.map_err(|error| PostgresError::TlsFile {
                keyword: "sslcrl",
                path,
                what: format!("no list of X.509 version 2: {error}"),
            })?);
        }
        Ok(Self {
            roots,
            anchors,
            revoked: revoked.into_iter().map(CertRevocationList::Owned).collect(),
            names_checked: request.mode == TlsMode::VerifyFull,
        })
    }

    /// Checks that a trusted authority signed it, that it is valid now, and that nobody revoked it.
    fn check_chain(
        &self,
        algorithms: &WebPkiSupportedAlgorithms,
        (server, others): (&CertificateDer<'_>, &[CertificateDer<'_>]),
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.roots.iter().any(|root| root == server) {
            return check_dates(server, now);
        }
        let parsed = EndEntityCert::try_from(server).map_err(judge)?;
        let revoked: Vec<_> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&revoked).ok();
        let verified = parsed.verify_for_usage(
            algorithms.all,
            &self.anchors,
            others,
            now,
            KeyUsage::server_auth(),
            revocation.map(RevocationOptionsBuilder::build),
            None,
        );
        verified.map(drop).map_err(judge)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trusted) = &self.trusted {
            trusted.check_chain(&self.algorithms, (server, others), now)?;
            if trusted.names_checked {
                check_name(server, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Names the kinds of fault that have a hint; other faults keep webpki's words.
fn judge(error: webpki::Error) -> Error {
    Error::InvalidCertificate(match error {
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::CertNotValidForName(_) => CertificateError::NotValidForName,
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        webpki::Error::CertRevoked => CertificateError::Revoked,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

fn parse(certificate: &CertificateDer<'_>) -> Result<Certificate, Error> {
    Certificate::from_der(certificate)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))
}

fn check_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let validity = parse(certificate)?.tbs_certificate.validity;
    let fault = if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        CertificateError::NotValidYet
    } else if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        CertificateError::Expired
    } else {
        return Ok(());
    };
    Err(Error::InvalidCertificate(fault))
}

fn check_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let server = EndEntityCert::try_from(certificate).map_err(judge)?;
    let checked = server.verify_is_valid_for_subject_name(name);
    match checked {
        Err(webpki::Error::CertNotValidForName(_)) if has_common_name(certificate, name)? => Ok(()),
        checked => checked.map_err(judge),
    }
}

/// Whether the certificate has no alternative names, and this host is its common name.
fn has_common_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<bool, Error> {
    let certificate = parse(certificate)?.tbs_certificate;
    let extensions = certificate.extensions.unwrap_or_default();
    let alternatives = extensions
        .iter()
        .any(|extension| extension.extn_id.to_string() == ALTERNATIVE_NAMES);
    if alternatives {
        return Ok(false);
    }
    let parts = certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = parts
        .filter(|part| part.oid.to_string() == COMMON_NAME)
        .filter(|part| matches!(part.value.tag(), Tag::Utf8String | Tag::PrintableString))
        .filter_map(|part| std::str::from_utf8(part.value.value()).ok());
    let host = name.to_str();
    Ok(names.any(|pattern| is_named(pattern, &host)))
}

/// libpq's comparison: equal except for case, or a star in place of the first label.
fn is_named(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let domain = pattern.strip_prefix("*.").filter(|rest| rest.contains('.'));
    match (domain, host.split_once('.')) {
        (Some(domain), Some((label, rest))) => {
            !label.is_empty() && domain.eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label_only() {
        assert!(is_named("db.example.com", "DB.example.com"));
        assert!(is_named("*.example.com", "db.example.com"));
        for (pattern, host) in [
            ("*.example.com", "example.com"),
            ("*.example.com", "a.db.example.com"),
            ("*.com", "example.com"),
            ("*", "localhost"),
            ("db.*", "db.example"),
            ("*.example.com", ".example.com"),
        ] {
            assert!(!is_named(pattern, host), "{pattern} {host}");
        }
    }
}
