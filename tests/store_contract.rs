//! Every store keeps the promises of the port: memory, a directory, and Azure's API as Azurite serves it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blobfeed::model::{BlobHeaders, BlobName, BlobRef, BlockContent, BlockId, Metadata, Secret};
use blobfeed::plan::{self, AzureCredential, Checksum};
use blobfeed::store::{
    AzureStore, BlobStore, BlockList, Condition, DirectoryStore, Error, MemoryStore, contract,
};
use hmac::{Hmac, KeyInit, Mac};

/// The account and the key that Azurite's documentation publishes.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const CONTAINER: &str = "contract";

/// Azurite's blob endpoint; fails, and does not skip, when nobody answers there.
async fn azurite() -> url::Url {
    let base = std::env::var("BLOBFEED_TEST_AZURITE").unwrap_or_else(|_| "http://127.0.0.1:10000".to_owned());
    let base = base.trim_end_matches('/').trim_end_matches(&format!("/{ACCOUNT}")).to_owned();
    let url = url::Url::parse(&format!("{base}/{ACCOUNT}")).expect("BLOBFEED_TEST_AZURITE is a URL");
    let address = format!("{}:{}", url.host_str().unwrap(), url.port_or_known_default().unwrap());
    if let Err(error) = tokio::net::TcpStream::connect(&address).await {
        panic!("Azurite does not answer at {address} ({error}); start it, or set BLOBFEED_TEST_AZURITE");
    }
    url
}

async fn azure(credential: AzureCredential, checksum: Checksum) -> AzureStore {
    AzureStore::new(&plan::AzureStore {
        account: ACCOUNT.to_owned(),
        endpoint: azurite().await,
        credential,
        allow_http: false,
        checksum,
        create_container: true,
        request_timeout: Duration::from_secs(30),
        concurrency: 4,
    })
    .unwrap()
    .with_page_size(3)
}

fn shared_key() -> AzureCredential {
    AzureCredential::SharedKey(Secret::new(KEY))
}

/// A SAS for the account ("Create an account SAS" of the Azure Storage documentation).
fn sas(permissions: &str, resource_types: &str, expiry: &str) -> AzureCredential {
    let version = "2021-10-04";
    let text =
        format!("{ACCOUNT}\n{permissions}\nb\n{resource_types}\n\n{expiry}\n\nhttps,http\n{version}\n\n");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&STANDARD.decode(KEY).unwrap()).unwrap();
    mac.update(text.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("sv", version)
        .append_pair("ss", "b")
        .append_pair("srt", resource_types)
        .append_pair("sp", permissions)
        .append_pair("se", expiry)
        .append_pair("spr", "https,http")
        .append_pair("sig", &signature)
        .finish();
    AzureCredential::Sas(Secret::new(format!("?{query}")))
}

const LATER: &str = "2099-01-01T00:00:00Z";

fn blob(name: &str) -> BlobRef {
    let name = format!("{name}-{:016x}", rand::random::<u64>());
    BlobRef { container: CONTAINER.into(), name: BlobName::new(name).unwrap() }
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    contract::run(Arc::new(MemoryStore::new().with_page_size(3)), CONTAINER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(root.path()).unwrap().with_page_size(3);
    contract::run(Arc::new(store), CONTAINER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn azurite_keeps_the_contract_with_a_shared_key_and_md5() {
    contract::run(Arc::new(azure(shared_key(), Checksum::Md5).await), CONTAINER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn azurite_keeps_the_contract_with_a_shared_key_and_no_checksum() {
    contract::run(Arc::new(azure(shared_key(), Checksum::None).await), CONTAINER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn azurite_keeps_the_contract_with_a_sas() {
    let credential = sas("racwdl", "sco", LATER);
    contract::run(Arc::new(azure(credential, Checksum::Md5).await), CONTAINER).await;
}

/// Azurite does not know CRC-64: it ignores the header when started with `--loose` and refuses it otherwise. Both are
/// fine here; what must not happen is that its refusal is retried for ever.
#[tokio::test]
async fn crc64_is_ignored_or_refused_by_azurite() {
    let store = azure(shared_key(), Checksum::Crc64).await;
    store.ensure_container(CONTAINER, true).await.unwrap();
    match store.stage_block(&blob("crc"), &BlockId::new(1, 0, 0), &BlockContent::from(vec![1])).await {
        Ok(_) => {}
        Err(error) => {
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            assert!(error.to_string().contains("checksum"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_list_longer_than_a_block_is_signed_right() {
    let store = azure(shared_key(), Checksum::Md5).await;
    store.ensure_container(CONTAINER, true).await.unwrap();
    let blob = blob("needs encoding/ü+ =%2F&'list'");
    // A thousand ids, in the list in another order than they were staged, make an XML body of some 60 kB.
    let ids: Vec<BlockId> = (0..10).map(|number| BlockId::new(rand::random(), number, 0)).collect();
    for (i, id) in ids.iter().enumerate() {
        store.stage_block(&blob, id, &BlockContent::from(vec![b'0' + i as u8])).await.unwrap();
    }
    let blocks: Vec<BlockId> = ids.iter().rev().cycle().take(1_000).cloned().collect();
    let list = BlockList {
        blocks,
        headers: BlobHeaders::default(),
        metadata: Metadata::new(),
        condition: Condition::Absent,
    };
    store.commit_block_list(&blob, &list).await.unwrap();
    let content = store.read(&blob, 0, 2_000).await.unwrap().unwrap();
    assert_eq!(content, "9876543210".repeat(100));
}

#[tokio::test]
async fn a_wrong_key_is_denied_everywhere_and_nothing_is_none() {
    let wrong = AzureCredential::SharedKey(Secret::new(STANDARD.encode("canary-of-a-key")));
    let store = azure(wrong, Checksum::Md5).await;
    denied_everywhere(&store, "canary-of-a-key").await;
}

#[tokio::test]
async fn an_expired_sas_is_denied_everywhere_and_not_shown() {
    let expired = sas("racwdl", "sco", "2020-01-01T00:00:00Z");
    let AzureCredential::Sas(secret) = &expired else { unreachable!("a SAS") };
    let signature = secret.expose().rsplit_once("sig=").unwrap().1.to_owned();
    denied_everywhere(&azure(expired, Checksum::Md5).await, &signature).await;
}

async fn denied_everywhere(store: &AzureStore, secret: &str) {
    let blob = blob("denied");
    let answers = [
        store.stage_block(&blob, &BlockId::new(1, 0, 0), &BlockContent::from(vec![1])).await.map(drop),
        store.properties(&blob).await.map(drop),
        store.read(&blob, 0, 1).await.map(drop),
        store.list(CONTAINER, "", None).await.map(drop),
        store.delete(&blob).await,
    ];
    for answer in answers {
        let error = answer.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}

/// The least that a connector gets away with: no list, no delete, no container.
#[tokio::test]
async fn a_sas_that_may_not_see_the_container_is_enough_to_write() {
    azure(shared_key(), Checksum::Md5).await.ensure_container(CONTAINER, true).await.unwrap();
    let store = azure(sas("rcw", "o", LATER), Checksum::Md5).await;
    for create in [true, false] {
        store.ensure_container(CONTAINER, create).await.unwrap();
    }
    let blob = blob("least");
    let (headers, metadata) = (BlobHeaders::default(), Metadata::new());
    store.put(&blob, "x".into(), &headers, &metadata, &Condition::Absent).await.unwrap();
    let error = store.delete(&blob).await.unwrap_err();
    assert!(error.to_string().contains("letters d"), "{error}");
}
