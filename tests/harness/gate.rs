//! A TCP proxy in front of a server, which can be shut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// They reach the server.
    Open,
    /// They are closed at once, those that exist too: the server is down.
    Shut,
    /// They are accepted, and nothing is ever answered; existing ones are cut: the server hangs.
    Hung,
}

/// The proxy; ends when it is dropped.
pub(crate) struct Gate {
    address: SocketAddr,
    way: watch::Sender<Way>,
    task: JoinHandle<()>,
}

impl Gate {
    /// A gate to `server`, on a free port.
    pub(crate) async fn to(server: &str, way: Way) -> Gate {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (sender, receiver) = watch::channel(way);
        let task = tokio::spawn(serve(listener, server.to_owned(), receiver));
        Gate { address, way: sender, task }
    }

    /// `host:port` of the gate.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Changes what happens to connections, existing ones included.
    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, server: String, way: watch::Receiver<Way>) {
    // Dropped with the gate, and with it all connections.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let (server, mut way) = (server.clone(), way.clone());
        connections.spawn(async move {
            let now = *way.borrow_and_update();
            let work = async {
                match now {
                    Way::Open => forward(client, &server).await,
                    Way::Shut => drop(client),
                    Way::Hung => {
                        // Held, not read.
                        let _held = client;
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                () = work => {}
                _ = way.wait_for(|next| *next != now) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(mut client: TcpStream, server: &str) {
    if let Ok(mut server) = TcpStream::connect(server).await {
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
