//! Writes entries by `multi` requests, each of which is applied whole or not at all.
//!
//! Owns: how entries are cut into requests; taking out the entries that make a request fail.
//! Does not own: the session; who else works on the same entries in this process.
//! Crash: each request stands or not; the next instance reads what is there.

use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult};

use super::ZookeeperOffsets;
use super::session::{ATTEMPTS, Deadline, Failure};
use crate::model::FeedPartitionKey;
use crate::offset::Error;
use crate::offset::ledger::{Base, Verdict};

/// Limits of a request, well below the server's `jute.maxbuffer` of 1 MiB, which also bounds what a follower forwards
/// and a transaction in the log.
const MAX_OPERATIONS: usize = 500;
const MAX_BYTES: usize = 128 * 1024;
/// Bytes of an operation beside path and data: its header, lengths, version or access list.
const OPERATION_BYTES: usize = 64;
/// How often an entry may be refused although a read shows it as we know it.
const MAX_REFUSALS: u8 = 3;

/// An entry on its way.
pub(super) struct Item<'a> {
    /// Its place in the caller's batch.
    pub(super) index: usize,
    pub(super) key: &'a FeedPartitionKey,
    pub(super) path: String,
    pub(super) offset: &'a str,
    refusals: u8,
}

impl<'a> Item<'a> {
    pub(super) fn new(index: usize, key: &'a FeedPartitionKey, path: String, offset: &'a str) -> Item<'a> {
        Item { index, key, path, offset, refusals: 0 }
    }

    fn bytes(&self) -> usize {
        OPERATION_BYTES + self.path.len() + self.offset.len()
    }
}

/// Cuts `items` into groups that one request may carry, in order.
pub(super) fn split(items: Vec<Item<'_>>) -> Vec<Vec<Item<'_>>> {
    let mut groups: Vec<Vec<Item<'_>>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let more = item.bytes();
        match groups.last_mut() {
            Some(group) if group.len() < MAX_OPERATIONS && bytes + more <= MAX_BYTES => {
                bytes += more;
                group.push(item);
            }
            _ => {
                bytes = more;
                groups.push(vec![item]);
            }
        }
    }
    groups
}

/// What became of one request.
enum Sent {
    /// Applied; the new versions, in order.
    Applied(Vec<i32>),
    /// Not applied, because of the operation at this index.
    Refused(usize, ZkError),
    /// Not applied, for a reason that concerns all.
    Failed(Failure),
    /// Nobody knows.
    Unclear(Failure),
}

/// The entries of one group that are still open, and the results of the others.
pub(super) struct Group<'a> {
    storage: &'a ZookeeperOffsets,
    deadline: Deadline,
    open: Vec<Item<'a>>,
    results: Vec<(usize, Result<(), Error>)>,
}

