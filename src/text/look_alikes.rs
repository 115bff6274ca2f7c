//! Finds text that looks like another one: with other quotes, dashes and spaces, or accents that are written in another way.

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_normalizer::properties::CanonicalCombiningClassMapBorrowed;

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

/// The letters of a text. Characters that can't be seen, and accents, belong to the one before.
fn letters(text: &str) -> Vec<Letter<'_>> {
    let classes = CanonicalCombiningClassMapBorrowed::new();
    let is_mark = |letter: char| {
        matches!(letter, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{ad}' | '\u{fe0f}')
            || !letter.is_ascii() && classes.get_u8(letter) != 0
    };
    let compatible = DecomposingNormalizerBorrowed::new_nfkd();
    let mut letters: Vec<Letter<'_>> = Vec::new();
    for (at, letter) in text.char_indices() {
        let end = at + letter.len_utf8();
        if let Some(before) = letters.last_mut().filter(|_| is_mark(letter)) {
            before.written = &text[before.at..end];
            continue;
        }
        if let Some(seen) = looks_like(letter) {
            letters.push(Letter { written: &text[at..end], seen, at });
            continue;
        }
        // Others look like what they are made of: an accented letter, a ligature, a full-width form.
        let parts = compatible.normalize_iter(std::iter::once(letter)).filter(|part| !is_mark(*part));
        let before = letters.len();
        for seen in parts {
            let written = if letters.len() == before { &text[at..end] } else { "" };
            letters.push(Letter { written, seen: looks_like(seen).unwrap_or(seen), at });
        }
    }
    letters
}

/// Cyrillic and Greek letters with the shape of a Latin one.
const LETTERS: &[(&str, char)] = &[
    ("\u{430}", 'a'),
    ("\u{435}", 'e'),
    ("\u{43e}\u{3bf}", 'o'),
    ("\u{440}", 'p'),
    ("\u{441}", 'c'),
    ("\u{443}", 'y'),
    ("\u{445}", 'x'),
    ("\u{455}", 's'),
    ("\u{456}", 'i'),
    ("\u{458}", 'j'),
    ("\u{3bd}", 'v'),
    ("\u{410}\u{391}", 'A'),
    ("\u{412}\u{392}", 'B'),
    ("\u{421}", 'C'),
    ("\u{415}\u{395}", 'E'),
    ("\u{41d}\u{397}", 'H'),
    ("\u{406}\u{399}", 'I'),
    ("\u{408}", 'J'),
    ("\u{41a}\u{39a}", 'K'),
    ("\u{41c}\u{39c}", 'M'),
    ("\u{39d}", 'N'),
    ("\u{41e}\u{39f}", 'O'),
    ("\u{420}\u{3a1}", 'P'),
    ("\u{405}", 'S'),
    ("\u{422}\u{3a4}", 'T'),
    ("\u{425}\u{3a7}", 'X'),
    ("\u{3a5}", 'Y'),
    ("\u{396}", 'Z'),
];

/// What a character looks like in ASCII, if it is one or is often mixed up with one.
fn looks_like(letter: char) -> Option<char> {
    Some(match letter {
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' | '\u{2032}' | '\u{b4}' | '\u{2bc}' => '\'',
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{2043}' | '\u{fe58}' => '-',
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        '\u{ab}' | '\u{bb}' => '"',
        '\u{2039}' | '\u{203a}' => '\'',
        letter if letter.is_ascii() => letter,
        letter => return LETTERS.iter().find(|(others, _)| others.contains(letter)).map(|(_, seen)| *seen),
    })
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
                '\u{300}'..='\u{36f}' | '\u{3099}' | '\u{309a}' => " (combining accent)",
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
            (
                "Vi\u{1ec7}t",
                "Vie\u{302}\u{323}t",
                "has U+1EC7 where `old_text` has U+0065 and U+0302 (combining accent)",
            ),
            ("\u{3b1}\u{301} x", "\u{3ac} x", "has U+03B1 and U+0301 (combining accent) where `old_text` has U+03AC"),
            ("\u{304c}", "\u{304b}\u{3099}", "has U+304C where `old_text` has U+304B and U+3099 (combining accent)"),
            ("\u{1112}\u{1161}\u{11ab}", "\u{d55c}", "has U+1112 where `old_text` has U+D55C"),
            ("\u{fb01}le", "file", "has U+FB01 where `old_text` has U+0066"),
        ] {
            let found = describe(content, wanted).unwrap();
            assert!(found.contains(expected), "{content:?}: {found}");
        }
        assert_eq!(describe("abc", "abd"), None);
        assert_eq!(describe("abc", "abc"), None);
        assert_eq!(describe("a\u{a0}b", " "), None);
    }
}
