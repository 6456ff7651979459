//! Reads a schema's JSON into a flat list of nodes.
//!
//! Owns: names and namespaces, the rules without which a container could not be read, limits on size.
//! Does not own: defaults, aliases, docs, logical types: they do not change how a datum is laid out, and the schema's
//! text goes into the container unchanged.
//!
//! Source: Apache Avro 1.12 specification, "Schema Declaration" and "Names". Characters of names are not checked: a
//! registry that took a name knows better than we do whether its readers can live with it.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::error::Class;

/// Bytes of one schema's own text.
pub const MAX_TEXT: usize = 1 << 20;
/// Bytes of a schema's text with all references in it.
pub const MAX_EXPANDED: usize = 4 << 20;
/// Nodes of a schema: each type and each use of a name is one.
pub const MAX_NODES: usize = 10_000;

/// Why a schema cannot be used. Records of such a schema are bad records.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The text is too long.
    #[error("a schema of {bytes} bytes is beyond the limit of {limit}")]
    TooLarge {
        /// Its length, or the length at which reading stopped.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// There are too many types in it.
    #[error("the schema has more than {limit} types")]
    TooManyNodes {
        /// The limit.
        limit: usize,
    },
    /// The text is not JSON, or nested too deeply.
    #[error("the schema is not JSON")]
    Json {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// The JSON breaks a rule of the specification.
    #[error("{place}: {reason}")]
    Malformed {
        /// The named type and field around the fault.
        place: String,
        /// The rule.
        reason: &'static str,
    },
    /// A name is used before any type of that name is defined.
    #[error("{place}: there is no type {name:?} so far")]
    UnknownName {
        /// The named type and field around the use.
        place: String,
        /// The name as it stands there.
        name: String,
    },
    /// Two types have one name.
    #[error("type {name:?} is defined twice")]
    Redefined {
        /// Its full name.
        name: String,
    },
}

impl SchemaError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        Class::BadData
    }
}

/// A node's number in [`Schema::nodes`].
pub(super) type NodeId = usize;

/// One type, as far as its encoding depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(u32),
    Enum(u32),
    Array(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record(Vec<NodeId>),
}

/// A checked schema. A type that is used again by name has one node.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) nodes: Vec<Node>,
    /// How often each node is used, its definition included.
    pub(super) uses: Vec<u32>,
    pub(super) root: NodeId,
}

/// Reads `text`.
pub(super) fn parse(text: &str) -> Result<Schema, SchemaError> {
    if text.len() > MAX_EXPANDED {
        return Err(SchemaError::TooLarge { bytes: text.len(), limit: MAX_EXPANDED });
    }
    let json: Value = serde_json::from_str(text).map_err(|source| SchemaError::Json { source })?;
    let mut parser = Parser::default();
    let root = parser.schema(&json, "")?;
    Ok(Schema { nodes: parser.nodes, uses: parser.uses, root })
}

/// Whether `name` is one of the eight primitive types.
pub(super) fn is_primitive(name: &str) -> bool {
    primitive(name).is_some()
}

/// The full name of a type named `name` with attribute `namespace`, defined inside `enclosing`.
pub(super) fn full_name(name: &str, namespace: Option<&str>, enclosing: &str) -> String {
    if name.contains('.') {
        return name.trim_start_matches('.').to_owned();
    }
    match namespace.unwrap_or(enclosing) {
        "" => name.to_owned(),
        space => format!("{space}.{name}"),
    }
}

/// The namespace of a full name; empty when it has none.
pub(super) fn namespace_of(full_name: &str) -> &str {
    full_name.rsplit_once('.').map_or("", |(space, _)| space)
}

fn primitive(name: &str) -> Option<Node> {
    Some(match name {
        "null" => Node::Null,
        "boolean" => Node::Boolean,
        "int" => Node::Int,
        "long" => Node::Long,
        "float" => Node::Float,
        "double" => Node::Double,
        "bytes" => Node::Bytes,
        "string" => Node::String,
        _ => return None,
    })
}

