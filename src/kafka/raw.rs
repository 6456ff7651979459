//! Batch dequeue from librdkafka, the one place that uses its C interface directly.
//!
//! Owns: a queue that partition queues are forwarded to, and the messages taken from it.
//! Does not own: assignment, positions, errors other than those that arrive as messages.
//!
//! rdkafka wraps no batch call, and its partition queues deliver one message per poll. Forwarding each assigned
//! partition to a queue of our own also leaves the consumer's main queue with events only, so that a lane which takes
//! no more records can go on polling for rebalances.
//!
//! Invariants that make the `unsafe` sound:
//! - The client outlives the queue: [`LaneQueue`] holds an `Arc` of the consumer that the queue was made from.
//! - Each message pointer is owned by exactly one [`LaneQueue`] and destroyed once, in `advance` or on drop.
//! - Borrowed payloads are reachable only through `&self`, and messages are destroyed only through `&mut self`.
//! - `rd_kafka_consume_batch_queue` is called from one thread at a time: it takes `&mut self`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::types::RDKafkaRespErr;

use super::consumer::Events;
use crate::model::{HeaderList, Offset, RecordRef, Timestamp, TimestampKind};

/// A topic as librdkafka's own handle; equal handles are the same topic while the partition stays assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TopicHandle(usize);

/// What a queue gave.
#[derive(Debug)]
pub enum Polled<'a> {
    /// A record.
    Record(RecordRef<'a>),
    /// The partition cannot be read on.
    ///
    /// librdkafka's batch call counts this message as a record: it sets the partition's position behind the offset that
    /// the message names. Seek before anything else is taken from the partition.
    Failed(RDKafkaRespErr, String),
}

/// The queue that a lane's partitions are forwarded to.
pub struct LaneQueue {
    queue: NonNull<rd::rd_kafka_queue_t>,
    batch: Vec<*mut rd::rd_kafka_message_t>,
    at: usize,
    // Declared last, dropped last: the queue and the messages need the client.
    consumer: Arc<BaseConsumer<Events>>,
}

// SAFETY: librdkafka's queues and messages may be used from any thread, one at a time; `&mut self` sees to that.
unsafe impl Send for LaneQueue {}

impl LaneQueue {
    /// A queue of `consumer` to which nothing is forwarded yet.
    pub fn new(consumer: Arc<BaseConsumer<Events>>) -> LaneQueue {
        // SAFETY: the client is alive; the call cannot fail but for memory, where librdkafka aborts.
        let queue = unsafe { rd::rd_kafka_queue_new(consumer.client().native_ptr()) };
        let queue = NonNull::new(queue).expect("librdkafka returns a queue or aborts");
        LaneQueue { queue, batch: Vec::with_capacity(MAX_BATCH), at: 0, consumer }
    }

    /// Sends what is fetched for a partition to this queue from now on. To be called before the partition is assigned:
    /// an assignment keeps a forward that the application has set.
    pub fn forward(&self, topic: &str, partition: i32) {
        let Ok(topic) = CString::new(topic) else { return };
        // SAFETY: both queues belong to a living client; the partition's handle is given back at once, the forward
        // stays with the partition.
        unsafe {
            let source = rd::rd_kafka_queue_get_partition(
                self.consumer.client().native_ptr(),
                topic.as_ptr(),
                partition,
            );
            if !source.is_null() {
                rd::rd_kafka_queue_forward(source, self.queue.as_ptr());
                rd::rd_kafka_queue_destroy(source);
            }
        }
    }

    /// The end of a partition's log as the client last heard of it, without asking the broker.
    pub fn known_end(&self, topic: &str, partition: i32) -> Option<Offset> {
        let topic = CString::new(topic).ok()?;
        let (mut low, mut high) = (-1, -1);
        // SAFETY: the client is alive; `low` and `high` are valid places to write.
        let answer = unsafe {
            rd::rd_kafka_get_watermark_offsets(
                self.consumer.client().native_ptr(),
                topic.as_ptr(),
                partition,
                &mut low,
                &mut high,
            )
        };
        if answer == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR { Offset::new(high).ok() } else { None }
    }

    /// Whether messages of the last batch are still to be taken.
    pub fn has_pending(&self) -> bool {
        self.at < self.batch.len()
    }

    /// Takes up to `max` messages, waiting at most `timeout` for the batch to fill. Only when nothing is pending.
    pub fn fill(&mut self, max: usize, timeout: Duration) -> usize {
        if self.has_pending() {
            return self.batch.len() - self.at;
        }
        self.batch.clear();
        self.at = 0;
        let max = max.clamp(1, MAX_BATCH);
        let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the vector has room for `max` pointers, of which the call initialises as many as it returns.
        unsafe {
            let taken =
                rd::rd_kafka_consume_batch_queue(self.queue.as_ptr(), timeout, self.batch.as_mut_ptr(), max);
            // -1 would be an error of the call itself; librdkafka's new consumer reports errors as messages.
            self.batch.set_len(usize::try_from(taken).unwrap_or(0).min(max));
        }
        self.batch.len()
    }

    /// Topic and partition of the next message of the batch.
    pub fn peek_handle(&self) -> Option<(TopicHandle, i32)> {
        let message = *self.batch.get(self.at)?;
        // SAFETY: as in `peek`.
        unsafe { Some((TopicHandle((*message).rkt as usize), (*message).partition)) }
    }

