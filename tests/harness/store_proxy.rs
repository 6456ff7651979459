//! A proxy in front of the store that understands requests, and fails those that it is told to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::http1::{self, Framing, Head, Nowhere, Sink, To};
use super::servers;

/// What happens to a request that is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is answered with this status and does not reach the store.
    Status(u16),
    /// The connection is cut before the store has seen it.
    Cut,
    /// The store acts on it, then the connection is cut: the answer is lost.
    SwallowAnswer,
}

type Choice = Box<dyn Fn(&Head) -> bool + Send>;

struct Rule {
    chosen: Choice,
    fault: Fault,
    left: usize,
}

#[derive(Default)]
struct Rules {
    rules: Vec<Rule>,
    struck: usize,
}

/// The proxy; ends when it is dropped.
pub(crate) struct StoreProxy {
    address: SocketAddr,
    rules: Arc<Mutex<Rules>>,
    task: JoinHandle<()>,
}

impl StoreProxy {
    /// A proxy to Azurite on a free port; takes at most `rate` bytes a second of bodies, if given.
    pub(crate) async fn start(rate: Option<u64>) -> StoreProxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let rules: Arc<Mutex<Rules>> = Arc::default();
        let server = servers::address(&servers::azurite());
        let shared = (rules.clone(), Throttle::new(rate));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let (server, (rules, throttle)) = (server.clone(), shared.clone());
                connections.spawn(async move {
                    // A connection that ends in an error ends: that is all there is to do.
                    let _ = serve(client, &server, &rules, &throttle).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        StoreProxy { address, rules, task }
    }

    /// The store's endpoint, through the proxy.
    pub(crate) fn endpoint(&self) -> String {
        let mut url = url::Url::parse(&servers::azurite()).expect("an endpoint is a URL");
        url.set_port(Some(self.address.port())).expect("an http URL takes a port");
        url.set_host(Some("127.0.0.1")).expect("an http URL takes a host");
        url.to_string()
    }

    /// From now on, `fault` befalls the next `count` requests that are `chosen`.
    pub(crate) fn fail(&self, fault: Fault, count: usize, chosen: impl Fn(&Head) -> bool + Send + 'static) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.rules.push(Rule { chosen: Box::new(chosen), fault, left: count });
    }

    /// From now on, every request reaches the store again.
    pub(crate) fn heal(&self) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).rules.clear();
    }

    /// Requests that a fault has befallen.
    pub(crate) fn struck(&self) -> usize {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).struck
    }
}

impl Drop for StoreProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Every request.
pub(crate) fn all(_: &Head) -> bool {
    true
}

/// Put Block.
pub(crate) fn put_block(request: &Head) -> bool {
    request.method() == "PUT" && request.query("comp") == Some("block")
}

/// Put Block List.
pub(crate) fn put_block_list(request: &Head) -> bool {
    request.method() == "PUT" && request.query("comp") == Some("blocklist")
}

fn fault_for(rules: &Mutex<Rules>, request: &Head) -> Option<Fault> {
    let mut rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
    let rule = rules.rules.iter_mut().find(|rule| rule.left > 0 && (rule.chosen)(request))?;
    rule.left -= 1;
    let fault = rule.fault;
    rules.struck += 1;
    Some(fault)
}

async fn serve(
    client: TcpStream,
    server: &str,
    rules: &Mutex<Rules>,
    throttle: &Throttle,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let (from_client, mut to_client) = client.into_split();
    let mut from_client = BufReader::with_capacity(64 << 10, from_client);
    let server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    let (from_server, mut to_server) = server.into_split();
    let mut from_server = BufReader::new(from_server);
    while let Some(request) = Head::read(&mut from_client).await? {
        let fault = fault_for(rules, &request);
        match fault {
            Some(Fault::Status(status)) => {
                http1::body(&mut from_client, request.framing(), &mut Throttled(throttle, Nowhere)).await?;
                let answer = refusal(status, request.method() == "HEAD");
                to_client.write_all(answer.as_bytes()).await?;
                continue;
            }
            Some(Fault::Cut) => return Ok(()),
            Some(Fault::SwallowAnswer) | None => {}
        }
        to_server.write_all(request.raw()).await?;
        http1::body(&mut from_client, request.framing(), &mut Throttled(throttle, To(&mut to_server)))
            .await?;
        let answer = Head::read(&mut from_server).await?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let framing = match (request.method(), answer.status()) {
            ("HEAD", _) | (_, 204 | 304) => Framing::Length(0),
            _ => answer.framing(),
        };
        if fault == Some(Fault::SwallowAnswer) {
            return http1::body(&mut from_server, framing, &mut Nowhere).await;
        }
        to_client.write_all(answer.raw()).await?;
        http1::body(&mut from_server, framing, &mut To(&mut to_client)).await?;
    }
    Ok(())
}

fn refusal(status: u16, head: bool) -> String {
    let code = match status {
        500 => "InternalError",
        503 => "ServerBusy",
        403 => "AuthorizationFailure",
        _ => "Fault",
    };
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>As the test asked.</Message></Error>"
    );
    let text = if head { "" } else { &body };
    format!(
        "HTTP/1.1 {status} Fault\r\nx-ms-error-code: {code}\r\ncontent-type: application/xml\r\n\
         content-length: {}\r\n\r\n{text}",
        if head { 0 } else { body.len() }
    )
}

/// Lets so many bytes a second pass, over all connections.
#[derive(Clone)]
pub(crate) struct Throttle {
    rate: Option<u64>,
    // When the bytes that have passed are paid for.
    paid: Arc<Mutex<Instant>>,
}

impl Throttle {
    pub(crate) fn new(rate: Option<u64>) -> Throttle {
        Throttle { rate, paid: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Waits until `bytes` may pass.
    pub(crate) async fn pass(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let due = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            // What was not used a while ago is lost: no bursts.
            let begin = (*paid).max(Instant::now());
            *paid = begin + Duration::from_nanos(bytes as u64 * 1_000_000_000 / rate);
            *paid
        };
        tokio::time::sleep_until(due.into()).await;
    }
}

/// A sink behind a throttle.
pub(crate) struct Throttled<'a, S>(pub(crate) &'a Throttle, pub(crate) S);

impl<S: Sink> Sink for Throttled<'_, S> {
    async fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.pass(bytes.len()).await;
        self.1.take(bytes).await
    }
}
