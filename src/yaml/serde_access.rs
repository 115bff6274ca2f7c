//! Gives serde access to the items of a list, the entries of a mapping and the content of an enum.

use std::cell::OnceCell;
use std::ops::Range;

use serde::Deserializer;
use serde::de::{DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::decode_error::{DecodeError, ErrorDetail};
use super::decode_recovery::NodeDeserializer;
use super::findings::excerpt;
use super::node::{Content, KeyGuess};
use super::scalar::Scalar;
use crate::diagnostic::Suggestion;

/// The items of a list.
pub(super) struct ListAccess<'a> {
    list: NodeDeserializer<'a>,
    items: std::slice::Iter<'a, u32>,
    /// Whether no item can be left out.
    exact: bool,
    placeholder_range: Range<usize>,
}

impl<'a> ListAccess<'a> {
    pub(super) fn new(list: NodeDeserializer<'a>, items: &'a [u32], exact: bool) -> Self {
        Self { list, items: items.iter(), exact, placeholder_range: 0..0 }
    }

    /// The items of a placeholder.
    pub(super) fn placeholders(list: NodeDeserializer<'a>, length: usize) -> Self {
        Self { list, items: [].iter(), exact: true, placeholder_range: 0..length }
    }

    fn next(&mut self) -> Option<NodeDeserializer<'a>> {
        match self.items.next() {
            Some(item) => Some(self.list.child(*item)),
            None => self.placeholder_range.next().map(|position| self.list.placeholder_for(&position.to_string())),
        }
    }
}

impl<'de> SeqAccess<'de> for ListAccess<'_> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        while let Some(item) = self.next() {
            if !self.list.session.is_dropped(item.path) {
                let decoded = item.decode(seed).map(Some);
                if decoded.is_err() && !self.exact && item.is_invalid_itself() {
                    item.drop_node();
                }
                return decoded;
            }
            if self.exact {
                return Err(DecodeError::PartDropped);
            }
        }
        Ok(None)
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
        if let Some(meant) = self.mapping.session.cached_key_guess(key.path, fields) {
            self.corrected_fields.extend(meant);
            return meant;
        }
        if self.mapping.session.is_full() {
            // Further help isn't shown, and searching for very many keys takes long.
            let message = format!("unknown key `{}`", excerpt(name));
            self.mapping.session.report(key.finding(ErrorDetail::new("unknown-key", message)));
            let meant = self.mapping.session.corrected_key(self.mapping.path, fields, value.path)?;
            self.corrected_fields.push(meant);
            return Some(meant);
        }
        if let Some((field, spaced)) = split_missing_space(name, fields)
            .filter(|(field, _)| self.is_field_free(field, fields) && value.node().is_null() && key.node().is_plain())
        {
            let message = format!("unknown key `{}`", excerpt(name));
            let help = Some(format!("a space is missing after the `:`; write `{}`", excerpt(&spaced)));
            let fix = self.is_only_guess_for(field, fields).then_some(spaced);
            self.mapping.session.report(key.finding(ErrorDetail { code: "unknown-key", message, help, fix }));
            // The value is part of the key, so it isn't reported as missing.
            value.replace_with_placeholder();
            self.mapping.session.cache_key_guess(key.path, fields, Some(field));
            self.corrected_fields.push(field);
            self.mapping.session.record_corrected_key(self.mapping.path, field, value.path);
            return Some(field);
        }
        let meant = tree.guess_key(name, fields, self.absent_fields(fields));
        let free = meant.filter(|meant| self.is_field_free(meant.key, fields));
        // A fix would lose what follows a colon.
        let is_certain =
            |meant: KeyGuess| meant.is_certain && !name.contains(':') && self.is_only_guess_for(meant.key, fields);
        let near = free.map(|meant| Suggestion { name: meant.key, is_certain: is_certain(meant) });
        let message = format!("unknown key `{}`", excerpt(name));
        if let DecodeError::Detailed(mut detail) = DecodeError::unknown_name_near("unknown-key", message, fields, near)
        {
            if let (Some(meant), None) = (meant, free) {
                detail.help = Some(format!("did you mean `{}`, which is set already? Keep one of the two", meant.key));
            }
            self.mapping.session.report(key.finding(*detail));
        }
        let meant = free.map(|meant| meant.key);
        self.mapping.session.cache_key_guess(key.path, fields, meant);
        let meant = meant?;
        self.corrected_fields.push(meant);
        self.mapping.session.record_corrected_key(self.mapping.path, meant, value.path);
        Some(meant)
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
                None => tree.guess_key(name, fields, self.absent_fields(fields)).map(|meant| meant.key),
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
            None => Err(DecodeError::with_message("invalid-value", "a value was asked for before its key")),
        }
    }
}