#[derive(Default)]
struct Parser {
    nodes: Vec<Node>,
    uses: Vec<u32>,
    names: HashMap<String, NodeId>,
    named: HashMap<NodeId, String>,
    mentions: usize,
    place: Vec<String>,
}

impl Parser {
    // Recursion is bounded: serde_json has refused JSON that nests deeper than 127 levels.
    fn schema(&mut self, json: &Value, enclosing: &str) -> Result<NodeId, SchemaError> {
        match json {
            Value::String(name) => self.by_name(name, enclosing),
            Value::Array(branches) => self.union(branches, enclosing),
            Value::Object(object) => self.object(object, enclosing),
            _ => Err(self.malformed("a schema is a name, an array or an object")),
        }
    }

    fn by_name(&mut self, name: &str, enclosing: &str) -> Result<NodeId, SchemaError> {
        if let Some(node) = primitive(name) {
            return self.add(node);
        }
        let full = full_name(name, None, enclosing);
        // A name without dots inside a namespace may mean a type without one; the Java library allows it.
        let Some(&id) = self.names.get(&full).or_else(|| self.names.get(name)) else {
            return Err(SchemaError::UnknownName { place: self.place(), name: name.to_owned() });
        };
        self.count()?;
        self.uses[id] += 1;
        Ok(id)
    }

    fn union(&mut self, branches: &[Value], enclosing: &str) -> Result<NodeId, SchemaError> {
        let id = self.add(Node::Union(Vec::new()))?;
        let mut nodes = Vec::with_capacity(branches.len());
        let mut seen = HashSet::new();
        for branch in branches {
            let node = self.schema(branch, enclosing)?;
            if matches!(self.nodes[node], Node::Union(_)) {
                return Err(self.malformed("a union stands directly in a union"));
            }
            // Named types differ by name, all others by kind.
            let key = match self.named.get(&node) {
                Some(name) => (name.clone(), None),
                None => (String::new(), Some(std::mem::discriminant(&self.nodes[node]))),
            };
            if !seen.insert(key) {
                return Err(self.malformed("a union has two branches of one type"));
            }
            nodes.push(node);
        }
        self.nodes[id] = Node::Union(nodes);
        Ok(id)
    }

