//! What a text that a model proposes may contain. A text is refused, never rewritten: whatever is rewritten has holes and
//! damages code.
//!
//! The text is read by a Markdown parser, as several forges configure theirs, and by scanners that know no Markdown. What one
//! of them sees counts. Code is what all of them call code, and free of most rules.

mod code;
mod commands;
mod document;
mod entities;
mod hidden;
mod html;
mod lines;
mod links;
mod live;
mod references;
mod rules;
mod violation;

#[cfg(test)]
mod tests;

pub use rules::{OwnRepository, TextRules};
pub use violation::Violation;

use document::Document;
use live::{Live, Reading};
use violation::Finding;

use super::{MAX_BODY_CHARS, MAX_TITLE_CHARS};

/// How a text is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// As Markdown.
    Body,
    /// As one line, which can also become that of a commit.
    Title,
    /// As the message of a commit, in which nothing is code.
    Message,
}

/// The deepest nesting of quotes and lists.
const MAX_DEPTH: usize = 50;

/// Checks a text of Markdown, such as a comment.
///
/// # Errors
/// The first place that breaks a rule.
pub fn check_body(text: &str, rules: &TextRules<'_>) -> Result<(), Violation> {
    check(text, 0, Use::Body, rules)
}

/// Checks a title, which is published behind the prefix of the job.
///
/// # Errors
/// The first place that breaks a rule. What the prefix breaks is reported at the beginning of the title.
pub fn check_title(title: &str, prefix: &str, rules: &TextRules<'_>) -> Result<(), Violation> {
    // With a word before it, a Markdown parser doesn't take it for a heading, a list or a block of code.
    let before = format!("x {prefix}");
    let text = format!("{before}{title}");
    let length = prefix.chars().count() + title.chars().count();
    let finding = if title.trim().is_empty() {
        Some(Finding { rule: "empty-title", at: 0, end: 0, why: "the title is empty: write one".to_owned() })
    } else if prefix.contains(['\n', '\r']) {
        let why = "the prefix of the job has a line break, and a title is one line".to_owned();
        Some(Finding { rule: "line-break", at: before.len(), end: text.len(), why })
    } else if let Some(at) = title.find(['\n', '\r']) {
        let at = before.len() + at;
        let why = "a title is one line: leave out the line break".to_owned();
        Some(Finding { rule: "line-break", at, end: at, why })
    } else if length > MAX_TITLE_CHARS {
        let fits = MAX_TITLE_CHARS.saturating_sub(prefix.chars().count());
        let at = before.len() + title.char_indices().nth(fits).map_or(title.len(), |(at, _)| at);
        let why =
            format!("a title can have {fits} characters here, and this one has {}: shorten it", title.chars().count());
        Some(Finding { rule: "too-long", at, end: text.len(), why })
    } else {
        None
    };
    match finding {
        Some(finding) => Err(finding.into_violation(&text, before.len())),
        None => check_body_start(title, rules).and_then(|()| check(&text, before.len(), Use::Title, rules)),
    }
}

/// A title can begin with a command, too.
fn check_body_start(title: &str, rules: &TextRules<'_>) -> Result<(), Violation> {
    let finding = commands::quick_action(&Document::new(title), rules);
    finding.map_or(Ok(()), |finding| Err(finding.into_violation(title, 0)))
}

/// Checks the message of a commit. Forges don't read Markdown in it, so that keywords count in code, too.
///
/// # Errors
/// The first place that breaks a rule.
pub fn check_message(message: &str, rules: &TextRules<'_>) -> Result<(), Violation> {
    check(message, 0, Use::Message, rules)
}

/// Checks a text, of which the first `hidden` bytes aren't the model's.
fn check(text: &str, hidden: usize, how: Use, rules: &TextRules<'_>) -> Result<(), Violation> {
    let finding = match too_big(text) {
        Some(finding) => Some(finding),
        None => first_finding(text, how, rules),
    };
    finding.map_or(Ok(()), |finding| Err(finding.into_violation(text, hidden)))
}

