//! Properties of every job, valid or not, tested with reproducible pseudo-random texts.
//!
//! `PROPTEST_CASES=10000 cargo test --test all properties` tries more, and `PROPTEST_RNG_SEED=7` tries others.

mod damaged_jobs;
mod generated_jobs;
mod invariants;

use std::sync::Arc;

use legwork::diagnostic::{Diagnostic, Source, SourceSpan};
use legwork::lints::{self, UserConfig, autofix};
use legwork::yaml;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;

use damaged_jobs::{Damage, FIXTURES, apply_all, damage};
use generated_jobs::Choices;

fn config() -> ProptestConfig {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let mut config = ProptestConfig::default();
    if !is_set("PROPTEST_CASES") {
        config.cases = 150;
    }
    if !is_set("PROPTEST_RNG_SEED") {
        config.rng_seed = RngSeed::Fixed(20_260_801);
    }
    config.failure_persistence = None;
    config
}

/// A fixture and the damage done to it.
fn fixture() -> impl Strategy<Value = (usize, Vec<Damage>)> {
    (0..FIXTURES.len(), prop::collection::vec(damage(), 0..4))
}

/// A valid job and its text.
fn generated_job() -> impl Strategy<Value = GeneratedJob> {
    prop::collection::vec(any::<u8>(), 0..600).prop_map(|bytes| {
        let mut dice = Choices(bytes.iter());
        let job = generated_jobs::job(&mut dice);
        GeneratedJob { text: generated_jobs::yaml(&mut dice, &job), job }
    })
}

struct GeneratedJob {
    job: Value,
    text: String,
}

impl std::fmt::Debug for GeneratedJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}\n{}", self.text, self.text)
    }
}

fn source(text: &str) -> Arc<Source> {
    Source::new("job.yaml", text)
}

fn findings(text: &str) -> Vec<Diagnostic> {
    lints::check(&source(text), None).findings
}

type ComparableFinding = (String, [(usize, usize); 2], Vec<[(usize, usize); 2]>);

/// Findings with all lines shifted down. Some findings are about the file as a whole and don't shift.
fn comparable_findings(findings: &[Diagnostic], down: usize) -> Vec<ComparableFinding> {
    let one = |finding: &Diagnostic| {
        let Diagnostic { code, message, help, span: place, .. } = finding;
        let is_whole = matches!(*code, "empty-file" | "bad-name") && place.range == (0..0);
        let down = if is_whole { 0 } else { down };
        let moved = |place: &SourceSpan| [place.start(), place.end()].map(|(line, column)| (line + down, column));
        let labels = finding.labels.iter().map(|label| moved(&label.span)).collect();
        (format!("[{code}] {message} | {help:?}"), moved(place), labels)
    };
    findings.iter().map(one).collect()
}

/// The keys of a job, each with its parent mapping.
const KEYS: [(&str, &str); 13] = [
    ("", "name"),
    ("", "model"),
    ("", "description"),
    ("parent", "prompt"),
    ("parent", "system"),
    ("parent", "max_turns"),
    ("parent", "max_tokens"),
    ("limits", "tokens"),
    ("limits", "tool_calls"),
    ("limits", "subagents"),
    ("limits", "parallel_subagents"),
    ("limits", "cost_usd"),
    ("limits", "wall_clock"),
];

/// The number of ways to misspell a key.
const MISTAKES: usize = 6;

/// Keys as intended and as misspelled; no two are equal within a mapping.
fn misspelled_keys(picks: &[(usize, usize, prop::sample::Index)]) -> Vec<(&'static str, &'static str, String)> {
    let mut keys: Vec<(&str, &str, String)> = Vec::new();
    for (pick, mistake, at) in picks {
        let (level, meant) = KEYS[*pick];
        let mut letters: Vec<char> = meant.chars().collect();
        let at = at.index(letters.len() - 1);
        match mistake {
            0 => {}
            1 => letters[at] = letters[at].to_ascii_uppercase(),
            2 => letters = meant.replace('_', "-").chars().collect(),
            3 => drop(letters.remove(at)),
            4 => letters.swap(at, at + 1),
            _ => letters.insert(at, 'q'),
        }
        let written: String = letters.into_iter().collect();
        if !keys.iter().any(|(other, _, there)| *other == level && *there == written) {
            keys.push((level, meant, written));
        }
    }
    keys
}

/// A job with these keys, each with a distinct number as its value.
fn job_of(keys: &[(&str, &str, String)]) -> String {
    let of = |level: &str| {
        let own = keys.iter().enumerate().filter(|(_, (other, ..))| *other == level);
        let indent = if level.is_empty() { "" } else { "  " };
        own.map(|(at, (_, _, written))| format!("{indent}{written}: {}\n", 1000 + at)).collect::<String>()
    };
    let mapping = |level: &str| Some(of(level)).filter(|own| !own.is_empty()).map(|own| format!("{level}:\n{own}"));
    format!("{}{}{}", of(""), mapping("parent").unwrap_or_default(), mapping("limits").unwrap_or_default())
}

