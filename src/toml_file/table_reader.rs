//! Reads the values of a table by key.

use std::ops::Range;

use super::{DeString, DeTable, DeValue, Spanned, TomlReader};
use crate::diagnostic::{Diagnostic, suggest};

/// A table whose keys are read one by one.
#[derive(Debug)]
pub struct TableReader<'t, 's> {
    reading: &'t TomlReader<'s>,
    table: &'t DeTable<'s>,
    span: Range<usize>,
    known_keys: Vec<&'static str>,
}

impl<'t, 's> TableReader<'t, 's> {
    /// Starts to read a table. `span` is the place of its name.
    pub fn new(reading: &'t TomlReader<'s>, table: &'t DeTable<'s>, span: Range<usize>) -> Self {
        Self { reading, table, span, known_keys: Vec::new() }
    }

    /// The value of a key, of any type.
    pub fn value(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'s>>> {
        self.known_keys.push(key);
        self.table.iter().find(|(known, _)| known.get_ref() == key).map(|(_, value)| value)
    }

    /// A string.
    pub fn text(&mut self, key: &'static str) -> Option<Spanned<&'t str>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.as_ref())),
            _ => self.wrong(value, "a string", "put it in quotes"),
        }
    }

    /// A number, which may be infinite or NaN.
    pub fn number(&mut self, key: &'static str) -> Option<Spanned<f64>> {
        let value = self.value(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(|it| it as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::String(_) => return self.wrong(value, "a number", "leave the quotes out"),
            _ => return self.wrong(value, "a number", "write it like 0.25"),
        };
        number.map(|number| Spanned::new(value.span(), number)).or_else(|| self.out_of_range(value))
    }

    /// A whole number of at least 0.
    pub fn count(&mut self, key: &'static str) -> Option<Spanned<u64>> {
        let value = self.value(key)?;
        Some(Spanned::new(value.span(), self.count_value(value)?))
    }

    /// A whole number of at least 0, in any value of the table.
    pub fn count_value(&self, value: &Spanned<DeValue<'_>>) -> Option<u64> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            DeValue::String(_) => return self.wrong(value, "a whole number", "leave the quotes out"),
            _ => return self.wrong(value, "a whole number", "write it like 200000"),
        };
        number.or_else(|| self.out_of_range(value))
    }

    /// A table: `[KEY]`.
    pub fn table(&mut self, key: &'static str, help: &str) -> Option<TableReader<'t, 's>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(TableReader::new(self.reading, table, value.span())),
            _ => self.wrong(value, "a table", help),
        }
    }

    /// The tables of a list: `[[KEY]]`.
    pub fn tables(&mut self, key: &'static str) -> Vec<TableReader<'t, 's>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong::<()>(value, "a list of tables", "write a heading in two brackets for each");
            return Vec::new();
        };
        let table = |item: &'t Spanned<DeValue<'s>>| match item.get_ref() {
            DeValue::Table(table) => Some(TableReader::new(self.reading, table, item.span())),
            _ => self.wrong(item, "a table", "write a heading in two brackets for each"),
        };
        items.iter().filter_map(table).collect()
    }

    /// The tables that the user names: `[KEY.NAME]`.
    pub fn named_tables(&mut self, key: &'static str) -> Vec<(Spanned<&'t str>, TableReader<'t, 's>)> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let DeValue::Table(entries) = value.get_ref() else {
            self.wrong::<()>(value, "a table of tables", "write a heading for each");
            return Vec::new();
        };
        let entry = |(name, value): (&'t Spanned<toml::de::DeString<'s>>, &'t Spanned<DeValue<'s>>)| {
            let DeValue::Table(table) = value.get_ref() else {
                return self.wrong(value, "a table", "write a heading for it, and its keys below");
            };
            let named = Spanned::new(name.span(), name.get_ref().as_ref());
            Some((named, TableReader::new(self.reading, table, name.span())))
        };
        entries.iter().filter_map(entry).collect()
    }

    /// Reports that a key is missing, unless it is set.
    pub fn require(&self, key: &str, help: impl Into<String>) {
        if !self.reading.is_incomplete() && !self.table.contains_key(key) {
            let message = format!("required key `{key}` is missing");
            self.error("missing-key", self.span.clone(), message, help);
        }
    }

    /// The keys that weren't read.
    pub fn unread(&self) -> impl Iterator<Item = &'t Spanned<DeString<'s>>> {
        self.table.keys().filter(|key| !self.known_keys.contains(&key.get_ref().as_ref()))
    }

    /// Reports the keys that weren't read.
    pub fn finish(self) {
        self.unread().for_each(|key| self.report_unknown(key));
    }

    /// Reports an unknown key.
    pub fn report_unknown(&self, key: &Spanned<DeString<'_>>) {
        let (name, known) = (key.get_ref().as_ref(), self.known_keys.iter().copied());
        let list = known.clone().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let message = format!("unknown key `{}`", quotable(name));
        let finding = Diagnostic::error("unknown-key", self.reading.place(key.span()), message);
        self.reading.report(match suggest(name, known) {
            Some(near) if near.is_certain => {
                finding.help(format!("did you mean `{}`? expected one of {list}", near.name)).replace_with(near.name)
            }
            Some(near) => finding.help(format!("did you mean `{}`? expected one of {list}", near.name)),
            None => finding.help(format!("expected one of {list}")),
        });
    }

    /// Reports an error.
    pub fn error(&self, code: &'static str, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.reading.report(Diagnostic::error(code, self.reading.place(span), message).help(help));
    }

    /// Reports a value of the wrong type.
    pub fn wrong_type(&self, value: &Spanned<DeValue<'_>>, expected: &str, help: &str) {
        self.wrong::<()>(value, expected, help);
    }

    fn wrong<T>(&self, value: &Spanned<DeValue<'_>>, expected: &str, help: &str) -> Option<T> {
        let message = format!("expected {expected}, found a value of type {}", value.get_ref().type_str());
        self.error("wrong-type", value.span(), message, help);
        None
    }

    fn out_of_range<T>(&self, value: &Spanned<DeValue<'_>>) -> Option<T> {
        self.error("out-of-range", value.span(), "the number is too large or less than 0", "write it like 200000");
        None
    }
}

/// A word from the file for use in a message, unless it is long enough to be a misplaced key.
pub fn quotable(text: &str) -> &str {
    if text.len() <= 24 { text } else { "…" }
}
