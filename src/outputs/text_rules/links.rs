//! Where links may lead: to listed hosts by https, to the forge's own repository, and to places relative to the text.

use std::ops::Range;

use super::document::Document;
use super::live::{CODE, Live, Reading};
use super::rules::TextRules;
use super::violation::Finding;
use crate::outputs::MAX_LINKS;
use crate::text::percent_decode;

/// The longest address, in characters.
const MAX_ADDRESS: usize = 2_000;
/// The longest scheme.
const MAX_SCHEME: usize = 32;

/// Why an address is refused.
pub(super) struct Refusal {
    rule: &'static str,
    why: String,
}

fn refuse(rule: &'static str, why: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal { rule, why: why.into() })
}

const SCHEME_WHY: &str = "links may only begin with `https:` or `mailto:`, or be relative; put an address that is only shown \
                          in backticks";
const CHARACTERS_WHY: &str = "an address can't have backslashes, line breaks or tabs, nor spaces after `https:`: write \
                              `%20` for a space";

/// Checks the address of a link, decoded.
pub(super) fn check_destination(destination: &str, rules: &TextRules<'_>) -> Result<(), Refusal> {
    let compact = compact(destination);
    let decoded = self::compact(&percent_decode(&compact));
    if destination.chars().nth(MAX_ADDRESS).is_some() {
        return refuse("link-address", format!("an address can have {MAX_ADDRESS} characters"));
    }
    match scheme(&compact).map(|scheme| (scheme.to_ascii_lowercase(), &compact[scheme.len() + 1..])) {
        Some((scheme, _)) if scheme == "mailto" => {}
        Some((scheme, rest)) if scheme == "https" || scheme == "http" => {
            if destination.contains(|char: char| char == '\\' || char.is_whitespace() || char.is_control()) {
                return refuse("link-address", CHARACTERS_WHY);
            }
            let Some(rest) = rest.strip_prefix("//") else {
                return refuse("link-address", format!("`{scheme}:` must be followed by two slashes and a host"));
            };
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            return check_address(&scheme, &rest[..end], &rest[end..], rules);
        }
        Some(_) => return refuse("link-scheme", SCHEME_WHY),
        None if compact.starts_with("//") || decoded.starts_with("//") => {
            return refuse(
                "protocol-relative-link",
                "an address can't begin with two slashes: write `https://` and the host",
            );
        }
        None if scheme(&decoded).is_some() => return refuse("link-scheme", SCHEME_WHY),
        None if destination.contains(|char: char| char == '\\' || char.is_control()) => {
            return refuse("link-address", CHARACTERS_WHY);
        }
        None => {}
    }
    Ok(())
}

/// An address as browsers read it: without white space and control characters, with slashes for backslashes.
fn compact(address: &str) -> String {
    let visible = address.chars().filter(|char| !char.is_whitespace() && !char.is_control());
    visible.map(|char| if char == '\\' { '/' } else { char }).collect()
}

/// The scheme that an address begins with.
fn scheme(address: &str) -> Option<&str> {
    let end = address.find(|char: char| !char.is_ascii_alphanumeric() && !matches!(char, '+' | '.' | '-'))?;
    (address[end..].starts_with(':') && address.starts_with(|first: char| first.is_ascii_alphabetic()))
        .then(|| &address[..end])
}

/// Checks the parts of an address with a host.
fn check_address(scheme: &str, authority: &str, path: &str, rules: &TextRules<'_>) -> Result<(), Refusal> {
    if authority.contains('@') {
        return refuse(
            "link-userinfo",
            "an address can't have a user or a password before the host: leave out what is before `@`",
        );
    }
    let host = authority.to_lowercase();
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let host = host.strip_suffix(default_port).unwrap_or(&host);
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.is_empty() || host.starts_with(':') {
        return refuse("link-address", "the address has no host");
    }
    if let Some(own) = &rules.own {
        let server = own.server.trim_end_matches('/').to_ascii_lowercase();
        if server == format!("{scheme}://{host}") && is_below(path, own.repository) {
            return Ok(());
        }
    }
    if scheme != "https" {
        return refuse("link-scheme", SCHEME_WHY);
    }
    if rules.links.iter().any(|listed| is_listed(host, &listed.to_lowercase())) {
        return Ok(());
    }
    let allowed = if rules.links.is_empty() { "none".to_owned() } else { rules.links.join(", ") };
    let own = rules
        .own
        .as_ref()
        .map_or(String::new(), |own| format!(" and pages of {}/{}", own.server.trim_end_matches('/'), own.repository));
    refuse(
        "link-host",
        format!(
            "this host isn't listed; links may lead to relative places{own}, and these hosts: {allowed}. Put an address that \
                 is only shown in backticks"
        ),
    )
}

