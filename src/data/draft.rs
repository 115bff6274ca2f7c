//! The drafts of JSON Schema.

use serde_json::Value;

use crate::diagnostic::nearest;

/// A draft that schemas can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Draft {
    Four,
    Six,
    Seven,
    Of2019,
    Of2020,
}

/// What `$schema` says, without scheme and empty fragment.
const NAMES: &[(&str, Draft)] = &[
    ("json-schema.org/draft/2020-12/schema", Draft::Of2020),
    ("json-schema.org/draft/2019-09/schema", Draft::Of2019),
    ("json-schema.org/draft-07/schema", Draft::Seven),
    ("json-schema.org/draft-06/schema", Draft::Six),
    ("json-schema.org/draft-04/schema", Draft::Four),
];

impl Draft {
    /// What a schema says of itself; `None` where it says nothing.
    pub(super) fn of(schema: &Value) -> Option<Result<Self, String>> {
        let Value::String(uri) = schema.get("$schema")? else {
            return Some(Err("`$schema` is no text".to_owned()));
        };
        let bare = uri.trim_end_matches('#');
        let bare = bare.strip_prefix("https://").or(bare.strip_prefix("http://")).unwrap_or(bare);
        let found = NAMES.iter().find(|(name, _)| *name == bare).map(|(_, draft)| *draft);
        Some(found.ok_or_else(|| {
            let near = nearest(bare, NAMES.iter().map(|(name, _)| *name)).unwrap_or(NAMES[0].0);
            format!("`$schema` names no draft that is known here; did you mean `https://{near}`?")
        }))
    }

    /// What its schemas say in `$schema`.
    pub(super) fn uri(self) -> &'static str {
        match self {
            Self::Four => "http://json-schema.org/draft-04/schema#",
            Self::Six => "http://json-schema.org/draft-06/schema#",
            Self::Seven => "http://json-schema.org/draft-07/schema#",
            Self::Of2019 => "https://json-schema.org/draft/2019-09/schema",
            Self::Of2020 => "https://json-schema.org/draft/2020-12/schema",
        }
    }

    /// The keyword for schemas that are there to be referred to.
    pub(super) fn definitions(self) -> &'static str {
        match self {
            Self::Of2019 | Self::Of2020 => "$defs",
            _ => "definitions",
        }
    }

    /// The keyword that names a schema.
    pub(super) fn id(self) -> &'static str {
        if self == Self::Four { "id" } else { "$id" }
    }

    /// As the crate knows it.
    pub(super) fn known(self) -> jsonschema::Draft {
        match self {
            Self::Four => jsonschema::Draft::Draft4,
            Self::Six => jsonschema::Draft::Draft6,
            Self::Seven => jsonschema::Draft::Draft7,
            Self::Of2019 => jsonschema::Draft::Draft201909,
            Self::Of2020 => jsonschema::Draft::Draft202012,
        }
    }
}
