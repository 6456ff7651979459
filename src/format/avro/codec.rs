//! Codecs of container blocks.
//!
//! Owns: contexts and scratch of compression, one set per thread: a zstd context alone takes more memory than an
//! open, nearly empty blob may.
//! Does not own: block heads, sync markers.
//!
//! Source: Apache Avro 1.12 specification, "Required Codecs" and "Optional Codecs".

use std::cell::RefCell;
use std::io::Read;

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::plan::Codec;

/// Scratch beyond this is given back after use: one large record must not cost its size for ever.
const KEPT_SCRATCH: usize = 256 * 1024;
/// Streams may ask a zstd decoder for a window of two to this power, and no more.
const MAX_WINDOW_LOG: u32 = 27;

/// The codec's name in a container's metadata.
pub(super) fn name(codec: Codec) -> &'static str {
    match codec {
        Codec::Null => "null",
        Codec::Deflate(_) => "deflate",
        Codec::Snappy => "snappy",
        Codec::Zstandard(_) => "zstandard",
    }
}

/// Gives what `raw` compresses to, to `then`. `codec` is not null.
pub(super) fn compress<T>(codec: Codec, raw: &[u8], then: impl FnOnce(&[u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.out.clear();
        match codec {
            Codec::Null => return then(raw),
            Codec::Deflate(level) => scratch.deflate(level, raw),
            Codec::Snappy => scratch.snappy(raw),
            Codec::Zstandard(level) => scratch.zstandard(level, raw),
        }
        let answer = then(&scratch.out);
        if scratch.out.capacity() > KEPT_SCRATCH {
            scratch.out = Vec::new();
        }
        answer
    })
}

#[derive(Default)]
struct Scratch {
    out: Vec<u8>,
    deflate: Option<(u32, Compress)>,
    snappy: Option<snap::raw::Encoder>,
    zstandard: Option<(i32, zstd::bulk::Compressor<'static>)>,
}

impl Scratch {
    fn deflate(&mut self, level: u32, raw: &[u8]) {
        let context = match &mut self.deflate {
            Some((known, context)) if *known == level => {
                context.reset();
                context
            }
            other => {
                let context = Compress::new(Compression::new(level.min(9)), false);
                &mut other.insert((level, context)).1
            }
        };
        self.out.reserve(raw.len() + raw.len() / 16 + 64);
        loop {
            let done = usize::try_from(context.total_in()).expect("no more than was given");
            let status = context.compress_vec(&raw[done..], &mut self.out, FlushCompress::Finish);
            match status.expect("deflate fails only on a broken context") {
                Status::StreamEnd => return,
                Status::Ok | Status::BufError => self.out.reserve(raw.len() / 2 + 1024),
            }
        }
    }

    // The block format, and behind it the checksum of what was compressed.
    fn snappy(&mut self, raw: &[u8]) {
        self.out.resize(snap::raw::max_compress_len(raw.len()), 0);
        let context = self.snappy.get_or_insert_with(snap::raw::Encoder::new);
        let length = context.compress(raw, &mut self.out);
        self.out
            .truncate(length.expect("blocks are smaller than 4 GiB, and there is room for the worst case"));
        self.out.extend_from_slice(&crc32fast::hash(raw).to_be_bytes());
    }

    fn zstandard(&mut self, level: i32, raw: &[u8]) {
        let context = match &mut self.zstandard {
            Some((known, context)) if *known == level => context,
            other => {
                let context =
                    zstd::bulk::Compressor::new(level).expect("zstd clamps levels that it does not have");
                &mut other.insert((level, context)).1
            }
        };
        self.out.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        let length = context.compress_to_buffer(raw, &mut self.out);
        length.expect("there is room for the worst case");
    }
}

/// Why stored bytes are no block of a codec.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undecodable {
    #[error("it is larger than {limit} bytes when decompressed")]
    TooLarge { limit: usize },
    #[error("its checksum does not match")]
    Checksum,
    #[error("it cannot be decompressed")]
    Broken(#[source] std::io::Error),
}

/// Which way stored bytes are read; levels do not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoder {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

impl Decoder {
    /// The decoder for a name in a container's metadata.
    pub(super) fn by_name(name: &[u8]) -> Option<Decoder> {
        Some(match name {
            b"null" => Decoder::Null,
            b"deflate" => Decoder::Deflate,
            b"snappy" => Decoder::Snappy,
            b"zstandard" => Decoder::Zstandard,
            _ => return None,
        })
    }

