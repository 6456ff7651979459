//! The page for people: what `/readyz` and `/status` say, as a table.

use std::fmt::Write as _;

use super::About;
use crate::telemetry::{PartitionState, Telemetry};

pub(super) fn render(about: &About, telemetry: &Telemetry) -> String {
    let mut html = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5><title>blobfeed</title>\
         <style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.3em .8em;\
         border-bottom:1px solid #ccc;text-align:left}.n{text-align:right}.bad{color:#b00}</style>",
    );
    let _ = write!(html, "<h1>blobfeed: {}</h1>", escape(&about.plan));
    let reasons = telemetry.health.reasons();
    if reasons.is_empty() {
        html.push_str("<p>ready</p>");
    } else {
        html.push_str("<ul class=bad>");
        for r in reasons {
            let _ = write!(html, "<li>{}: {} ({} s)", escape(&r.subject), escape(&r.reason), r.seconds);
        }
        html.push_str("</ul>");
    }
    html.push_str(
        "<table><tr><th>topic<th>partition<th>goes to<th>state<th>position<th>committed<th>persisted\
         <th>uncommitted records<th>open blobs",
    );
    for status in telemetry.status.snapshot().values() {
        let number = |n: Option<i64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let (state, class) = match &status.state {
            PartitionState::Resolving => ("resolving".to_owned(), ""),
            PartitionState::Reading => ("reading".to_owned(), ""),
            PartitionState::Waiting(reason) => (format!("waiting: {reason}"), ""),
            PartitionState::Failed(reason) => (format!("stopped: {reason}"), " class=bad"),
            PartitionState::Leaving => ("leaving".to_owned(), ""),
        };
        let _ = write!(
            html,
            "<tr><td>{}<td class=n>{}<td>{}<td{class}>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}\
             <td class=n>{}",
            escape(&status.topic),
            status.partition,
            escape(&status.target),
            escape(&state),
            number(status.position),
            number(status.committed),
            number(status.persisted),
            status.uncommitted_records,
            status.open_blobs,
        );
    }
    html.push_str(
        "</table><p><a href=/status>status</a> <a href=/metrics>metrics</a> <a href=/readyz>readyz</a>",
    );
    html
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::PartitionStatus;

    #[test]
    fn text_from_records_and_plans_stays_text() {
        let telemetry = Telemetry::new();
        telemetry.health.raise("<b>", "\"<script>\"");
        let status = PartitionStatus {
            feed: "f".into(),
            topic: "<i>t".into(),
            partition: 0,
            target: "c/s".into(),
            state: PartitionState::Failed("</td><script>".into()),
            position: None,
            committed: None,
            persisted: None,
            lag: None,
            uncommitted_records: 0,
            open_blobs: 0,
            oldest_uncommitted_seconds: None,
        };
        telemetry.status.set("k", status);
        let html = render(&About { plan: "<p>".into() }, &telemetry);
        for raw in ["<b>", "<script>", "<i>t", "<p></h1>"] {
            assert!(!html.contains(raw), "{raw} in {html}");
        }
    }
}
