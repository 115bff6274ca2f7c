//! How serde gets at the items of a list, the entries of a mapping and the content of an enum.

use std::cell::OnceCell;
use std::ops::Range;

use serde::Deserializer;
use serde::de::{DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::fault::{Fault, Said};
use super::findings::excerpt;
use super::recover::Walker;
use super::scalar::Scalar;
use super::tree::{Content, Meant};
use crate::diagnostic::Near;

/// The items of a list.
pub(super) struct Items<'a> {
    list: Walker<'a>,
    items: std::slice::Iter<'a, u32>,
    /// Every item counts: without one the list is nothing.
    exact: bool,
    made_up: Range<usize>,
}

impl<'a> Items<'a> {
    pub(super) fn new(list: Walker<'a>, items: &'a [u32], exact: bool) -> Self {
        Self { list, items: items.iter(), exact, made_up: 0..0 }
    }

    /// Items of a hole.
    pub(super) fn made_up(list: Walker<'a>, length: usize) -> Self {
        Self { list, items: [].iter(), exact: true, made_up: 0..length }
    }

    fn next(&mut self) -> Option<Walker<'a>> {
        match self.items.next() {
            Some(item) => Some(self.list.child(*item)),
            None => self.made_up.next().map(|position| self.list.stand_in(&position.to_string())),
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        while let Some(item) = self.next() {
            if !self.list.run.is_dropped(item.path) {
                let decoded = item.decode(seed).map(Some);
                if decoded.is_err() && !self.exact && item.fails_itself() {
                    item.drop_silently();
                }
                return decoded;
            }
            if self.exact {
                return Err(Fault::PartDropped);
            }
        }
        Ok(None)
    }
}

