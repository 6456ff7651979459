//! The one session with ZooKeeper that a process has.
//!
//! Owns: connecting when first needed and again when a session has ended, time-outs, the meaning of ZooKeeper's errors.
//! Does not own: which requests are sent, and whether they may be repeated.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use crate::offset::ledger::Found;
use crate::offset::{Error, stored_offset};

/// How long a call waits for its answers, unless the session is shorter.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a call asks after a lost connection, before its caller is told.
pub(super) const ATTEMPTS: u32 = 3;
/// How long the server may take to end the session.
const FAREWELL: Duration = Duration::from_secs(2);

/// A session, present or future. Cloning a client does not make another session.
pub(super) struct Session {
    store: String,
    hosts: String,
    root: String,
    timeout: Duration,
    slot: Mutex<Slot>,
}

// Shared, so that a caller that gives up leaves the attempt to the next one: else a dead host that comes first in the
// list would be tried again and again, and the one behind it never.
type Connecting = Shared<BoxFuture<'static, Result<Client, ZkError>>>;

#[derive(Default)]
struct Slot {
    number: u64,
    connecting: Option<Connecting>,
}

/// Why there is no answer, or none that helps.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Failure {
    /// ZooKeeper's own words.
    #[error(transparent)]
    Answered(#[from] ZkError),
    /// The client waits for ever while it is not connected; we do not.
    #[error("no answer within {0:?}")]
    Silence(Duration),
}

impl Failure {
    /// Whether the request may have reached the server all the same, and may be sent again after a look.
    pub(super) fn is_unclear(&self) -> bool {
        use ZkError::{
            AuthFailed, BadArguments, BadVersion, InvalidAcl, MarshallingError, NoAuth, NoNode, NodeExists,
            NotEmpty, NotReadOnly, QuotaExceeded, Throttled, Unimplemented,
        };
        let Failure::Answered(error) = self else { return true };
        let certain = matches!(
            error,
            AuthFailed
                | BadArguments(_)
                | BadVersion
                | InvalidAcl
                | MarshallingError
                | NoAuth
                | NoNode
                | NodeExists
                | NotEmpty
                | NotReadOnly
                | QuotaExceeded
                | Throttled
                | Unimplemented
        );
        !certain
    }
}

/// When a call's patience ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    patience: Duration,
}

impl Deadline {
    /// Whether there is time left.
    pub(super) fn is_ahead(self) -> bool {
        Instant::now() < self.at
    }

    /// Waits for `answer`, until the deadline.
    pub(super) async fn wait<T>(
        self,
        answer: impl Future<Output = Result<T, ZkError>>,
    ) -> Result<T, Failure> {
        match timeout_at(self.at, answer).await {
            Ok(result) => result.map_err(Failure::from),
            Err(_) => Err(Failure::Silence(self.patience)),
        }
    }
}

