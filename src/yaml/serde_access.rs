//! Gives serde access to the items of a list and the entries of a mapping.

use std::cell::OnceCell;

use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess};

use super::decode_error::{DecodeError, ErrorDetail};
use super::decode_recovery::NodeDeserializer;
use super::findings::excerpt;
use super::node::Content;
use crate::diagnostic::Suggestion;

/// The items of a list.
pub(super) struct ListAccess<'a> {
    list: NodeDeserializer<'a>,
    items: std::slice::Iter<'a, u32>,
}

impl<'a> ListAccess<'a> {
    pub(super) fn new(list: NodeDeserializer<'a>, items: &'a [u32]) -> Self {
        Self { list, items: items.iter() }
    }
}

impl<'de> SeqAccess<'de> for ListAccess<'_> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        let mut items = self.items.by_ref().map(|item| self.list.child(*item));
        let Some(item) = items.find(|item| !self.list.session.is_dropped(item.path)) else { return Ok(None) };
        let decoded = item.decode(seed).map(Some);
        if decoded.is_err() && item.is_invalid_itself() {
            item.drop_node();
        }
        decoded
    }
}

/// The entries of a mapping, then its placeholders.
pub(super) struct MappingAccess<'a> {
    mapping: NodeDeserializer<'a>,
    pairs: std::slice::Iter<'a, (u32, u32)>,
    /// The only allowed keys, if they are known.
    fields: Option<&'static [&'static str]>,
    /// The known keys that the mapping lacks, computed at its first unknown key.
    absent_fields: OnceCell<Vec<&'static str>>,
    /// The guesses for the mapping's unknown keys, computed at the first of them.
    guessed_fields: OnceCell<Vec<Option<&'static str>>>,
    /// Known keys that unknown ones were taken for.
    corrected_fields: Vec<&'static str>,
    placeholder_keys: std::vec::IntoIter<&'static str>,
    value: Option<NodeDeserializer<'a>>,
}

