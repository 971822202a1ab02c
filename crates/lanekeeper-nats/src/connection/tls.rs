//! TLS towards the servers from files: `ca.crt`, and `tls.crt` with `tls.key` for a certificate of our own.
//!
//! A folder is handed to the client by its paths, which it reads at every connect. Files in memory become a
//! ready configuration, because secrets are not written to disk. So does a server behind a forwarded port, whose
//! certificate is for another name than the address has.

use std::{io, path::Path, sync::Arc};

use async_nats::{
    ConnectOptions,
    rustls::{
        ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    },
};

use crate::files::Files;

/// Certificate authorities to trust, instead of the system's.
pub const AUTHORITIES: &str = "ca.crt";
/// Our own certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// Its key.
pub const KEY: &str = "tls.key";

/// Adds TLS to the options when there are files for it. `name` is what certificates must be for, when it is not the host
/// of the address.
pub(super) fn apply(
    options: ConnectOptions,
    files: &Files,
    name: Option<&str>,
) -> io::Result<ConnectOptions> {
    if let Some(name) = name {
        // Without files TLS is for the server or the address to ask for; it then needs the name all the same.
        let required = match files {
            Files::None => false,
            Files::Memory(_) => true,
            Files::Folder(_) => files.read(AUTHORITIES)?.is_some() || files.read(CERTIFICATE)?.is_some(),
        };
        return Ok(options.require_tls(required).tls_client_config(configuration(files, Some(name))?));
    }
    match files {
        Files::None => Ok(options),
        Files::Folder(folder) => {
            check_pair(files)?;
            Ok(from_folder(options, folder))
        }
        Files::Memory(_) => Ok(options.require_tls(true).tls_client_config(configuration(files, None)?)),
    }
}

fn from_folder(mut options: ConnectOptions, folder: &Path) -> ConnectOptions {
    let (authorities, certificate) = (folder.join(AUTHORITIES), folder.join(CERTIFICATE));
    if authorities.exists() {
        options = options.add_root_certificates(authorities).require_tls(true);
    }
    if certificate.exists() {
        options = options.add_client_certificate(certificate, folder.join(KEY)).require_tls(true);
    }
    options
}

/// A certificate is of no use without its key, and the other way round.
fn check_pair(files: &Files) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    match (files.read(CERTIFICATE)?, files.read(KEY)?) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(invalid("there is a file 'tls.crt' but no file 'tls.key'".into())),
        (None, Some(_)) => Err(invalid("there is a file 'tls.key' but no file 'tls.crt'".into())),
    }
}

fn configuration(files: &Files, name: Option<&str>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = files.read(AUTHORITIES)? {
        for certificate in certificates(AUTHORITIES, &pem)? {
            roots.add(certificate).map_err(|error| invalid(format!("file '{AUTHORITIES}': {error}")))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    // Named, because a process may have more than one provider linked in.
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(error.to_string()))?;
    let builder = match name {
        None => builder.with_root_certificates(roots),
        Some(name) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| invalid(error.to_string()))?;
            let name = ServerName::try_from(name.to_owned());
            let name =
                name.map_err(|error| invalid(format!("no certificate can be for that host: {error}")))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Named { name, verifier }))
        }
    };
    let Some((certificate, key)) = check_pair(files)? else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| invalid(format!("file '{KEY}' must hold a private key in PEM")))?;
    builder
        .with_client_auth_cert(certificates(CERTIFICATE, &certificate)?, key)
        .map_err(|error| invalid(format!("'{CERTIFICATE}' and '{KEY}' cannot be used together: {error}")))
}

/// Verifies as ever, but against a name of our own instead of the host of the address.
#[derive(Debug)]
struct Named {
    name: ServerName<'static>,
    verifier: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _address: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

fn certificates(file: &str, pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let wrong = || invalid(format!("file '{file}' must hold certificates in PEM"));
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| wrong())?;
    if found.is_empty() { Err(wrong()) } else { Ok(found) }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_no_certificate_is_named() {
        let files = |name: &str| Files::Memory(BTreeMap::from([(name.to_owned(), b"geheim".to_vec())]));
        for (name, words) in
            [(AUTHORITIES, "ca.crt"), (CERTIFICATE, "no file 'tls.key'"), (KEY, "no file 'tls.crt'")]
        {
            let error = configuration(&files(name), None).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("geheim"), "{error}");
        }
    }
}
