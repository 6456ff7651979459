//! The HTTP side: `/livez`, `/readyz`, `/status`, `/metrics` and a page for people.
//!
//! Owns: a listener that answers GET and changes nothing.
//! Does not own: the figures (see [`crate::telemetry`]).

mod page;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Telemetry;

/// Connections served at once; further ones wait in the system's queue.
const CONNECTIONS: usize = 64;
/// How long one answer may take, and one connection.
const ANSWER: Duration = Duration::from_secs(5);
/// A worker that has not served its group for this long is stuck.
const STUCK: Duration = Duration::from_secs(120);

/// What is shown about the process besides its telemetry.
#[derive(Debug, Clone)]
pub struct About {
    /// The plan's name.
    pub plan: String,
}

/// The port that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("http listen address {address} cannot be opened; choose another `[http] listen`, or \"\" for none")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The system's answer.
    #[source]
    pub source: std::io::Error,
}

/// An open port, not served yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Opens the port.
    ///
    /// # Errors
    /// [`BindError`] when it is in use or not allowed.
    pub async fn bind(address: SocketAddr) -> Result<Server, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Server { listener, address })
    }

    /// The address, with the port that the system chose where the plan says 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled.
    pub async fn serve(self, about: About, telemetry: Telemetry, stop: CancellationToken) {
        let listener = Limited { listener: self.listener, permits: Arc::new(Semaphore::new(CONNECTIONS)) };
        let app = router(about, telemetry, self.address.ip().is_loopback());
        let served = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
        // A client that keeps its connection open must not keep the process alive.
        tokio::select! {
            _ = async { served.await } => {}
            () = async { stop.cancelled().await; tokio::time::sleep(Duration::from_millis(200)).await } => {}
        }
    }
}

#[derive(Clone)]
struct App {
    about: Arc<About>,
    telemetry: Telemetry,
    started: SystemTime,
    loopback: bool,
}

fn router(about: About, telemetry: Telemetry, loopback: bool) -> Router {
    let app = App { about: Arc::new(about), telemetry, started: SystemTime::now(), loopback };
    Router::new()
        .route("/", get(root))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

// Host is checked on loopback: a page in the operator's browser must not read it through a name that it controls.
async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if app.loopback && !is_loopback_host(host) {
        return (StatusCode::FORBIDDEN, "this address is served under localhost only\n").into_response();
    }
    let mut response = match tokio::time::timeout(ANSWER, next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    };
    let headers = response.headers_mut();
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // One answer a connection: a client that keeps its connection would keep one of the few places.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn livez(State(app): State<App>) -> Response {
    match app.telemetry.metrics.last_poll() {
        Some(at) if at.elapsed().unwrap_or_default() > STUCK => {
            (StatusCode::SERVICE_UNAVAILABLE, "the group has not been served for two minutes\n")
                .into_response()
        }
        _ => "ok\n".into_response(),
    }
}

async fn readyz(State(app): State<App>) -> Response {
    let reasons = app.telemetry.health.reasons();
    if reasons.is_empty() {
        return "ok\n".into_response();
    }
    let line = |r: &crate::telemetry::Reason| format!("{}: {} (for {} s)\n", r.subject, r.reason, r.seconds);
    (StatusCode::SERVICE_UNAVAILABLE, reasons.iter().map(line).collect::<String>()).into_response()
}

async fn status(State(app): State<App>) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, format!("{:#}\n", snapshot(&app))).into_response()
}

fn snapshot(app: &App) -> serde_json::Value {
    let started = app.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let reasons = app.telemetry.health.reasons();
    json!({
        "plan": app.about.plan,
        "version": env!("CARGO_PKG_VERSION"),
        "started": started,
        "ready": reasons.is_empty(),
        "not_ready_because": reasons,
        "partitions": app.telemetry.status.snapshot(),
    })
}

async fn metrics(State(app): State<App>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    app.telemetry.metrics.ready(app.telemetry.health.reasons().is_empty());
    ([(header::CONTENT_TYPE, kind)], app.telemetry.metrics.encode()).into_response()
}

async fn root(State(app): State<App>) -> Response {
    let html = page::render(&app.about, &app.telemetry);
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

// A listener with a limit on open connections: the permit lives as long as the connection.
struct Limited {
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

impl axum::serve::Listener for Limited {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        let permit = self.permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (LimitedStream::new(stream, permit), address),
                // Out of file descriptors, say: others need them more than we do.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

// A connection that has had its time is cut, so that silent clients do not shut out the probes.
struct LimitedStream {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl LimitedStream {
    fn new(stream: TcpStream, permit: OwnedSemaphorePermit) -> LimitedStream {
        LimitedStream { stream, end: Box::pin(tokio::time::sleep(ANSWER)), _permit: permit }
    }
}

mod stream {
    use std::future::Future as _;
    use std::io::Result;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::LimitedStream;

    impl AsyncRead for LimitedStream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<Result<()>> {
            if self.end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
            }
            Pin::new(&mut self.stream).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for LimitedStream {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
            Pin::new(&mut self.stream).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_are_served_on_it() {
        for host in ["localhost", "localhost:9464", "127.0.0.1:9464", "[::1]:9464", "LOCALHOST"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["", "example.org", "localhost.example.org", "10.0.0.1", "[::2]"] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }
}
