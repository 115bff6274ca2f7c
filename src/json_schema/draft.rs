//! The drafts of JSON Schema.

use serde_json::Value;

use crate::diagnostic::suggest_name;

/// A draft that schemas can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Draft {
    Draft4,
    Draft6,
    Draft7,
    Draft2019,
    Draft2020,
}

/// What `$schema` says, without scheme and empty fragment.
const NAMES: &[(&str, Draft)] = &[
    ("json-schema.org/draft/2020-12/schema", Draft::Draft2020),
    ("json-schema.org/draft/2019-09/schema", Draft::Draft2019),
    ("json-schema.org/draft-07/schema", Draft::Draft7),
    ("json-schema.org/draft-06/schema", Draft::Draft6),
    ("json-schema.org/draft-04/schema", Draft::Draft4),
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
            let near = suggest_name(bare, NAMES.iter().map(|(name, _)| *name)).unwrap_or(NAMES[0].0);
            format!("`$schema` names no draft that is known here; did you mean `https://{near}`?")
        }))
    }

    /// What its schemas say in `$schema`.
    pub(super) fn uri(self) -> &'static str {
        match self {
            Self::Draft4 => "http://json-schema.org/draft-04/schema#",
            Self::Draft6 => "http://json-schema.org/draft-06/schema#",
            Self::Draft7 => "http://json-schema.org/draft-07/schema#",
            Self::Draft2019 => "https://json-schema.org/draft/2019-09/schema",
            Self::Draft2020 => "https://json-schema.org/draft/2020-12/schema",
        }
    }

    /// The keyword for schemas that are there to be referred to.
    pub(super) fn definitions(self) -> &'static str {
        match self {
            Self::Draft2019 | Self::Draft2020 => "$defs",
            _ => "definitions",
        }
    }

    /// The keyword that names a schema.
    pub(super) fn id(self) -> &'static str {
        if self == Self::Draft4 { "id" } else { "$id" }
    }

    /// As the crate knows it.
    pub(super) fn to_crate_draft(self) -> jsonschema::Draft {
        match self {
            Self::Draft4 => jsonschema::Draft::Draft4,
            Self::Draft6 => jsonschema::Draft::Draft6,
            Self::Draft7 => jsonschema::Draft::Draft7,
            Self::Draft2019 => jsonschema::Draft::Draft201909,
            Self::Draft2020 => jsonschema::Draft::Draft202012,
        }
    }
}
