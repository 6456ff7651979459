//! Makes a schema self-contained: types that it takes from other schemas are defined where they are first used.
//!
//! Owns: which definition a name means across texts, and the resulting text.
//! Does not own: fetching references (see [`crate::registry`]).
//!
//! Texts are spliced, never written anew: numbers, order, docs and attributes stay as the registry has them, and a
//! schema that takes nothing from elsewhere stays equal byte for byte.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::schema::{MAX_EXPANDED, MAX_TEXT, SchemaError, full_name, is_primitive, namespace_of};

/// Schemas in schemas; more than the JSON of a usable schema can hold.
const MAX_DEPTH: usize = 128;

/// `schema` with the types that it takes from `references` (a name for messages, and a text each) defined in it.
///
/// A type is put in where it is first needed, in full; from there on its name stands for it. References may use each
/// other in any order, and each other's inner types. A type that several texts define must be the same in all.
///
/// # Errors
/// [`SchemaError`] when a text is too large or no schema, a name is defined nowhere, or differently in two places.
pub fn inline(
    schema: &str,
    references: &[(impl AsRef<str>, impl AsRef<str>)],
) -> Result<String, SchemaError> {
    let texts: Vec<&str> = references.iter().map(|(_, text)| text.as_ref()).collect();
    for text in texts.iter().chain([&schema]) {
        limit(text.len(), MAX_TEXT)?;
    }
    limit(texts.iter().map(|text| text.len()).sum::<usize>() + schema.len(), MAX_EXPANDED)?;
    if references.is_empty() {
        return Ok(schema.to_owned());
    }
    let mut library = HashMap::new();
    for text in texts {
        collect(text, &mut library)?;
    }
    let borrowed: HashSet<String> = library.keys().cloned().collect();
    // Only to find contradictions: what the schema defines itself is not for putting in elsewhere.
    collect(schema, &mut library)?;
    library.retain(|name, _| borrowed.contains(name));

    let root = raw(schema)?;
    let mut inliner = Inliner { library, defined: HashSet::new(), depth: 0 };
    let mut edits = Edits::default();
    inliner.child(schema, root, Scope { source: "", output: "" }, &mut edits)?;
    let text = edits.apply(schema);
    limit(text.len(), MAX_EXPANDED)?;
    Ok(text)
}

fn limit(bytes: usize, limit: usize) -> Result<(), SchemaError> {
    if bytes > limit { Err(SchemaError::TooLarge { bytes, limit }) } else { Ok(()) }
}

/// A named type in one of the texts.
struct Definition<'t> {
    text: &'t str,
    /// The namespace around it there.
    enclosing: String,
}

type Library<'t> = HashMap<String, Definition<'t>>;

/// The namespaces around a schema, where it comes from and where it is put.
#[derive(Clone, Copy)]
struct Scope<'s> {
    source: &'s str,
    output: &'s str,
}

/// One level of a schema's JSON.
enum Shape<'t> {
    Name(String),
    Union(Vec<&'t RawValue>),
    /// An array's items, a map's values, the type of an object that only adds attributes.
    Around(&'t RawValue),
    Named {
        name: String,
        namespace: Option<String>,
        fields: Vec<&'t RawValue>,
    },
    /// No schema; [`super::Program::compile`] says why.
    Other,
}

fn read<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, SchemaError> {
    serde_json::from_str(text).map_err(|source| SchemaError::Json { source })
}

fn raw(text: &str) -> Result<&RawValue, SchemaError> {
    read(text)
}

fn shape(text: &str) -> Result<Shape<'_>, SchemaError> {
    match text.as_bytes().first() {
        Some(b'"') => return Ok(Shape::Name(read(text)?)),
        Some(b'[') => return Ok(Shape::Union(read(text)?)),
        Some(b'{') => {}
        _ => return Ok(Shape::Other),
    }
    let object: BTreeMap<String, &RawValue> = read(text)?;
    let string = |key: &str| object.get(key).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let Some(&kind) = object.get("type") else { return Ok(Shape::Other) };
    let around = |key: &str| object.get(key).map_or(Shape::Other, |raw| Shape::Around(raw));
    Ok(match string("type").as_deref() {
        Some("array") => around("items"),
        Some("map") => around("values"),
        Some("record" | "error" | "enum" | "fixed") => {
            let Some(name) = string("name") else { return Ok(Shape::Other) };
            let mut fields = Vec::new();
            if let Some(list) = object.get("fields") {
                for field in read::<Vec<&RawValue>>(list.get())? {
                    let field: BTreeMap<String, &RawValue> = read(field.get())?;
                    fields.extend(field.get("type"));
                }
            }
            Shape::Named { name, namespace: string("namespace"), fields }
        }
        _ => Shape::Around(kind),
    })
}