/// What must be refused before the text is parsed.
fn too_big(text: &str) -> Option<Finding> {
    if let Some((at, _)) = text.char_indices().nth(MAX_BODY_CHARS) {
        let why = format!("a text can have {MAX_BODY_CHARS} characters: shorten it");
        return Some(Finding { rule: "too-long", at, end: at, why });
    }
    lines::lines(text).into_iter().find_map(|line| {
        let why = format!("quotes and lists can be nested {MAX_DEPTH} deep");
        let depth = lines::prefix(&text[line.clone()]).depth;
        (depth > MAX_DEPTH).then_some(Finding { rule: "too-deep", at: line.start, end: line.start, why })
    })
}

/// The first place that breaks a rule; of several at one place, that of the rule that is checked first.
fn first_finding(text: &str, how: Use, rules: &TextRules<'_>) -> Option<Finding> {
    let document = Document::new(text);
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(hidden::reserved_text(text));
    findings.extend(hidden::hidden_character(&Live::verbatim(text, 0)));
    if how == Use::Body {
        findings.extend(front_matter(&document));
    }
    findings.extend(unclear_code(&document));
    findings.extend(quote_fence(&document));
    findings.extend(html::check(&document));
    findings.extend(links::check(&document, rules));
    findings.extend(links::too_many(&document, rules));
    findings.extend(drawn_code(&document, rules));
    findings.extend(commands::quick_action(&document, rules));
    if how == Use::Message {
        findings.extend(mark_of_a_commit(&document));
    }
    let is_hidden = |at| document.is_code(at) || document.is_address(at);
    let readings = [Reading::Plain, Reading::Decoded, Reading::Unescaped];
    let sources = readings.map(|reading| Live::of_source(text, is_hidden, reading));
    for live in sources.iter().chain(document.views.iter().map(|view| &view.live)) {
        findings.extend(check_live(live, rules));
    }
    if how != Use::Body {
        findings.extend(references::closing(&Live::verbatim(text, 0), rules));
    }
    findings.into_iter().min_by_key(|finding| finding.at)
}

/// Finds what is wrong in a text without code.
fn check_live(live: &Live, rules: &TextRules<'_>) -> Vec<Finding> {
    let bare = links::bare_addresses(live, rules);
    let findings = [
        hidden::hidden_character(live),
        references::mention(live, &bare.allowed, rules),
        references::closing(live, rules),
        references::other_repository(live, &bare.allowed, rules),
        commands::expression(live),
        bare.refused,
    ];
    findings.into_iter().flatten().collect()
}

/// Finds settings at the beginning of a text, which GitLab doesn't show, and after which code could begin elsewhere.
fn front_matter(document: &Document<'_>) -> Option<Finding> {
    let mut lines = document.lines.iter().filter(|line| !document.source[(*line).clone()].trim().is_empty());
    let first = lines.next()?;
    let is_coding = document.source[first.clone()].contains("coding:");
    let line = if is_coding { lines.next()? } else { first };
    let begins = ["---", "+++", ";;;"].iter().any(|mark| document.source[line.clone()].trim_start().starts_with(mark));
    let why =
        "a text that begins with this line begins with settings, which aren't shown: begin it with something else";
    begins.then(|| Finding { rule: "front-matter", at: line.start, end: line.end, why: why.to_owned() })
}

/// Finds code that other renderers could end elsewhere.
fn unclear_code(document: &Document<'_>) -> Option<Finding> {
    let parsed = document.parsed_fences();
    let raw: Vec<(usize, usize)> = document.raw.fences.iter().map(|fence| (fence.first, fence.last)).collect();
    let different =
        parsed.iter().zip(&raw).find(|(parsed, raw)| parsed != raw).map(|(parsed, raw)| parsed.0.min(raw.0));
    let surplus = parsed.get(raw.len()..).into_iter().chain(raw.get(parsed.len()..)).flatten().next();
    let unclear = different.or(surplus.map(|(first, _)| *first));
    let open = document.raw.fences.iter().find(|fence| !fence.is_closed).map(|fence| fence.first);
    let (line, rule, why) = match (unclear, open) {
        (Some(unclear), open) if open.is_none_or(|open| unclear < open) => (
            unclear,
            "unclear-code",
            "renderers would disagree about where this code begins and ends: give it a fence of its own, with an empty line \
             before it, and end it with the same fence at the same indentation",
        ),
        (_, Some(open)) => (open, "unclosed-fence", "this code isn't ended: add the same fence after it"),
        _ => return None,
    };
    let range = document.lines[line].clone();
    let at = range.start + lines::prefix(&document.source[range.clone()]).length.min(range.len());
    Some(Finding { rule, at, end: range.end, why: why.to_owned() })
}