impl<'a> MappingAccess<'a> {
    pub(super) fn new(
        mapping: NodeDeserializer<'a>,
        pairs: &'a [(u32, u32)],
        fields: Option<&'static [&'static str]>,
    ) -> Self {
        let placeholder_keys = mapping.session.missing_keys(mapping.path).into_iter();
        Self {
            mapping,
            pairs: pairs.iter(),
            fields,
            absent_fields: OnceCell::new(),
            guessed_fields: OnceCell::new(),
            corrected_fields: Vec::new(),
            placeholder_keys,
            value: None,
        }
    }

    /// The known key that a key is, or that it is taken for if the mapping lacks that one.
    fn field(
        &mut self,
        fields: &'static [&'static str],
        key: NodeDeserializer<'a>,
        value: NodeDeserializer<'a>,
    ) -> Option<&'static str> {
        let tree = self.mapping.session.tree();
        let name = tree.text(key.index).unwrap_or_default();
        if let Some(field) = fields.iter().find(|field| **field == name) {
            return Some(field);
        }
        // Search once, not in every round.
        let known = self.mapping.session.key_guess(key.path);
        let meant = known.unwrap_or_else(|| {
            let (finding, meant) = self.guess(name, fields, key, value);
            self.mapping.session.report(key.finding(finding));
            self.mapping.session.set_key_guess(key.path, meant);
            meant
        });
        self.corrected_fields.extend(meant);
        meant
    }

    /// The finding for an unknown key, and the known key that it is taken for.
    fn guess(
        &self,
        name: &str,
        fields: &'static [&'static str],
        key: NodeDeserializer<'a>,
        value: NodeDeserializer<'a>,
    ) -> (ErrorDetail, Option<&'static str>) {
        let message = format!("unknown key `{}`", excerpt(name));
        if self.mapping.session.is_full() {
            // Further help isn't shown, and searching for very many keys takes long.
            return (ErrorDetail::new("unknown-key", message), None);
        }
        if let Some((field, spaced)) = split_missing_space(name, fields)
            .filter(|(field, _)| self.is_field_free(field, fields) && value.node().is_null() && key.node().is_plain())
        {
            let help = Some(format!("a space is missing after the `:`; write `{}`", excerpt(&spaced)));
            let fix = self.is_only_guess_for(field, fields).then_some(spaced);
            // The value is part of the key, so it isn't reported as missing.
            value.replace_with_placeholder();
            return (ErrorDetail { code: "unknown-key", message, help, fix }, Some(field));
        }
        let meant = self.mapping.session.tree().guess_key(name, fields, self.absent_fields(fields));
        let free = meant.filter(|meant| self.is_field_free(meant.name, fields));
        // A fix would lose what follows a colon.
        let is_certain = |meant: &Suggestion<'static>| {
            meant.is_certain && !name.contains(':') && self.is_only_guess_for(meant.name, fields)
        };
        let near = free.map(|meant| Suggestion { is_certain: is_certain(&meant), ..meant });
        let mut finding = ErrorDetail::unknown_name("unknown-key", message, fields, near);
        if let (Some(meant), None) = (meant, free) {
            finding.help = Some(format!("did you mean `{}`, which is set already? Keep one of the two", meant.name));
        }
        (finding, free.map(|meant| meant.name))
    }

    /// Whether the mapping lacks a known key, and no unknown one was taken for it.
    fn is_field_free(&self, field: &'static str, fields: &'static [&'static str]) -> bool {
        !self.corrected_fields.contains(&field) && self.absent_fields(fields).contains(&field)
    }

    /// The known keys that the mapping lacks. Computed once, since a mapping may have very many unknown keys.
    fn absent_fields(&self, fields: &'static [&'static str]) -> &[&'static str] {
        let lacks = |field: &&&'static str| self.mapping.session.tree().pair(self.mapping.index, field).is_none();
        self.absent_fields.get_or_init(|| fields.iter().filter(lacks).copied().collect())
    }

    /// Whether only one of the mapping's unknown keys is a guess for this field. With several, the author has to choose.
    fn is_only_guess_for(&self, field: &'static str, fields: &'static [&'static str]) -> bool {
        let claims = self.guessed_fields.get_or_init(|| {
            let tree = self.mapping.session.tree();
            let Content::Mapping(pairs) = self.mapping.content() else { return Vec::new() };
            let names = pairs.iter().filter_map(|(key, _)| tree.text(*key));
            let unknown = names.filter(|name| !fields.contains(name)).take(MAX_GUESSES + 1);
            let claim = |name: &str| match split_missing_space(name, fields) {
                Some((field, _)) => Some(field),
                None => tree.guess_key(name, fields, self.absent_fields(fields)).map(|meant| meant.name),
            };
            unknown.map(claim).collect()
        });
        claims.len() <= MAX_GUESSES && claims.iter().filter(|claim| **claim == Some(field)).count() == 1
    }
}

/// With more unknown keys in one mapping, none has a fix.
const MAX_GUESSES: usize = 200;

/// Splits `cost_usd:5` into its known key and the text with the missing space.
fn split_missing_space(name: &str, fields: &[&'static str]) -> Option<(&'static str, String)> {
    let (key, value) = name.split_once(':')?;
    let field = fields.iter().copied().find(|field| *field == key)?;
    Some((field, format!("{field}: {value}")))
}

impl<'de> MapAccess<'de> for MappingAccess<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        while let Some((key, value)) = self.pairs.next() {
            let (key, value) = (self.mapping.child(*key), self.mapping.child(*value));
            let field = match self.fields {
                Some(fields) => match self.field(fields, key, value) {
                    Some(field) => Some(field),
                    None => continue,
                },
                None => None,
            };
            if self.mapping.session.is_dropped(value.path) {
                continue;
            }
            self.value = Some(value);
            let decoded = match field {
                Some(field) => seed.deserialize(field.into_deserializer()).map_err(|error| key.record_error(error)),
                None => key.decode(seed),
            };
            return decoded.map(Some).inspect_err(|_| value.drop_node());
        }
        for name in self.placeholder_keys.by_ref() {
            let value = self.mapping.placeholder_for(name);
            if !self.mapping.session.is_dropped(value.path) {
                self.value = Some(value);
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DecodeError> {
        match self.value.take() {
            Some(value) => value.decode(seed),
            None => Err(DecodeError::PartDropped),
        }
    }
}