/// Whether a host is that of a list's entry: the same, or below it for `*.example.org`.
fn is_listed(host: &str, listed: &str) -> bool {
    let listed = listed.strip_suffix(":443").unwrap_or(listed);
    match listed.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|names| names.len() > 1 && names.ends_with('.')),
        None => host == listed,
    }
}

/// Whether a path is that of a repository or below it.
fn is_below(path: &str, repository: &str) -> bool {
    let path = path.find(['?', '#']).map_or(path, |end| &path[..end]);
    let Some(rest) = path.strip_prefix('/') else { return false };
    let Some((begins, rest)) = rest.split_at_checked(repository.len()) else { return false };
    let rest = rest.strip_prefix(".git").unwrap_or(rest);
    // A parser that doesn't know where the address ends passes on the punctuation behind it.
    let is_end =
        rest.chars().next().is_none_or(|next| next.is_ascii_punctuation() && !matches!(next, '-' | '_' | '.' | '%'));
    let leaves = rest
        .split(['/', '\\'])
        .any(|part| percent_decode(part).split(['/', '\\']).any(|part| matches!(part, "." | "..")));
    begins.eq_ignore_ascii_case(repository) && is_end && !leaves && !rest.contains('\\')
}

/// The host of the rules' own server.
fn own_host(rules: &TextRules<'_>) -> Option<String> {
    let (_, host) = rules.own.as_ref()?.server.split_once("://")?;
    Some(host.trim_end_matches('/').to_ascii_lowercase())
}

/// Whether texts may link to any page of the forge.
pub(super) fn is_forge_listed(rules: &TextRules<'_>) -> bool {
    let hosts =
        own_host(rules).map_or_else(|| vec!["github.com".to_owned(), "gitlab.com".to_owned()], |host| vec![host]);
    hosts.iter().any(|host| rules.links.iter().any(|listed| is_listed(host, &listed.to_lowercase())))
}

/// The addresses that a renderer makes links of by itself: `https://` and `www.` ones.
pub(super) struct Bare {
    /// Those that are allowed and begin with a scheme, as indexes.
    pub(super) allowed: Vec<Range<usize>>,
    /// The first that isn't.
    pub(super) refused: Option<Finding>,
    /// All that were found, by their first indexes.
    begins: Vec<usize>,
}

/// Finds the addresses in a text.
pub(super) fn bare_addresses(live: &Live, rules: &TextRules<'_>) -> Bare {
    let mut bare = Bare { allowed: Vec::new(), refused: None, begins: Vec::new() };
    let mut passed = 0;
    for index in 0..live.len() {
        if index < passed {
            continue;
        }
        let (begins, scheme, host) = match live.char(index) {
            ':' if live.char(index + 1) == '/' && live.char(index + 2) == '/' => match scheme_before(live, index) {
                Some(begins) => (begins, live.text(begins..index).to_ascii_lowercase(), index + 3),
                None => continue,
            },
            ':' if live.has_word(index.saturating_sub(4), "xmpp:") && !live.char(index + 1).is_whitespace() => {
                let why = SCHEME_WHY.to_owned();
                let (at, end) = (live.at(index.saturating_sub(4)), live.at(index + 1));
                bare.refused.get_or_insert(Finding { rule: "link-scheme", at, end, why });
                continue;
            }
            'w' | 'W' if begins_www(live, index) => (index, String::new(), index),
            _ => continue,
        };
        bare.begins.push(begins);
        if bare.begins.len() > 2 * MAX_LINKS {
            bare.refused = Some(one_too_many(live.at(begins)));
            return bare;
        }
        let is_bracketed = begins > 0 && live.char(begins - 1) == '<';
        let is_end = |char: char| char.is_whitespace() || matches!(char, '<' | CODE) || is_bracketed && char == '>';
        let end = piece_end(live, host, |char| !is_end(char));
        // Another address within this one is passed over only behind a host that every renderer takes for one.
        let host_ends = live.run(host, end - host, |char| char.is_alphanumeric() || "-.:".contains(char));
        let is_clear = host_ends == end || "/?#".contains(live.char(host_ends));
        let is_safe = |char: char| char.is_ascii_alphanumeric() || "-._~/?#&=%+@:,;!$".contains(char);
        passed = if is_clear { live.run(host, end - host, is_safe).max(host) } else { host_ends.max(host) };
        let checked = if scheme.is_empty() || scheme == "https" || scheme == "http" {
            check_bare(live, if scheme.is_empty() { "https" } else { &scheme }, host..end, rules)
        } else {
            refuse("link-scheme", SCHEME_WHY)
        };
        match checked {
            Ok(()) if scheme.is_empty() => {}
            Ok(()) => bare.allowed.push(begins..passed),
            Err(Refusal { rule, why }) => {
                bare.refused = Some(Finding { rule, at: live.at(begins), end: live.at(end), why });
                return bare;
            }
        }
    }
    bare
}

