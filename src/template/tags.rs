//! Finds the tags of a text, and the tags that are too long to be parsed.

use std::ops::Range;

use minijinja::machinery::{Token, parse, tokenize};

use super::TemplateVariables;

/// Tags that open a block. `end` and the same word close it.
pub(super) const BLOCKS: &[&str] = &["if", "for", "macro", "call", "filter", "block", "with", "autoescape", "set"];

/// Tags that don't open a block.
pub(super) const OTHERS: &[&str] = &["elif", "else", "include", "import", "from", "extends", "do", "raw", "endraw"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagKind {
    Variable,
    Block,
    Comment,
}

/// Whether a text may hold a tag or a comment.
pub(super) fn has_tags(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|tag| text.contains(tag))
}

/// A tag with its braces.
#[derive(Debug, Clone)]
pub(super) struct Tag {
    pub(super) kind: TagKind,
    pub(super) range: Range<usize>,
    pub(super) is_closed: bool,
}

impl Tag {
    /// What is between the braces, without the signs that trim white space.
    pub(super) fn content<'a>(&self, text: &'a str) -> &'a str {
        let whole = &text[self.range.clone()];
        let end = if self.is_closed { whole.len() - 2 } else { whole.len() };
        whole[2..end.max(2)].trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim()
    }
}

/// All tags of a text, in order. There are none between `{% raw %}` and `{% endraw %}`.
pub(super) fn tags(text: &str) -> Vec<Tag> {
    let (mut tags, mut from, mut comments_end) = (Vec::new(), 0, true);
    while let Some((start, kind)) = opening(text, from) {
        let close = match kind {
            TagKind::Variable => "}}",
            TagKind::Block => "%}",
            TagKind::Comment => "#}",
        };
        let end = match kind {
            TagKind::Comment if !comments_end => None,
            TagKind::Comment => text[start + 2..].find(close).map(|end| start + 2 + end + 2),
            _ => end_of_tag(text, start + 2, close),
        };
        // If this comment doesn't end, no later one does.
        comments_end &= kind != TagKind::Comment || end.is_some();
        from = end.unwrap_or(start + 2);
        let shown = || {
            let next = opening(text, start + 2).map_or(text.len(), |(next, _)| next);
            text[start..next].find('\n').map_or(next, |end| start + end)
        };
        let tag = Tag { kind, range: start..end.unwrap_or_else(shown), is_closed: end.is_some() };
        if kind == TagKind::Block && tag.content(text) == "raw" {
            from = end_of_raw(text, from).unwrap_or(text.len());
        }
        tags.push(tag);
    }
    tags
}

/// The tags for one of the job's variables that are written as in GitHub's workflows, `${{ inputs.x }}`, with their `$`.
pub(super) fn tags_after_dollar(text: &str) -> Vec<Range<usize>> {
    let is_of_job = |tag: &Tag| {
        let word = first_word(tag.content(text));
        word == "inputs" || TemplateVariables::is_late(word) || TemplateVariables::parts(word).is_some()
    };
    let found = tags(text)
        .into_iter()
        .filter(|tag| tag.kind == TagKind::Variable && text[..tag.range.start].ends_with('$') && is_of_job(tag));
    found.map(|tag| tag.range.start - 1..tag.range.end).collect()
}

fn opening(text: &str, from: usize) -> Option<(usize, TagKind)> {
    let found = text.as_bytes()[from..].windows(2).position(|pair| matches!(pair, b"{{" | b"{%" | b"{#"))?;
    let kind = match text.as_bytes()[from + found + 1] {
        b'{' => TagKind::Variable,
        b'%' => TagKind::Block,
        _ => TagKind::Comment,
    };
    Some((from + found, kind))
}

/// The end of a tag; closing braces within strings and brackets don't count. `None` if another tag begins first.
fn end_of_tag(text: &str, from: usize, close: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut quote, mut depth, mut at) = (None, 0_usize, from);
    while at < bytes.len() {
        let byte = bytes[at];
        match quote {
            Some(open) if byte == open => quote = None,
            Some(_) if byte == b'\\' => at += 1,
            Some(_) => {}
            None if depth == 0 && bytes[at..].starts_with(close.as_bytes()) => return Some(at + 2),
            None if matches!(&bytes[at..], [b'{', b'{' | b'%' | b'#', ..]) => break,
            None if matches!(byte, b'"' | b'\'') => quote = Some(byte),
            None if matches!(byte, b'{' | b'[' | b'(') => depth += 1,
            None if matches!(byte, b'}' | b']' | b')') => depth = depth.saturating_sub(1),
            None => {}
        }
        at += 1;
    }
    // The missing character may be a quote or a bracket.
    let next = opening(text, from).map_or(text.len(), |(next, _)| next);
    text[from..next].find(close).map(|end| from + end + 2)
}

