//! Characters that nobody sees, and marks that only legwork writes. These rules hold in code, too.

use super::live::Live;
use super::violation::Finding;
use crate::redaction::MARKER_PREFIX;
use crate::text::sanitize::replacement_char;

/// The flags that are written with tag characters, after a black flag: those of England, Scotland and Wales. There are no
/// others in use.
const TAG_FLAGS: &[&str] = &["gbeng", "gbsct", "gbwls"];

/// Finds a hidden character.
pub(super) fn hidden_character(live: &Live) -> Option<Finding> {
    let mut index = 0;
    while index < live.len() {
        let char = live.char(index);
        if is_plain(char) {
            index += 1;
            continue;
        }
        let before = index.checked_sub(1).map(|before| live.char(before));
        let flag = (char == '\u{e0067}' && before == Some('\u{1f3f4}')).then(|| tag_flag(live, index)).flatten();
        if let Some(end) = flag {
            index = end;
            continue;
        }
        if !is_accepted(char, before, live.char(index + 1)) {
            return Some(describe(char, live.at(index)));
        }
        index += 1;
    }
    None
}

fn describe(char: char, at: usize) -> Finding {
    let code = format!("U+{:04X}", u32::from(char));
    let (rule, why) = match char {
        '\r' => ("control-character", "a carriage return without a line feed: end lines with a line feed".to_owned()),
        '\0'..='\u{9f}' => ("control-character", format!("{code} is a control character: leave it out")),
        '\u{e0000}'..='\u{e0fff}' | '\u{fe00}'..='\u{fe0f}' => {
            ("invisible-character", format!("{code} is an invisible tag or variation selector: leave it out"))
        }
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => {
            ("bidirectional-character", format!("{code} changes the direction of the text: leave it out"))
        }
        _ => ("invisible-character", format!("{code} is invisible here: leave it out")),
    };
    Finding { rule, at, end: at + char.len_utf8(), why }
}

/// Whether a character is visible or white space everywhere.
fn is_plain(char: char) -> bool {
    match char {
        '\t' | '\n' | ' '..='~' => true,
        '\u{ad}' | '\u{34f}' | '\u{70f}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' => false,
        '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' => false,
        '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' => false,
        char => replacement_char(char).is_none() && u32::from(char) & 0xfffe != 0xfffe,
    }
}

/// Whether a character that isn't plain is right between its neighbours.
fn is_accepted(char: char, before: Option<char>, after: char) -> bool {
    let is_before = |fits: fn(char) -> bool| before.is_some_and(fits);
    match char {
        '\r' => after == '\n',
        // The form of an emoji, or of a symbol that has one.
        '\u{fe0e}' | '\u{fe0f}' => is_before(|before| is_emoji(before) || matches!(before, '0'..='9' | '#' | '*')),
        '\u{200d}' if is_emoji(after) => is_before(|before| is_emoji(before) || before == '\u{fe0f}'),
        '\u{200c}' | '\u{200d}' => is_before(is_joined_script),
        '\u{180b}'..='\u{180d}' | '\u{180f}' => is_before(|before| matches!(before, '\u{1820}'..='\u{18aa}')),
        _ => false,
    }
}

/// Whether a character can be an emoji or a part of one, or a symbol with two forms.
fn is_emoji(char: char) -> bool {
    matches!(char, '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{20e3}' | '\u{2100}'..='\u{2bff}'
        | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

/// Whether a character is of a script in which joiners change how words look: Arabic and its kin, and those of India and
/// South-East Asia.
fn is_joined_script(char: char) -> bool {
    matches!(char, '\u{620}'..='\u{8ff}' | '\u{900}'..='\u{e7f}' | '\u{f40}'..='\u{fbc}' | '\u{1000}'..='\u{109f}'
        | '\u{1780}'..='\u{17d3}' | '\u{1807}' | '\u{1820}'..='\u{18aa}' | '\u{1a20}'..='\u{1aad}'
        | '\u{1b00}'..='\u{1c4f}' | '\u{a800}'..='\u{abff}' | '\u{fb50}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fdff}'
        | '\u{fe70}'..='\u{fefc}' | '\u{10a00}'..='\u{10fff}' | '\u{11000}'..='\u{11fff}')
        && is_plain(char)
}

/// The index behind the tags of a flag that begin at an index.
fn tag_flag(live: &Live, index: usize) -> Option<usize> {
    let tag = |offset: usize| u32::from(live.char(index + offset)).checked_sub(0xe0000).and_then(char::from_u32);
    let region = (0..5).map(tag).collect::<Option<String>>()?;
    (TAG_FLAGS.contains(&&*region) && live.char(index + 5) == '\u{e007f}').then_some(index + 6)
}

/// Finds a mark of legwork, or what replaces a secret.
pub(super) fn reserved_text(source: &str) -> Option<Finding> {
    let comment = source.match_indices("<!--").find_map(|(at, opening)| {
        let inside = &source[at + opening.len()..];
        let word = inside.trim_start();
        let is_mark = word.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("legwork"));
        let why = "this begins a mark of legwork, which only `legwork publish` writes: leave it out".to_owned();
        let end = at + opening.len() + (inside.len() - word.len()) + 7;
        is_mark.then_some(Finding { rule: "mark", at, end, why })
    });
    let mask = source.find(MARKER_PREFIX).map(|at| {
        let why = "this is what replaced a secret: leave it out, also the text around it that needs it".to_owned();
        Finding { rule: "mask", at, end: at + MARKER_PREFIX.len(), why }
    });
    comment.into_iter().chain(mask).min_by_key(|finding| finding.at)
}