    /// Puts what `stored` decompresses to into `out`; never more than `limit` bytes.
    pub(super) fn decompress(
        self,
        stored: &[u8],
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Undecodable> {
        out.clear();
        match self {
            Decoder::Null => {
                out.extend_from_slice(stored);
                Ok(())
            }
            Decoder::Deflate => read_all(flate2::read::DeflateDecoder::new(stored), limit, out),
            Decoder::Snappy => unsnappy(stored, limit, out),
            Decoder::Zstandard => {
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(stored).map_err(Undecodable::Broken)?;
                decoder.window_log_max(MAX_WINDOW_LOG).map_err(Undecodable::Broken)?;
                read_all(decoder, limit, out)
            }
        }
    }
}

fn read_all(decoder: impl Read, limit: usize, out: &mut Vec<u8>) -> Result<(), Undecodable> {
    decoder.take(limit as u64 + 1).read_to_end(out).map_err(Undecodable::Broken)?;
    if out.len() > limit { Err(Undecodable::TooLarge { limit }) } else { Ok(()) }
}

fn unsnappy(stored: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Undecodable> {
    let broken = |error: snap::Error| Undecodable::Broken(std::io::Error::other(error));
    let (packed, checksum) = stored.split_last_chunk::<4>().ok_or(Undecodable::Checksum)?;
    let length = snap::raw::decompress_len(packed).map_err(broken)?;
    if length > limit {
        return Err(Undecodable::TooLarge { limit });
    }
    out.resize(length, 0);
    snap::raw::Decoder::new().decompress(packed, out).map_err(broken)?;
    if crc32fast::hash(out).to_be_bytes() != *checksum {
        return Err(Undecodable::Checksum);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(Codec, Decoder); 6] = [
        (Codec::Deflate(1), Decoder::Deflate),
        (Codec::Deflate(9), Decoder::Deflate),
        (Codec::Snappy, Decoder::Snappy),
        (Codec::Zstandard(1), Decoder::Zstandard),
        (Codec::Zstandard(19), Decoder::Zstandard),
        (Codec::Zstandard(-5), Decoder::Zstandard),
    ];

    // Bytes that do not compress, from a small generator of our own.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn what_is_compressed_is_read_back() {
        let texts = [vec![], vec![7], b"abc ".repeat(20_000), noise(100_000), noise(400_000)];
        for (codec, decoder) in ALL {
            for raw in &texts {
                let stored = compress(codec, raw, <[u8]>::to_vec);
                let mut out = vec![1];
                decoder.decompress(&stored, raw.len(), &mut out).unwrap();
                assert!(out == *raw, "{codec:?}, {} bytes", raw.len());
            }
        }
    }

    #[test]
    fn a_context_does_not_remember_the_block_before() {
        for (codec, _) in ALL {
            let first = compress(codec, b"some text, some text", <[u8]>::to_vec);
            compress(codec, &noise(70_000), |_| ());
            assert_eq!(compress(codec, b"some text, some text", <[u8]>::to_vec), first, "{codec:?}");
        }
    }

    #[test]
    fn bombs_stop_at_the_limit() {
        let raw = vec![0; 2_000_000];
        for (codec, decoder) in ALL {
            let stored = compress(codec, &raw, <[u8]>::to_vec);
            let mut out = Vec::new();
            let error = decoder.decompress(&stored, 200_000, &mut out).unwrap_err();
            assert!(matches!(error, Undecodable::TooLarge { .. }), "{codec:?}: {error}");
            assert!(out.len() <= 200_001, "{codec:?}: {} bytes were made", out.len());
        }
    }

    #[test]
    fn damage_is_noticed() {
        for (codec, decoder) in ALL {
            let raw = b"some text, some text, and other text".repeat(50);
            let stored = compress(codec, &raw, <[u8]>::to_vec);
            let mut out = Vec::new();
            for cut in [0, 1, 3, stored.len() / 2, stored.len() - 1] {
                let answer = decoder.decompress(&stored[..cut], 1 << 20, &mut out);
                assert!(answer.is_err() || out != raw, "{codec:?} cut to {cut}");
            }
        }
        let mut stored = compress(Codec::Snappy, b"text", <[u8]>::to_vec);
        *stored.last_mut().unwrap() ^= 1;
        let error = Decoder::Snappy.decompress(&stored, 100, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Undecodable::Checksum));
    }
}