/// The end of the run of characters that fit, within the piece of text.
fn piece_end(live: &Live, begins: usize, fits: impl Fn(char) -> bool) -> usize {
    let rest = live.letters.get(begins..).unwrap_or_default();
    begins
        + rest.iter().enumerate().take_while(|(offset, it)| fits(it.char) && (*offset == 0 || !it.starts_piece)).count()
}

/// Where the scheme before a colon begins.
fn scheme_before(live: &Live, colon: usize) -> Option<usize> {
    let is_scheme = |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '.' | '-');
    let mut begins = colon;
    while begins > 0 && colon - begins < MAX_SCHEME && !live.starts_piece(begins) && is_scheme(live.char(begins - 1)) {
        begins -= 1;
    }
    (begins..colon).find(|index| live.char(*index).is_ascii_alphabetic())
}

fn begins_www(live: &Live, index: usize) -> bool {
    let is_inside = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '/' | '@');
    let begins = index + 4;
    live.has_word(index, "www.")
        && !live.before(index).is_some_and(is_inside)
        && live.char(live.run(begins, MAX_ADDRESS, |char| char.is_ascii_punctuation() && char != '<')).is_alphanumeric()
}

/// Punctuation that renderers leave out at the end of an address.
const ENDS: &str = "!,;*~'\")]}|";

/// Checks an address in a text, from its host to where it ends at the latest.
fn check_bare(live: &Live, scheme: &str, range: Range<usize>, rules: &TextRules<'_>) -> Result<(), Refusal> {
    let hard = live.run(range.start, range.len(), |char| !matches!(char, '/' | '?' | '#' | '\\'));
    if hard < range.end && live.char(hard) == '\\' {
        return refuse("link-address", CHARACTERS_WHY);
    }
    let is_host = |char: char| !char.is_ascii_punctuation() || matches!(char, '.' | '-' | '_' | ':' | '@' | '%');
    let soft = live.run(range.start, hard - range.start, is_host);
    let host = live.text(range.start..soft);
    // Parsers differ in where a host ends. What one of them would still take for the host must not be another one.
    let rest = live.text(soft..hard);
    let goes_on = rest.starts_with(|next| !ENDS.contains(next))
        || rest.contains('@')
        || rest.match_indices('.').any(|(at, _)| rest[at + 1..].starts_with(char::is_alphanumeric));
    if goes_on && !host.is_empty() {
        return refuse("link-host", "it isn't clear where this host ends: put a space after the address");
    }
    let path = if rest.is_empty() { live.text(hard..range.end) } else { String::new() };
    let trailing = |char: char| char.is_ascii_punctuation() && !matches!(char, '/' | '-');
    check_address(scheme, host.trim_end_matches(['.', '_', ':']), path.trim_end_matches(trailing), rules)
}

/// Finds what is wrong with a text's links.
pub(super) fn check(document: &Document<'_>, rules: &TextRules<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for view in &document.views {
        let finding = view.links.iter().find_map(|link| {
            let refusal = if link.has_title {
                Refusal { rule: "link-title", why: TITLE_WHY.to_owned() }
            } else {
                check_destination(&link.destination, rules).err()?
            };
            Some(Finding { rule: refusal.rule, at: link.range.start, end: link.range.end, why: refusal.why })
        });
        findings.extend(finding);
        findings.extend(view.images.first().map(|range| image(range.start)));
        findings.extend(view.definitions.first().map(|range| definition(range.start)));
    }
    findings.extend(check_source(document, rules));
    findings
}

const TITLE_WHY: &str = "a link can't have a title, which only shows under the mouse: leave it out";

fn image(at: usize) -> Finding {
    let why = "images are loaded when the text is read: leave it out, link to it, or put `![` in backticks".to_owned();
    Finding { rule: "image", at, end: at + 2, why }
}

fn definition(at: usize) -> Finding {
    let why =
        "a line that begins with `[name]:` defines a link and isn't shown: write the address where the link is, or \
               begin the line with something else"
            .to_owned();
    Finding { rule: "link-definition", at, end: at + 1, why }
}

