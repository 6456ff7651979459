use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use wiremock::matchers::{any, method};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::error::Class;
use crate::model::Secret;
use crate::plan::AzureCredential;

const KEY: &str = "Y2FuYXJ5LWtleQ==";
const SAS: &str = "sv=2021-10-04&sp=racwl&sig=canary%2Bsas%3D";
const DATE: &str = "Tue, 01 Dec 2026 10:00:00 GMT";

fn plan(endpoint: &str, credential: AzureCredential) -> plan::AzureStore {
    plan::AzureStore {
        account: "acc".to_owned(),
        endpoint: Url::parse(endpoint).unwrap(),
        credential,
        allow_http: false,
        checksum: Checksum::Crc64,
        create_container: true,
        request_timeout: Duration::from_secs(10),
        concurrency: 2,
    }
}

fn key() -> AzureCredential {
    AzureCredential::SharedKey(Secret::new(KEY))
}

fn sas() -> AzureCredential {
    AzureCredential::Sas(Secret::new(SAS))
}

fn blob() -> BlobRef {
    BlobRef { container: "data".into(), name: BlobName::new("a/b c.avro").unwrap() }
}

fn content() -> BlockContent {
    BlockContent::new(["1234", "", "567", "89"].map(Bytes::from).into())
}

fn answer(status: u16) -> ResponseTemplate {
    ResponseTemplate::new(status).insert_header("Date", DATE)
}

async fn server(response: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(response).mount(&server).await;
    server
}

async fn store(server: &MockServer, credential: AzureCredential) -> AzureStore {
    AzureStore::new(&plan(&server.uri(), credential)).unwrap()
}

async fn stage(store: &AzureStore) -> Result<Written, Error> {
    store.stage_block(&blob(), &BlockId::new(1, 2, 3), &content()).await
}

/// A server that reads what it is sent and then answers nothing.
struct Silent {
    address: SocketAddr,
    received: Arc<Mutex<usize>>,
}

impl Silent {
    /// `closes`: the connection is reset after the first bytes; else it is kept open.
    async fn start(closes: bool) -> Silent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(0));
        let count = received.clone();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                *count.lock().await += 1;
                let mut buffer = [0; 1_024];
                let _ = connection.read(&mut buffer).await;
                if !closes {
                    open.push(connection);
                }
            }
        });
        Silent { address, received }
    }
}

#[tokio::test]
async fn a_block_is_sent_whole_with_the_right_crc64_and_its_length() {
    let server = server(answer(201)).await;
    let written = stage(&store(&server, key()).await).await.unwrap();
    assert_eq!(written.etag, "");
    assert_eq!(written.date, SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_119_200));
    let requests = server.received_requests().await.unwrap();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(request.body, b"123456789");
    let header = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or("");
    assert_eq!(header("content-length"), "9");
    assert_eq!(header("transfer-encoding"), "");
    assert_eq!(header("x-ms-content-crc64"), STANDARD.encode(0xae8b_1486_0a79_9888_u64.to_le_bytes()));
    assert!(header("authorization").starts_with("SharedKey acc:"), "{request:?}");
    assert_eq!(request.url.path(), "/data/a%2Fb%20c.avro");
    let id = request.url.query_pairs().find(|(name, _)| name == "blockid").unwrap().1.into_owned();
    assert_eq!(STANDARD.decode(id).unwrap(), BlockId::new(1, 2, 3).as_str().as_bytes());
}

#[tokio::test]
async fn every_body_has_the_checksum_that_the_plan_asks_for() {
    for (checksum, header) in
        [(Checksum::Crc64, "x-ms-content-crc64"), (Checksum::Md5, "content-md5"), (Checksum::None, "")]
    {
        let server = server(answer(201).insert_header("ETag", "\"0x1\"")).await;
        let mut plan = plan(&server.uri(), key());
        plan.checksum = checksum;
        let store = AzureStore::new(&plan).unwrap();
        stage(&store).await.unwrap();
        let (headers, metadata) = (BlobHeaders::default(), Metadata::new());
        store.put(&blob(), "123456789".into(), &headers, &metadata, &Condition::None).await.unwrap();
        let list = BlockList {
            blocks: vec![BlockId::new(1, 2, 3)],
            headers,
            metadata,
            condition: Condition::Absent,
        };
        let written = store.commit_block_list(&blob(), &list).await.unwrap();
        assert_eq!(written.etag, "\"0x1\"");
        let requests = server.received_requests().await.unwrap();
        assert_eq!(requests.len(), 3);
        for request in &requests {
            for name in ["x-ms-content-crc64", "content-md5"] {
                let sent = request.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
                let body = BlockContent::from(request.body.clone());
                let expected = match checksum::of_content(checksum, &body).await {
                    checksum::Sum::Crc64(bytes) if name == header => Some(STANDARD.encode(bytes)),
                    checksum::Sum::Md5(bytes) if name == header => Some(STANDARD.encode(bytes)),
                    _ => None,
                };
                assert_eq!(sent, expected, "{checksum:?} {name} of {}", request.url.path());
            }
        }
        let xml = String::from_utf8(requests[2].body.clone()).unwrap();
        assert!(xml.contains("<Uncommitted>") && !xml.contains("<Latest>"), "{xml}");
        assert_eq!(requests[2].headers["if-none-match"], "*");
    }
}