// Adds all named types of `text`.
fn collect<'t>(text: &'t str, library: &mut Library<'t>) -> Result<(), SchemaError> {
    let mut here = HashSet::new();
    let mut open = vec![(raw(text)?.get(), String::new())];
    while let Some((text, enclosing)) = open.pop() {
        let (children, space) = match shape(text)? {
            Shape::Union(branches) => (branches, enclosing),
            Shape::Around(inner) => (vec![inner], enclosing),
            Shape::Named { name, namespace, fields } => {
                let full = full_name(&name, namespace.as_deref(), &enclosing);
                let space = namespace_of(&full).to_owned();
                let known = library.get(&full).map(|known| known.text);
                if !here.insert(full.clone()) || known.is_some_and(|known| !same(known, text)) {
                    return Err(SchemaError::Redefined { name: full });
                }
                library.entry(full).or_insert(Definition { text, enclosing });
                (fields, space)
            }
            Shape::Name(_) | Shape::Other => continue,
        };
        open.extend(children.into_iter().map(|child| (child.get(), space.clone())));
    }
    Ok(())
}

fn same(a: &str, b: &str) -> bool {
    a == b || matches!((read::<Value>(a), read::<Value>(b)), (Ok(a), Ok(b)) if a == b)
}

/// Replacements in a text, in order of their places.
#[derive(Default)]
struct Edits(BTreeMap<usize, (Range<usize>, String)>);

impl Edits {
    fn replace(&mut self, range: Range<usize>, with: String) {
        self.0.insert(range.start, (range, with));
    }

    fn apply(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for (range, with) in self.0.into_values() {
            out.push_str(&text[done..range.start]);
            out.push_str(&with);
            done = range.end;
        }
        out.push_str(&text[done..]);
        out
    }
}

struct Inliner<'t> {
    library: Library<'t>,
    defined: HashSet<String>,
    depth: usize,
}