impl<'a> Group<'a> {
    pub(super) fn new(storage: &'a ZookeeperOffsets, deadline: Deadline, items: Vec<Item<'a>>) -> Group<'a> {
        Group { storage, deadline, open: items, results: Vec::new() }
    }

    /// Writes all entries that can be written. Each round takes at least one entry out, or counts towards a limit.
    pub(super) async fn write(mut self) -> Vec<(usize, Result<(), Error>)> {
        let mut read_all = false;
        let mut failures = 0;
        while !self.open.is_empty() {
            if let Err(failure) = self.read(read_all).await {
                self.fail_all(&failure);
                break;
            }
            read_all = false;
            if self.open.is_empty() {
                break;
            }
            match self.send().await {
                Sent::Applied(versions) => self.applied(versions),
                Sent::Refused(index, error) => read_all = self.refused(index, error).await,
                Sent::Unclear(failure) if failures + 1 < ATTEMPTS && self.deadline.is_ahead() => {
                    // The read of the next round tells what became of it.
                    failures += 1;
                    tracing::debug!(%failure, failures, "a request was not answered, looking at what became of it");
                }
                Sent::Failed(failure) | Sent::Unclear(failure) => self.fail_all(&failure),
            }
        }
        self.results
    }

    fn done(&mut self, item: &Item<'_>, result: Result<(), Error>) {
        self.results.push((item.index, result));
    }

    fn fail_all(&mut self, failure: &Failure) {
        for item in std::mem::take(&mut self.open) {
            let error = self.storage.session.error(failure);
            self.done(&item, Err(error));
        }
    }

    // Reads the entries that are not known well enough to write them, and takes out those that cannot be written.
    async fn read(&mut self, all: bool) -> Result<(), Failure> {
        let ledger = &self.storage.ledger;
        let items = std::mem::take(&mut self.open);
        let (unknown, known): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| all || ledger.base(item.key) == Base::Unknown);
        self.open = known;
        let paths: Vec<_> = unknown.iter().map(|item| item.path.clone()).collect();
        let found = match self.storage.session.read(&paths, self.deadline).await {
            Ok(found) => found,
            Err(failure) => {
                self.open.extend(unknown);
                return Err(failure);
            }
        };
        for (item, found) in unknown.into_iter().zip(found) {
            let verdict = found.map(|found| ledger.judge(item.key, found, item.offset));
            match verdict {
                Ok(Verdict::Write) => self.open.push(item),
                Ok(Verdict::Written) => self.done(&item, Ok(())),
                Ok(Verdict::Conflict(stored)) => {
                    let conflict =
                        Error::Conflict { key: item.key.clone(), stored, ours: item.offset.to_owned() };
                    self.done(&item, Err(conflict));
                }
                Err(error) => self.done(&item, Err(error)),
            }
        }
        Ok(())
    }

    async fn send(&self) -> Sent {
        let ledger = &self.storage.ledger;
        let client = match self.storage.session.client(self.deadline).await {
            Ok(client) => client,
            Err(failure) => return Sent::Failed(failure),
        };
        let request = match self.request(&client) {
            Ok(request) => request,
            Err(error) => return Sent::Failed(error.into()),
        };
        for item in &self.open {
            ledger.sending(item.key, item.offset);
        }
        // From here on, whoever drops this future leaves entries in doubt, which the next call settles by a read.
        let answer = async { Ok(request.await) };
        let sent = match self.deadline.wait(answer).await {
            Ok(Ok(results)) => match versions(&results) {
                Some(versions) if versions.len() == self.open.len() => Sent::Applied(versions),
                _ => Sent::Unclear(ZkError::UnexpectedError("an answer of another kind".to_owned()).into()),
            },
            Ok(Err(MultiWriteError::OperationFailed { index, source })) if index < self.open.len() => {
                Sent::Refused(index, source)
            }
            Ok(Err(error)) => {
                let failure = Failure::from(ZkError::from(error));
                if failure.is_unclear() { Sent::Unclear(failure) } else { Sent::Failed(failure) }
            }
            Err(failure) => Sent::Unclear(failure),
        };
        if let Sent::Refused(..) | Sent::Failed(_) = sent {
            for item in &self.open {
                ledger.refused(item.key);
            }
        }
        sent
    }

    fn request<'c>(
        &self,
        client: &'c Client,
    ) -> Result<impl Future<Output = Result<Vec<MultiWriteResult>, MultiWriteError>> + Send + 'c, ZkError>
    {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let mut writer = client.new_multi_writer();
        for item in &self.open {
            match self.storage.ledger.base(item.key) {
                Base::At(version) => {
                    writer.add_set_data(&item.path, item.offset.as_bytes(), Some(version))?;
                }
                Base::Absent => writer.add_create(&item.path, item.offset.as_bytes(), &options)?,
                Base::Unknown => return Err(ZkError::UnexpectedError("an entry was not read".to_owned())),
            }
        }
        Ok(writer.commit())
    }

    fn applied(&mut self, versions: Vec<i32>) {
        for (item, version) in std::mem::take(&mut self.open).into_iter().zip(versions) {
            self.storage.ledger.written(item.key, version, item.offset);
            self.done(&item, Ok(()));
        }
    }

    // Deals with the entry that made the request fail; whether all others must be read. Where one entry was moved by
    // somebody else many may have been, and one read finds them all.
    async fn refused(&mut self, index: usize, error: ZkError) -> bool {
        let item = &mut self.open[index];
        item.refusals += 1;
        let is_new = self.storage.ledger.base(item.key) == Base::Absent;
        match error {
            _ if item.refusals > MAX_REFUSALS => {}
            ZkError::NoNode if is_new => {
                let session = &self.storage.session;
                let made = match session.client(self.deadline).await {
                    Ok(client) => session.make_root(&client, self.deadline).await,
                    Err(failure) => Err(failure),
                };
                if let Err(failure) = made {
                    self.fail_all(&failure);
                }
                return false;
            }
            ZkError::NoNode | ZkError::BadVersion | ZkError::NodeExists => return true,
            _ => {}
        }
        let item = self.open.remove(index);
        let error = self.storage.session.error(&error.into());
        self.done(&item, Err(error));
        false
    }
}

fn versions(results: &[MultiWriteResult]) -> Option<Vec<i32>> {
    let version = |result: &MultiWriteResult| match result {
        MultiWriteResult::SetData { stat } => Some(stat.version),
        // Servers before 3.7.2 and 3.8.2 do not tell it within a multi.
        MultiWriteResult::Create { .. } => Some(0),
        _ => None,
    };
    results.iter().map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entries: usize, path_bytes: usize, expected: &[usize]) {
        let key = FeedPartitionKey { plan: "p".into(), feed: "f".into(), id: "0".into() };
        let item = |index| Item::new(index, &key, "x".repeat(path_bytes), "12345");
        let groups = split((0..entries).map(item).collect());
        let sizes: Vec<_> = groups.iter().map(Vec::len).collect();
        assert_eq!(sizes, expected, "{entries} entries with paths of {path_bytes} bytes");
        let order: Vec<_> = groups.iter().flatten().map(|item| item.index).collect();
        assert_eq!(order, (0..entries).collect::<Vec<_>>());
    }

    #[test]
    fn requests_are_bounded_by_number_and_by_size() {
        check(0, 20, &[]);
        check(1, 20, &[1]);
        check(500, 20, &[500]);
        check(501, 20, &[500, 1]);
        check(2000, 20, &[500, 500, 500, 500]);
        // (1,000 + 64 + 5) * 122 is the last to fit into 128 KiB.
        check(300, 1000, &[122, 122, 56]);
        check(2, 200_000, &[1, 1]);
    }
}
