//! Reads the values of a table by key.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::TomlReader;
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

    /// Whether a key is set.
    pub fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(known, _)| known.get_ref() == key)
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
        number.map(|number| Spanned::new(value.span(), number)).or_else(|| self.too_large(value))
    }

    /// A whole number of at least 0.
    pub fn count(&mut self, key: &'static str) -> Option<Spanned<u64>> {
        let value = self.value(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            DeValue::String(_) => return self.wrong(value, "a whole number", "leave the quotes out"),
            _ => return self.wrong(value, "a whole number", "write it like 200000"),
        };
        match number.map(u64::try_from) {
            Some(Ok(number)) => Some(Spanned::new(value.span(), number)),
            Some(Err(_)) => {
                let place = self.reading.place(value.span());
                let finding = Diagnostic::error("out-of-range", place, format!("`{key}` is less than 0"));
                self.reading.report(finding.help("write it like 200000"));
                None
            }
            None => self.too_large(value),
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

    /// Reports a missing key.
    pub fn missing(&self, key: &str, help: &str) {
        if !self.reading.is_incomplete() {
            let place = self.reading.place(self.span.clone());
            let message = format!("required key `{key}` is missing");
            self.reading.report(Diagnostic::error("missing-key", place, message).help(help));
        }
    }

    /// The place of the table's name.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Reports the keys that weren't read.
    pub fn finish(self) {
        let known = &self.known_keys;
        let list = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        for (key, _) in self.table.iter().filter(|(key, _)| !known.contains(&key.get_ref().as_ref())) {
            let place = self.reading.place(key.span());
            let finding = Diagnostic::error("unknown-key", place, format!("unknown key `{}`", key.get_ref()));
            self.reading.report(match suggest(key.get_ref(), known.iter().copied()) {
                Some(near) if near.is_certain => {
                    finding.help(format!("did you mean `{}`? known are {list}", near.name)).replace_with(near.name)
                }
                Some(near) => finding.help(format!("did you mean `{}`? known are {list}", near.name)),
                None => finding.help(format!("known are {list}")),
            });
        }
    }

    fn wrong<T>(&self, value: &Spanned<DeValue<'_>>, expected: &str, help: &str) -> Option<T> {
        let found = match value.get_ref() {
            DeValue::String(text) => format!("the string \"{text}\""),
            DeValue::Integer(number) => format!("the integer {number}"),
            DeValue::Float(number) => format!("the number {number}"),
            DeValue::Boolean(value) => format!("the boolean {value}"),
            DeValue::Datetime(time) => format!("the time {time}"),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        let place = self.reading.place(value.span());
        let message = format!("expected {expected}, found {found}");
        self.reading.report(Diagnostic::error("wrong-type", place, message).help(help));
        None
    }

    fn too_large<T>(&self, value: &Spanned<DeValue<'_>>) -> Option<T> {
        let place = self.reading.place(value.span());
        let finding = Diagnostic::error("out-of-range", place, "the number is too large");
        self.reading.report(finding.help("write a smaller one"));
        None
    }
}