    fn object(&mut self, object: &Map<String, Value>, enclosing: &str) -> Result<NodeId, SchemaError> {
        let kind = match object.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(nested) => return self.schema(nested, enclosing),
            None => return Err(self.malformed("an object has no \"type\"")),
        };
        match kind {
            "array" => {
                let id = self.add(Node::Null)?;
                let items = self.attribute(object, "items", "an array has no \"items\"")?;
                self.nodes[id] = Node::Array(self.schema(items, enclosing)?);
                Ok(id)
            }
            "map" => {
                let id = self.add(Node::Null)?;
                let values = self.attribute(object, "values", "a map has no \"values\"")?;
                self.nodes[id] = Node::Map(self.schema(values, enclosing)?);
                Ok(id)
            }
            "record" | "error" => self.record(object, enclosing),
            "enum" => {
                let symbols = object.get("symbols").and_then(Value::as_array);
                let symbols = symbols.ok_or_else(|| self.malformed("an enum has no \"symbols\""))?;
                let distinct: HashSet<&str> = symbols.iter().filter_map(Value::as_str).collect();
                if distinct.len() != symbols.len() {
                    return Err(self.malformed("an enum's symbols are not distinct strings"));
                }
                let count = u32::try_from(symbols.len()).expect("4 MiB of text hold fewer symbols");
                Ok(self.define(object, Node::Enum(count), enclosing)?.0)
            }
            "fixed" => {
                let size = object.get("size").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
                let size = size.ok_or_else(|| self.malformed("a fixed has no usable \"size\""))?;
                Ok(self.define(object, Node::Fixed(size), enclosing)?.0)
            }
            name => self.by_name(name, enclosing),
        }
    }

    fn record(&mut self, object: &Map<String, Value>, enclosing: &str) -> Result<NodeId, SchemaError> {
        let fields = object.get("fields").and_then(Value::as_array);
        let fields = fields.ok_or_else(|| self.malformed("a record has no \"fields\""))?;
        let (id, full) = self.define(object, Node::Record(Vec::new()), enclosing)?;
        let space = namespace_of(&full).to_owned();
        let mut nodes = Vec::with_capacity(fields.len());
        let mut seen = HashSet::new();
        self.place.push(full);
        for field in fields {
            let Some(name) = field.get("name").and_then(Value::as_str) else {
                return Err(self.malformed("a field has no name"));
            };
            self.place.push(name.to_owned());
            if !seen.insert(name) {
                return Err(self.malformed("two fields have this name"));
            }
            let Some(kind) = field.get("type") else {
                return Err(self.malformed("a field has no \"type\""));
            };
            nodes.push(self.schema(kind, &space)?);
            self.place.pop();
        }
        self.place.pop();
        self.nodes[id] = Node::Record(nodes);
        Ok(id)
    }

    // Adds a named type, which may be used from here on, also inside itself.
    fn define(
        &mut self,
        object: &Map<String, Value>,
        node: Node,
        enclosing: &str,
    ) -> Result<(NodeId, String), SchemaError> {
        let name = object.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| self.malformed("a named type has no name"))?;
        let namespace = object.get("namespace").and_then(Value::as_str);
        let full = full_name(name, namespace, enclosing);
        if is_primitive(&full) {
            return Err(self.malformed("a named type has the name of a primitive type"));
        }
        let id = self.add(node)?;
        if self.names.insert(full.clone(), id).is_some() {
            return Err(SchemaError::Redefined { name: full });
        }
        self.named.insert(id, full.clone());
        Ok((id, full))
    }

    fn attribute<'v>(
        &self,
        object: &'v Map<String, Value>,
        name: &str,
        missing: &'static str,
    ) -> Result<&'v Value, SchemaError> {
        object.get(name).ok_or_else(|| self.malformed(missing))
    }

    fn add(&mut self, node: Node) -> Result<NodeId, SchemaError> {
        self.count()?;
        self.nodes.push(node);
        self.uses.push(1);
        Ok(self.nodes.len() - 1)
    }

    fn count(&mut self) -> Result<(), SchemaError> {
        self.mentions += 1;
        if self.mentions > MAX_NODES {
            return Err(SchemaError::TooManyNodes { limit: MAX_NODES });
        }
        Ok(())
    }

    fn malformed(&self, reason: &'static str) -> SchemaError {
        SchemaError::Malformed { place: self.place(), reason }
    }

    fn place(&self) -> String {
        if self.place.is_empty() { "the schema".to_owned() } else { self.place.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        match parse(text) {
            Ok(schema) => panic!("{text} was taken as {schema:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_no_reader_could_read_is_refused() {
        let check = |text: &str, part: &str| {
            let message = fault(text);
            assert!(message.contains(part), "{text}: {message}");
        };
        check("", "not JSON");
        check("7", "a schema is a name");
        check("{}", "no \"type\"");
        check(r#""strin""#, "no type \"strin\"");
        check(r#"{"type":"array"}"#, "no \"items\"");
        check(r#"{"type":"map"}"#, "no \"values\"");
        check(r#"{"type":"enum","name":"E"}"#, "no \"symbols\"");
        check(r#"{"type":"enum","name":"E","symbols":["a","a"]}"#, "not distinct");
        check(r#"{"type":"enum","name":"E","symbols":[1]}"#, "not distinct");
        check(r#"{"type":"fixed","name":"F","size":-1}"#, "no usable \"size\"");
        check(r#"{"type":"fixed","name":"F","size":1.5}"#, "no usable \"size\"");
        check(r#"{"type":"fixed","size":4}"#, "no name");
        check(r#"{"type":"record","name":"R"}"#, "no \"fields\"");
        check(r#"{"type":"record","name":"string","fields":[]}"#, "name of a primitive");
        check(r#"{"type":"record","name":"R","fields":[{"type":"int"}]}"#, "a field has no name");
        check(r#"{"type":"record","name":"R","fields":[{"name":"a"}]}"#, "R, a: a field has no \"type\"");
        check(
            r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}"#,
            "R, a: two fields have this name",
        );
        check(r#"["int",["null"]]"#, "directly in a union");
        check(r#"["int",{"type":"int"}]"#, "two branches of one type");
        check(r#"[{"type":"map","values":"int"},{"type":"map","values":"string"}]"#, "two branches");
        check(
            r#"[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":2}]"#,
            "\"F\" is defined twice",
        );
    }

    #[test]
    fn unions_may_hold_several_named_types() {
        let text = r#"[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"G","size":1},"null"]"#;
        assert!(parse(text).is_ok());
    }

    #[test]
    fn names_are_found_as_the_specification_says() {
        let check = |text: &str, found: bool| assert_eq!(parse(text).is_ok(), found, "{text}");
        let with = |definition: &str, uses: &str, namespace: &str| {
            format!(
                r#"{{"type":"record","name":"R","namespace":"{namespace}","fields":[
                {{"name":"a","type":{definition}}},{{"name":"b","type":"{uses}"}}]}}"#
            )
        };
        let plain = r#"{"type":"fixed","name":"F","size":2}"#;
        check(&with(plain, "F", "x"), true);
        check(&with(plain, "x.F", "x"), true);
        check(&with(plain, "y.F", "x"), false);
        check(&with(plain, "F", ""), true);
        let other = r#"{"type":"fixed","name":"F","namespace":"y","size":2}"#;
        check(&with(other, "F", "x"), false);
        check(&with(other, "y.F", "x"), true);
        let dotted = r#"{"type":"fixed","name":"z.F","namespace":"ignored","size":2}"#;
        check(&with(dotted, "z.F", "x"), true);
        check(&with(dotted, "ignored.F", "x"), false);
        let rootless = r#"{"type":"fixed","name":"F","namespace":"","size":2}"#;
        check(&with(rootless, "F", "x"), true);
        check(&with(plain, "R", "x"), true);
    }

    #[test]
    fn the_enclosing_namespace_ends_with_its_record() {
        let text = r#"{"type":"record","name":"a.R","fields":[
            {"name":"inner","type":{"type":"record","name":"b.S","fields":[
                {"name":"f","type":{"type":"fixed","name":"F","size":2}}]}},
            {"name":"again","type":"b.F"}, {"name":"wrong","type":"F"}]}"#;
        assert_eq!(fault(text), "a.R, wrong: there is no type \"F\" so far");
    }

    #[test]
    fn limits_hold() {
        let long = format!("\"{}\"", "x".repeat(MAX_EXPANDED));
        assert!(fault(&long).contains("beyond the limit"));
        let wide = |fields: usize| {
            let fields: Vec<String> =
                (0..fields).map(|i| format!(r#"{{"name":"f{i}","type":"int"}}"#)).collect();
            format!(r#"{{"type":"record","name":"R","fields":[{}]}}"#, fields.join(","))
        };
        assert!(parse(&wide(MAX_NODES - 1)).is_ok());
        assert!(fault(&wide(MAX_NODES)).contains("more than 10000 types"));
        let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(200), "}".repeat(200));
        assert!(fault(&deep).contains("not JSON"));
        // Also names count, or a short text could make many branches.
        let mentions = format!(
            r#"{{"type":"record","name":"R","fields":[{{"name":"e","type":{{"type":"enum","name":"E","symbols":[]}}}}{}]}}"#,
            (0..MAX_NODES).map(|i| format!(r#",{{"name":"f{i}","type":"E"}}"#)).collect::<String>()
        );
        assert!(fault(&mentions).contains("more than 10000 types"));
    }
}