/// Finds a line that begins or ends a quote on GitLab, and ends code that other renderers don't end there.
fn quote_fence(document: &Document<'_>) -> Option<Finding> {
    let line = document.lines.iter().find(|line| {
        let text = document.source[(*line).clone()].trim();
        text.len() >= 3 && text.bytes().all(|byte| byte == b'>') && !document.is_code(line.end.saturating_sub(1))
    })?;
    let why =
        "some forges read this line as the beginning or the end of a quote: begin each line of the quote with `>`";
    Some(Finding { rule: "quote-fence", at: line.start, end: line.end, why: why.to_owned() })
}

/// What a forge does with a fenced block of some languages: it draws it, with its links, instead of showing it.
const DRAWN: &[&str] = &[
    "mermaid",
    "math",
    "geojson",
    "topojson",
    "stl",
    "dot",
    "graphviz",
    "d2",
    "blockdiag",
    "seqdiag",
    "actdiag",
    "nwdiag",
    "packetdiag",
    "rackdiag",
    "bpmn",
    "bytefield",
    "c4plantuml",
    "ditaa",
    "dbml",
    "erd",
    "excalidraw",
    "nomnoml",
    "pikchr",
    "structurizr",
    "svgbob",
    "symbolator",
    "tikz",
    "umlet",
    "vega",
    "vegalite",
    "wavedrom",
    "wireviz",
];
/// Languages in which a block would do more than that: show other Markdown, ask the forge, read files.
const LIVE: &[&str] = &["json:table", "glql", "plantuml", "puml", "kroki"];

/// Finds what isn't allowed in code that forges draw.
fn drawn_code(document: &Document<'_>, rules: &TextRules<'_>) -> Option<Finding> {
    let source = document.source;
    let blocks = document.views.iter().flat_map(|view| &view.blocks);
    let blocks = blocks.filter_map(|block| {
        let info = block.info.as_deref()?.to_ascii_lowercase();
        let name = info.split([' ', '\t', ',', '{']).find(|word| !word.is_empty())?;
        if LIVE.iter().any(|live| name.starts_with(live)) {
            let why = "some forges run blocks of this language instead of showing them: leave the name out".to_owned();
            return Some(Finding {
                rule: "live-code",
                at: block.range.start,
                end: block.range.start + 3 + name.len(),
                why,
            });
        }
        let is_drawn = DRAWN.contains(&name.split(':').next().unwrap_or(name));
        is_drawn.then(|| links::check_drawn(&source[block.range.clone()], block.range.start, rules)).flatten()
    });
    let spans = document.views.iter().flat_map(|view| &view.spans).filter_map(|span| {
        let is_formula = source[..span.start].ends_with('$') && source[span.end..].starts_with('$');
        is_formula.then(|| links::check_drawn(&source[span.clone()], span.start, rules)).flatten()
    });
    blocks.chain(spans).min_by_key(|finding| finding.at)
}

/// Finds the trailer by which published commits are known.
fn mark_of_a_commit(document: &Document<'_>) -> Option<Finding> {
    let line = document.lines.iter().find(|line| {
        let word = document.source[(*line).clone()].trim_start();
        let name = word.split(':').next().unwrap_or_default();
        word.contains(':') && name.trim_end().eq_ignore_ascii_case("legwork")
    })?;
    let why = "this is a mark of legwork, which only `legwork publish` writes: leave it out".to_owned();
    Some(Finding { rule: "mark", at: line.start, end: line.end, why })
}
