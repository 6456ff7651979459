//! Readers of single values.
//!
//! Owns: from a plain value to a typed one, or what is wrong with it.
//! Does not own: where the value stands.
//!
//! Variables give text only, so every reader takes its value as text too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fault::Problem;
use super::keys::nearest;
use super::tree::{Node, Value};
use super::units::{parse_duration, parse_size, show_duration, show_size};
use crate::model::Secret;

/// What a reader makes of a value.
pub(super) type Read<T> = Result<T, Problem>;

/// Text, not empty and without space around it.
pub(super) fn text(node: &Node) -> Read<String> {
    match &node.value {
        Value::Text(text) if !text.is_empty() && text.trim() == text => Ok(text.clone()),
        _ => Err(Problem::new(
            node.shown(),
            "text that is not empty",
            "Write it in quotes, without space around it.",
        )),
    }
}

/// Text that is never shown. Numbers are taken as their digits.
pub(super) fn secret(node: &Node) -> Read<Secret> {
    match &node.value {
        Value::Text(text) if !text.is_empty() => Ok(Secret::new(text.as_str())),
        Value::Integer(number) => Ok(Secret::new(number.to_string())),
        Value::Text(_) => Err(Problem::new("empty text", "a secret", "Is the variable or file empty?")),
        _ => Err(Problem::new(node.kind(), "a secret as text", "Write it as ${env:NAME} or ${file:path}.")),
    }
}

/// `true` or `false`.
pub(super) fn boolean(node: &Node) -> Read<bool> {
    match &node.value {
        Value::Boolean(value) => Ok(*value),
        Value::Text(text) if text == "true" => Ok(true),
        Value::Text(text) if text == "false" => Ok(false),
        _ => Err(Problem::new(node.shown(), "true or false", "Write one of the two.")),
    }
}

/// A whole number from `min` to `max`.
pub(super) fn integer(min: u64, max: u64) -> impl Fn(&Node) -> Read<u64> {
    move |node| {
        let number = match &node.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Text(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        number.filter(|number| (min..=max).contains(number)).ok_or_else(|| {
            let expected = format!("a whole number from {min} to {max}");
            Problem::new(node.shown(), expected, "Write a number in these bounds.")
        })
    }
}

/// A size from `min` to `max`; `why` gives the reason for the bounds.
pub(super) fn size(min: u64, max: u64, why: &'static str) -> impl Fn(&Node) -> Read<u64> {
    move |node| {
        let bytes = match &node.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Text(text) => parse_size(text),
            _ => None,
        };
        let expected = format!("a size from {} to {}", show_size(min), show_size(max));
        match bytes {
            Some(bytes) if (min..=max).contains(&bytes) => Ok(bytes),
            Some(_) => Err(Problem::new(node.shown(), expected, why)),
            None => Err(Problem::new(
                node.shown(),
                expected,
                "Write a whole number with B, KiB, MiB, GiB, TiB (powers of 1,024) or kB, MB, GB, TB (powers of 1,000); \
                 a bare number is bytes.",
            )),
        }
    }
}

/// A duration from `min` to `max`; `why` gives the reason for the bounds.
pub(super) fn duration(min: Duration, max: Duration, why: &'static str) -> impl Fn(&Node) -> Read<Duration> {
    move |node| {
        let expected = format!("a duration from {} to {}", show_duration(min), show_duration(max));
        match &node.value {
            Value::Text(text) => match parse_duration(text) {
                Some(duration) if (min..=max).contains(&duration) => Ok(duration),
                Some(_) => Err(Problem::new(node.shown(), expected, why)),
                None => Err(Problem::new(node.shown(), expected, UNITS)),
            },
            _ => Err(Problem::new(node.shown(), expected, UNITS)),
        }
    }
}

const UNITS: &str = "Write a whole number with its unit in quotes: ms, s, m, h or d, such as \"60s\".";

