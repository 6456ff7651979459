//! Confluent's frame around a value: a magic byte, a schema id, and the datum.
//!
//! Source: "Wire format" in the documentation of Confluent's Schema Registry.

use super::{BadRecord, Reason};

/// Bytes in front of the datum.
pub const FRAME: usize = 5;

/// The schema id and the datum of a framed value.
///
/// # Errors
/// [`Reason::WrongMagic`] unless the first byte is 0, [`Reason::ShortFrame`] when the id is not whole. An empty datum
/// is no fault here: some schemas have one.
#[inline]
pub fn split(value: &[u8]) -> Result<(u32, &[u8]), BadRecord> {
    match value {
        [0, a, b, c, d, datum @ ..] => Ok((u32::from_be_bytes([*a, *b, *c, *d]), datum)),
        [0, ..] | [] => Err(BadRecord::new(Reason::ShortFrame, value.len())),
        [magic, ..] => Err(BadRecord::new(Reason::WrongMagic(*magic), 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_split_into_id_and_datum() {
        let check = |value: &[u8], expected: Result<(u32, &[u8]), (Reason, usize)>| {
            let answer = split(value).map_err(|bad| (bad.reason, bad.position));
            assert_eq!(answer, expected, "{value:?}");
        };
        check(&[0, 0, 0, 0, 1, 9, 8], Ok((1, &[9, 8])));
        check(&[0, 255, 255, 255, 255], Ok((u32::MAX, &[])));
        check(&[0, 1, 2, 3, 4, 5], Ok((0x0102_0304, &[5])));
        check(&[1, 0, 0, 0, 1, 9], Err((Reason::WrongMagic(1), 0)));
        check(&[255], Err((Reason::WrongMagic(255), 0)));
        check(&[0, 0, 0], Err((Reason::ShortFrame, 3)));
        check(&[], Err((Reason::ShortFrame, 0)));
    }
}