    /// The next message of the batch.
    pub fn peek(&self) -> Option<Polled<'_>> {
        let message = *self.batch.get(self.at)?;
        // SAFETY: the pointer came from librdkafka and is destroyed only by `advance` or drop, which need `&mut self`;
        // the borrow of the result keeps them away.
        // The code is read as a number first: a newer broker's may be none of the enum's, and a reference to such a message
        // would be no valid one.
        unsafe {
            let code = (&raw const (*message).err).cast::<i32>().read();
            if code != 0 {
                let code =
                    RDKafkaRespErr::try_from(code).unwrap_or(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN);
                return Some(Polled::Failed(code, error_text(message)));
            }
            let message = &*message;
            Some(match record(message) {
                Some(record) => Polled::Record(record),
                None => Polled::Failed(
                    RDKafkaRespErr::RD_KAFKA_RESP_ERR__BAD_MSG,
                    format!("the client delivered a record with offset {}", message.offset),
                ),
            })
        }
    }

    /// The name of the next message's topic.
    pub fn peek_topic(&self) -> Option<String> {
        let message = *self.batch.get(self.at)?;
        // SAFETY: as in `peek`; a message of a partition has a topic handle, whose name lives as long as it.
        unsafe {
            let rkt = (*message).rkt;
            if rkt.is_null() {
                return None;
            }
            let name = rd::rd_kafka_topic_name(rkt);
            Some(CStr::from_ptr(name).to_string_lossy().into_owned())
        }
    }

    /// Drops the messages of a partition that are dequeued and not taken yet.
    ///
    /// The client drops what a seek or a new assignment has made outdated only while it dequeues; what waits here is out
    /// of its sight. To be called before each of them.
    pub fn discard(&mut self, topic: &str, partition: i32) {
        let mut kept = self.at;
        for i in self.at..self.batch.len() {
            let message = self.batch[i];
            // SAFETY: every pointer from `at` on is alive and owned by this queue; the name lives as long as the message.
            let matches = unsafe {
                let (rkt, number) = ((*message).rkt, (*message).partition);
                number == partition
                    && !rkt.is_null()
                    && CStr::from_ptr(rd::rd_kafka_topic_name(rkt)).to_bytes() == topic.as_bytes()
            };
            if matches {
                // SAFETY: destroyed once: it is not kept.
                unsafe { rd::rd_kafka_message_destroy(message) };
            } else {
                self.batch[kept] = message;
                kept += 1;
            }
        }
        // What lies behind was destroyed or moved to the front.
        self.batch.truncate(kept);
    }

    /// Destroys the next message of the batch and goes on to the one behind it.
    pub fn advance(&mut self) {
        if let Some(message) = self.batch.get(self.at) {
            // SAFETY: owned by this queue and, as `at` moves on, destroyed once.
            unsafe { rd::rd_kafka_message_destroy(*message) };
            self.at += 1;
        }
    }
}

impl Drop for LaneQueue {
    fn drop(&mut self) {
        while self.has_pending() {
            self.advance();
        }
        // SAFETY: made in `new`, destroyed once; the client is still alive.
        unsafe { rd::rd_kafka_queue_destroy(self.queue.as_ptr()) };
    }
}

/// The most messages taken at once.
pub const MAX_BATCH: usize = 1024;

fn record(message: &rd::rd_kafka_message_t) -> Option<RecordRef<'_>> {
    let offset = Offset::new(message.offset).ok()?;
    Some(RecordRef {
        offset,
        timestamp: timestamp(message),
        key: bytes(message.key.cast(), message.key_len),
        value: bytes(message.payload.cast(), message.len),
        headers: Some(RawMessage::of(message)),
    })
}

fn bytes<'a>(data: *const u8, len: usize) -> Option<&'a [u8]> {
    if data.is_null() {
        None
    } else {
        // SAFETY: librdkafka vouches for `len` bytes at `data` as long as the message lives; callers bind the lifetime
        // to a borrow of the message.
        Some(unsafe { std::slice::from_raw_parts(data, len) })
    }
}

fn timestamp(message: &rd::rd_kafka_message_t) -> Option<Timestamp> {
    let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    // SAFETY: the message is alive and `kind` is a valid place to write.
    let millis = unsafe { rd::rd_kafka_message_timestamp(message, &mut kind) };
    let kind = match kind {
        rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_CREATE_TIME => TimestampKind::Create,
        rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => TimestampKind::LogAppend,
        rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => return None,
    };
    (millis >= 0).then_some(Timestamp { millis, kind })
}

// SAFETY of the call: `message` is alive.
unsafe fn error_text(message: *const rd::rd_kafka_message_t) -> String {
    // SAFETY: for an error message the payload is a text that librdkafka describes by this call.
    unsafe {
        let text = rd::rd_kafka_message_errstr(message);
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

// A message as a list of headers. It is a view of the C struct itself, so that a record needs no allocation.
#[repr(transparent)]
struct RawMessage(rd::rd_kafka_message_t);

impl RawMessage {
    fn of(message: &rd::rd_kafka_message_t) -> &dyn HeaderList {
        // SAFETY: RawMessage is a transparent wrapper of the struct that the reference points to.
        unsafe { &*ptr::from_ref(message).cast::<RawMessage>() }
    }
}

impl HeaderList for RawMessage {
    fn header(&self, index: usize) -> Option<(&str, Option<&[u8]>)> {
        let mut headers = ptr::null_mut();
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the message is alive; names and values belong to it and live as long as the borrow of self. Header
        // parsing is lazy inside librdkafka, done by the thread that owns the message, which is the one that calls.
        unsafe {
            if rd::rd_kafka_message_headers(&self.0, &mut headers)
                != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
            {
                return None;
            }
            let answer = rd::rd_kafka_header_get_all(headers, index, &mut name, &mut value, &mut size);
            if answer != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                return None;
            }
            let name = CStr::from_ptr(name).to_str().unwrap_or("\u{fffd}");
            Some((name, bytes(value.cast(), size)))
        }
    }
}
