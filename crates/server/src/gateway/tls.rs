//! TLS on both sides, with rustls on ring.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::masked;

const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What callers are served with.
pub(crate) fn server(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates(cert)?;
    let shown = masked::file(key);
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| masked::unreadable("the private key", key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| format!("{} and {shown} do not make a TLS identity: {error}", masked::file(cert)))?;
    config.alpn_protocols = ALPN.map(Vec::from).into();
    Ok(Arc::new(config))
}

/// How upstreams are trusted. The system's authorities take memory, so they are loaded only where an upstream needs them.
pub(crate) fn client(ca: Option<&Path>, needed: bool) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| {
                    format!("{} holds an authority that can't be used: {error}", masked::file(path))
                })?;
            }
        }
        None if !needed => {}
        None => {
            // A machine without authorities is fine as long as no upstream needs them.
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS can't be used: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = ALPN.map(Vec::from).into();
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls::pki_types::pem::Error| masked::unreadable("the certificate", path, &error);
    let chain =
        CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if chain.is_empty() {
        return Err(format!("{} holds no certificate; it must be PEM", masked::file(path)));
    }
    Ok(chain)
}
