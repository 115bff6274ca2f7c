use super::*;
use crate::diagnostic::SourceSpan;
use crate::lints::UserConfig;
use crate::template::{FileId, JobDir};

fn findings(text: &str) -> Vec<Diagnostic> {
    crate::lints::check(&Source::new("job.yaml", text), None).findings
}

/// The fixed text of a job, after checking that no fix is left.
fn repaired(text: &str) -> (String, usize, usize) {
    let errors = |text: &str| findings(text).iter().filter(|it| it.severity == Severity::Error).count();
    let repaired = fix_job(&Source::new("job.yaml", text), None, &UserConfig::default());
    let again = fix_job(&Source::new("job.yaml", repaired.text.as_str()), None, &UserConfig::default());
    assert_eq!(
        (&again.text, again.applied, again.skipped),
        (&repaired.text, 0, repaired.skipped),
        "it is not idempotent"
    );
    assert!(errors(&repaired.text) <= errors(text), "{text}\n{}", repaired.text);
    (repaired.text, repaired.applied, repaired.skipped)
}

#[test]
fn text_outside_of_fixes_is_unchanged() {
    let text = "\u{feff}# häd\r\nmodel:   'antropic/claude-sonnet-5-5'  # c\r\n\r\ninputs: { topic: {type: string} }\r\n\
                parnet:\r\n  prompt: >\r\n    ü {{topic}} {{ inputs.topik|uper }}\r\n\r\n  tools: [\"Read\", 'Grep',Task ]  # x\r\n\
                limits: {tokens: 9}";
    let (after, count, left) = repaired(text);
    let expected = text
        .replace("antropic", "anthropic")
        .replace("parnet", "parent")
        .replace("{{topic}}", "{{inputs.topic}}")
        .replace("topik|uper", "topic|upper")
        .replace("Read", "read_file")
        .replace("Grep", "grep")
        .replace("Task", "task");
    assert_eq!(after, expected);
    assert_eq!((count, left), (8, 0));
    assert_eq!(findings(&after).len(), 0, "{:?}", findings(&after));
}

#[test]
fn fixes_that_cause_other_errors_are_skipped() {
    let head = "model: anthropic/x\nparent: { prompt: x, tools: [";
    assert_eq!(
        repaired(&format!("{head}read_file, Read, Grep] }}\n")),
        (format!("{head}read_file, Read, grep] }}\n"), 1, 0)
    );
    let twice = format!("{head}] }}\nparnet: {{}}\n");
    assert_eq!(repaired(&twice).0, twice);
    let inner = format!("{head}task] }}\nsubagents: {{ a: {{ tools: [Task, Glob] }} }}\n");
    assert_eq!(repaired(&inner).0, inner.replace("Glob", "glob"));
}

#[test]
fn errors_below_a_misspelled_key_are_fixed_with_it() {
    let text =
        "model: anthropic/x\nparent: { prompt: x, tools: [task] }\nsubagnets:\n  a: { tools: [Read, rubbish] }\n";
    let (after, count, left) = repaired(text);
    assert_eq!(after, text.replace("subagnets", "subagents").replace("Read", "read_file"));
    assert_eq!((count, left), (2, 0));
}

#[test]
fn errors_that_a_fix_reveals_are_fixed_too() {
    // Each `(` hides what is between it and the next `)`; a `!` can't be repaired.
    let look = |text: &str| {
        let source = Source::new("t", text);
        let mut findings = Vec::new();
        let mut is_hidden = false;
        for (at, letter) in text.char_indices() {
            let error = |code| Diagnostic::error(code, SourceSpan { source: source.clone(), range: at..at + 1 }, "e");
            match letter {
                '(' => findings.push(error("hides").replace_with("[")),
                'a' if !is_hidden => findings.push(error("a").replace_with("b")),
                '!' if !is_hidden => findings.push(error("mark")),
                _ => {}
            }
            is_hidden = (is_hidden || letter == '(') && letter != ')';
        }
        TextReport::of_source(findings, &source)
    };
    for (text, after) in [
        ("a(aaa)a", "b[bbb)b"),
        ("(a(aaa)a)", "[b[bbb)b)"),
        ("(!)a", "(!)b"),
        ("(a!)", "(a!)"),
        ("(!!)a(aa!!)(aa)", "(!!)b(aa!!)[bb)"),
        ("a(a!)a!", "b(a!)b!"),
    ] {
        let repaired = fix_text(text, text.len(), &mut |text| look(text));
        assert_eq!(repaired.text, after, "{text}");
        assert_eq!(repaired.skipped, after.matches('(').count(), "{text}");
    }
}

