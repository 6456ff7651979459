//! Records as real ones are: 20 fields of all kinds, some 330 bytes, made as fast as a broker takes them.

use super::avro::{double, long, string};

/// The schema of a record.
pub(crate) const SCHEMA: &str = r#"{"type":"record","name":"Event","namespace":"blobfeed.tests","fields":[
{"name":"number","type":"long"},{"name":"session","type":"long"},{"name":"user","type":"long"},
{"name":"occurred_at","type":{"type":"long","logicalType":"timestamp-millis"}},
{"name":"mark","type":"string"},{"name":"page","type":"string"},{"name":"agent","type":"string"},
{"name":"referrer","type":["null","string"]},{"name":"campaign","type":["null","string"]},
{"name":"latitude","type":"double"},{"name":"longitude","type":"double"},{"name":"price","type":["null","double"]},
{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["VIEW","CLICK","BUY","LEAVE"]}},
{"name":"country","type":"string"},{"name":"language","type":"string"},{"name":"mobile","type":"boolean"},
{"name":"duration","type":"int"},{"name":"score","type":["null","long"]},
{"name":"items","type":{"type":"array","items":{"type":"record","name":"Item","fields":[
{"name":"sku","type":"string"},{"name":"count","type":"int"},{"name":"price","type":"double"}]}}},
{"name":"labels","type":{"type":"map","values":"string"}}]}"#;

/// Stands in each record once, and nowhere else.
pub(crate) const MARK: &[u8] = b"\x7fmark\x7f";

/// Writes record `number` to `out`: the bare datum.
pub(crate) fn encode(number: u64, out: &mut Vec<u8>) {
    const AGENTS: [&str; 4] = [
        "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0",
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.5 Safari/605.1",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/138.0.0.0 Safari/537.36",
        "curl/8.14.1",
    ];
    // Spread without a generator of random numbers, so that a record can be made again from its number.
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let part = |shift: u32, below: u64| (mixed >> shift) % below;
    let signed = |value: u64| i64::try_from(value).expect("small");
    out.clear();
    long(signed(number), out);
    long(signed(mixed >> 20), out);
    long(signed(part(8, 3_000_000)), out);
    long(1_700_000_000_000 + signed(number) * 3, out);
    string(std::str::from_utf8(MARK).expect("ASCII"), out);
    digits("/catalogue/section-", part(12, 400), "/article-", part(4, 100_000), out);
    string(AGENTS[part(16, 4) as usize], out);
    if part(20, 3) == 0 {
        long(0, out);
    } else {
        long(1, out);
        digits("https://example.org/search/", part(24, 90_000), "/", part(9, 7), out);
    }
    if part(21, 4) > 0 {
        long(0, out);
    } else {
        long(1, out);
        string("summer-sale", out);
    }
    double(part(5, 180_000) as f64 / 1000.0 - 90.0, out);
    double(part(6, 360_000) as f64 / 1000.0 - 180.0, out);
    if part(22, 2) == 0 {
        long(0, out);
    } else {
        long(1, out);
        double(part(7, 100_000) as f64 / 100.0, out);
    }
    long(signed(part(23, 4)), out);
    string(["de", "fr", "us", "br", "in"][part(26, 5) as usize], out);
    string(["de-DE", "fr-FR", "en-US", "pt-BR", "hi-IN"][part(26, 5) as usize], out);
    out.push(u8::from(part(27, 2) == 1));
    long(signed(part(10, 60_000)), out);
    if part(28, 2) == 0 {
        long(0, out);
    } else {
        long(1, out);
        long(signed(part(3, 1 << 40)), out);
    }
    long(5, out);
    for item in 0..5 {
        digits("sku-", (mixed >> (30 + item)) % 90_000, "", 0, out);
        long(signed(1 + (mixed >> item) % 3), out);
        double((mixed >> (11 + item)) as f64, out);
    }
    long(0, out);
    long(2, out);
    string("experiment", out);
    string(["control", "variant-a", "variant-b"][part(29, 3) as usize], out);
    string("release", out);
    string("2026.1.17", out);
    long(0, out);
}

// Two texts with a number behind each, or one; without a formatter, which would cost more than the rest.
fn digits(first: &str, a: u64, second: &str, b: u64, out: &mut Vec<u8>) {
    let mut text = [0_u8; 64];
    let mut len = 0;
    for (part, number) in [(first, a), (second, b)] {
        if part.is_empty() {
            continue;
        }
        text[len..len + part.len()].copy_from_slice(part.as_bytes());
        len += part.len();
        let mut scale = 100_000;
        while scale > 0 {
            text[len] = b'0' + (number / scale % 10) as u8;
            len += 1;
            scale /= 10;
        }
    }
    string(std::str::from_utf8(&text[..len]).expect("ASCII"), out);
}
