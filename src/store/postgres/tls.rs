//! How far a server is trusted, by the options that other programs for PostgreSQL know.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::tls::authority;

/// What `sslmode` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    /// Nothing: `disable`, and what others only prefer.
    #[default]
    Plain,
    /// `require`: nobody listens on the way. Who the server is, is checked if an authority is named.
    Encrypted,
    /// `verify-ca`: an authority vouches for the server.
    Vouched,
    /// `verify-full`: and for its name.
    Named,
}

/// What is asked of the connections of a store.
#[derive(Debug, Clone, Default)]
pub(super) struct Tls {
    mode: Mode,
    /// The file with the certificates of the authority; else those of the system count.
    authority: Option<String>,
}

impl Tls {
    /// # Errors
    /// What was expected of the option.
    pub(super) fn of(mode: Option<&str>, authority: Option<String>) -> Result<Self, String> {
        let mode = match mode.unwrap_or("disable") {
            "disable" | "allow" | "prefer" => Mode::Plain,
            "require" => Mode::Encrypted,
            "verify-ca" => Mode::Vouched,
            "verify-full" => Mode::Named,
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(format!(
                    "sslmode={shown:?} is not known; expected disable, require, verify-ca or verify-full"
                ));
            }
        };
        if mode == Mode::Plain && authority.is_some() {
            return Err("sslrootcert is given, and no TLS is asked for; add sslmode=verify-full".to_owned());
        }
        Ok(Self { mode, authority: authority.filter(|path| path != "system") })
    }

    /// What makes connections; none for plain ones. Files are read anew each time.
    ///
    /// # Errors
    /// What is wrong with what was named.
    pub(super) fn connector(&self) -> Result<Option<MakeRustlsConnect>, String> {
        if self.mode == Mode::Plain {
            return Ok(None);
        }
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let trusting = |vouched| Arc::new(Trusting { provider: Arc::clone(&provider), vouched });
        let config = match (self.mode, &self.authority) {
            (Mode::Named, _) => config.with_root_certificates(self.roots()?),
            (Mode::Encrypted, None) => config.dangerous().with_custom_certificate_verifier(trusting(None)),
            _ => {
                let roots = Arc::new(self.roots()?);
                let vouched =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
                let vouched = vouched.map_err(|error| format!("sslrootcert: {error}"))?;
                config.dangerous().with_custom_certificate_verifier(trusting(Some(vouched)))
            }
        };
        Ok(Some(MakeRustlsConnect::new(config.with_no_client_auth())))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        match &self.authority {
            Some(path) => {
                let pem = authority(path)?;
                roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err("no authority is known here; name its certificate: sslrootcert=FILE".to_owned());
        }
        Ok(roots)
    }
}

/// Checks less than is usual: that somebody vouches for the server, whatever its name; or only that it holds the key
/// of the certificate that it shows.
#[derive(Debug)]
struct Trusting {
    provider: Arc<CryptoProvider>,
    vouched: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(vouched) = &self.vouched else { return Ok(ServerCertVerified::assertion()) };
        match vouched.verify_server_cert(certificate, between, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
