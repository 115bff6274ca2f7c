//! Walks `tests/lints`: a folder for each code, with good and bad jobs and snapshots of their findings. The findings of the
//! YAML reader are in `structure` and `syntax`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lints")
}

/// The job next to a script.
fn job_of_script(script: &Path) -> PathBuf {
    let name = script.file_name().unwrap().to_string_lossy();
    script.with_file_name(name.replace(".script.yml", ".yml"))
}

fn is_script(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".script.yml")
}

fn read(path: &Path) -> Arc<Source> {
    Source::new(path.file_name().unwrap().to_string_lossy(), std::fs::read_to_string(path).unwrap())
}

/// Checks a job, or a script with the job next to it, if there is one.
fn check_file(path: &Path) -> LintReport {
    let source = read(path);
    if is_script(path) {
        let job =
            job_of_script(path).exists().then(|| yaml::read::<Job>(&read(&job_of_script(path))).into_result().unwrap());
        return LintReport { findings: check_script(&source, job.as_ref()), job: None, prompts: Vec::new() };
    }
    let folder = JobDir::open(path.parent().unwrap()).unwrap();
    let origin = JobTrust::from_untrusted_flag(path.parent().unwrap().ends_with("forbidden-if-untrusted"));
    let root = path.parent().unwrap().canonicalize().unwrap();
    let workspace = WorkspaceFiles { root, ..WorkspaceFiles::default() };
    let mut own = UserConfig::default();
    if path.parent().unwrap().ends_with("untracked-cost") {
        own.local_providers.extend(["anthropic", "openai-chat"].map(str::to_owned));
    }
    let mut checked = check_in(&source, Some(&folder), origin, &own, Some(&workspace));
    // The other fixtures are about something else, and some of them need an old model.
    if !path.parent().unwrap().ends_with("retired-model") {
        checked.findings.retain(|finding| finding.code != "retired-model");
    }
    checked
}

/// One line for each finding.
fn printed(findings: &[Diagnostic]) -> String {
    let at = |place: &SourceSpan| {
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
        text += &format!("{} {severity}[{}] {}", at(&finding.span), finding.code, finding.message);
        for label in &finding.labels {
            text += &format!(" ({} at {})", label.text, at(&label.span));
        }
        if let Some(help) = &finding.help {
            text += &format!(" | {help}");
        }
        if let Some(fix) = &finding.fix {
            text += &format!(" | => {}", fix.replacement);
        }
        text.push('\n');
    }
    text
}

