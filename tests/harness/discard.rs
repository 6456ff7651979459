//! A store that keeps nothing and counts: just enough of the Blob API for a connector that only writes.
//!
//! Azurite tops out at some 200 MB/s and keeps everything; this one costs next to nothing, so that what is measured is
//! the connector.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use percent_encoding::percent_decode_str;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::http1::{self, Head, Sink};
use super::store_proxy::{Throttle, Throttled};

/// What has arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Bytes in the blocks of committed blobs.
    pub(crate) bytes: u64,
    /// Marks in the blocks of committed blobs, also those that lie across two blocks.
    pub(crate) marks: u64,
    /// Committed blobs.
    pub(crate) blobs: u64,
    /// Sum of the metadata entries `record_count` of committed blobs.
    pub(crate) records: u64,
    /// Requests that a writer has no business to send, with what they were.
    pub(crate) odd: Vec<String>,
}

/// A staged block, of which only this is kept.
#[derive(Debug, Clone)]
struct Block {
    bytes: u64,
    marks: u64,
    // Too short to hold a mark: what a mark across the border is made of.
    head: Vec<u8>,
    tail: Vec<u8>,
}

#[derive(Default)]
struct State {
    // By the blob's path, then by block id.
    staged: HashMap<String, HashMap<String, Block>>,
    committed: HashMap<String, ()>,
    counts: Counts,
}

/// The store; ends when it is dropped.
pub(crate) struct DiscardStore {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl DiscardStore {
    /// A store on a free port; takes at most `rate` bytes a second, if given. Counts the places where `mark` stands in
    /// what it is sent, if given.
    pub(crate) async fn start(rate: Option<u64>, mark: Option<&'static [u8]>) -> DiscardStore {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state: Arc<Mutex<State>> = Arc::default();
        let (shared, throttle) = (state.clone(), Throttle::new(rate));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let (state, throttle) = (shared.clone(), throttle.clone());
                connections.spawn(async move {
                    // A connection that ends in an error ends: that is all there is to do.
                    let _ = serve(client, &state, &throttle, mark).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        DiscardStore { address, state, task }
    }

    /// The endpoint of its account.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}/devstoreaccount1", self.address)
    }

    /// What has arrived so far.
    pub(crate) fn counts(&self) -> Counts {
        lock(&self.state).counts.clone()
    }
}

impl Drop for DiscardStore {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(
    client: TcpStream,
    state: &Mutex<State>,
    throttle: &Throttle,
    mark: Option<&'static [u8]>,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let (from, mut to) = client.into_split();
    let mut from = BufReader::with_capacity(64 << 10, from);
    while let Some(request) = Head::read(&mut from).await? {
        let list = request.query("comp") == Some("blocklist");
        let mut reading = Reading { mark, keep: list, ..Reading::default() };
        http1::body(&mut from, request.framing(), &mut Throttled(throttle, &mut reading)).await?;
        let answer = answer(&request, reading, &mut lock(state));
        to.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

fn answer(request: &Head, body: Reading, state: &mut State) -> String {
    const ABOUT: &str = "etag: \"0x1\"\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
        date: Thu, 01 Jan 2026 00:00:00 GMT\r\nx-ms-version: 2021-08-06\r\nx-ms-request-id: 1\r\n\
        content-length: 0\r\n\r\n";
    let respond = |status: &str, more: &str| format!("HTTP/1.1 {status}\r\n{more}{ABOUT}");
    let path = request.target().split('?').next().unwrap_or_default().to_owned();
    let container = request.query("restype") == Some("container");
    match (request.method(), request.query("comp")) {
        ("PUT", Some("block")) => {
            let id = percent_decode_str(request.query("blockid").unwrap_or_default()).decode_utf8_lossy();
            let id = id.into_owned();
            state.staged.entry(path).or_default().insert(id, body.block());
            respond("201 Created", "x-ms-request-server-encrypted: true\r\n")
        }
        ("PUT", Some("blocklist")) => {
            let staged = state.staged.remove(&path).unwrap_or_default();
            let Some(blocks) = listed(&body.all, &staged) else {
                return respond("400 Bad Request", "x-ms-error-code: InvalidBlockList\r\n");
            };
            if state.committed.insert(path, ()).is_some() {
                return respond("409 Conflict", "x-ms-error-code: BlobAlreadyExists\r\n");
            }
            state.counts.blobs += 1;
            let records =
                request.header("x-ms-meta-record_count").and_then(|count| count.parse::<u64>().ok());
            state.counts.records += records.unwrap_or(0);
            let mut border: Vec<u8> = Vec::new();
            for block in blocks {
                state.counts.bytes += block.bytes;
                state.counts.marks += block.marks;
                border.extend_from_slice(&block.head);
                state.counts.marks += body.mark.map_or(0, |mark| count(&border, mark));
                border = block.tail.clone();
            }
            respond("201 Created", "x-ms-request-server-encrypted: true\r\n")
        }
        ("PUT", None) if container => respond("201 Created", ""),
        ("HEAD" | "GET", _) if container => respond("200 OK", ""),
        ("HEAD", None) if state.committed.contains_key(&path) => respond("200 OK", ""),
        ("HEAD" | "GET", None) => respond("404 Not Found", "x-ms-error-code: BlobNotFound\r\n"),
        _ => {
            state.counts.odd.push(request.start.clone());
            respond("400 Bad Request", "x-ms-error-code: UnsupportedHttpVerb\r\n")
        }
    }
}

// The blocks that a block list names, in its order; none when one of them is not staged.
fn listed<'a>(list: &[u8], staged: &'a HashMap<String, Block>) -> Option<Vec<&'a Block>> {
    let list = String::from_utf8_lossy(list);
    let ids = list.split('<').filter_map(|part| {
        let (tag, text) = part.split_once('>')?;
        matches!(tag, "Latest" | "Uncommitted").then_some(text)
    });
    ids.map(|id| staged.get(id)).collect()
}

fn count(bytes: &[u8], mark: &[u8]) -> u64 {
    let Some((first, rest)) = mark.split_first() else { return 0 };
    let mut found = 0;
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| byte == first) {
        at += next + 1;
        if bytes[at..].starts_with(rest) {
            found += 1;
            at += rest.len();
        }
    }
    found
}

// A body as it comes in.
#[derive(Default)]
struct Reading {
    mark: Option<&'static [u8]>,
    keep: bool,
    bytes: u64,
    marks: u64,
    head: Vec<u8>,
    // The last bytes, one less than a mark has.
    tail: Vec<u8>,
    // Everything, of bodies that are kept.
    all: Vec<u8>,
}

impl Reading {
    fn block(self) -> Block {
        Block { bytes: self.bytes, marks: self.marks, head: self.head, tail: self.tail }
    }
}

impl Sink for &mut Reading {
    async fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.keep {
            self.all.extend_from_slice(bytes);
        }
        self.bytes += bytes.len() as u64;
        let Some(mark) = self.mark else { return Ok(()) };
        let kept = mark.len() - 1;
        if self.head.len() < kept {
            let missing = (kept - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..missing]);
        }
        self.marks += count(bytes, mark);
        // A mark across the border to what came before.
        self.tail.extend_from_slice(&bytes[..kept.min(bytes.len())]);
        self.marks += count(&self.tail, mark);
        if bytes.len() >= kept {
            self.tail = bytes[bytes.len() - kept..].to_vec();
        } else {
            let drop = self.tail.len().saturating_sub(kept);
            self.tail.drain(..drop);
        }
        Ok(())
    }
}