impl<'t> Inliner<'t> {
    // The text of a schema for the place that `scope` describes.
    fn schema(&mut self, text: &'t str, scope: Scope<'_>) -> Result<String, SchemaError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let place = "a schema with references".to_owned();
            return Err(SchemaError::Malformed { place, reason: "types are nested too deeply" });
        }
        let mut edits = Edits::default();
        match shape(text)? {
            Shape::Other => {}
            Shape::Name(name) => {
                let answer = self.name(text, &name, scope);
                self.depth -= 1;
                return answer;
            }
            Shape::Around(inner) => self.child(text, inner, scope, &mut edits)?,
            Shape::Union(branches) => {
                for branch in branches {
                    self.child(text, branch, scope, &mut edits)?;
                }
            }
            Shape::Named { name, namespace, fields } => {
                let full = full_name(&name, namespace.as_deref(), scope.source);
                if !self.defined.insert(full.clone()) {
                    self.depth -= 1;
                    return Ok(quoted(&full));
                }
                if scope.source != scope.output && namespace.is_none() && !name.contains('.') {
                    edits.replace(1..1, format!("\"namespace\":{},", quoted(scope.source)));
                }
                let space = namespace_of(&full);
                for field in fields {
                    self.child(text, field, Scope { source: space, output: space }, &mut edits)?;
                }
            }
        }
        self.depth -= 1;
        Ok(edits.apply(text))
    }

    fn child(
        &mut self,
        parent: &'t str,
        child: &'t RawValue,
        scope: Scope<'_>,
        edits: &mut Edits,
    ) -> Result<(), SchemaError> {
        let text = child.get();
        let answer = self.schema(text, scope)?;
        if answer != text {
            // `child` borrows from `parent`, so the distance of their addresses is where it begins.
            let start = text.as_ptr().addr() - parent.as_ptr().addr();
            edits.replace(start..start + text.len(), answer);
        }
        Ok(())
    }

    fn name(&mut self, text: &str, name: &str, scope: Scope<'_>) -> Result<String, SchemaError> {
        if is_primitive(name) {
            return Ok(text.to_owned());
        }
        let full = full_name(name, None, scope.source);
        // As in the Java library: a name without dots may also mean a type without a namespace.
        for candidate in [full.as_str(), name] {
            if self.defined.contains(candidate) {
                let unchanged = scope.source == scope.output || candidate == name;
                return Ok(if unchanged { text.to_owned() } else { quoted(candidate) });
            }
            if let Some(definition) = self.library.get(candidate) {
                let (text, enclosing) = (definition.text, definition.enclosing.clone());
                return self.schema(text, Scope { source: &enclosing, output: scope.output });
            }
        }
        Err(SchemaError::UnknownName { place: "a schema with references".to_owned(), name: full })
    }
}

fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::avro::Program;

    #[track_caller]
    fn check(schema: &str, references: &[&str], expected: &str) {
        let references: Vec<(&str, &str)> = references.iter().map(|text| ("ref", *text)).collect();
        let text = inline(schema, &references).unwrap();
        assert_eq!(text, expected);
        Program::compile(&text).unwrap();
    }

    #[track_caller]
    fn fault(schema: &str, references: &[&str]) -> SchemaError {
        let references: Vec<(&str, &str)> = references.iter().map(|text| ("ref", *text)).collect();
        inline(schema, &references).unwrap_err()
    }

    const F: &str = r#"{"type":"fixed","name":"x.F","size":2}"#;

    #[test]
    fn without_references_not_a_byte_changes() {
        let text = " {\"type\" : \"record\",\n \"name\":\"R\", \"n\": 1.50e1, \"fields\":[ ] }\n";
        check(text, &[], text);
        check(text, &[F], text);
    }

    #[test]
    fn the_first_use_is_defined_and_later_ones_are_names() {
        check(
            r#"{ "type":"record", "name":"R", "fields":[ {"name":"a", "default":1e1, "type":"x.F"},{"name":"b","type":["null", "x.F"]}] }"#,
            &[F],
            &format!(
                r#"{{ "type":"record", "name":"R", "fields":[ {{"name":"a", "default":1e1, "type":{F}}},{{"name":"b","type":["null", "x.F"]}}] }}"#
            ),
        );
        check(" \"x.F\"\n", &[F], &format!(" {F}\n"));
        check(r#"["null","x.F"]"#, &[F], &format!(r#"["null",{F}]"#));
        check(
            r#"{"type":"array","items":{"type":"map","values":{"type":"x.F","note":1}}}"#,
            &[F],
            &format!(r#"{{"type":"array","items":{{"type":"map","values":{{"type":{F},"note":1}}}}}}"#),
        );
    }

    #[test]
    fn references_are_followed_whatever_their_order() {
        let b = r#"{"type":"record","name":"x.B","fields":[{"name":"f","type":"F"}]}"#;
        let expected = r#"{"type":"record","name":"x.B","fields":[{"name":"f","type":{"type":"fixed","name":"x.F","size":2}}]}"#;
        check("\"x.B\"", &[b, F], expected);
        check("\"x.B\"", &[F, b], expected);
        // A diamond: F is defined where it comes first.
        let c = r#"{"type":"record","name":"x.C","fields":[{"name":"f","type":"x.F"}]}"#;
        check(r#"["x.B","x.C"]"#, &[F, b, c], &format!("[{expected},{c}]"));
    }

    #[test]
    fn inner_types_of_references_can_be_used_too() {
        let outer = r#"{"type":"record","name":"x.O","fields":[{"name":"f","type":{"type":"fixed","name":"I","size":1}}]}"#;
        check(r#"["x.O","x.I"]"#, &[outer], &format!(r#"[{outer},"x.I"]"#));
        check(
            r#"["x.I","x.O"]"#,
            &[outer],
            r#"[{"namespace":"x","type":"fixed","name":"I","size":1},{"type":"record","name":"x.O","fields":[{"name":"f","type":"x.I"}]}]"#,
        );
    }

    #[test]
    fn a_type_keeps_its_namespace_where_it_is_put() {
        let bare = r#"{"type":"enum","name":"E","symbols":["a"]}"#;
        check(
            r#"{"type":"record","name":"y.R","fields":[{"name":"a","type":"E"},{"name":"b","type":"E"}]}"#,
            &[bare],
            r#"{"type":"record","name":"y.R","fields":[{"name":"a","type":{"namespace":"","type":"enum","name":"E","symbols":["a"]}},{"name":"b","type":"E"}]}"#,
        );
        check(
            r#"{"type":"record","name":"y.R","fields":[{"name":"a","type":"x.F"},{"name":"b","type":"F"}]}"#,
            &[F, r#"{"type":"fixed","name":"F","namespace":"y","size":9}"#],
            &format!(
                r#"{{"type":"record","name":"y.R","fields":[{{"name":"a","type":{F}}},{{"name":"b","type":{{"type":"fixed","name":"F","namespace":"y","size":9}}}}]}}"#
            ),
        );
    }

    #[test]
    fn types_that_use_each_other_end() {
        let a = r#"{"type":"record","name":"A","fields":[{"name":"b","type":["null","B"]}]}"#;
        let b = r#"{"type":"record","name":"B","fields":[{"name":"a","type":["null","A"]}]}"#;
        check(
            "\"A\"",
            &[a, b],
            r#"{"type":"record","name":"A","fields":[{"name":"b","type":["null",{"type":"record","name":"B","fields":[{"name":"a","type":["null","A"]}]}]}]}"#,
        );
        let recursive = r#"{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}"#;
        check("\"L\"", &[recursive, recursive], recursive);
    }

    #[test]
    fn what_cannot_be_resolved_is_refused() {
        let unknown = fault(r#"{"type":"record","name":"y.R","fields":[{"name":"a","type":"G"}]}"#, &[F]);
        assert!(matches!(unknown, SchemaError::UnknownName { name, .. } if name == "y.G"));
        let other = F.replace('2', "3");
        assert!(matches!(fault("\"x.F\"", &[F, &other]), SchemaError::Redefined { name } if name == "x.F"));
        assert!(matches!(fault(&other, &[F]), SchemaError::Redefined { .. }));
        assert!(matches!(fault("\"x.F\"", &["{"]), SchemaError::Json { .. }));
        assert!(matches!(fault("{", &[F]), SchemaError::Json { .. }));
    }

    #[test]
    fn limits_hold() {
        let long = format!("\"{}\"", "x".repeat(MAX_TEXT));
        assert!(matches!(fault(&long, &[]), SchemaError::TooLarge { limit: MAX_TEXT, .. }));
        assert!(matches!(fault("\"x.F\"", &[&long]), SchemaError::TooLarge { limit: MAX_TEXT, .. }));
        let half = format!("\"{}\"", "x".repeat(MAX_TEXT / 2));
        assert!(matches!(fault("\"int\"", &[half.as_str(); 9]), SchemaError::TooLarge { .. }));
        let deep = format!("{}\"x.F\"{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(matches!(fault(&deep, &[F]), SchemaError::Malformed { .. }));
    }
}