/// All scalars, by the path of keys to them.
fn flat(job: &Value) -> Vec<(String, String)> {
    let of = |level: &str, mapping: &Value| {
        let entries = mapping.as_object().cloned().unwrap_or_default().into_iter();
        let scalars = entries.filter(|(_, value)| !value.is_object());
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        scalars.map(|(key, value)| (format!("{level}.{key}"), text(&value))).collect::<Vec<_>>()
    };
    [of("", job), of("parent", &job["parent"]), of("limits", &job["limits"])].concat()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn damaged_jobs_are_read_completely((at, damages) in fixture(), cut in any::<prop::sample::Index>(), is_cut in any::<bool>()) {
        let fixture = &FIXTURES[at];
        let text = apply_all(&fixture.text, &damages);
        let end = if is_cut { cut.index(text.len() + 1) } else { text.len() };
        invariants::check_all("job.yaml", &text.as_bytes()[..end], fixture.folder().as_ref());
    }

    #[test]
    fn generated_jobs_are_valid(written in generated_job()) {
        let GeneratedJob { job, text } = written;
        prop_assert_eq!(yaml::read::<Value>(&source(&text)).into_result().ok(), Some(job));
        let (findings, is_valid) = invariants::check_all("job.yaml", text.as_bytes(), None);
        prop_assert!(is_valid, "{:#?}", findings);
    }

    #[test]
    fn damaged_generated_jobs_are_read_completely(written in generated_job(), damages in prop::collection::vec(damage(), 1..5)) {
        invariants::check_all("job.yaml", apply_all(&written.text, &damages).as_bytes(), None);
    }

    #[test]
    fn the_same_text_gives_the_same_findings((at, damages) in fixture()) {
        let text = apply_all(&FIXTURES[at].text, &damages);
        prop_assert_eq!(comparable_findings(&findings(&text), 0), comparable_findings(&findings(&text), 0));
    }

    #[test]
    fn a_comment_before_the_job_shifts_every_finding((at, damages) in fixture()) {
        let text = apply_all(&FIXTURES[at].text, &damages);
        prop_assume!(!text.starts_with('\u{feff}'));
        let below = findings(&format!("# A comment.\n{text}"));
        prop_assert_eq!(comparable_findings(&below, 0), comparable_findings(&findings(&text), 1), "{}", text);
    }

    #[test]
    fn fixes_improve_the_job_and_are_idempotent((at, damages) in fixture()) {
        let fixture = &FIXTURES[at];
        let before = source(&apply_all(&fixture.text, &damages));
        let folder = fixture.folder();
        let weigh = |text: &str| {
            let mut weight = [0, 0];
            for finding in lints::check(&source(text), folder.as_ref()).findings {
                weight[finding.severity as usize] += 1;
            }
            weight
        };
        let mended = autofix::fix_job(&before, folder.as_ref(), &UserConfig::default());
        if mended.applied == 0 {
            prop_assert_eq!(&mended.text, &before.text);
        } else {
            prop_assert!(weigh(&mended.text) < weigh(&before.text), "{}", mended.text);
            let comments = |text: &str| text.lines().filter(|line| line.trim_start().starts_with('#')).count();
            prop_assert_eq!(comments(&mended.text), comments(&before.text));
        }
        let again = autofix::fix_job(&source(&mended.text), folder.as_ref(), &UserConfig::default());
        prop_assert_eq!((again.applied, &again.text), (0, &mended.text));
        let found = lints::check(&source(&mended.text), folder.as_ref()).findings;
        prop_assert_eq!(comparable_findings(&mended.findings, 0), comparable_findings(&found, 0));
    }

    #[test]
    fn fixes_never_move_a_value_to_another_key(picks in prop::collection::vec((0..KEYS.len(), 0..MISTAKES, any::<prop::sample::Index>()), 0..14)) {
        let keys = misspelled_keys(&picks);
        let text = job_of(&keys);
        let mended = autofix::fix_job(&source(&text), None, &UserConfig::default());
        let now = flat(&yaml::read::<Value>(&source(&mended.text)).value.unwrap_or_default());
        prop_assert_eq!(now.len(), keys.len(), "{}", mended.text);
        for (at, (level, meant, written)) in keys.iter().enumerate() {
            let key = now.iter().find(|(_, value)| value == &(1000 + at).to_string()).map(|(key, _)| key.clone());
            let [as_meant, as_written] = [*meant, written.as_str()].map(|key| format!("{level}.{key}"));
            prop_assert!(key == Some(as_meant) || key == Some(as_written), "{:?}\n{}\n{}", key, text, mended.text);
        }
    }

    #[test]
    fn both_line_endings_give_the_same_positions((at, damages) in fixture()) {
        let text = apply_all(&FIXTURES[at].text, &damages);
        prop_assume!(!text.contains('\r'));
        prop_assert_eq!(
            comparable_findings(&findings(&text.replace('\n', "\r\n")), 0),
            comparable_findings(&findings(&text), 0),
            "{}", text
        );
    }
}
