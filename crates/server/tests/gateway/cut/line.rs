//! A connection that can be ended in every way.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// How a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Close {
    /// FIN, and within TLS `close_notify` before it.
    Properly,
    /// FIN, and within TLS nothing before it.
    Silently,
    /// RST.
    Reset,
}

pub(super) enum Line {
    Plain(TcpStream),
    Called(Box<client::TlsStream<TcpStream>>),
    Served(Box<server::TlsStream<TcpStream>>),
}

pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

impl Line {
    /// Connects; with TLS, which trusts the certificate in this folder and speaks this protocol.
    pub(super) async fn connect(address: SocketAddr, tls: Option<(&Path, &[u8])>) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let Some((home, protocol)) = tls else { return Self::Plain(socket) };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(home.join("cert.pem")).unwrap()).unwrap();
        let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
        Self::Called(Box::new(stream))
    }

    /// Accepts; with TLS, with the certificate in this folder.
    pub(super) async fn accept(socket: TcpStream, tls: Option<&TlsAcceptor>) -> Option<Self> {
        match tls {
            None => Some(Self::Plain(socket)),
            Some(tls) => Some(Self::Served(Box::new(tls.accept(socket).await.ok()?))),
        }
    }

    pub(super) fn io(&mut self) -> &mut dyn Io {
        match self {
            Self::Plain(io) => io,
            Self::Called(io) => &mut **io,
            Self::Served(io) => &mut **io,
        }
    }

    pub(super) fn into_io(self) -> Box<dyn Io> {
        match self {
            Self::Plain(io) => Box::new(io),
            Self::Called(io) => io,
            Self::Served(io) => io,
        }
    }

    /// Sends everything and ends; then waits until the other end has ended, too.
    pub(super) async fn end(mut self, close: Close) {
        let _ = self.io().flush().await;
        if close == Close::Properly {
            let _ = self.io().shutdown().await;
            let _ = self.io().read_to_end(&mut Vec::new()).await;
            return;
        }
        let mut socket = match self {
            Self::Plain(socket) => socket,
            Self::Called(stream) => stream.into_inner().0,
            Self::Served(stream) => stream.into_inner().0,
        };
        if close == Close::Reset {
            socket.set_zero_linger().unwrap();
            return;
        }
        let _ = socket.shutdown().await;
        let _ = socket.read_to_end(&mut Vec::new()).await;
    }
}

/// A server of TLS with the certificate in this folder.
pub(super) fn acceptor(home: &Path, protocol: &[u8]) -> TlsAcceptor {
    let cert = CertificateDer::from_pem_file(home.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(home.join("key.pem")).unwrap();
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![cert], key).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}
