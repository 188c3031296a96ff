//! The port of a proxy: open, or refusing as if no server were there, without ever giving the port away.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::{Shared, count, line};

pub(super) struct Gate(mpsc::UnboundedSender<(Wish, oneshot::Sender<()>)>);

enum Wish {
    Open,
    Shut,
}

enum Door {
    Open(TcpListener),
    /// Bound and not listening: the system refuses, and nobody else gets the port.
    Shut(TcpSocket),
}

impl Gate {
    pub(super) async fn open(&self) {
        self.tell(Wish::Open).await;
    }

    pub(super) async fn shut(&self) {
        self.tell(Wish::Shut).await;
    }

    async fn tell(&self, wish: Wish) {
        let (done, is_done) = oneshot::channel();
        // It ends only with its runtime, and then there is nobody to refuse.
        let _ = self.0.send((wish, done));
        let _ = is_done.await;
    }
}

pub(super) fn open(shared: Arc<Shared>) -> io::Result<(SocketAddr, Gate, JoinHandle<()>)> {
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.listen(1024)?;
    let address = listener.local_addr()?;
    let (sender, wishes) = mpsc::unbounded_channel();
    let accepting = tokio::spawn(accept(Door::Open(listener), address, wishes, shared));
    Ok((address, Gate(sender), accepting))
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(
    mut door: Door,
    address: SocketAddr,
    mut wishes: mpsc::UnboundedReceiver<(Wish, oneshot::Sender<()>)>,
    shared: Arc<Shared>,
) {
    loop {
        tokio::select! {
            biased;
            wish = wishes.recv() => {
                let Some((wish, done)) = wish else { return };
                door = match (wish, door) {
                    (Wish::Open, Door::Shut(socket)) => {
                        Door::Open(socket.listen(1024).expect("a port that is bound can be listened on"))
                    }
                    (Wish::Shut, Door::Open(listener)) => {
                        drop(listener);
                        Door::Shut(bind(address).expect("a port that was just left is free"))
                    }
                    (_, door) => door,
                };
                let _ = done.send(());
            }
            accepted = next(&door) => {
                if let Ok((client, _)) = accepted {
                    count(&shared.counts.connections, 1);
                    tokio::spawn(line::carry(client, Arc::clone(&shared)));
                }
            }
        }
    }
}

async fn next(door: &Door) -> io::Result<(tokio::net::TcpStream, SocketAddr)> {
    match door {
        Door::Open(listener) => listener.accept().await,
        Door::Shut(_) => std::future::pending().await,
    }
}
