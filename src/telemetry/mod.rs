//! What an operator sees: metrics, health, the status of partitions, logs.
//!
//! Owns: the figures and their names; set-up of logging.
//! Does not own: how they are served (see [`crate::http`]), when they change.

mod health;
mod log;
mod metrics;
mod status;

pub use health::{Health, Reason};
pub use log::{LogFormat, init as init_logging};
pub use metrics::{FeedLabel, FeedMetrics, Metrics};
pub use status::{PartitionState, PartitionStatus, StatusBoard, Totals};

use std::sync::Arc;

/// Everything observable of one process. Cloning shares it.
#[derive(Clone)]
pub struct Telemetry {
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// What keeps the process from being ready.
    pub health: Health,
    /// Partitions and how far they are.
    pub status: StatusBoard,
}

impl Telemetry {
    /// Nothing has happened yet.
    pub fn new() -> Telemetry {
        Telemetry { metrics: Arc::new(Metrics::new()), health: Health::new(), status: StatusBoard::default() }
    }
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry::new()
    }
}
