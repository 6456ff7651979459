//! Numbers and strings as containers spell them.
//!
//! Source: Apache Avro 1.12 specification, "Binary Encoding" and "Object Container Files".

/// The most bytes that a number takes.
pub(super) const MAX_LONG: usize = 10;
/// What a container begins with.
pub(super) const MAGIC: [u8; 4] = *b"Obj\x01";
/// Bytes of a sync marker.
pub(super) const SYNC: usize = 16;

/// Appends a number.
pub(super) fn put_long(value: i64, out: &mut Vec<u8>) {
    let mut rest = (value << 1 ^ value >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a length or a count.
pub(super) fn put_len(value: usize, out: &mut Vec<u8>) {
    put_long(i64::try_from(value).expect("memory holds fewer bytes than i64 counts"), out);
}

/// Appends bytes behind their length.
pub(super) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_len(bytes.len(), out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_as_in_the_specification() {
        let check = |value: i64, expected: &[u8]| {
            let mut out = Vec::new();
            put_long(value, &mut out);
            assert_eq!(out, expected, "{value}");
        };
        check(0, &[0]);
        check(-1, &[1]);
        check(1, &[2]);
        check(-64, &[0x7f]);
        check(64, &[0x80, 0x01]);
        check(i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        check(i64::MIN, &[0xff; 10].map(|b: u8| b).split_last().map(|(_, r)| [r, &[1]].concat()).unwrap());
    }
}