impl Session {
    pub(super) fn new(hosts: String, root: String, timeout: Duration) -> Session {
        let store = format!("zookeeper {hosts}{root}");
        Session { store, hosts, root, timeout, slot: Mutex::default() }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The deadline of a call that begins now.
    pub(super) fn deadline(&self) -> Deadline {
        let patience = PATIENCE.min(self.timeout);
        Deadline { at: Instant::now() + patience, patience }
    }

    /// A client whose session has not ended, as far as is known.
    pub(super) async fn client(&self, deadline: Deadline) -> Result<Client, Failure> {
        loop {
            let (number, connecting) = self.connecting();
            let result = deadline.wait(connecting).await;
            match result {
                Ok(client) if !client.state().is_terminated() => return Ok(client),
                // Expired, closed or refused: a client never recovers from that, a new one may.
                Ok(_) => self.discard(number),
                Err(failure @ Failure::Silence(_)) => return Err(failure),
                Err(failure) => {
                    self.discard(number);
                    // An attempt that nobody has waited for in the meantime ends with this at once.
                    if !matches!(failure, Failure::Answered(ZkError::Timeout)) {
                        return Err(failure);
                    }
                }
            }
        }
    }

    fn connecting(&self) -> (u64, Connecting) {
        let mut slot = self.slot();
        if let Some(connecting) = &slot.connecting {
            return (slot.number, connecting.clone());
        }
        let connector = Client::connector().with_session_timeout(self.timeout);
        let hosts = self.hosts.clone();
        let connecting = async move { connector.connect(&hosts).await }.boxed().shared();
        slot.number += 1;
        slot.connecting = Some(connecting.clone());
        (slot.number, connecting)
    }

    fn discard(&self, number: u64) {
        let mut slot = self.slot();
        // Somebody else may have begun a new one already.
        if slot.number == number {
            slot.connecting = None;
        }
    }

    /// Makes the root and what is above it.
    pub(super) async fn make_root(&self, client: &Client, deadline: Deadline) -> Result<(), Failure> {
        if self.root.is_empty() {
            return Ok(());
        }
        deadline.wait(client.mkdir(&self.root, &CreateMode::Persistent.with_acls(Acls::anyone_all()))).await
    }

    /// Ends the session, so that the server does not have to wait for its time-out.
    pub(super) async fn close(&self) {
        let Some(connecting) = self.slot().connecting.take() else { return };
        let Some(Ok(client)) = connecting.peek().cloned() else { return };
        drop(connecting);
        let mut states = client.state_watcher();
        drop(client);
        let ended = async {
            while !states.peek_state().is_terminated() {
                states.changed().await;
            }
        };
        // The process ends anyway; without an answer the server notices by itself.
        let _ = tokio::time::timeout(FAREWELL, ended).await;
    }

    /// `failure` as an error of this storage.
    pub(super) fn error(&self, failure: &Failure) -> Error {
        let store = self.store.clone();
        match failure {
            Failure::Answered(ZkError::NoAuth | ZkError::InvalidAcl) => {
                let root = if self.root.is_empty() { "/" } else { &self.root };
                let hint =
                    format!("this client needs create, read, write and delete (crwd) at {root} and below");
                Error::Denied { store, hint }
            }
            Failure::Answered(ZkError::AuthFailed) => Error::Denied {
                store,
                hint: "the server demands an authentication that was not given".to_owned(),
            },
            other => Error::Unavailable { store, source: Box::new(other.clone()) },
        }
    }

    /// The node at `path` holds what no offset can be.
    pub(super) fn corrupt(&self, path: &str, reason: String) -> Error {
        Error::Corrupt { store: self.store.clone(), place: path.to_owned(), reason }
    }

    /// Sends requests that may be sent again, until their answers have come or the patience ends.
    pub(super) async fn ask<T, F>(
        &self,
        deadline: Deadline,
        request: impl Fn(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        let mut attempt = 1;
        loop {
            let client = self.client(deadline).await?;
            match deadline.wait(request(client)).await {
                Err(failure) if failure.is_unclear() && attempt < ATTEMPTS && deadline.is_ahead() => {
                    attempt += 1
                }
                result => return result,
            }
        }
    }

    /// Reads nodes, each of which may be absent or unreadable by itself.
    pub(super) async fn read(&self, paths: &[String], deadline: Deadline) -> Result<Vec<Reading>, Failure> {
        let Some(first) = paths.first() else { return Ok(Vec::new()) };
        let answers = self.ask(deadline, |client| async move {
            // A server may lag behind its leader; after a change of server even behind what this very session has
            // written. Requests of a session are answered in order, so all of them can be sent at once.
            let sync = client.sync(first);
            let answers: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
            sync.await?;
            let mut data = Vec::with_capacity(answers.len());
            for answer in answers {
                data.push(match answer.await {
                    Err(error) if Failure::from(error.clone()).is_unclear() => return Err(error),
                    answer => answer,
                });
            }
            Ok(data)
        });
        let readings = paths.iter().zip(answers.await?).map(|(path, answer)| match answer {
            Ok((data, stat)) => match stored_offset(&data) {
                Ok(offset) => Ok(Some(Found { version: stat.version, offset })),
                Err(reason) => Err(self.corrupt(path, reason)),
            },
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(self.error(&error.into())),
        });
        Ok(readings.collect())
    }
}

/// What is at a node, if there is one.
pub(super) type Reading = Result<Option<Found<i32>>, Error>;
