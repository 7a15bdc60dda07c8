//! Certificates for a test, made by openssl: an authority of the test's own, and what it signs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_testkit::postgres::succeed;

/// A directory of certificates that one authority signed.
pub struct Authority {
    place: PathBuf,
}

impl Authority {
    /// Makes an authority that calls itself `name`, in `place`.
    pub fn new(place: &Path, name: &str) -> Self {
        std::fs::create_dir_all(place).unwrap();
        let authority = Self {
            place: place.into(),
        };
        let mut request = authority.request("ca", name);
        succeed(
            request
                .args(["-x509", "-days", "30"])
                .args(["-out", "ca.crt"]),
        );
        std::fs::write(place.join("index.txt"), "").unwrap();
        std::fs::write(place.join("crlnumber"), "01").unwrap();
        authority
    }

    /// A file of the directory.
    pub fn path(&self, file: &str) -> PathBuf {
        self.place.join(file)
    }

    /// Makes NAME.crt and NAME.key, with this common name and these alternative names.
    pub fn sign(&self, file: &str, name: &str, alternatives: &str) {
        let mut request = self.request(file, name);
        let extension = format!("subjectAltName={alternatives}");
        request.args(["-addext", &extension]);
        succeed(request.args(["-out", &format!("{file}.csr")]));
        let mut sign = self.openssl("x509");
        sign.args(["-req", "-copy_extensions", "copy", "-days", "30"]);
        sign.args(["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]);
        sign.args(["-in", &format!("{file}.csr")]);
        succeed(sign.args(["-out", &format!("{file}.crt")]));
    }

    /// Makes NAME.crt and NAME.key as PostgreSQL's manual does: self-signed, with a common name and
    /// no other names.
    pub fn self_sign(&self, file: &str, name: &str) {
        let mut request = self.request(file, name);
        succeed(request.args(["-x509", "-days", "30", "-out", &format!("{file}.crt")]));
    }

    /// Revokes a certificate. Returns the path of the list of revoked certificates.
    pub fn revoke(&self, file: &str) -> PathBuf {
        let settings = "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ndefault_md = sha256\n\
            default_crl_days = 30\ncertificate = ca.crt\nprivate_key = ca.key\n\
            crlnumber = crlnumber\ncrl_extensions = list\n\
            [list]\nauthorityKeyIdentifier = keyid\n";
        std::fs::write(self.path("ca.cnf"), settings).unwrap();
        let certificate = format!("{file}.crt");
        for arguments in [["-revoke", &certificate], ["-gencrl", "-out"]] {
            let mut command = self.openssl("ca");
            command.args(["-config", "ca.cnf"]).args(arguments);
            if arguments[0] == "-gencrl" {
                command.arg("revoked.crl");
            }
            succeed(&mut command);
        }
        self.path("revoked.crl")
    }

    /// Sets the mode of a key, so that only its owner can read it, or others too.
    pub fn set_key_mode(&self, file: &str, mode: u32) {
        let path = self.path(&format!("{file}.key"));
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn request(&self, file: &str, name: &str) -> Command {
        let mut request = self.openssl("req");
        request.args(["-new", "-newkey", "ec", "-nodes"]);
        request.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        request.args(["-keyout", &format!("{file}.key")]);
        request.args(["-subj", &format!("/CN={name}")]);
        request
    }

    fn openssl(&self, command: &str) -> Command {
        let mut openssl = Command::new("openssl");
        openssl.arg(command).current_dir(&self.place);
        openssl
    }
}
