//! Where in ZooKeeper an offset lies.
//!
//! Owns: `<root>/<plan>-<feed>-<partition id>` and its way back, the check of connect string and root.
//! Does not own: requests.

use crate::model::FeedPartitionKey;
use crate::offset::Error;

/// Hosts to connect to, and the node under which offsets lie there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// `host:port[,host:port...]`.
    pub(super) hosts: String,
    /// Chroot and root together; empty for the top.
    pub(super) root: String,
}

impl Place {
    /// The chroot is not given to the client but put before the root: so it is made when it is absent, and errors
    /// name whole paths.
    pub(super) fn new(connect: &str, root: &str) -> Result<Place, Error> {
        let connect = connect.trim();
        let (hosts, chroot) = connect.split_at(connect.find('/').unwrap_or(connect.len()));
        let mut checked = Vec::new();
        for (number, host) in (1..).zip(hosts.split(',')) {
            let host = host.trim();
            if !is_host(host) {
                // Not shown: whoever wrote `user:password@host` did not mean it to be.
                return Err(wrong(format!(
                    "connect = \"host:port[,host:port...][/chroot]\" is needed, and host number {number} is none"
                )));
            }
            checked.push(host);
        }
        let chroot = check_node("the chroot of connect", chroot)?;
        let root = check_node("root", root)?;
        let root = format!("{chroot}{root}");
        if root == "/zookeeper" || root.starts_with("/zookeeper/") {
            return Err(wrong("root: /zookeeper belongs to ZooKeeper itself".to_owned()));
        }
        Ok(Place { hosts: checked.join(","), root })
    }

    /// The node of an entry.
    pub(super) fn node(&self, key: &FeedPartitionKey) -> String {
        let mut path = format!("{}/", self.root);
        push_escaped(&mut path, &key.plan, "%-/");
        path.push('-');
        push_escaped(&mut path, &key.feed, "%-/");
        path.push('-');
        // Dashes stay: topic names have them. A topic's name cannot have the other two.
        push_escaped(&mut path, &key.id, "%/");
        path
    }

    /// The node of a child of the root.
    pub(super) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// The node whose children the entries are.
    pub(super) fn parent(&self) -> &str {
        if self.root.is_empty() { "/" } else { &self.root }
    }

    /// Whose entry the child `name` of the root is; `None` when [`Place::node`] never makes that name.
    pub(super) fn key(&self, name: &str) -> Option<FeedPartitionKey> {
        let mut parts = name.splitn(3, '-').map(unescape);
        let (plan, feed, id) = (parts.next()??, parts.next()??, parts.next()??);
        let key = FeedPartitionKey { plan: plan.into(), feed: feed.into(), id: id.into() };
        // `%41` reads as `A`, but is somebody else's spelling: two nodes must not be one entry.
        (self.node(&key) == self.child(name)).then_some(key)
    }
}

fn wrong(reason: String) -> Error {
    Error::Configuration { reason }
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => match rest.strip_prefix(':') {
            _ if host.parse::<std::net::Ipv6Addr>().is_err() => return false,
            None => return rest.is_empty(),
            Some(port) => ("v6", port),
        },
        None => text.split_once(':').unwrap_or((text, "2181")),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    !host.is_empty() && host.chars().all(is_name) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

// Without slashes at its end; the top is empty.
fn check_node<'a>(what: &str, path: &'a str) -> Result<&'a str, Error> {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() {
        return Ok("");
    }
    let needed = |reason: &str| Err(wrong(format!("{what} is {path:?}, but {reason}")));
    let Some(inner) = trimmed.strip_prefix('/') else {
        return needed("it must begin with a slash");
    };
    if inner.split('/').any(|segment| ["", ".", ".."].contains(&segment)) {
        return needed("no segment may be empty or consist of dots");
    }
    if inner.chars().any(is_refused) {
        return needed("ZooKeeper refuses one of its characters");
    }
    Ok(trimmed)
}

// Source: "The ZooKeeper Data Model" in ZooKeeper's programmer's guide. Characters beyond U+FFFF are surrogates to the
// server, which is written in Java, so it refuses them too.
fn is_refused(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{d7ff}'..='\u{f8ff}' | '\u{fff0}'..)
}

