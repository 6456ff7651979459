//! The quickstart's records: orders of a shop, in Avro with Confluent's framing.

/// The schema of an order.
pub(super) const SCHEMA: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"sequence","type":"long"},{"name":"customer","type":"string"},{"name":"placed_at","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"currency","type":{"type":"enum","name":"Currency","symbols":["EUR","USD","GBP"]}},{"name":"total","type":"double"},{"name":"coupon","type":["null","string"]},{"name":"items","type":{"type":"array","items":{"type":"record","name":"Item","fields":[{"name":"sku","type":"string"},{"name":"quantity","type":"int"}]}}}]}"#;

/// The id under which the embedded registry knows the schema.
pub(super) const SCHEMA_ID: u32 = 1;

/// No record is larger.
pub(super) const MAX_BYTES: usize = 160;

/// The order with this sequence number, framed; always the same bytes.
pub(super) fn encode(sequence: u64, out: &mut Vec<u8>) {
    out.clear();
    out.push(0);
    out.extend_from_slice(&SCHEMA_ID.to_be_bytes());
    // Spread without a generator of random numbers, so that a record can be made again from its number.
    let mixed = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    long(sequence as i64, out);
    string(&format!("customer-{}", mixed % 5_000), out);
    long(1_700_000_000_000 + sequence as i64 * 37, out);
    long((mixed % 3) as i64, out);
    out.extend_from_slice(&((mixed % 100_000) as f64 / 100.0).to_le_bytes());
    if mixed.is_multiple_of(4) {
        long(1, out);
        string("WELCOME10", out);
    } else {
        long(0, out);
    }
    let items = 1 + mixed % 4;
    long(items as i64, out);
    for item in 0..items {
        string(&format!("sku-{}", (mixed + item) % 900), out);
        long(1 + (mixed % 3) as i64, out);
    }
    long(0, out);
}

// Zigzag and variable length: "Binary encoding" of the Avro specification.
fn long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn string(text: &str, out: &mut Vec<u8>) {
    long(text.len() as i64, out);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_valid_and_small() {
        let schema = apache_avro::Schema::parse_str(SCHEMA).unwrap();
        let mut out = Vec::new();
        for sequence in (0..2_000).chain([u64::from(u32::MAX), 1 << 40]) {
            encode(sequence, &mut out);
            assert!(out.len() <= MAX_BYTES, "{} bytes", out.len());
            let mut rest = &out[5..];
            let reader = apache_avro::reader::datum::GenericDatumReader::builder(&schema).build().unwrap();
            let value = reader.read_value(&mut rest).unwrap();
            assert!(rest.is_empty());
            let apache_avro::types::Value::Record(fields) = value else { panic!("no record") };
            assert_eq!(fields[0].1, apache_avro::types::Value::Long(sequence as i64));
        }
    }
}
