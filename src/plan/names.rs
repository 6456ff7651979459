//! Rules for names and addresses in a plan.
//!
//! Owns: what Kafka, Azure, ZooKeeper and blobfeed itself take as a name.
//! Does not own: names of blobs (see [`crate::model::BlobName`]).

use super::fault::Problem;
use super::read::{Read, text};
use super::tree::Node;

/// The name of a plan or a feed: part of group ids, offset keys, metadata.
pub(super) fn own_name(name: &str) -> Option<&'static str> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match name {
        "" => Some("it is empty"),
        _ if name.len() > 64 => Some("it is longer than 64 characters"),
        _ if !name.chars().all(good) => Some("it has a character that is no letter, digit, '.', '_' or '-'"),
        "." | ".." => Some("it consists of dots"),
        _ => None,
    }
}

/// A topic's name. Source: `Topic.validate` of Apache Kafka.
pub(super) fn topic(name: &str) -> Option<&'static str> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match name {
        "" => Some("it is empty"),
        _ if name.len() > 249 => Some("it is longer than 249 characters"),
        _ if !name.chars().all(good) => Some("it has a character that is no letter, digit, '.', '_' or '-'"),
        "." | ".." => Some("it consists of dots"),
        _ => None,
    }
}

/// A container's name. Source: "Naming and referencing containers, blobs, and metadata" of the Azure documentation.
pub(super) fn container(name: &str) -> Option<&'static str> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match name {
        _ if !(3..=63).contains(&name.len()) => Some("it has fewer than 3 or more than 63 characters"),
        _ if !name.chars().all(good) => Some("it has a character that is no lower-case letter, digit or '-'"),
        _ if name.starts_with('-') || name.ends_with('-') => Some("it begins or ends with '-'"),
        _ if name.contains("--") => Some("it has two '-' in a row"),
        _ => None,
    }
}

/// A storage account's name. Source: "Storage account overview" of the Azure documentation.
pub(super) fn account(name: &str) -> Option<&'static str> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    match name {
        _ if !(3..=24).contains(&name.len()) => Some("it has fewer than 3 or more than 24 characters"),
        _ if !name.chars().all(good) => Some("it has a character that is no lower-case letter or digit"),
        _ => None,
    }
}

/// A ZooKeeper node below which offsets lie.
pub(super) fn node_path(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("it does not begin with '/'") };
    match rest {
        _ if rest.split('/').any(str::is_empty) => Some("it has an empty segment"),
        _ if rest.split('/').any(|s| s == "." || s == "..") => Some("it has a segment of dots"),
        _ if rest.chars().any(char::is_control) => Some("it has a control character"),
        _ if rest.split('/').next() == Some("zookeeper") => Some("it lies in ZooKeeper's own tree"),
        _ => None,
    }
}

/// Reads text that `rule` finds nothing wrong with.
pub(super) fn named(
    what: &'static str,
    rule: impl Fn(&str) -> Option<&'static str>,
) -> impl Fn(&Node) -> Read<String> {
    move |node| {
        let name = text(node)?;
        match rule(&name) {
            None => Ok(name),
            Some(reason) => Err(Problem::new(node.shown(), what, format!("As it is, {reason}."))),
        }
    }
}

/// Whether `address` is `host:port`, with the port left out where `port_needed` is false.
pub(super) fn is_address(address: &str, port_needed: bool) -> bool {
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (
            host.parse::<std::net::Ipv6Addr>().is_ok(),
            port.strip_prefix(':').or((!port.is_empty()).then_some("")),
        ),
        None => {
            let (host, port) = address.split_once(':').map_or((address, None), |(h, p)| (h, Some(p)));
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            (!host.is_empty() && host.chars().all(good), port)
        }
    };
    let port = match port {
        None => !port_needed,
        Some(port) => {
            port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
        }
    };
    host && port
}

/// `host:port[,host:port...][/chroot]`.
pub(super) fn zookeeper_connect(connect: &str) -> Option<&'static str> {
    let (servers, chroot) = match connect.find('/') {
        Some(at) => (&connect[..at], Some(&connect[at..])),
        None => (connect, None),
    };
    if !servers.split(',').all(|server| is_address(server, true)) {
        return Some("a server in it is not host:port");
    }
    chroot.and_then(node_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: fn(&str) -> Option<&'static str>, good: &[&str], bad: &[&str]) {
        for name in good {
            assert_eq!(rule(name), None, "{name:?}");
        }
        for name in bad {
            assert!(rule(name).is_some(), "{name:?}");
        }
    }

    #[test]
    fn names() {
        check(own_name, &["a", "a.b_C-1", &"x".repeat(64)], &["", "a b", "a/b", "ä", "..", &"x".repeat(65)]);
        check(topic, &["a.b_c-d", "__x", &"x".repeat(249)], &["", ".", "..", "a/b", "ä", &"x".repeat(250)]);
        check(
            container,
            &["abc", "a-1", "123", &"x".repeat(63)],
            &["", "ab", "Abc", "a_b", "-ab", "ab-", "a--b", "$root", &"x".repeat(64)],
        );
        check(account, &["abc", "devstoreaccount1"], &["", "ab", "Abc", "a-b", &"x".repeat(25)]);
        check(node_path, &["/a", "/teknek/offset"], &["", "a", "/", "/a/", "//a", "/a/../b", "/zookeeper/x"]);
    }

    #[test]
    fn addresses() {
        for address in ["h:1", "10.0.0.1:65535", "[::1]:2181", "a-b.c_d:9092"] {
            assert!(is_address(address, true), "{address}");
        }
        for address in ["h", "[::1]", "kafka.example"] {
            assert!(is_address(address, false) && !is_address(address, true), "{address}");
        }
        for address in
            ["", ":1", "h:", "h:0", "h:65536", "h:x", "h:+1", "h 1:1", "[::1", "[x]:1", "[::1]1", "a:b:1"]
        {
            assert!(!is_address(address, false), "{address}");
        }
        check(
            zookeeper_connect,
            &["h:2181", "a:1,b:2,c:3/root", "h:2181/a/b"],
            &["", "h", "a:1,", "a:1,,b:2", "h:2181/", "h:2181/a/", "zk://h:2181"],
        );
    }
}
