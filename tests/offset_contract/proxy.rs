//! A wire between client and server that can be cut, held, or made to lose replies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the wire does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Carries them.
    Pass,
    /// Requests arrive, replies do not.
    SwallowReplies,
    /// Nothing arrives, as if the server stood still; connections stay open.
    Hold,
}

/// The wire. Dropping it cuts it for good.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
    cuts: watch::Sender<u64>,
    sessions: Arc<Mutex<Vec<i64>>>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(server: &str) -> Proxy {
        Proxy::start_at("127.0.0.1:0", server).await
    }

    pub(crate) async fn start_at(address: &str, server: &str) -> Proxy {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, cuts) = (watch::Sender::new(Mode::Pass), watch::Sender::new(0));
        let sessions: Arc<Mutex<Vec<i64>>> = Arc::default();
        let mut accepting = JoinSet::new();
        let wire = Wire { mode: mode.clone(), cuts: cuts.clone(), sessions: sessions.clone() };
        let server = server.to_owned();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(&server).await {
                    connections.spawn(wire.clone().carry(client, server));
                }
            }
        });
        Proxy { address, mode, cuts, sessions, _accepting: accepting }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Ends all connections; what they hold is lost. New ones are accepted.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many connections asked for a new session.
    pub(crate) fn new_sessions(&self) -> usize {
        self.sessions.lock().unwrap().iter().filter(|id| **id == 0).count()
    }

    /// How many connections are open now.
    pub(crate) fn connections(&self) -> usize {
        // Each connection listens for cuts.
        self.cuts.receiver_count()
    }
}

#[derive(Clone)]
struct Wire {
    mode: watch::Sender<Mode>,
    cuts: watch::Sender<u64>,
    sessions: Arc<Mutex<Vec<i64>>>,
}

impl Wire {
    async fn carry(self, mut client: TcpStream, mut server: TcpStream) {
        let mut cut = self.cuts.subscribe();
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let requests = async {
            let mut buffer = vec![0; 64 * 1024];
            let mut is_first = true;
            while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                self.released().await;
                if std::mem::take(&mut is_first) {
                    self.sessions.lock().unwrap().push(session_id(&buffer[..read]));
                }
                if to_server.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
        };
        let replies = async {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                self.released().await;
                let swallow = *self.mode.borrow() == Mode::SwallowReplies;
                if !swallow && to_client.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = requests => {}
            () = replies => {}
            _ = cut.changed() => {}
        }
    }

    async fn released(&self) {
        let _ = self.mode.subscribe().wait_for(|mode| *mode != Mode::Hold).await;
    }
}

// The first packet: length, protocol version, last transaction seen (8 bytes), time-out, session id.
fn session_id(packet: &[u8]) -> i64 {
    i64::from_be_bytes(packet[20..28].try_into().unwrap())
}
