//! Values in commands: every one that is printed becomes words of bash, and is held against where it stands.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Output, State, Value};

use super::shell_context::{MisplacedValue, ShellContext};

/// Stands around each value until the whole command is there. No command can hold it, so that nothing else can pass
/// for it: texts with one are refused when they are loaded, and values with one when they are printed.
pub(super) const VALUE_MARK: char = '\0';
/// Behind the first mark of a value that is one word, and of a list, which is any number of them.
const SINGLE_WORD: char = '1';
const WORD_LIST: char = 'n';

/// Prints a value as words of bash.
pub(super) fn print_quoted(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let unfit = |what: &str| Err(Error::new(ErrorKind::InvalidOperation, what.to_owned()));
    let words = match value.kind() {
        // What an `if` without `else` is where it isn't so: nothing, as elsewhere.
        ValueKind::Undefined => return Ok(()),
        ValueKind::String | ValueKind::Number | ValueKind::Bool => return print_word(out, value),
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?,
        ValueKind::None => return unfit("a command can't have the value `none`"),
        ValueKind::Map => return unfit("a command can't have a mapping: name the part that is meant"),
        _ => return unfit("a command can't have such a value"),
    };
    write(out, &format!("{VALUE_MARK}{WORD_LIST}"))?;
    for (number, word) in words.enumerate() {
        if !matches!(word.kind(), ValueKind::String | ValueKind::Number | ValueKind::Bool) {
            return unfit("a command can only have lists of texts and numbers");
        }
        write(out, if number == 0 { "" } else { " " })?;
        write(out, &quoted(&word)?)?;
    }
    write(out, &VALUE_MARK.to_string())
}

fn print_word(out: &mut Output<'_>, value: &Value) -> Result<(), Error> {
    let word = quoted(value)?;
    write(out, &format!("{VALUE_MARK}{SINGLE_WORD}{word}{VALUE_MARK}"))
}

fn write(out: &mut Output<'_>, text: &str) -> Result<(), Error> {
    out.write_str(text).map_err(Error::from)
}

/// One word of bash, whatever the value is.
fn quoted(value: &Value) -> Result<String, Error> {
    let text = value.to_string();
    if text.contains(VALUE_MARK) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a command can't have a value with a NUL"));
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

/// What is wrong with a command.
pub(super) enum CommandError {
    /// A value stands where it could become something else than words.
    Misplaced(MisplacedValue),
    /// A list is only a part of a word.
    PartOfWord,
}

/// The command itself, from what was rendered with [`print`].
pub(super) fn finish_command(rendered: &str) -> Result<String, CommandError> {
    let mut shell = ShellContext::default();
    let mut command = String::with_capacity(rendered.len());
    let mut behind_list = false;
    for (number, piece) in rendered.split(VALUE_MARK).enumerate() {
        if number % 2 == 0 {
            let begins_word = |letter: char| !letter.is_whitespace() && !";|&<>()".contains(letter);
            if behind_list && piece.starts_with(begins_word) {
                return Err(CommandError::PartOfWord);
            }
            behind_list &= piece.is_empty();
            shell.text(piece);
            command.push_str(piece);
            continue;
        }
        let is_list = piece.starts_with(WORD_LIST);
        if behind_list || (is_list && !shell.is_between_words()) {
            return Err(CommandError::PartOfWord);
        }
        shell.value().map_err(CommandError::Misplaced)?;
        command.push_str(&piece[SINGLE_WORD.len_utf8()..]);
        behind_list = is_list;
    }
    Ok(command)
}

#[cfg(test)]
mod tests;
