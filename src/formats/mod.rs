//! Output formats. A new one is a file here and a line in [`FORMATS`].

pub mod comparison;
mod comparison_text;
mod concise;
mod excerpt;
mod fingerprint;
mod format;
mod github;
mod gitlab;
mod html;
#[cfg(test)]
mod injection_tests;
mod json;
mod jsonl;
mod junit;
pub mod markdown;
mod plan_text;
mod rule_docs;
pub mod run_stats;
mod sarif;
#[cfg(test)]
mod snapshot_tests;
pub mod step_summary;
mod test_text;
mod text;
mod uri;

pub use self::format::{DisplayOptions, Format, PlanPreview, Subject, Transcript};

/// All formats.
pub static FORMATS: &[&dyn Format] = &[
    &text::Text,
    &concise::Concise,
    &json::Json,
    &jsonl::Jsonl,
    &junit::Junit,
    &github::Github,
    &sarif::Sarif,
    &gitlab::Gitlab,
    &markdown::Markdown,
    &html::Html,
];

/// The format of that name.
pub fn find(name: &str) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in FORMATS {
            assert_eq!(find(format.name()).map(Format::name), Some(format.name()));
        }
        assert!(find("xml").is_none());
    }
}