/// The entries of a mapping, then those that are made up.
pub(super) struct Entries<'a> {
    mapping: Walker<'a>,
    pairs: std::slice::Iter<'a, (u32, u32)>,
    /// The only keys there may be, where they are known.
    fields: Option<&'static [&'static str]>,
    /// The known keys that the mapping lacks, once a key that isn't known has been met.
    absent: OnceCell<Vec<&'static str>>,
    /// What each of the mapping's unknown keys was meant to be, once one has been met.
    claims: OnceCell<Vec<Option<&'static str>>>,
    /// Known keys that a misspelt one was taken for.
    adopted: Vec<&'static str>,
    wanted: std::vec::IntoIter<&'static str>,
    value: Option<Walker<'a>>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(mapping: Walker<'a>, pairs: &'a [(u32, u32)], fields: Option<&'static [&'static str]>) -> Self {
        let wanted = mapping.run.wanted(mapping.path).into_iter();
        Self {
            mapping,
            pairs: pairs.iter(),
            fields,
            absent: OnceCell::new(),
            claims: OnceCell::new(),
            adopted: Vec::new(),
            wanted,
            value: None,
        }
    }

    /// The known key that a key is; or is probably meant to be, if that one isn't there itself.
    fn field(&mut self, fields: &'static [&'static str], key: Walker<'a>, value: Walker<'a>) -> Option<&'static str> {
        let tree = self.mapping.run.tree();
        let name = tree.text(key.index).unwrap_or_default();
        if let Some(field) = fields.iter().find(|field| **field == name) {
            return Some(field);
        }
        // What an earlier round has said of it holds: each round would search again for all.
        if let Some(meant) = self.mapping.run.known_as(key.path, fields) {
            self.adopted.extend(meant);
            return meant;
        }
        if self.mapping.run.is_full() {
            // Nobody sees what else is said, and a search for each of very many keys takes its time.
            let message = format!("unknown key `{}`", excerpt(name));
            self.mapping.run.report(key.finding(Said::plain("unknown-key", message)));
            let meant = self.mapping.run.adopted(self.mapping.path, fields, value.path)?;
            self.adopted.push(meant);
            return Some(meant);
        }
        if let Some((field, spaced)) = with_space(name, fields)
            .filter(|(field, _)| self.is_free(field, fields) && value.node().is_null() && key.node().is_plain())
        {
            let message = format!("unknown key `{}`", excerpt(name));
            let help = Some(format!("a space is missing after the `:`; write `{}`", excerpt(&spaced)));
            let fix = self.is_claimed_once(field, fields).then_some(spaced);
            self.mapping.run.report(key.finding(Said { code: "unknown-key", message, help, fix }));
            // The value is in the key: nothing is said of what is missing.
            value.leave_open();
            self.mapping.run.know(key.path, fields, Some(field));
            self.adopted.push(field);
            self.mapping.run.adopt(self.mapping.path, field, value.path);
            return Some(field);
        }
        let meant = tree.meant(name, fields, self.absent(fields));
        let free = meant.filter(|meant| self.is_free(meant.key, fields));
        // What stands behind a colon would be lost with a fix.
        let is_certain =
            |meant: Meant| meant.is_certain && !name.contains(':') && self.is_claimed_once(meant.key, fields);
        let near = free.map(|meant| Near { name: meant.key, is_only: is_certain(meant) });
        let message = format!("unknown key `{}`", excerpt(name));
        if let Fault::Said(mut said) = Fault::unknown_but_near("unknown-key", message, fields, near) {
            if let (Some(meant), None) = (meant, free) {
                said.help = Some(format!("did you mean `{}`, which is there already? Keep one of the two", meant.key));
            }
            self.mapping.run.report(key.finding(*said));
        }
        let meant = free.map(|meant| meant.key);
        self.mapping.run.know(key.path, fields, meant);
        let meant = meant?;
        self.adopted.push(meant);
        self.mapping.run.adopt(self.mapping.path, meant, value.path);
        Some(meant)
    }

    /// Whether a known key isn't there, and no unknown one was taken for it.
    fn is_free(&self, field: &'static str, fields: &'static [&'static str]) -> bool {
        !self.adopted.contains(&field) && self.absent(fields).contains(&field)
    }

    /// The known keys that the mapping lacks. Looked up once: a mapping of a hundred thousand unknown keys would be
    /// searched for each of them.
    fn absent(&self, fields: &'static [&'static str]) -> &[&'static str] {
        let lacks = |field: &&&'static str| self.mapping.run.tree().pair(self.mapping.index, field).is_none();
        self.absent.get_or_init(|| fields.iter().filter(lacks).copied().collect())
    }

    /// Whether a single one of the mapping's unknown keys stands for this field: which of several is meant is for the
    /// author to say.
    fn is_claimed_once(&self, field: &'static str, fields: &'static [&'static str]) -> bool {
        let claims = self.claims.get_or_init(|| {
            let tree = self.mapping.run.tree();
            let Content::Mapping(pairs) = self.mapping.content() else { return Vec::new() };
            let names = pairs.iter().filter_map(|(key, _)| tree.text(*key));
            let unknown = names.filter(|name| !fields.contains(name)).take(MAX_CLAIMS + 1);
            let claim = |name: &str| match with_space(name, fields) {
                Some((field, _)) => Some(field),
                None => tree.meant(name, fields, self.absent(fields)).map(|meant| meant.key),
            };
            unknown.map(claim).collect()
        });
        claims.len() <= MAX_CLAIMS && claims.iter().filter(|claim| **claim == Some(field)).count() == 1
    }
}

/// With more unknown keys in one mapping than this, none has a fix.
const MAX_CLAIMS: usize = 200;