/// One of `known` words. Those in `later` belong to versions to come.
pub(super) fn choice<T: Copy>(known: &[(&'static str, T)], later: &[&str]) -> impl Fn(&Node) -> Read<T> {
    move |node| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let expected = match words.as_slice() {
            [one] => format!("{one:?}"),
            several => format!("one of {several:?}").replace(['[', ']'], ""),
        };
        let Value::Text(text) = &node.value else {
            return Err(Problem::new(node.shown(), expected, "Write the word in quotes."));
        };
        if let Some((_, value)) = known.iter().find(|(word, _)| word == text) {
            return Ok(*value);
        }
        let remedy = if later.contains(&text.as_str()) {
            format!("It is not available in this version; use {}.", words.join(" or "))
        } else if let Some(near) = nearest(text, words.iter().copied()) {
            format!("Did you mean {near:?}?")
        } else {
            "Write one of these words.".to_owned()
        };
        Err(Problem::new(node.shown(), expected, remedy))
    }
}

/// Texts: a list of them, or one text that separates them by commas.
pub(super) fn texts(node: &Node) -> Read<Vec<String>> {
    let wrong = || {
        Problem::new(
            node.shown(),
            "a list of texts, none of them empty",
            "Write [\"one\", \"two\"], or one text separated by commas.",
        )
    };
    let texts: Vec<String> = match &node.value {
        Value::Text(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
        Value::List(nodes) => nodes
            .iter()
            .map(|item| match &item.value {
                Value::Text(text) => Ok(text.clone()),
                _ => Err(Problem { found: format!("{} in the list", item.kind()), ..wrong() }),
            })
            .collect::<Read<_>>()?,
        _ => return Err(wrong()),
    };
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        return Err(Problem { found: "an empty list or an empty text in it".to_owned(), ..wrong() });
    }
    Ok(texts)
}

/// A path; a relative one starts at `folder`.
pub(super) fn path(folder: &Path) -> impl Fn(&Node) -> Read<PathBuf> {
    move |node| Ok(folder.join(text(node)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        Node::new("x", value)
    }

    fn of(text: &str) -> Node {
        node(Value::Text(text.to_owned()))
    }

    #[test]
    fn numbers_are_taken_as_text_too() {
        assert_eq!(integer(1, 9)(&of("5")).unwrap(), 5);
        assert_eq!(integer(1, 9)(&node(Value::Integer(5))).unwrap(), 5);
        assert!(boolean(&of("true")).unwrap());
        assert_eq!(size(1, 9, "")(&node(Value::Integer(9))).unwrap(), 9);
    }

    #[test]
    fn numbers_that_are_none_or_out_of_bounds_are_refused() {
        for text in ["", "0", "10", "-1", "+1", "1.0", "five", "99999999999999999999"] {
            assert!(integer(1, 9)(&of(text)).is_err(), "{text:?}");
        }
        for value in [
            Value::Float(f64::NAN),
            Value::Float(5.0),
            Value::Integer(-1),
            Value::Integer(i128::MAX),
            Value::Null,
            Value::Boolean(true),
            Value::List(vec![]),
        ] {
            assert!(integer(1, 9)(&node(value.clone())).is_err());
            assert!(size(1, 9, "")(&node(value.clone())).is_err());
            assert!(duration(Duration::ZERO, Duration::MAX, "")(&node(value)).is_err());
        }
    }

    #[test]
    fn secrets_are_not_in_problems() {
        let canary = Node { hidden: true, ..of("canary canary") };
        for problem in [
            integer(0, 1)(&canary).unwrap_err(),
            size(0, 1, "")(&canary).unwrap_err(),
            duration(Duration::ZERO, Duration::ZERO, "")(&canary).unwrap_err(),
            boolean(&canary).unwrap_err(),
            choice(&[("a", 1)], &[])(&canary).unwrap_err(),
        ] {
            assert!(!format!("{problem:?}").contains("canary"), "{problem:?}");
        }
    }
}
