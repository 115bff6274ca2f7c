//! Finds text that looks like another one: with other quotes, dashes and spaces, or accents that are written in another way.

/// Letters with an accent from U+00C0 on, as the letters without it; `.` for those that have none.
const LATIN: &str = "AAAAAA.CEEEEIIII.NOOOOO..UUUUY..aaaaaa.ceeeeiiii.nooooo..uuuuy.yAaAaAaCcCcCcCcDd..EeEeEeEeEeGgGgGgGgHh..IiIiIiIiI...JjKk.\
     LlLlLl....NnNnNn...OoOoOo..RrRrRrSsSsSsSsTtTt..UuUuUuUuUuUuWwYyYZzZzZz.";
/// How many differences are named.
const MAX_DIFFERENCES: usize = 3;

/// A character with the accents that follow it, and what it looks like.
struct Letter<'a> {
    written: &'a str,
    seen: char,
    at: usize,
}

/// Says where a content has a text that looks like the wanted one, and which characters differ.
pub(crate) fn describe(content: &str, wanted: &str) -> Option<String> {
    let (content, wanted) = (letters(content), letters(wanted));
    let seen = |letters: &[Letter<'_>]| letters.iter().map(|letter| letter.seen).collect::<String>();
    let (text, pattern) = (seen(&content), seen(&wanted));
    if pattern.trim().is_empty() {
        return None;
    }
    let found = memchr::memmem::find(text.as_bytes(), pattern.as_bytes())?;
    let start = text[..found].chars().count();
    let line = text[..found].matches('\n').count() + 1;
    let mut named: Vec<String> = Vec::new();
    for (has, wants) in content[start..].iter().zip(&wanted) {
        let difference = format!("{} where `old_text` has {}", code_points(has.written), code_points(wants.written));
        if has.written != wants.written && !named.contains(&difference) {
            named.push(difference);
        }
    }
    let more = if named.len() > MAX_DIFFERENCES { ", and others" } else { "" };
    named.truncate(MAX_DIFFERENCES);
    (!named.is_empty())
        .then(|| format!("the text from line {line} on looks the same, but has {}{more}", named.join(", ")))
}

/// The letters of a text. Characters that can't be seen belong to the one before.
fn letters(text: &str) -> Vec<Letter<'_>> {
    let mut letters: Vec<Letter<'_>> = Vec::new();
    for (at, letter) in text.char_indices() {
        let end = at + letter.len_utf8();
        let is_mark = matches!(letter, '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{ad}' | '\u{fe0f}');
        match letters.last_mut().filter(|_| is_mark) {
            Some(before) => before.written = &text[before.at..end],
            None => {
                let (first, more) = looks_like(letter);
                letters.push(Letter { written: &text[at..end], seen: first, at });
                letters.extend(more.iter().map(|seen| Letter { written: "", seen: *seen, at: end }));
            }
        }
    }
    letters
}

/// What a character looks like, in ASCII where it can be.
fn looks_like(letter: char) -> (char, &'static [char]) {
    let single = match letter {
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' | '\u{2032}' | '\u{b4}' | '\u{2bc}' => '\'',
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{2043}' | '\u{fe58}' | '\u{ff0d}' => '-',
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        '\u{2026}' => return ('.', &['.', '.']),
        // Full-width forms of ASCII.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(letter) - 0xfee0).unwrap_or(letter),
        '\u{c0}'..='\u{17f}' => {
            let plain = LATIN.chars().nth(u32::from(letter) as usize - 0xc0);
            plain.filter(|plain| *plain != '.').unwrap_or(letter)
        }
        letter => letter,
    };
    (single, &[])
}

/// The code points of a short text, with a name for those that people mix up.
fn code_points(text: &str) -> String {
    if text.is_empty() {
        return "nothing".to_owned();
    }
    let each: Vec<String> = text
        .chars()
        .map(|letter| {
            let name = match letter {
                ' ' => " (space)",
                '\u{a0}' => " (no-break space)",
                '\u{202f}' => " (narrow no-break space)",
                '\'' | '"' => " (straight quote)",
                '\u{2018}'..='\u{201f}' => " (curly quote)",
                '-' => " (hyphen)",
                '\u{2013}' | '\u{2014}' => " (dash)",
                '\u{300}'..='\u{36f}' => " (combining accent)",
                '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{ad}' => " (invisible)",
                _ => "",
            };
            format!("U+{:04X}{name}", u32::from(letter))
        })
        .collect();
    each.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_differing_characters_are_named() {
        for (content, wanted, expected) in [
            (
                "a\nthe list in\u{a0}order\n",
                "list in order",
                "line 2 on looks the same, but has U+00A0 (no-break space) where `old_text` has U+0020 (space)",
            ),
            (
                "say \u{201c}hi\u{201d}",
                "say \"hi\"",
                "has U+201C (curly quote) where `old_text` has U+0022 (straight quote), U+201D",
            ),
            (
                "say 'hi'",
                "say \u{2018}hi\u{2019}",
                "has U+0027 (straight quote) where `old_text` has U+2018 (curly quote)",
            ),
            (
                "cafe\u{301} open",
                "caf\u{e9} open",
                "has U+0065 and U+0301 (combining accent) where `old_text` has U+00E9",
            ),
            ("caf\u{e9} open", "cafe\u{301}", "has U+00E9 where `old_text` has U+0065 and U+0301"),
            ("caf\u{e9} open", "cafe", "has U+00E9 where `old_text` has U+0065"),
            (
                "a \u{2013} b \u{2026}",
                "a - b ...",
                "U+2013 (dash) where `old_text` has U+002D (hyphen), U+2026 where `old_text` has U+002E, nothing where",
            ),
            ("no\u{200b}where", "nowhere", "has U+006F and U+200B (invisible) where `old_text` has U+006F"),
            ("\u{ff21}BC", "ABC", "has U+FF21 where `old_text` has U+0041"),
        ] {
            let found = describe(content, wanted).unwrap();
            assert!(found.contains(expected), "{content:?}: {found}");
        }
        assert_eq!(describe("abc", "abd"), None);
        assert_eq!(describe("abc", "abc"), None);
        assert_eq!(describe("a\u{a0}b", " "), None);
        assert_eq!(LATIN.chars().count(), 0x180 - 0xc0);
        assert_eq!(looks_like('\u{17e}').0, 'z');
    }
}