/// The known key that `cost_usd:5` begins with, and the whole with the space that parts key and value.
fn with_space(name: &str, fields: &[&'static str]) -> Option<(&'static str, String)> {
    let (key, value) = name.split_once(':')?;
    let field = fields.iter().copied().find(|field| *field == key)?;
    Some((field, format!("{field}: {value}")))
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        while let Some((key, value)) = self.pairs.next() {
            let (key, value) = (self.mapping.child(*key), self.mapping.child(*value));
            let field = match self.fields {
                Some(fields) => match self.field(fields, key, value) {
                    Some(field) => Some(field),
                    None => continue,
                },
                None => None,
            };
            if self.mapping.run.is_dropped(value.path) {
                continue;
            }
            self.value = Some(value);
            let decoded = match field {
                Some(field) => seed.deserialize(field.into_deserializer()).map_err(|fault| key.record(fault)),
                None => key.decode(seed),
            };
            return decoded.map(Some).inspect_err(|_| value.drop_silently());
        }
        for name in self.wanted.by_ref() {
            let value = self.mapping.stand_in(name);
            if !self.mapping.run.is_dropped(value.path) {
                self.value = Some(value);
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        match self.value.take() {
            Some(value) => value.decode(seed),
            None => Err(Fault::said("invalid-value", "a value was asked for before its key")),
        }
    }
}

/// One of several forms: a name alone, or a mapping of one name to its content.
pub(super) struct Variant<'a> {
    name: String,
    /// Where the name stands.
    label: Walker<'a>,
    content: Option<Walker<'a>>,
    /// Nothing is there; whatever is asked for is made up.
    hole: bool,
}

impl<'a> Variant<'a> {
    pub(super) fn of(walker: Walker<'a>, variants: &'static [&'static str]) -> Result<Self, Fault> {
        if walker.is_hole() {
            let name = variants.first().ok_or(Fault::PartDropped)?;
            return Ok(Self { name: (*name).to_owned(), label: walker, content: None, hole: true });
        }
        let (name, label, content) = match walker.content() {
            Content::Scalar { text, value: Scalar::String, .. } => (text, walker, None),
            Content::Mapping(pairs) => match **pairs {
                [(key, value)] => {
                    let content = walker.child(value);
                    if walker.run.is_dropped(content.path) {
                        return Err(Fault::PartDropped);
                    }
                    match walker.run.tree().content(key) {
                        Content::Scalar { text, .. } => (text, walker.child(key), Some(content)),
                        _ => return Err(Fault::wrong_type("a string as key")),
                    }
                }
                _ => {
                    let message = format!("expected a mapping with one key, found {} keys", pairs.len());
                    let help = Some(format!("write one of these: {}", one_of(variants)));
                    return Err(Fault::Said(Box::new(Said { code: "wrong-type", message, help, fix: None })));
                }
            },
            _ => return Err(Fault::wrong_type(one_of(variants))),
        };
        if variants.contains(&&**name) {
            return Ok(Self { name: (**name).to_owned(), label, content, hole: false });
        }
        let message = format!("unknown value `{}`", excerpt(name));
        match (content, Fault::unknown("unknown-value", message, name, variants)) {
            (Some(_), Fault::Said(said)) => {
                walker.run.report(label.finding(*said));
                Err(Fault::PartDropped)
            }
            (_, fault) => Err(fault),
        }
    }

    /// What stands beside the name; an error where nothing does.
    fn content(&self) -> Result<Walker<'a>, Fault> {
        match self.content {
            Some(content) => Ok(content),
            None if self.hole => Ok(self.label.stand_in(&self.name)),
            None => {
                let message = format!("`{}` needs a value", self.name);
                let help = Some(format!("write `{}: ...`", self.name));
                Err(Fault::Said(Box::new(Said { code: "wrong-type", message, help, fix: None })))
            }
        }
    }
}

fn one_of(variants: &[&str]) -> String {
    match variants {
        [] => "a value of which there is none".to_owned(),
        [only] => format!("`{only}`"),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", rest.join(", "))
        }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Fault> {
        let name: serde::de::value::StrDeserializer<'_, Fault> = self.name.as_str().into_deserializer();
        let value = seed.deserialize(name)?;
        Ok((value, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.content {
            Some(content) if !content.node().is_null() && !content.is_hole() => {
                let message = format!("`{}` takes no value", self.name);
                let help = Some(format!("write only `{}`", self.name));
                Err(content.record(Fault::Said(Box::new(Said { code: "wrong-type", message, help, fix: None }))))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        self.content()?.decode(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        let content = self.content()?;
        content.deserialize_tuple(length, visitor).map_err(|fault| content.record(fault))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        let content = self.content()?;
        content.deserialize_struct("", fields, visitor).map_err(|fault| content.record(fault))
    }
}