#[tokio::test]
async fn a_sas_is_in_the_url_beside_what_the_call_needs_and_nothing_is_signed() {
    let server = server(answer(201)).await;
    stage(&store(&server, sas()).await).await.unwrap();
    let requests = server.received_requests().await.unwrap();
    let query = requests[0].url.query().unwrap();
    assert!(query.ends_with(&format!("&{SAS}")), "{query}");
    for part in ["comp=block", "blockid="] {
        assert!(query.contains(part), "{query}");
    }
    assert!(!requests[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn faults_that_pass_are_told_once_with_the_wait_that_was_asked_for() {
    let cases = [
        (answer(429).insert_header("Retry-After", "3"), Some(3_000)),
        (answer(429).insert_header("Retry-After", "Tue, 01 Dec 2026 10:00:05 GMT"), Some(5_000)),
        (answer(503).insert_header("x-ms-retry-after-ms", "250"), Some(250)),
        (answer(503).insert_header("x-ms-error-code", "ServerBusy"), None),
        (answer(500), None),
        (answer(408), None),
    ];
    for (response, wait) in cases {
        let server = server(response).await;
        let error = stage(&store(&server, key()).await).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert_eq!(error.retry_after(), wait.map(Duration::from_millis));
        // The SDK's own retry stays off: each call is one attempt.
        assert_eq!(server.received_requests().await.unwrap().len(), 1, "{error:?}");
    }
}

#[tokio::test]
async fn only_blob_not_found_is_none() {
    let check = async |status: u16, code: &'static str| {
        let response = match code {
            "" => answer(status),
            code => answer(status).insert_header("x-ms-error-code", code),
        };
        let server = server(response).await;
        let store = store(&server, key()).await;
        let properties = store.properties(&blob()).await.map(|found| found.is_some());
        let read = store.read(&blob(), 0, 1).await.map(|found| found.is_some());
        assert_eq!(server.received_requests().await.unwrap()[0].method.as_str(), "HEAD");
        match (properties, read) {
            (Ok(false), Ok(false)) => "none",
            (Err(a), Err(b)) if a.kind() == b.kind() => a.kind(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(check(404, "BlobNotFound").await, "none");
    assert_eq!(check(404, "ContainerNotFound").await, "container_not_found");
    assert_eq!(check(404, "ResourceNotFound").await, "refused");
    assert_eq!(check(404, "").await, "unavailable");
    assert_eq!(check(403, "").await, "denied");
    assert_eq!(check(403, "AuthenticationFailed").await, "denied");
    assert_eq!(check(500, "").await, "unavailable");
}

#[tokio::test]
async fn a_reset_connection_is_no_answer_and_shows_no_sas() {
    let silent = Silent::start(true).await;
    for _ in 0..3 {
        let store = AzureStore::new(&plan(&format!("http://{}", silent.address), sas())).unwrap();
        let error = stage(&store).await.unwrap_err();
        assert!(matches!(error, Error::Transport { .. }), "{error:?}");
        assert!(error.is_unclear());
        assert_eq!(error.class(), Class::Retry);
        let shown = format!("{error:?} {}", crate::error::chain(&error));
        assert!(!shown.contains("canary"), "{shown}");
    }
    assert_eq!(*silent.received.lock().await, 3);
}

#[tokio::test]
async fn a_refused_connection_is_no_answer() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let store = AzureStore::new(&plan(&format!("http://{free}"), sas())).unwrap();
    let error = stage(&store).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    assert!(!format!("{error:?} {}", crate::error::chain(&error)).contains("canary"));
}

#[tokio::test]
async fn silence_ends_with_the_time_out() {
    let silent = Silent::start(false).await;
    let mut plan = plan(&format!("http://{}", silent.address), key());
    plan.request_timeout = Duration::from_millis(200);
    let store = AzureStore::new(&plan).unwrap();
    let error = stage(&store).await.unwrap_err();
    assert!(crate::error::chain(&error).contains("no answer within 200ms"), "{error:?}");
    assert!(error.is_unclear());
}

#[tokio::test]
async fn an_answer_that_stops_midway_ends_with_the_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4_096];
        let _ = connection.read(&mut buffer).await.unwrap();
        let head =
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\nContent-Range: bytes 0-99/100\r\n\r\nabc";
        connection.write_all(head.as_bytes()).await.unwrap();
        // Until the other side gives up.
        let _ = connection.read(&mut buffer).await;
    });
    let mut plan = plan(&format!("http://{address}"), key());
    plan.request_timeout = Duration::from_millis(300);
    let store = AzureStore::new(&plan).unwrap();
    let error = store.read(&blob(), 0, 100).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    served.await.unwrap();
}

