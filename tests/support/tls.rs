//! Certificates for a server of a test: it is called `localhost`, and an authority of this test vouches for it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A folder with `authority.pem`, `other.pem` of an authority that vouches for nobody, `server.pem` and `server.key`.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("tenure-tls-").tempdir().expect("a folder");
        let (authority, issuer) = authority();
        let key = KeyPair::generate().expect("a key");
        let named = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let server = named.signed_by(&key, &issuer).expect("a certificate");
        let own = Self { folder };
        own.put("authority.pem", &authority);
        own.put("other.pem", &self::authority().0);
        own.put("server.pem", &server.pem());
        own.put("server.key", &key.serialize_pem());
        own.own(own.folder.path());
        own
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Keeps a file for the server alone.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
        self.own(&path);
    }

    /// A PostgreSQL server runs as another user than root.
    fn own(&self, path: &Path) {
        if let Some((user, group)) = super::servers::other_user() {
            std::os::unix::fs::chown(path, Some(user), Some(group)).expect("an owner");
        }
    }
}

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), Issuer::new(params, key))
}
