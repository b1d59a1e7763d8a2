//! What stores have in common that speak to their servers over TLS.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The option of an address that names the certificates of who vouches for the server.
pub(super) const AUTHORITY: &str = "sslrootcert";

/// The certificates in the file of that option, as they are there.
///
/// # Errors
/// What is wrong with the file, and what was expected.
pub(super) fn authority(path: &str) -> Result<Vec<u8>, String> {
    let odd = |why: String| {
        format!("{AUTHORITY}={path:?} {why}; name a file in PEM form with the certificate of its authority")
    };
    let pem = std::fs::read(path).map_err(|error| odd(format!("cannot be read: {error}")))?;
    let mut all = CertificateDer::pem_slice_iter(&pem);
    match all.next() {
        Some(first) if first.is_ok() && all.all(|one| one.is_ok()) => Ok(pem),
        _ => Err(odd("holds no certificate".to_owned())),
    }
}

/// What is said against a server by TLS, if that is what went wrong, and what to do.
pub(super) fn objection(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        // Some keep it where it can be shared.
        let shared = error.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        let error = shared.map_or(error, |shared| &**shared as &(dyn Error + 'static));
        let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = within.and_then(|within| within.downcast_ref()).or_else(|| error.downcast_ref());
        if let Some(found) = found {
            return Some(told(found));
        }
        next = error.source();
    }
    None
}

fn told(error: &rustls::Error) -> String {
    let advice = match error {
        rustls::Error::InvalidCertificate(
            rustls::CertificateError::NotValidForName
            | rustls::CertificateError::NotValidForNameContext { .. },
        ) => "name the host that its certificate is for".to_owned(),
        rustls::Error::InvalidCertificate(_) => {
            format!("name the certificate of its authority: {AUTHORITY}=FILE")
        }
        rustls::Error::InvalidMessage(_) => "see whether it speaks TLS at this port".to_owned(),
        _ => "see how its TLS is set up".to_owned(),
    };
    format!("{error}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_authority_is_told_with_its_option() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "nothing").unwrap();
        let why = authority(empty.to_str().unwrap()).unwrap_err();
        assert!(why.starts_with("sslrootcert=") && why.contains("holds no certificate"), "{why}");
        let why = authority("/nowhere/ca.pem").unwrap_err();
        assert!(why.contains("cannot be read"), "{why}");
    }

    #[test]
    fn what_tls_says_is_found_behind_what_others_made_of_it() {
        let unknown = rustls::CertificateError::UnknownIssuer;
        let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(unknown));
        let told = objection(&error).unwrap();
        assert_eq!(
            told,
            "invalid peer certificate: UnknownIssuer; name the certificate of its authority: sslrootcert=FILE"
        );
        assert_eq!(objection(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    }
}
