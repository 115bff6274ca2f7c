//! Walks `tests/lints`: a folder for each code, with good jobs and bad ones and a snapshot of what is found.

use std::path::{Path, PathBuf};

use super::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lints")
}

/// The job beside a script.
fn beside(script: &Path) -> PathBuf {
    let name = script.file_name().unwrap().to_string_lossy();
    script.with_file_name(name.replace(".script.yaml", ".yaml"))
}

fn is_script(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".script.yaml")
}

fn read(path: &Path) -> Arc<Source> {
    Source::new(path.file_name().unwrap().to_string_lossy(), std::fs::read_to_string(path).unwrap())
}

/// What is found in a job, or in a script beside its job or without one.
fn check_file(path: &Path) -> Checked {
    let source = read(path);
    if is_script(path) {
        let job = beside(path).exists().then(|| yaml::read::<Job>(&read(&beside(path))).whole().unwrap());
        return Checked { findings: check_script(&source, job.as_ref()), job: None, prompts: Vec::new() };
    }
    check(&source, Some(&Folder::open(path.parent().unwrap()).unwrap()))
}

/// One line for each finding.
fn printed(findings: &[Diagnostic]) -> String {
    let at = |place: &Place| {
        let (line, column) = place.start();
        let (end_line, end_column) = place.end();
        let file = Path::new(&place.source.name).file_name().unwrap_or_default().to_string_lossy().into_owned();
        if end_line == line {
            format!("{file}:{line}:{column}-{end_column}")
        } else {
            format!("{file}:{line}:{column}-{end_line}:{end_column}")
        }
    };
    let mut text = String::new();
    for finding in findings {
        let severity = finding.severity.as_str();
        text += &format!("{} {severity}[{}] {}", at(&finding.place), finding.code, finding.message);
        for label in &finding.labels {
            text += &format!(" ({} at {})", label.text, at(&label.place));
        }
        if let Some(help) = &finding.help {
            text += &format!(" | {help}");
        }
        if let Some(fix) = &finding.fix {
            text += &format!(" | => {}", fix.with);
        }
        text.push('\n');
    }
    text
}

/// Jobs, and scripts without the jobs that they belong to.
fn jobs(folder: &Path) -> Vec<PathBuf> {
    let mut jobs: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    jobs.sort();
    let served: Vec<PathBuf> = jobs.iter().filter(|path| is_script(path)).map(|path| beside(path)).collect();
    jobs.retain(|path| !served.contains(path));
    jobs
}

#[test]
fn every_fixture_gives_its_findings() {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let mut failed = Vec::new();
    for folder in folders {
        let code = folder.file_name().unwrap().to_string_lossy().into_owned();
        for path in jobs(&folder) {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let shown = format!("{code}/{stem}");
            let checked = check_file(&path);
            let printed = printed(&checked.findings);
            let has_errors = checked.findings.iter().any(|finding| finding.severity == Severity::Error);
            assert!(checked.job.is_none() == has_errors || is_script(&path), "{shown}: {printed}");
            for finding in &checked.findings {
                let rule = rules().find(|rule| rule.code == finding.code);
                assert_eq!(rule.map(|rule| rule.severity), Some(finding.severity), "{shown}: {}", finding.code);
            }
            if stem.starts_with("good") {
                failed.extend((!printed.is_empty()).then(|| format!("{shown}: {printed}")));
                continue;
            }
            assert!(!printed.is_empty(), "{shown}: nothing was found");
            if code != "structure" {
                assert!(checked.findings.iter().any(|finding| finding.code == code), "{shown}: {printed}");
            }
            let snapshot = std::panic::catch_unwind(|| {
                insta::with_settings!({
                    snapshot_path => folder.clone(),
                    prepend_module_to_snapshot => false,
                    omit_expression => true,
                }, {
                    insta::assert_snapshot!(stem, printed);
                });
            });
            failed.extend(snapshot.err().map(|_| shown));
        }
    }
    assert!(failed.is_empty(), "other findings than expected: {failed:#?}");
}

#[test]
fn twenty_five_mistakes_are_twenty_five_findings() {
    let checked = check_file(&fixtures().join("structure/bad-twenty.yaml"));
    assert_eq!(checked.findings.len(), 25, "{}", printed(&checked.findings));
}

#[test]
fn every_code_has_a_good_and_a_bad_fixture() {
    let of_files = yaml::RULES.iter().chain(replay::RULES).map(|rule| rule.code).collect::<Vec<_>>();
    for code in rules().map(|rule| rule.code).filter(|code| !of_files.contains(code)) {
        let jobs = jobs(&fixtures().join(code));
        for kind in ["good", "bad"] {
            assert!(
                jobs.iter().any(|path| path.file_stem().unwrap().to_string_lossy().starts_with(kind)),
                "tests/lints/{code} has no {kind} job"
            );
        }
    }
}

#[test]
fn a_flood_of_mistakes_is_bounded_in_number_and_time() {
    let head = "model: anthropic/x\nparent:\n  prompt: a\n  tools: []\n";
    let many = |item: &str| vec![item; 20_000].join(", ");
    for text in [
        format!("model: anthropic/x\nparent:\n  prompt: \"{}\"\n  tools: []\n", "{{x}}".repeat(3_000)),
        format!("model: anthropic/x\nparent:\n  prompt: a\n  tools: [{}]\n", many("glob")),
        format!("{head}env: [{}]\n", many("HOME")),
        format!("{head}inputs: {{ a: {{ type: string, enum: [{}] }} }}\n", many("a")),
        format!(
            "{head}inputs:\n{}",
            (0..5_000).map(|number| format!("  A{number}: {{ type: string }}\n")).collect::<String>()
        ),
    ] {
        let checked = check(&Source::new("job.yaml", text), None);
        assert_eq!(checked.findings.len(), MAX_FINDINGS + 1);
        assert!(checked.findings.last().unwrap().message.ends_with("not shown"));
        assert!(checked.job.is_none());
    }
}
