//! Just enough of HTTP/1.1 (RFC 9112) to stand between a client and a store, or to be one.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The head of a request or of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// The first line.
    pub(crate) start: String,
    headers: Vec<(String, String)>,
    raw: Vec<u8>,
}

/// How the body that follows a head ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With its last chunk.
    Chunked,
}

impl Head {
    /// The next head; none when the connection has ended.
    pub(crate) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Head>> {
        let mut raw = Vec::new();
        let mut lines = Vec::new();
        loop {
            let begin = raw.len();
            if from.read_until(b'\n', &mut raw).await? == 0 {
                return if raw.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            let line = String::from_utf8_lossy(&raw[begin..]).trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let mut lines = lines.into_iter();
        let start = lines.next().ok_or(io::ErrorKind::InvalidData)?;
        let split = |line: String| {
            line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Ok(Some(Head { start, headers: lines.filter_map(split).collect(), raw }))
    }

    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Of a request: the method.
    pub(crate) fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// Of a request: path and query.
    pub(crate) fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// Of a request: the value of `name` in the query.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target().split_once('?')?;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    /// Of an answer: the status.
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
    }

    /// The head as it came.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// How the body ends, of a request or of an answer to one that was no HEAD.
    pub(crate) fn framing(&self) -> Framing {
        if self.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return Framing::Chunked;
        }
        Framing::Length(self.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0))
    }
}

/// Takes the bytes of a body as they come, framing included.
pub(crate) trait Sink {
    /// Takes the next bytes.
    async fn take(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Throws a body away.
pub(crate) struct Nowhere;

impl Sink for Nowhere {
    async fn take(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Passes a body on.
pub(crate) struct To<'a, W>(pub(crate) &'a mut W);

impl<W: AsyncWrite + Unpin> Sink for To<'_, W> {
    async fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }
}

/// Reads a body to its end.
pub(crate) async fn body(
    from: &mut (impl AsyncBufRead + Unpin),
    framing: Framing,
    sink: &mut impl Sink,
) -> io::Result<()> {
    match framing {
        Framing::Length(length) => bytes(from, length, sink).await,
        Framing::Chunked => loop {
            let mut line = Vec::new();
            from.read_until(b'\n', &mut line).await?;
            sink.take(&line).await?;
            let text = String::from_utf8_lossy(&line);
            let digits = text.trim_end().split(';').next().unwrap_or_default();
            let length =
                u64::from_str_radix(digits, 16).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            // Two bytes end the chunk's line. Trailers do not occur here.
            bytes(from, length + 2, sink).await?;
            if length == 0 {
                return Ok(());
            }
        },
    }
}

async fn bytes(
    from: &mut (impl AsyncBufRead + Unpin),
    mut rest: u64,
    sink: &mut impl Sink,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    while rest > 0 {
        let most = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        let read = from.read(&mut buffer[..most]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        sink.take(&buffer[..read]).await?;
        rest -= read as u64;
    }
    Ok(())
}
