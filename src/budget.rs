//! The process's byte budget, and buffers that count against it.
//!
//! Owns: how many bytes of records are held between Kafka and the store; the pool of chunks.
//! Does not own: what to do under pressure (see [`crate::runtime`]).

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, futures::Notified};

use crate::model::BlockContent;

/// Size of a pooled chunk: a container block of 64 KiB, its head and the record that closed it.
pub const CHUNK: usize = 72 * 1024;
/// The least that a buffer grows to.
const MIN_BUF: usize = 1024;

/// A process-wide byte budget. Cloning shares it.
///
/// Taking never fails and never waits: lanes must not block. Who takes looks at [`Budget::used`] between records and
/// stops taking records when it is near the limit.
#[derive(Clone)]
pub struct Budget {
    inner: Arc<Inner>,
}

struct Inner {
    limit: usize,
    used: AtomicUsize,
    in_flight: AtomicUsize,
    peak: AtomicUsize,
    pool: Mutex<Vec<Vec<u8>>>,
    released: Notify,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Budget {
        Budget {
            inner: Arc::new(Inner {
                limit,
                used: AtomicUsize::new(0),
                in_flight: AtomicUsize::new(0),
                peak: AtomicUsize::new(0),
                pool: Mutex::new(Vec::new()),
                released: Notify::new(),
            }),
        }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.inner.limit
    }

    /// Bytes taken now.
    pub fn used(&self) -> usize {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// The most bytes that were taken at once.
    pub fn peak(&self) -> usize {
        self.inner.peak.load(Ordering::Relaxed)
    }

    /// Bytes of blocks that are being staged now; they come back without any more help.
    pub fn in_flight(&self) -> usize {
        self.inner.in_flight.load(Ordering::Relaxed)
    }

    /// Bytes that may still be taken.
    pub fn free(&self) -> usize {
        self.limit().saturating_sub(self.used())
    }

    /// Ends when bytes are given back, or are no longer in flight. Enable it, then look at the figures, then await it:
    /// what happens in between is not missed. Lanes never wait for it.
    pub fn released(&self) -> Notified<'_> {
        self.inner.released.notified()
    }

    /// Takes `bytes` until the lease is dropped.
    pub fn lease(&self, bytes: usize) -> Lease {
        self.take(bytes);
        Lease { budget: self.clone(), bytes }
    }

    /// Counts `bytes`, taken already, as on their way to the store until the mark is dropped.
    pub fn mark_in_flight(&self, bytes: usize) -> InFlight {
        self.inner.in_flight.fetch_add(bytes, Ordering::Relaxed);
        InFlight { budget: self.clone(), bytes }
    }

    /// An empty buffer of at least [`CHUNK`] bytes.
    pub fn chunk(&self) -> Buf {
        let bytes = self.pooled();
        let lease = self.lease(bytes.capacity());
        Buf { bytes, lease }
    }

    /// An empty buffer that starts small and grows as needed.
    pub fn small(&self, capacity: usize) -> Buf {
        let bytes = Vec::with_capacity(capacity);
        let lease = self.lease(bytes.capacity());
        Buf { bytes, lease }
    }

    fn pooled(&self) -> Vec<u8> {
        let pooled = self.pool().pop();
        pooled.unwrap_or_else(|| Vec::with_capacity(CHUNK))
    }

