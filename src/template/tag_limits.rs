//! How long a tag may be. The engine's parser bounds how deep brackets and blocks nest, but not how long a chain is,
//! and works its way through a chain by recursion: `1 + 1 + 1 + ...` would overflow the stack.

use std::ops::Range;

use minijinja::machinery::{Token, tokenize};

/// The greatest number of names, values and signs in one tag.
const MAX_TOKENS: usize = 600;

/// The greatest number of `elif` in one text: each nests in the one before.
const MAX_ELIF: usize = 200;

/// What is too long in a text, and why.
pub(super) fn find_oversized_tag(text: &str) -> Option<(Range<usize>, String)> {
    let (mut tokens, mut elifs) = (0, 0);
    let mut start = 0;
    let mut is_first = false;
    // What comes after an error in a text is the parser's to report.
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
            return Some((range(), format!("this tag has more than {MAX_TOKENS} parts")));
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
    fn what_people_write_fits() {
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

    /// Each of these once ended the program.
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