fn push_escaped(out: &mut String, text: &str, special: &str) {
    for c in text.chars() {
        if !special.contains(c) && !is_refused(c) {
            out.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = tail;
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(plan: &str, feed: &str, id: &str) -> FeedPartitionKey {
        FeedPartitionKey { plan: plan.into(), feed: feed.into(), id: id.into() }
    }

    fn place() -> Place {
        Place::new("localhost:2181", "/teknek/offset").unwrap()
    }

    fn check(key: FeedPartitionKey, name: &str) {
        assert_eq!(place().node(&key), format!("/teknek/offset/{name}"));
        assert_eq!(place().key(name), Some(key), "{name}");
    }

    #[test]
    fn names_are_the_parents_where_no_part_is_ambiguous() {
        check(key("wikipedia", "edits", "0"), "wikipedia-edits-0");
        check(key("plan", "feed", "a.b_c-d.17"), "plan-feed-a.b_c-d.17");
        check(key("ü", "é", "ä.0"), "ü-é-ä.0");
    }

    #[test]
    fn what_would_be_ambiguous_is_escaped() {
        check(key("a-b", "c", "0"), "a%2Db-c-0");
        check(key("a", "b-c", "0"), "a-b%2Dc-0");
        check(key("a/b", "100%", "-1"), "a%2Fb-100%25--1");
        check(key("a%2Db", "c", "x%2Fy"), "a%252Db-c-x%252Fy");
        check(key("", "", ""), "--");
        check(key("p", "f", "../x"), "p-f-..%2Fx");
    }

    #[test]
    fn what_zookeeper_refuses_is_escaped() {
        check(key("a\0b", "c\u{85}", "\u{e000}"), "a%00b-c%C2%85-%EE%80%80");
        check(key("😀", "f", "0"), "%F0%9F%98%80-f-0");
        check(key("p\u{ffff}", "f", "\n"), "p%EF%BF%BF-f-%0A");
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in
            ["", "a", "a-b", "a%2-b-c", "a%-b-c", "%41-b-c", "a%2d-b-c", "a-b-%2D", "%FF-b-c", "a%+1-b-c"]
        {
            assert_eq!(place().key(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_key_comes_back(plan in any::<String>(), feed in any::<String>(), id in any::<String>()) {
            let key = key(&plan, &feed, &id);
            let node = place().node(&key);
            let name = node.strip_prefix("/teknek/offset/").unwrap();
            prop_assert!(!name.contains('/') && !name.chars().any(is_refused));
            prop_assert_eq!(place().key(name), Some(key));
        }
    }

    #[test]
    fn chroot_and_root_make_one_path() {
        let check = |connect: &str, root: &str, hosts: &str, expected: &str| {
            let place = Place::new(connect, root).unwrap();
            assert_eq!((place.hosts.as_str(), place.parent()), (hosts, expected));
        };
        check("localhost:2181", "/teknek/offset", "localhost:2181", "/teknek/offset");
        check("a:1, b,[::1]:2 ,[::1]/x/y/", "/teknek/", "a:1,b,[::1]:2,[::1]", "/x/y/teknek");
        check("a:1/", "/", "a:1", "/");
        check("a:1/", "", "a:1", "/");
        assert_eq!(Place::new("a", "/").unwrap().node(&key("p", "f", "0")), "/p-f-0");
    }

    #[test]
    fn what_cannot_be_connected_to_is_refused_without_being_shown() {
        let connects =
            ["", ",", "a:1,", "a:0", "a:65536", "a:x", ":1", "a b", "tcp://a:1", "u:p4ss@a", "[::1", "[x]:1"];
        for connect in connects {
            let error = Place::new(connect, "/r").expect_err(connect).to_string();
            assert!(!error.contains("p4ss"), "{error}");
        }
    }

    #[test]
    fn roots_that_are_no_nodes_are_refused() {
        for root in ["x", "/a//b", "/.", "/a/../b", "/\u{1}", "/😀", "/zookeeper", "/zookeeper/x"] {
            assert!(Place::new("a:1", root).is_err(), "{root}");
        }
        assert!(Place::new("a:1/zookeeper", "/").is_err());
        assert!(Place::new("a:1//x", "/r").is_err());
        assert!(Place::new("a:1", "/zookeeper2").is_ok());
    }
}