    fn pool(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.inner.pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(&self, bytes: usize) {
        let used = self.inner.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.inner.peak.fetch_max(used, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.inner.used.fetch_sub(bytes, Ordering::Relaxed);
        self.inner.released.notify_waiters();
    }

    // Chunks of the usual size are kept for reuse, as long as what is kept stays within a quarter of the budget.
    fn recycle(&self, mut bytes: Vec<u8>) {
        if bytes.capacity() != CHUNK {
            return;
        }
        bytes.clear();
        let mut pool = self.pool();
        if (pool.len() + 1) * CHUNK <= self.limit() / 4 {
            pool.push(bytes);
        }
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Budget({} of {} bytes)", self.used(), self.limit())
    }
}

/// Bytes taken from a budget; given back on drop.
#[derive(Debug)]
pub struct Lease {
    budget: Budget,
    bytes: usize,
}

impl Lease {
    /// Makes the lease one of `bytes`.
    pub fn resize(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.budget.take(bytes - self.bytes);
        } else {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Bytes counted as being staged; see [`Budget::mark_in_flight`].
#[derive(Debug)]
pub struct InFlight {
    budget: Budget,
    bytes: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.budget.inner.in_flight.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.inner.released.notify_waiters();
    }
}

/// A growable buffer whose capacity is counted.
#[derive(Debug)]
pub struct Buf {
    bytes: Vec<u8>,
    lease: Lease,
}

impl Buf {
    /// The bytes, to append to or to cut back. Call [`Buf::settle`] after they may have grown.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Makes room for `more` bytes. Grows fourfold while small, then to a pooled chunk, and only as far as needed
    /// beyond that: thousands of nearly empty buffers stay small, a busy one is copied twice at most.
    pub fn reserve(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        let capacity = self.bytes.capacity();
        if needed <= capacity {
            return;
        }
        let next = needed.max(capacity.saturating_mul(4)).max(MIN_BUF);
        if needed <= CHUNK && next > CHUNK / 2 {
            let mut chunk = self.lease.budget.pooled();
            chunk.extend_from_slice(&self.bytes);
            self.bytes = chunk;
        } else {
            let next = if needed > CHUNK { needed } else { next };
            self.bytes.reserve_exact(next - self.bytes.len());
        }
        self.settle();
    }

    /// Counts the capacity that the bytes have now.
    pub fn settle(&mut self) {
        if self.bytes.capacity() != self.lease.bytes {
            self.lease.resize(self.bytes.capacity());
        }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that fit without growing.
    pub fn room(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// The bytes from `from` on as a shared chunk, without copying; counted until the last clone is dropped.
    pub fn freeze_from(mut self, from: usize) -> Bytes {
        self.settle();
        Bytes::from_owner(self).slice(from..)
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        self.lease.budget.recycle(std::mem::take(&mut self.bytes));
    }
}

/// The bytes of an open blob that are not in a block yet: a list of counted chunks.
#[derive(Debug)]
pub struct Tail {
    budget: Budget,
    full: Vec<Bytes>,
    open: Option<Buf>,
    len: usize,
}

impl Tail {
    /// An empty tail that takes its chunks from `budget`.
    pub fn new(budget: &Budget) -> Tail {
        Tail { budget: budget.clone(), full: Vec::new(), open: None, len: 0 }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a copy of `bytes`.
    pub fn push_slice(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        while !bytes.is_empty() {
            let open = self.open.get_or_insert_with(|| self.budget.small(0));
            if open.len() < CHUNK {
                open.reserve(bytes.len().min(CHUNK - open.len()));
            }
            let (now, later) = bytes.split_at(bytes.len().min(open.room()));
            open.bytes_mut().extend_from_slice(now);
            bytes = later;
            if open.room() == 0 {
                self.close_chunk();
            }
        }
    }

    /// Appends the bytes of `buf` from `from` on, without copying.
    pub fn push_buf(&mut self, buf: Buf, from: usize) {
        self.close_chunk();
        let chunk = buf.freeze_from(from);
        self.len += chunk.len();
        if !chunk.is_empty() {
            self.full.push(chunk);
        }
    }

    /// Takes all bytes out as one block's content.
    pub fn take(&mut self) -> BlockContent {
        self.close_chunk();
        self.len = 0;
        BlockContent::new(std::mem::take(&mut self.full))
    }

    fn close_chunk(&mut self) {
        if let Some(open) = self.open.take()
            && !open.is_empty()
        {
            self.full.push(open.freeze_from(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back() {
        let budget = Budget::new(1 << 20);
        let mut tail = Tail::new(&budget);
        tail.push_slice(&[7; 100_000]);
        let mut buf = budget.small(16);
        buf.bytes_mut().extend_from_slice(&[1; 1000]);
        buf.settle();
        tail.push_buf(buf, 10);
        assert_eq!(tail.len(), 100_990);
        assert!(budget.used() >= 100_990);
        let content = tail.take();
        assert_eq!(content.len(), 100_990);
        assert!(tail.is_empty());
        let copy = content.clone();
        drop(content);
        assert!(budget.used() >= 100_990, "a clone still holds the bytes");
        assert_eq!(copy.to_vec()[..100_000], [7; 100_000]);
        drop(copy);
        drop(tail);
        assert_eq!(budget.used(), 0);
        assert!(budget.peak() >= 100_990);
    }

    #[test]
    fn whoever_waits_learns_of_every_release() {
        use futures::FutureExt as _;
        let budget = Budget::new(10);
        let (lease, mark) = (budget.lease(5), budget.mark_in_flight(5));
        for release in [Box::new(move || drop(mark)) as Box<dyn FnOnce()>, Box::new(move || drop(lease))] {
            let mut released = std::pin::pin!(budget.released());
            assert!(!released.as_mut().enable(), "nothing is given back yet");
            release();
            assert!(released.now_or_never().is_some());
        }
    }

    #[test]
    fn the_pool_keeps_at_most_a_quarter() {
        let budget = Budget::new(8 * CHUNK);
        drop((0..8).map(|_| budget.chunk()).collect::<Vec<_>>());
        assert_eq!(budget.pool().len(), 2);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn buffers_grow_from_small_to_a_chunk_and_then_as_needed() {
        let budget = Budget::new(1 << 30);
        let mut buf = budget.small(0);
        let mut capacities = vec![];
        for _ in 0..2_000 {
            buf.reserve(100);
            buf.bytes_mut().extend_from_slice(&[7; 100]);
            assert_eq!(budget.used(), buf.bytes.capacity());
            capacities.push(buf.bytes.capacity());
        }
        capacities.dedup();
        assert_eq!(capacities[..5], [1024, 4096, 16384, CHUNK, 73_800]);
        assert_eq!(buf.as_slice(), [7; 200_000]);
        drop(buf);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_small_tail_takes_little() {
        let budget = Budget::new(1 << 20);
        let mut tail = Tail::new(&budget);
        tail.push_slice(&[1; 100]);
        assert_eq!(budget.used(), MIN_BUF);
        tail.push_slice(&[1; 100_000]);
        assert!(budget.used() <= 2 * CHUNK, "{budget:?}");
        assert_eq!(tail.take().to_vec(), [1; 100_100]);
    }

    #[test]
    fn order_of_bytes_is_kept_across_kinds_of_push() {
        let budget = Budget::new(1 << 20);
        let mut tail = Tail::new(&budget);
        tail.push_slice(b"ab");
        let mut buf = budget.small(4);
        buf.bytes_mut().extend_from_slice(b"xxcd");
        tail.push_buf(buf, 2);
        tail.push_slice(b"ef");
        assert_eq!(tail.take().to_vec(), b"abcdef");
    }
}
