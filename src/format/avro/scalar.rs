//! Checks single values in a datum: each function answers where its value ends.

use crate::format::{BadRecord, Reason};

/// A result, or the fault and its position.
pub(super) type Walked<T> = Result<T, BadRecord>;

#[inline]
pub(super) fn skip(bytes: &[u8], pos: usize, width: u64) -> Walked<usize> {
    if width > (bytes.len() - pos) as u64 {
        return Err(BadRecord::new(Reason::Truncated, bytes.len()));
    }
    Ok(pos + width as usize)
}

#[inline]
pub(super) fn boolean(bytes: &[u8], pos: usize) -> Walked<usize> {
    match bytes.get(pos) {
        Some(0 | 1) => Ok(pos + 1),
        Some(&byte) => Err(BadRecord::new(Reason::NotBoolean(byte), pos)),
        None => Err(BadRecord::new(Reason::Truncated, pos)),
    }
}

// A zigzag number of 64 bits, and where it ends.
#[inline]
pub(super) fn long(bytes: &[u8], pos: usize) -> Walked<(i64, usize)> {
    match bytes.get(pos) {
        Some(&byte) if byte < 0x80 => Ok((zigzag(u64::from(byte)), pos + 1)),
        _ => long_number(bytes, pos),
    }
}

#[inline(never)]
fn long_number(bytes: &[u8], pos: usize) -> Walked<(i64, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes[pos..].iter().take(10).enumerate() {
        // Nine bytes hold 63 bits; the tenth may hold one more.
        if i == 9 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Ok((zigzag(value), pos + i + 1));
        }
    }
    let reason = if bytes.len() - pos < 10 { Reason::Truncated } else { Reason::NumberTooLong };
    Err(BadRecord::new(reason, pos))
}

#[inline]
pub(super) fn skip_long(bytes: &[u8], pos: usize) -> Walked<usize> {
    if let Some(word) = bytes[pos..].first_chunk::<8>() {
        let last = !u64::from_le_bytes(*word) & 0x8080_8080_8080_8080;
        if last != 0 {
            return Ok(pos + last.trailing_zeros() as usize / 8 + 1);
        }
    }
    Ok(long(bytes, pos)?.1)
}

// A zigzag number of 32 bits, and where it ends.
#[inline]
pub(super) fn int(bytes: &[u8], pos: usize) -> Walked<(i64, usize)> {
    let (value, end) = long(bytes, pos)?;
    if end - pos > 5 || i32::try_from(value).is_err() {
        return Err(BadRecord::new(Reason::NumberTooLong, pos));
    }
    Ok((value, end))
}

#[inline]
pub(super) fn branch(bytes: &[u8], pos: usize, branches: u32) -> Walked<(usize, usize)> {
    let (branch, end) = long(bytes, pos)?;
    match usize::try_from(branch) {
        Ok(index) if index < branches as usize => Ok((index, end)),
        _ => Err(BadRecord::new(Reason::UnionBranch { branch, branches }, pos)),
    }
}

// Where the bytes behind a length begin and end.
#[inline]
pub(super) fn span(bytes: &[u8], pos: usize) -> Walked<(usize, usize)> {
    let (length, from) = long(bytes, pos)?;
    match usize::try_from(length) {
        Ok(length) if length <= bytes.len() - from => Ok((from, from + length)),
        Ok(_) => Err(BadRecord::new(Reason::Truncated, pos)),
        Err(_) => Err(BadRecord::new(Reason::NegativeLength(length), pos)),
    }
}

#[inline]
pub(super) fn text(bytes: &[u8], pos: usize) -> Walked<usize> {
    let (from, to) = span(bytes, pos)?;
    let text = &bytes[from..to];
    if !is_ascii(text) {
        utf8(text, from)?;
    }
    Ok(to)
}

#[inline(never)]
fn utf8(text: &[u8], at: usize) -> Walked<()> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(BadRecord::new(Reason::NotUtf8, at + error.valid_up_to())),
    }
}

// Strings of records are short: words that overlap beat a loop that first looks for alignment.
#[inline]
fn is_ascii(text: &[u8]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    if let (Some(head), Some(tail)) = (text.first_chunk::<16>(), text.last_chunk::<16>()) {
        let mut seen = u128::from_le_bytes(*head) | u128::from_le_bytes(*tail);
        for word in text[16..].as_chunks::<16>().0 {
            seen |= u128::from_le_bytes(*word);
        }
        return (seen as u64 | (seen >> 64) as u64) & HIGH == 0;
    }
    if let (Some(head), Some(tail)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        return (u64::from_le_bytes(*head) | u64::from_le_bytes(*tail)) & HIGH == 0;
    }
    if let (Some(head), Some(tail)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        return (u32::from_le_bytes(*head) | u32::from_le_bytes(*tail)) & HIGH as u32 == 0;
    }
    text.iter().all(u8::is_ascii)
}

#[inline]
fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}
