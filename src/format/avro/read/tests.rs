//! Files that are good, cut, damaged, and made to hurt.

use super::*;
use crate::error::chain;
use crate::format::avro::wire::{put_bytes, put_len, put_long};

fn header(codec: &str) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    // One block of entries with a byte size, as other writers make them.
    let mut entries = Vec::new();
    put_bytes(b"avro.schema", &mut entries);
    put_bytes(b"\"string\"", &mut entries);
    put_bytes(b"avro.codec", &mut entries);
    put_bytes(codec.as_bytes(), &mut entries);
    put_bytes(b"other", &mut entries);
    put_bytes(&[0xff], &mut entries);
    put_long(-3, &mut out);
    put_len(entries.len(), &mut out);
    out.extend_from_slice(&entries);
    out.push(0);
    out.extend_from_slice(&[7; SYNC]);
    out
}

fn block(records: i64, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_long(records, &mut out);
    put_bytes(data, &mut out);
    out.extend_from_slice(&[7; SYNC]);
    out
}

fn read(file: &[u8]) -> Result<Vec<Vec<u8>>, ReadError> {
    let mut reader = ContainerReader::new(file)?.with_max_block(1000);
    let program = reader.header().program().unwrap();
    let mut datums = Vec::new();
    while let Some(block) = reader.next_block()? {
        block.walk(&program, |datum| datums.push(datum.to_vec()))?;
    }
    Ok(datums)
}

fn good() -> Vec<u8> {
    [header("null"), block(2, &[2, b'a', 0]), block(1, &[4, b'b', b'c'])].concat()
}

#[test]
fn header_and_blocks_are_read() {
    let file = good();
    let reader = ContainerReader::new(&file[..]).unwrap();
    let found = reader.header();
    assert_eq!((found.schema.as_str(), found.codec.as_str()), ("\"string\"", "null"));
    assert_eq!(found.metadata[2], ("other".to_owned(), vec![0xff]));
    assert_eq!(read(&file).unwrap(), [&[2, b'a'][..], &[0], &[4, b'b', b'c']]);
    assert_eq!(read(&header("null")).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn every_cut_is_noticed_unless_it_is_between_blocks() {
    let file = good();
    let borders = [header("null").len(), header("null").len() + block(2, &[2, b'a', 0]).len(), file.len()];
    for length in 0..=file.len() {
        assert_eq!(read(&file[..length]).is_ok(), borders.contains(&length), "at {length}");
    }
}

#[test]
fn faults_name_their_place() {
    let check = |file: Vec<u8>, expected: &str| {
        assert_eq!(chain(&read(&file).unwrap_err()), expected);
    };
    let start = header("null").len();
    let with = |block: Vec<u8>| [header("null"), block].concat();
    check(b"PAR1".to_vec(), "this is no Avro object container");
    check(b"Ob".to_vec(), "this is no Avro object container");
    check(header("lzma"), "codec \"lzma\" is not known");
    check(with(vec![2, 4]), &format!("the file ends at byte {}, inside a block", start + 2));
    check(with(block(-1, &[])), &format!("a block of a negative number of records at byte {start}"));
    check(with(vec![2, 1]), &format!("a block of a negative size at byte {start}"));
    check(
        with(block(2, &[0])),
        &format!(
            "record 1 of the block at byte {start} does not follow the schema: the datum ends too early at byte 1"
        ),
    );
    check(with(block(1, &[0, 0])), &format!("a block with more bytes than its records at byte {start}"));
    let mut marker = with(block(1, &[0]));
    *marker.last_mut().unwrap() = 8;
    check(marker, &format!("a block without the container's sync marker at byte {start}"));
    check(with(vec![0xff; 12]), &format!("a number of more than 64 bits at byte {start}"));
    check(with(block(1, &[0; 1001])), &format!("a block at byte {start} is larger than 1000 bytes"));
    let snappy = [header("snappy"), block(1, &[1, 0, 0, 9, 9, 9, 9])].concat();
    check(snappy, &format!("a block with a wrong checksum at byte {}", header("snappy").len()));
    let deflate = [header("deflate"), block(1, &[0xff, 0xff])].concat();
    assert!(chain(&read(&deflate).unwrap_err()).contains("cannot be decompressed: "));
    let mut no_schema = MAGIC.to_vec();
    no_schema.push(0);
    no_schema.extend_from_slice(&[0; SYNC]);
    check(no_schema, "a header without a schema at byte 0");
}

#[test]
fn claims_alone_take_no_memory() {
    let mut file = MAGIC.to_vec();
    put_len(1 << 40, &mut file);
    put_len(1 << 50, &mut file);
    assert!(matches!(read(&file), Err(ReadError::TooLarge { what: "metadata", .. })));
    let mut many = MAGIC.to_vec();
    put_len(1 << 40, &mut many);
    many.extend(std::iter::repeat_n(0, 1 << 20));
    assert!(matches!(read(&many), Err(ReadError::TooLarge { what: "metadata", .. })));
    let mut file = header("null");
    put_len(1, &mut file);
    put_len(900, &mut file);
    assert!(matches!(read(&file), Err(ReadError::Truncated { .. })));
}

#[test]
fn records_without_bytes_are_counted() {
    let nulls = Program::compile("\"null\"").unwrap();
    let block = |records| Block { position: 5, records, stored: 0, data: &[] };
    assert!(block(1_000_000).walk(&nulls, |_| ()).is_ok());
    assert!(block(1 << 60).walk(&nulls, |_| ()).is_err());
}

#[test]
fn decompressed_blocks_are_limited() {
    let stored = zstd::bulk::compress(&[0; 5_000], 1).unwrap();
    let file = [header("zstandard"), block(1, &stored)].concat();
    assert!(matches!(read(&file), Err(ReadError::TooLarge { what: "a block", limit: 1000, .. })));
}
