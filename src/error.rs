//! What kind of thing went wrong, as far as somebody must act on it.
//!
//! Owns: the classes that every error enum of this crate maps itself to.
//! Does not own: messages; those belong to the module that knows what happened.

/// What to do about an error. The runtime acts on the class alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The same call may succeed later: wait with backoff, keep everything, try again.
    Retry,
    /// Permission is missing. Refresh credentials once, then try again slowly; a person must act.
    Denied,
    /// Another writer owns what we thought was ours: drop what is open and resume from what is stored.
    Lost,
    /// The plan asks for something that can never work; fix it and start again.
    BadPlan,
    /// The data is at fault: this record or partition stops, others go on.
    BadData,
    /// An invariant of blobfeed is broken: stop the partition and report it.
    Bug,
}

impl Class {
    /// Whether waiting alone may heal it.
    pub fn is_transient(self) -> bool {
        matches!(self, Class::Retry | Class::Denied)
    }
}

/// An error with all its sources on one line, outermost first.
///
/// Sources that only repeat what their parent has already said are left out.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let message = inner.to_string();
        if !message.is_empty() && !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = inner.source();
    }
    text
}
