//! Checksums that the service verifies, over chunks as they are.

use crc64fast_nvme::Digest as Crc64;
use md5::{Digest as _, Md5};

use crate::model::BlockContent;
use crate::plan::Checksum;

/// A checksum as it is sent, before base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sum {
    /// `x-ms-content-crc64`: CRC-64/NVME, least significant byte first.
    Crc64([u8; 8]),
    /// `Content-MD5`.
    Md5([u8; 16]),
    /// Nothing is sent.
    None,
}

impl Sum {
    pub(super) fn crc64(&self) -> Option<Vec<u8>> {
        if let Sum::Crc64(bytes) = self { Some(bytes.to_vec()) } else { None }
    }

    pub(super) fn md5(&self) -> Option<Vec<u8>> {
        if let Sum::Md5(bytes) = self { Some(bytes.to_vec()) } else { None }
    }
}

/// The checksum of `content`; a long MD5 is reckoned off the threads of the runtime.
pub(super) async fn of_content(kind: Checksum, content: &BlockContent) -> Sum {
    const LONG: usize = 256 << 10;
    if kind == Checksum::Md5 && content.len() > LONG {
        let shared = content.clone();
        if let Ok(sum) = tokio::task::spawn_blocking(move || reckon(kind, &shared)).await {
            return sum;
        }
    }
    reckon(kind, content)
}

fn reckon(kind: Checksum, content: &BlockContent) -> Sum {
    match kind {
        Checksum::Crc64 => {
            let mut digest = Crc64::new();
            content.chunks().iter().for_each(|chunk| digest.write(chunk));
            Sum::Crc64(digest.sum64().to_le_bytes())
        }
        Checksum::Md5 => {
            let mut digest = Md5::new();
            content.chunks().iter().for_each(|chunk| digest.update(chunk));
            Sum::Md5(digest.finalize().into())
        }
        Checksum::None => Sum::None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn sums_do_not_depend_on_where_chunks_end() {
        let split = BlockContent::new(["1234", "", "567", "89"].map(Bytes::from).into());
        // The check value of CRC-64/NVME.
        let crc = Sum::Crc64(0xae8b_1486_0a79_9888_u64.to_le_bytes());
        let md5 = 0x25f9_e794_323b_4538_85f5_181f_1b62_4d0b_u128;
        for content in [split, BlockContent::from(b"123456789".to_vec())] {
            assert_eq!(reckon(Checksum::Crc64, &content), crc);
            assert_eq!(reckon(Checksum::Md5, &content), Sum::Md5(md5.to_be_bytes()));
            assert_eq!(reckon(Checksum::None, &content), Sum::None);
        }
    }

    #[tokio::test]
    async fn long_contents_have_the_same_sum() {
        let content = BlockContent::from(vec![7; 300 << 10]);
        assert_eq!(of_content(Checksum::Md5, &content).await, reckon(Checksum::Md5, &content));
    }
}