/// A variant of an enum: a name alone, or a mapping of one name to its content.
pub(super) struct EnumVariant<'a> {
    name: String,
    /// The node of the name.
    label: NodeDeserializer<'a>,
    content: Option<NodeDeserializer<'a>>,
    /// Whether it is a placeholder.
    is_placeholder: bool,
}

impl<'a> EnumVariant<'a> {
    pub(super) fn of(node: NodeDeserializer<'a>, variants: &'static [&'static str]) -> Result<Self, DecodeError> {
        if node.is_placeholder() {
            let name = variants.first().ok_or(DecodeError::PartDropped)?;
            return Ok(Self { name: (*name).to_owned(), label: node, content: None, is_placeholder: true });
        }
        let (name, label, content) = match node.content() {
            Content::Scalar { text, value: Scalar::String, .. } => (text, node, None),
            Content::Mapping(pairs) => match **pairs {
                [(key, value)] => {
                    let content = node.child(value);
                    if node.session.is_dropped(content.path) {
                        return Err(DecodeError::PartDropped);
                    }
                    match node.session.tree().content(key) {
                        Content::Scalar { text, .. } => (text, node.child(key), Some(content)),
                        _ => return Err(DecodeError::wrong_type("a string as key")),
                    }
                }
                _ => {
                    let message = format!("expected a mapping with one key, found {} keys", pairs.len());
                    let help = Some(format!("write one of these: {}", one_of(variants)));
                    return Err(DecodeError::Detailed(Box::new(ErrorDetail {
                        code: "wrong-type",
                        message,
                        help,
                        fix: None,
                    })));
                }
            },
            _ => return Err(DecodeError::wrong_type(one_of(variants))),
        };
        if variants.contains(&&**name) {
            return Ok(Self { name: (**name).to_owned(), label, content, is_placeholder: false });
        }
        let message = format!("unknown value `{}`", excerpt(name));
        match (content, DecodeError::unknown_name("unknown-value", message, name, variants)) {
            (Some(_), DecodeError::Detailed(detail)) => {
                node.session.report(label.finding(*detail));
                Err(DecodeError::PartDropped)
            }
            (_, error) => Err(error),
        }
    }

    /// The content of the variant; an error if it has none.
    fn content(&self) -> Result<NodeDeserializer<'a>, DecodeError> {
        match self.content {
            Some(content) => Ok(content),
            None if self.is_placeholder => Ok(self.label.placeholder_for(&self.name)),
            None => {
                let message = format!("`{}` needs a value", self.name);
                let help = Some(format!("write `{}: ...`", self.name));
                Err(DecodeError::Detailed(Box::new(ErrorDetail { code: "wrong-type", message, help, fix: None })))
            }
        }
    }
}

fn one_of(variants: &[&str]) -> String {
    match variants {
        [] => "no value".to_owned(),
        [only] => format!("`{only}`"),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", rest.join(", "))
        }
    }
}

impl<'de> EnumAccess<'de> for EnumVariant<'_> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), DecodeError> {
        let name: serde::de::value::StrDeserializer<'_, DecodeError> = self.name.as_str().into_deserializer();
        let value = seed.deserialize(name)?;
        Ok((value, self))
    }
}

impl<'de> VariantAccess<'de> for EnumVariant<'_> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match self.content {
            Some(content) if !content.node().is_null() && !content.is_placeholder() => {
                let message = format!("`{}` takes no value", self.name);
                let help = Some(format!("write only `{}`", self.name));
                Err(content.record_error(DecodeError::Detailed(Box::new(ErrorDetail {
                    code: "wrong-type",
                    message,
                    help,
                    fix: None,
                }))))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, DecodeError> {
        self.content()?.decode(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeError> {
        let content = self.content()?;
        content.deserialize_tuple(length, visitor).map_err(|error| content.record_error(error))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let content = self.content()?;
        content.deserialize_struct("", fields, visitor).map_err(|error| content.record_error(error))
    }
}