pub(super) fn end_of_raw(text: &str, from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let start = at + text[at..].find("{%")?;
        let end = start + 2 + text[start + 2..].find("%}")? + 2;
        if is_tag_of(&text[start..end], "endraw") {
            return Some(start);
        }
        at = start + 2;
    }
}

/// Whether a text is a block tag of one word, such as `{% raw %}`.
pub(super) fn is_tag_of(text: &str, word: &str) -> bool {
    let content = text.strip_prefix("{%").and_then(|text| text.strip_suffix("%}"));
    let is_around = |letter: char| letter.is_whitespace() || matches!(letter, '-' | '+');
    content.is_some_and(|content| content.trim_matches(is_around) == word)
}

/// A template tag in a text that isn't a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrayTag {
    /// The tag with its braces.
    pub range: Range<usize>,
    /// What it was meant to do.
    pub purpose: TagPurpose,
}

/// What a tag in a text that isn't a template was meant to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagPurpose {
    /// To print one variable: `inputs.topic`.
    Variable(String),
    /// To print an expression with a variable of the job.
    Expression,
    /// To print an expression without variables of the job. It may belong to another program's template language.
    Other,
    /// A statement or a comment.
    Statement,
}

/// The tags of a text that would be valid in a template. Other languages use such braces as well, as in
/// `docker ps --format {{.Names}}` or `${#array[@]}`; those aren't valid here.
pub fn stray_tags(text: &str) -> Vec<StrayTag> {
    let purpose = |tag: &Tag| {
        let source = &text[tag.range.clone()];
        match tag.kind {
            TagKind::Variable => parse(source, "", Default::default()).is_ok().then(|| expression_purpose(source)),
            TagKind::Block => {
                let word = first_word(tag.content(text));
                let is_known = BLOCKS.contains(&word.strip_prefix("end").unwrap_or(word)) || OTHERS.contains(&word);
                is_known.then_some(TagPurpose::Statement)
            }
            // `${#array[@]}` and `${name#}` are bash's.
            TagKind::Comment => {
                let inside = &source[2..source.len() - 2];
                let is_spaced = inside.starts_with(char::is_whitespace) && inside.ends_with(char::is_whitespace);
                is_spaced.then_some(TagPurpose::Statement)
            }
        }
    };
    let closed = tags(text).into_iter().filter(|tag| tag.is_closed);
    closed.filter_map(|tag| Some(StrayTag { purpose: purpose(&tag)?, range: tag.range })).collect()
}

fn expression_purpose(tag: &str) -> TagPurpose {
    let tokens: Vec<Token<'_>> =
        tokenize(tag, false, Default::default()).map_while(Result::ok).map(|(token, _)| token).collect();
    match tokens.as_slice() {
        [_, Token::Ident(root), Token::Dot, Token::Ident(name), _] if TemplateVariables::is_root(root) => {
            return TagPurpose::Variable(format!("{root}.{name}"));
        }
        [_, Token::Ident("workspace"), _] => return TagPurpose::Variable("workspace".to_owned()),
        _ => {}
    }
    let is_variable = |part: &[Token<'_>]| match part {
        [Token::Dot, ..] => false,
        [_, Token::Ident("workspace"), _] => true,
        [_, Token::Ident(root), Token::Dot | Token::BracketOpen] => TemplateVariables::is_root(root),
        _ => false,
    };
    if tokens.windows(3).any(is_variable) { TagPurpose::Expression } else { TagPurpose::Other }
}

/// The word that a tag begins with.
pub(super) fn first_word(content: &str) -> &str {
    let end = content.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(content.len());
    &content[..end]
}

/// The greatest number of tokens in one tag. The engine's parser bounds how deep brackets and blocks nest, but it reads a
/// chain such as `1 + 1 + 1 + ...` by recursion, and a long one would overflow the stack.
const MAX_TOKENS: usize = 600;

/// The greatest number of `elif` in one text: each nests in the previous one.
const MAX_ELIF: usize = 200;

