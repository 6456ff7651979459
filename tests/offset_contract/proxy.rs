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

/// Operation code of `multi`.
const MULTI: i32 = 14;

/// What has passed.
#[derive(Default)]
struct Seen {
    new_sessions: usize,
    multis: usize,
}

/// The wire. Dropping it cuts it for good.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
    cuts: watch::Sender<u64>,
    seen: Arc<Mutex<Seen>>,
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
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let mut accepting = JoinSet::new();
        let wire = Wire { mode: mode.clone(), cuts: cuts.clone(), seen: seen.clone() };
        let server = server.to_owned();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(&server).await {
                    connections.spawn(wire.clone().carry(client, server));
                }
            }
        });
        Proxy { address, mode, cuts, seen, _accepting: accepting }
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
        self.seen.lock().unwrap().new_sessions
    }

    /// How many requests with many operations were sent since this was asked last.
    pub(crate) fn take_multis(&self) -> usize {
        std::mem::take(&mut self.seen.lock().unwrap().multis)
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
    seen: Arc<Mutex<Seen>>,
}

impl Wire {
    async fn carry(self, mut client: TcpStream, mut server: TcpStream) {
        let mut cut = self.cuts.subscribe();
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let requests = async {
            let mut buffer = vec![0; 64 * 1024];
            let mut packets = Packets::default();
            while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                self.released().await;
                packets.look_at(&buffer[..read], &self.seen);
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

/// Splits what a client sends into packets: four bytes of length, then so many bytes.
#[derive(Default)]
struct Packets {
    buffer: Vec<u8>,
    is_connected: bool,
}

impl Packets {
    fn look_at(&mut self, bytes: &[u8], seen: &Mutex<Seen>) {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() >= 4 {
            let end = 4 + usize::try_from(int(&self.buffer)).unwrap();
            if self.buffer.len() < end {
                return;
            }
            let packet: Vec<u8> = self.buffer.drain(..end).skip(4).collect();
            let mut seen = seen.lock().unwrap();
            if !std::mem::replace(&mut self.is_connected, true) {
                // Protocol version, last transaction seen, time-out, session id: zero asks for a new one.
                seen.new_sessions += usize::from(packet[16..24] == [0; 8]);
            } else if int(&packet[4..]) == MULTI {
                seen.multis += 1;
            }
        }
    }
}

fn int(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes[..4].try_into().unwrap())
}