/// Jobs, which end in `.yaml`, and scripts, which end in `.script.yml`; the job of such a script ends in `.yml`.
fn jobs(folder: &Path) -> Vec<PathBuf> {
    let mut jobs: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| is_script(path) || path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    jobs.sort();
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
            if code != "structure" && code != "syntax" {
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
fn twenty_five_errors_are_twenty_five_findings() {
    let checked = check_file(&fixtures().join("structure/bad-twenty.yaml"));
    assert_eq!(checked.findings.len(), 25, "{}", printed(&checked.findings));
}

#[test]
fn a_file_full_of_errors_reports_each_once() {
    let checked = check_file(&fixtures().join("structure/bad-forty.yaml"));
    assert_eq!(checked.findings.len(), 39, "{}", printed(&checked.findings));
    let codes: HashSet<&str> = checked.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes.len(), 37, "{codes:?}");
    let places: HashSet<_> = checked.findings.iter().map(|finding| finding.span.start()).collect();
    assert_eq!(places.len(), 39, "two findings at one place");
}

#[test]
fn every_code_has_a_good_and_a_bad_fixture() {
    let of_files = [yaml::RULES, toml_file::RULES, replay::RULES, user_servers::RULES].concat();
    let of_files: Vec<&str> = of_files.iter().map(|rule| rule.code).collect();
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
fn a_flood_of_errors_is_bounded_in_number_and_time() {
    let limits = "limits: { tokens: 9 }\n";
    let head = &format!("model: anthropic/x\n{limits}parent:\n  prompt: a\n  tools: []\n");
    let prompt = |text: &str| format!("model: anthropic/x\n{limits}parent:\n  prompt: \"{text}\"\n  tools: []\n");
    let tools = |tools: &str| format!("model: anthropic/x\n{limits}parent:\n  prompt: a\n  tools: [{tools}]\n");
    let many = |item: &str| vec![item; 2_000].join(", ");
    let each = |item: fn(usize) -> String| (0..2_000).map(item).collect::<String>();
    for text in [
        prompt(&"{{x}}".repeat(3_000)),
        tools(&many("glob")),
        tools(&many("Bash(a)")),
        tools(&each(|number| format!("tool{number}, "))),
        format!("{}subagents:\n{}", tools("task"), each(|number| format!("  A{number}: {{ tools: [] }}\n"))),
        format!("{head}env: [{}]\n", many("HOME")),
        format!("{head}inputs: {{ a: {{ type: string, enum: [{}] }} }}\n", many("a")),
        format!("{head}inputs: {{ a: {{ type: string, enum: [{}] }} }}\n", each(|number| format!("1_{number}, "))),
        format!("{head}inputs:\n{}", each(|number| format!("  A{number}: {{ type: string }}\n"))),
        format!("{head}inputs:\n{}", each(|number| format!("  a{number}: {{ type: string }}\n"))),
        format!(
            "{}inputs:\n{}",
            prompt(&each(|number| format!("{{{{inputs.b{number}}}}}"))),
            each(|number| format!("  a{number}: {{ type: string }}\n")),
        ),
        format!(
            "{}subagents:\n{}",
            tools("task"),
            each(|number| format!("  a{number}: {{ tools: [], system: '{{{{1+\"a\"}}}}' }}\n")),
        ),
        each(|_| "# legwork: allow one-turm\n".to_owned()) + head,
    ] {
        let checked = check(&Source::new("job.yaml", text.as_str()), None);
        let shown = &text[..text.len().min(300)];
        assert_eq!(checked.findings.len(), MAX_FINDINGS + 1, "{shown}\n{}", printed(&checked.findings));
        assert!(checked.findings.last().unwrap().message.ends_with("not shown"));
        assert!(checked.job.is_none());
    }
}

#[test]
fn large_valid_jobs_take_linear_time() {
    let each = |item: fn(usize) -> String| (0..5_000).map(item).collect::<String>();
    let job = |system: &str, inputs: &str| {
        format!(
            "model: anthropic/claude-haiku-4-5\nlimits: {{ tokens: 9 }}\nparent:\n  tools: []\n  prompt: Hi.\n  \
             system: \"{system}\"\ninputs:\n  z: {{ type: string, default: x }}\n{inputs}"
        )
    };
    for text in [
        job(
            &each(|number| format!("{{{{inputs.a{number}}}}}")),
            &each(|number| format!("  a{number}: {{ type: string }}\n")),
        ),
        job(&"{{ inputs }}".repeat(5_000), &each(|number| format!("  a{number}: {{ type: string }}\n"))),
        job(&each(|number| format!("{{% set a{number} = inputs.z %}}x")), ""),
        job(&"{{ inputs.z | upper | trim }}".repeat(5_000), ""),
        job(&"{% for a in [1] %}{% if inputs.z %}a{% endif %}{% endfor %}".repeat(5_000), ""),
    ] {
        let checked = check(&Source::new("job.yaml", text.as_str()), None);
        assert!(
            checked.findings.iter().all(|finding| matches!(finding.code, "unused-input" | "empty-by-default")),
            "{}",
            printed(&checked.findings)
        );
    }
}

#[test]
fn an_expression_in_a_template_has_its_place_in_every_style_of_scalar() {
    for scalar in [
        "ünï {{ inputs.gone }} 日本",
        "over ü\n    lines 日 {{ inputs.gone }}",
        "'it''s ü {{ inputs.gone }}'",
        "'ü\n\n    日 {{ inputs.gone }}'",
        "\"\\u00fc \\\"日\\\" {{ inputs.gone }}\"",
        "\"ü \\\n    日 {{ inputs.gone }}\"",
        "|\n    日本\n\n      ü {{ inputs.gone }}",
        "|2-\n      日 {{ inputs.gone }}",
        ">\n    日本\n    ü {{ inputs.gone }}\n\n    end",
        ">-\n\n    日本\n      more ü {{\n      inputs.gone }}",
        "{ text: }\n# {{ inputs.gone }}",
    ] {
        for line_end in ["\n", "\r\n"] {
            for mark in ["", "\u{feff}"] {
                let text = format!(
                    "{mark}# ü\nname: é\nmodel: anthropic/x\nparent:\n  tools: []\n  prompt: {scalar}\nkeep: never\n"
                )
                .replace('\n', line_end);
                let (line, before) = text
                    .lines()
                    .zip(1..)
                    .find_map(|(line, number)| Some((number, line.split_once("gone")?.0)))
                    .unwrap();
                let found = check(&Source::new("job.yaml", text.clone()), None).findings;
                let undefined: Vec<&Diagnostic> =
                    found.iter().filter(|finding| finding.code == "undefined-variable").collect();
                if scalar.starts_with('{') {
                    assert!(undefined.is_empty());
                    continue;
                }
                let [finding] = undefined[..] else { panic!("{text}\n{}", printed(&found)) };
                assert_eq!(&text[finding.span.range.clone()], "gone", "{text}");
                assert_eq!(finding.span.start(), (line, before.chars().count() + 1), "{text}");
            }
        }
    }
}

/// A typo in a job with two other errors: all three are found, and nothing else. A few typos change the meaning of the file
/// in a way that takes more than one finding.
#[test]
fn a_typo_is_one_finding_and_hides_no_other() {
    let path = fixtures().join("structure/good-everything.yaml");
    let good = std::fs::read_to_string(&path).unwrap();
    let planted = good.replace("name: docstrings", "name: Docstrings").replace("keep: always", "keep: allways");
    let folder = JobDir::open(path.parent().unwrap()).unwrap();
    let within = planted.find("inputs:").unwrap()..planted.find("keep:").unwrap();
    let (mut typos, mut exact) = (0, 0);
    for (nth, typo) in ["\"", "'", "[", "}", "\t", "- ", " "].iter().cycle().enumerate().take(within.len() / 3) {
        let at = within.start + nth * 3;
        let source = Source::new("job.yaml", format!("{}{typo}{}", &planted[..at], &planted[at..]));
        let codes: Vec<&str> = check(&source, Some(&folder)).findings.iter().map(|finding| finding.code).collect();
        if codes.contains(&"yaml-syntax") {
            typos += 1;
            let has_all = codes.contains(&"bad-name") && codes.contains(&"unknown-value");
            exact += usize::from(has_all && codes.len() == 3);
        }
    }
    assert!(typos > 80 && exact * 100 >= typos * 97, "{exact} of {typos}");
}

/// The findings of a job with these lines after its limits, one line each.
fn found_in(rest: &str) -> Vec<String> {
    let text = format!("model: anthropic/claude-sonnet-5-5\nlimits: {{ tokens: 1 }}\n{rest}");
    printed(&check(&Source::new("job.yaml", text), None).findings).lines().map(str::to_owned).collect()
}

#[test]
fn a_key_one_level_too_deep_is_one_finding() {
    let deep = "`tools` is one level too deep";
    for rest in [
        "parent:\n  prompt: Hi.\n  system:\n    tools: []\n",
        "parent:\n  system: Be brief.\n  prompt:\n    file: tests.rs\n    tools: []\n",
        "parent: { prompt: Hi., tools: [task] }\nsubagents:\n  a:\n    description: Reads.\n    system:\n      tools: []\n",
    ] {
        let found: Vec<String> = found_in(rest).into_iter().filter(|line| !line.contains("unreadable-file")).collect();
        assert!(found.len() == 1 && found[0].contains(deep), "{rest}: {found:#?}");
    }
    let both = found_in("parent:\n  system:\n    prompt: Hi.\n    tools: []\n");
    assert!(both.len() == 2 && both.iter().all(|line| line.contains("one level too deep")), "{both:#?}");
}

#[test]
fn a_text_that_is_not_indented_is_one_finding() {
    for rest in [
        "parent:\n  prompt: |\n  Do this: now\n  tools: []\n",
        "parent:\n  prompt: |\n  Do this.\n  tools: []\n",
        "parent:\n  prompt: |\nDo this.\n  tools: []\n",
        "parent:\n  prompt: >\n\tDo this.\n  tools: []\n",
    ] {
        let found = found_in(rest);
        assert!(found.len() == 1 && found[0].starts_with("job.yaml:5:"), "{rest}: {found:#?}");
    }
    assert_eq!(found_in("parent:\n  prompt: |\n\n  tools: []\n").len(), 1);
}

/// The codes of a job's findings.
fn codes(text: &str) -> Vec<&'static str> {
    let found = check(&Source::new("job.yaml", text.to_owned()), None).findings;
    found.iter().map(|finding| finding.code).collect()
}

#[test]
fn a_misplaced_limit_is_one_finding() {
    for rest in [
        "parent: { prompt: Hi., tools: [], limits: { cost_usd: 1 } }",
        "parent: { prompt: Hi., tools: [], cost_usd: 1 }",
        "parent: { prompt: Hi., tools: [] }\ncost_usd: 1",
        "limits:\n  cost_usd: 1\n  parent: { prompt: Hi., tools: [] }",
    ] {
        assert_eq!(codes(&format!("model: anthropic/claude-sonnet-5-5\n{rest}\n")), ["unknown-key"], "{rest}");
    }
}

#[test]
fn a_retired_model_is_known() {
    for name in ["claude-2.1", "claude-instant-1.2"] {
        let job = |limit| format!("model: anthropic/{name}\nlimits: {limit}\nparent: {{ prompt: Hi., tools: [] }}\n");
        let found = codes(&job("{ tokens: 9 }"));
        assert!(found.contains(&"retired-model") && !found.contains(&"unknown-model"), "{found:?}");
        let found = check(&Source::new("job.yaml", job("{ cost_usd: 1 }")), None).findings;
        let price = found.iter().find(|finding| finding.code == "unknown-price").unwrap();
        assert_eq!(price.span.start().0, 1);
        assert!(!price.help.as_ref().unwrap().contains("did you mean"), "{price:?}");
    }
}

#[test]
fn unrelated_errors_hide_no_warning_about_grants() {
    let granted = "env: [FOO]\nnetwork: open\n";
    let limits = "limits: { tokens: 9, wall_clock: 20 minutes }\n";
    let model = "model: anthropic/claude-sonnet-5-5\n";
    let found = codes(&format!("{model}{limits}{granted}parent: {{ prompt: Hi., tools: [] }}\n"));
    assert_eq!(found, ["bad-duration", "unused-env", "unused-network"]);
    let found = codes(&format!("{model}{limits}{granted}parent: {{ prompt: Hi., tools: bash }}\n"));
    assert_eq!(found, ["bad-duration", "wrong-type"]);
    let found = codes(&format!("{model}{limits}{granted}parent: {{ prompt: Hi., tools: [] }}\nchekcs: []\n"));
    assert_eq!(found, ["bad-duration", "unknown-key"]);
}