/// Finds images, definitions and the addresses of links without a parser.
fn check_source(document: &Document<'_>, rules: &TextRules<'_>) -> Vec<Finding> {
    let source = document.source;
    let mut findings = Vec::new();
    let live = |(at, _): &(usize, &str)| !document.is_code(*at);
    findings.extend(source.match_indices("![").find(live).map(|(at, _)| image(at)));
    findings.extend(source.match_indices("](").filter(live).find_map(|(at, _)| check_tail(source, at, rules)));
    // A bracket at the beginning of a line that can be that of a definition.
    let mut open = None;
    for line in &document.lines {
        let text = &source[line.clone()];
        let prefix = super::lines::prefix(text).length;
        let text = &text[prefix..];
        if text.is_empty() {
            open = None;
        }
        if text.starts_with('[') && !text.starts_with("[^") {
            open = Some(line.start + prefix);
        }
        for (at, _) in text.match_indices(']') {
            let is_definition = text[at + 1..].starts_with(':') && !document.is_code(line.start + prefix + at);
            if is_definition && let Some(open) = open {
                findings.push(definition(open));
                return findings;
            }
            if !text[..at].ends_with('\\') {
                open = None;
            }
        }
    }
    findings
}

/// Checks the address after `](`, whether or not a parser sees a link there.
fn check_tail(source: &str, at: usize, rules: &TextRules<'_>) -> Option<Finding> {
    let inside = &source[at + 2..];
    let begins = at + 2 + (inside.len() - inside.trim_start().len());
    let rest = &source[begins..];
    let (address, behind) = match rest.strip_prefix('<') {
        Some(rest) => rest.split_at(rest.find(['>', '\n']).unwrap_or(rest.len())),
        None => rest.split_at(address_length(rest)),
    };
    let decoded = Live::of_source(address, |_| false, Reading::Unescaped);
    let refusal = check_destination(&decoded.text(0..decoded.len()), rules).err().or_else(|| {
        let behind = behind.strip_prefix('>').unwrap_or(behind);
        let has_title = behind.trim_start().starts_with(['"', '\'', '(']) && behind.starts_with(char::is_whitespace);
        has_title.then(|| Refusal { rule: "link-title", why: TITLE_WHY.to_owned() })
    })?;
    Some(Finding { rule: refusal.rule, at: begins, end: begins + address.len(), why: refusal.why })
}

/// The length of an address in parentheses, up to white space, or a parenthesis that isn't opened in it.
fn address_length(text: &str) -> usize {
    let mut depth = 0;
    for (at, char) in text.char_indices().take(MAX_ADDRESS + 1) {
        match char {
            '(' => depth += 1,
            ')' if depth == 0 => return at,
            ')' => depth -= 1,
            char if char.is_whitespace() => return at,
            _ => {}
        }
    }
    text.char_indices().nth(MAX_ADDRESS + 1).map_or(text.len(), |(at, _)| at)
}

/// Finds the link that is one too many.
pub(super) fn too_many(document: &Document<'_>, rules: &TextRules<'_>) -> Option<Finding> {
    let view = document.views.first()?;
    let bare = bare_addresses(&view.live, rules);
    let in_link = |index: usize| {
        let after = view.linked.partition_point(|link| link.start <= index);
        after.checked_sub(1).and_then(|link| view.linked.get(link)).is_some_and(|link| link.contains(&index))
    };
    let bare = bare.begins.iter().filter(|index| !in_link(**index)).map(|index| view.live.at(*index));
    let mut links: Vec<usize> = view.links.iter().map(|link| link.range.start).chain(bare).collect();
    links.sort_unstable();
    let raw = document.source.match_indices("](").map(|(at, _)| at).filter(|at| !document.is_code(*at));
    Some(one_too_many(*links.get(MAX_LINKS).or(raw.collect::<Vec<_>>().get(2 * MAX_LINKS))?))
}

fn one_too_many(at: usize) -> Finding {
    let why = format!("a text can have {MAX_LINKS} links: leave some out");
    Finding { rule: "too-many-links", at, end: at + 1, why }
}

/// Finds an address that isn't allowed in code that forges draw as a diagram, a map or a formula.
pub(super) fn check_drawn(code: &str, begins: usize, rules: &TextRules<'_>) -> Option<Finding> {
    let live = Live::verbatim(code, begins);
    if let Some(refused) = bare_addresses(&live, rules).refused {
        return Some(refused);
    }
    let lower = code.to_ascii_lowercase();
    let script = ["javascript:", "vbscript:", "data:", "file:"].iter().filter_map(|scheme| lower.find(scheme)).min();
    let relative = ["\"//", "'//", "(//", "{//", "[//", "\"/\\"].iter().filter_map(|slashes| code.find(slashes)).min();
    let (at, rule, why) = match (script, relative) {
        (Some(at), _) => (at, "link-scheme", SCHEME_WHY.to_owned()),
        (None, Some(at)) => (at, "protocol-relative-link", "an address can't begin with two slashes".to_owned()),
        (None, None) => return None,
    };
    Some(Finding { rule, at: begins + at, end: begins + at + 12, why })
}