/// The first tag of a text that is too long to be parsed, and why.
pub(super) fn find_oversized_tag(text: &str) -> Option<(Range<usize>, String)> {
    let (mut tokens, mut elifs) = (0, 0);
    let mut start = 0;
    let mut is_first = false;
    // The parser reports errors in a text.
    for (token, span) in tokenize(text, false, Default::default()).map_while(Result::ok) {
        tokens += 1;
        match token {
            Token::VariableStart | Token::BlockStart => {
                (tokens, start, is_first) = (0, span.start_offset as usize, true);
                continue;
            }
            Token::TemplateData(_) => tokens = 0,
            Token::Ident("elif") if is_first => elifs += 1,
            _ => {}
        }
        is_first = false;
        let range = || start..span.end_offset as usize;
        if tokens > MAX_TOKENS {
            return Some((range(), format!("this tag has more than {MAX_TOKENS} tokens")));
        }
        if elifs > MAX_ELIF {
            return Some((range(), format!("there are more than {MAX_ELIF} `elif`")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_of_other_languages_are_not_tags() {
        for text in [
            "docker ps --format {{.Names}}",
            "echo ${#name} ${name#}",
            "awk '{{print $1}}'",
            "find -exec x {{}}",
            "^[a-z]{2,{3}}$",
            "a {b,c} {%Y-%m} }}",
        ] {
            assert_eq!(stray_tags(text), [], "{text}");
        }
        for (text, tag) in [
            ("a {{ inputs.x }} b", "{{ inputs.x }}"),
            ("{{.Dir}} {{ x }}", "{{ x }}"),
            ("{% if a %}", "{% if a %}"),
            ("{#- no -#} {# note #}", "{# note #}"),
        ] {
            assert_eq!(stray_tags(text).first().map(|tag| &text[tag.range.clone()]), Some(tag), "{text}");
        }
    }

    #[test]
    fn tags_with_variables_of_the_job_are_recognized() {
        let variable = |name: &str| TagPurpose::Variable(name.to_owned());
        for (text, purpose) in [
            ("{{ inputs.topic }}", variable("inputs.topic")),
            ("{{-run.id-}}", variable("run.id")),
            ("{{ workspace }}", variable("workspace")),
            ("{{ inputs['topic'] }}", TagPurpose::Expression),
            ("{{ inputs.topic | upper }}", TagPurpose::Expression),
            ("{{ 'a' ~ job.name }}", TagPurpose::Expression),
            ("{{ name }}", TagPurpose::Other),
            ("{{ end }}", TagPurpose::Other),
            ("{{ pod.workspace }}", TagPurpose::Other),
            ("{{ run }}", TagPurpose::Other),
            ("{% if a %}", TagPurpose::Statement),
        ] {
            assert_eq!(stray_tags(text), [StrayTag { range: 0..text.len(), purpose }], "{text}");
        }
    }

    #[test]
    fn ordinary_tags_are_within_the_limits() {
        let list = vec!["'a'"; 250].join(", ");
        assert_eq!(
            find_oversized_tag(&format!(
                "{{% set x = [{list}] %}}{}",
                "{{ a }} text {% if b %}{% endif %}".repeat(5000)
            )),
            None
        );
        assert_eq!(find_oversized_tag(&"word + word ".repeat(100_000)), None);
    }

    /// Each of these once crashed the program.
    #[test]
    fn endless_chains_are_refused() {
        let times = |part: &str| part.repeat(100_000);
        for text in [
            format!("{{{{ 1{} }}}}", times(" + 1")),
            format!("{{{{ 1{} }}}}", times("|abs")),
            format!("{{{{ run{} }}}}", times(".id")),
            format!("{{{{ run{} }}}}", times("[0]")),
            format!("{{{{ range{} }}}}", times("()")),
            format!("{{{{ {}1 }}}}", times("not ")),
            format!("{{{{ {}1 }}}}", times("-")),
            format!("{{{{ {}1 }}}}", times("1 if 1 else ")),
            format!("{{{{ 1{} }}}}", times(" is defined")),
            format!("{{{{ 1{} }}}}", times("**1")),
            format!("{{{{ 1{} }}}}", times("~1")),
            format!("{{% if 1 %}}a{}{{% endif %}}", times("{% elif 1 %}b")),
        ] {
            let (range, _) = find_oversized_tag(&text).unwrap();
            assert!(range.len() < 10_000);
        }
    }
}
