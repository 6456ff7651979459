//! `[store]` and `[offset_storage]`.
//!
//! Owns: their types; the keys of all types but `azure`.
//! Does not own: talking to either.

use std::path::Path;
use std::time::Duration;

use super::azure::azure;
use super::fault::Report;
use super::names::{named, node_path, zookeeper_connect};
use super::read::{duration, path};
use super::section::{Section, kind};
use super::tree::Table;
use super::types::{DirectoryStore, OffsetStorage, Store, Zookeeper};

/// Reads `[store]`.
pub(super) fn store(path_of: &str, table: Table, folder: &Path, report: &Report) -> Option<Store> {
    let kinds = [("azure", "azure"), ("directory", "directory"), ("memory", "memory")];
    let kind = kind("store", path_of, &table, (&kinds, &[]), report)?;
    let mut section = Section::new(report, ("store", kind), path_of, table);
    let store = match kind {
        "azure" => azure(&mut section).map(Store::Azure),
        "directory" => section
            .required("path", "the folder that holds the containers", "Add path = \"...\".", path(folder))
            .map(|path| Store::Directory(DirectoryStore { path })),
        _ => {
            report
                .note(&section.at("type"), "What is in memory is lost with the process; this is for tests.");
            Some(Store::Memory)
        }
    };
    section.finish();
    store
}

/// Reads `[offset_storage]`.
pub(super) fn offset_storage(
    path_of: &str,
    table: Table,
    folder: &Path,
    report: &Report,
) -> Option<OffsetStorage> {
    let kinds = [("zookeeper", "zookeeper"), ("file", "file"), ("memory", "memory")];
    let kind = kind("offset_storage", path_of, &table, (&kinds, &["kafka", "blob"]), report)?;
    let mut section = Section::new(report, ("offset_storage", kind), path_of, table);
    let storage = match kind {
        "zookeeper" => zookeeper(&mut section).map(OffsetStorage::Zookeeper),
        "file" => section
            .required("path", "the file that holds the offsets", "Add path = \"...\".", path(folder))
            .map(|path| OffsetStorage::File { path }),
        _ => {
            report.note(
                &section.at("type"),
                "Offsets in memory are lost with the process: each start begins at the feed's `start`.",
            );
            Some(OffsetStorage::Memory)
        }
    };
    section.finish();
    storage
}

fn zookeeper(section: &mut Section<'_>) -> Option<Zookeeper> {
    let connect = section.required(
        "connect",
        "host:port[,host:port...][/chroot]",
        "Add connect = \"localhost:2181\".",
        named("host:port[,host:port...][/chroot]", zookeeper_connect),
    );
    let root = section.or(
        "root",
        "/teknek/offset".to_owned(),
        named("the path of a node, such as /teknek/offset", node_path),
    );
    let bounds = (Duration::from_secs(1), Duration::from_secs(300));
    let session_timeout = section.or(
        "session_timeout",
        Duration::from_secs(30),
        duration(
            bounds.0,
            bounds.1,
            "Servers grant 2 to 20 of their ticks, 4s to 40s as they are set up usually.",
        ),
    );
    Some(Zookeeper { connect: connect?, root, session_timeout })
}