#[test]
fn many_errors_are_all_fixed() {
    let many = (0..230).map(|at| format!("  a{at}: {{ description: x, tools: [Read] }}\n")).collect::<String>();
    let text = format!("model: anthropic/x\nparent: {{ prompt: x, tools: [task] }}\nsubagents:\n{many}");
    let (after, count, _) = repaired(&text);
    assert_eq!((count, after), (230, text.replace("Read", "read_file")));
}

/// Checks a text in which every `a` is an error that a fix turns into `b`; `extra` adds findings.
fn looked(text: &str, extra: impl Fn(&Arc<Source>) -> Vec<Diagnostic>) -> TextReport {
    let source = Source::new("t", text);
    let at = |at: usize| SourceSpan { source: source.clone(), range: at..at + 1 };
    let mut findings: Vec<Diagnostic> =
        text.match_indices('a').map(|(start, _)| Diagnostic::error("a", at(start), "a").replace_with("b")).collect();
    findings.extend(extra(&source));
    TextReport::of_source(findings, &source)
}

#[test]
fn contradicting_or_overlapping_fixes_are_harmless() {
    let contradict = |source: &Arc<Source>| {
        let place = SourceSpan { source: source.clone(), range: 0..1 };
        vec![Diagnostic::warning("w", place, "w").replace_with("c")]
    };
    let repaired = fix_text("aa", 2, &mut |text| looked(text, contradict));
    assert_eq!((repaired.text.as_str(), repaired.applied), ("ab", 1), "which of the two is meant isn't known");
    let overlap = |source: &Arc<Source>| {
        let place = SourceSpan { source: source.clone(), range: 0..source.text.len() };
        vec![Diagnostic::warning("w", place, "w").replace_with("")]
    };
    let repaired = fix_text("aa", 2, &mut |text| looked(text, overlap));
    assert!(!repaired.text.contains('a'), "{}", repaired.text);
    let outside = |source: &Arc<Source>| {
        let place = SourceSpan { source: source.clone(), range: 0..99 };
        vec![Diagnostic::warning("w", place, "w").replace_with("c")]
    };
    assert_eq!(fix_text("äa", 2, &mut |text| looked(text, outside)).text, "äb");
}

#[test]
fn fixing_terminates() {
    let mut looks = 0;
    // Each fix causes the next error, without end.
    let repaired = fix_text("a", MAX_BYTES, &mut |text| {
        looks += 1;
        let source = Source::new("t", text);
        let place = SourceSpan { source: source.clone(), range: 0..0 };
        let many = (0..1000_usize.saturating_sub(text.len())).map(|_| Diagnostic::error("e", place.clone(), "e"));
        let mut findings: Vec<Diagnostic> = many.collect();
        findings.push(Diagnostic::error("e", place.clone(), "e").replace_with("x"));
        TextReport::of_source(findings, &source)
    });
    assert!(looks <= MIN_CHECKS + 1 && repaired.applied >= 10, "{looks} {}", repaired.applied);
}

#[test]
fn a_prompt_is_fixed_for_all_jobs_that_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let raw = "\u{feff}Ü\r\n{{ topic }} {{ inputs.topik }}\r\n";
    std::fs::write(folder.path().join("p.md"), raw).unwrap();
    let file = FileId::of(&std::fs::metadata(folder.path().join("p.md")).unwrap());
    let job = |inputs: &str| {
        let text =
            format!("model: anthropic/x\ninputs: {inputs}\nparent: {{ prompt: {{ file: ./p.md }}, tools: [] }}\n");
        Source::new("job.yaml", text)
    };
    let repaired = |jobs: Vec<Arc<Source>>| {
        let folder = JobDir::open(folder.path()).unwrap();
        fix_prompt(raw, file, &mut [PromptReaders { folder, jobs, user_config: UserConfig::default() }])
    };
    let one = job("{ topic: { type: string } }");
    let both = raw.replace("{ topic", "{ inputs.topic").replace("topik", "topic");
    assert_eq!(repaired(vec![one.clone()]).text, both);
    assert_eq!(repaired(vec![one.clone(), one.clone()]).text, both);
    // Another job has an input with the name that is a misspelling in this one: the fix would break it.
    let other = job("{ topik: { type: string } }");
    let left = repaired(vec![one, other]);
    assert_eq!((left.text.as_str(), left.applied), (raw.replace("{ topic", "{ inputs.topic").as_str(), 1));
}