#[tokio::test]
async fn a_cut_body_is_not_taken_for_a_short_blob() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4_096];
        let _ = connection.read(&mut buffer).await.unwrap();
        let head =
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\nContent-Range: bytes 0-99/100\r\n\r\nabc";
        connection.write_all(head.as_bytes()).await.unwrap();
    });
    let store = AzureStore::new(&plan(&format!("http://{address}"), key())).unwrap();
    let error = store.read(&blob(), 0, 100).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    served.await.unwrap();
}

#[tokio::test]
async fn an_answer_without_a_date_is_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4_096];
        let _ = connection.read(&mut buffer).await.unwrap();
        let head = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
        connection.write_all(head.as_bytes()).await.unwrap();
        let _ = connection.read(&mut buffer).await;
    });
    let store = AzureStore::new(&plan(&format!("http://{address}"), key())).unwrap();
    let error = stage(&store).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    drop(store);
    served.await.unwrap();
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = server(answer(201)).await;
    let server = server(answer(307).insert_header("Location", format!("{}/x", target.uri()))).await;
    let error = stage(&store(&server, key()).await).await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: 307, .. }), "{error:?}");
    assert_eq!(target.received_requests().await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_container_is_made_where_it_is_missing_and_made_meanwhile_is_fine() {
    for (status, code) in [(201, ""), (409, "ContainerAlreadyExists")] {
        let server = MockServer::start().await;
        let missing = answer(404).insert_header("x-ms-error-code", "ContainerNotFound");
        Mock::given(method("PUT"))
            .respond_with(answer(status).insert_header("x-ms-error-code", code))
            .mount(&server)
            .await;
        Mock::given(any()).respond_with(missing).mount(&server).await;
        let store = store(&server, key()).await;
        store.ensure_container("data", true).await.unwrap();
        let error = store.ensure_container("data", false).await.unwrap_err();
        assert!(matches!(error, Error::ContainerNotFound { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_sas_that_may_nothing_with_containers_is_given_a_chance_but_a_wrong_one_is_not() {
    let check = async |credential: AzureCredential, code: &'static str| {
        let server = server(answer(403).insert_header("x-ms-error-code", code)).await;
        store(&server, credential).await.ensure_container("data", true).await
    };
    check(sas(), "AuthorizationPermissionMismatch").await.unwrap();
    check(sas(), "AuthorizationResourceTypeMismatch").await.unwrap();
    for (credential, code) in
        [(sas(), "AuthenticationFailed"), (key(), "AuthorizationFailure"), (key(), "AuthenticationFailed")]
    {
        let error = check(credential, code).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{code}: {error:?}");
    }
}

#[test]
fn endpoints_that_would_show_the_credential_are_refused() {
    let check = |endpoint: &str, good: bool| match AzureStore::new(&plan(endpoint, key())) {
        Ok(store) => assert!(good, "{endpoint} became {}", store.service.url()),
        Err(error) => {
            assert!(!good, "{endpoint}: {error}");
            assert!(matches!(error, Error::Configuration { .. }), "{endpoint}: {error:?}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    };
    check("https://acc.blob.core.windows.net", true);
    check("https://blob.example.com/acc/", true);
    check("http://127.0.0.1:10000/acc", true);
    check("http://127.9.9.9/acc", true);
    check("http://[::1]:10000/acc", true);
    check("http://localhost:10000/acc", true);
    check("http://acc.localhost:10000", true);
    check("http://acc.blob.core.windows.net", false);
    check("http://10.0.0.1/acc", false);
    check("http://localhost.example.com/acc", false);
    check("ftp://127.0.0.1/acc", false);
    check("https://user:canary@example.com", false);
    check("https://acc.blob.core.windows.net?sv=1&sig=canary", false);
    let open = plan::AzureStore { allow_http: true, ..plan("http://azurite:10000/acc", key()) };
    AzureStore::new(&open).unwrap();
}

#[tokio::test]
async fn containers_that_azure_forbids_are_not_even_asked_for() {
    let server = server(answer(201)).await;
    let store = store(&server, key()).await;
    for container in ["Data", "a", "a--b", "a/b"] {
        let error = store.ensure_container(container, true).await.unwrap_err();
        assert!(matches!(error, Error::Configuration { .. }), "{container}: {error:?}");
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 0);
}
