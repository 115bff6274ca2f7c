//! README.md, the book, the jobs and the schemas agree with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::source::{files, read, root};
use crate::support::journal::schema_error;
use crate::support::test_folder::TestFolder;

/// README.md and the pages of the book, by path.
fn documents() -> BTreeMap<PathBuf, String> {
    let pages = files("docs/src").into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    let documents: BTreeMap<PathBuf, String> =
        pages.chain([PathBuf::from("README.md")]).map(|path| (path.clone(), read(path))).collect();
    assert!(documents.len() > 15, "only {} documents", documents.len());
    documents
}

/// Pages of rules have intentionally wrong examples, which the tests of `explain` cover.
fn is_rule_page(path: &Path) -> bool {
    path.starts_with("docs/src/rules")
}

/// The contents of code blocks in one of these languages.
fn code_blocks(text: &str, languages: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: String =
            lines.by_ref().take_while(|line| !line.starts_with("```")).map(|line| format!("{line}\n")).collect();
        if languages.contains(&language) {
            found.push(block);
        }
    }
    found
}

/// The text without code blocks.
fn prose(text: &str) -> String {
    let mut in_block = false;
    let lines = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        in_block ^= fence;
        !in_block && !fence
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// A call of legwork: the command and its long options.
#[derive(Debug, PartialEq)]
struct Call {
    command: String,
    /// The word behind it, which may be a command below it.
    next: String,
    options: Vec<String>,
}

/// Finds the calls of legwork in shell scripts, workflows and terminal sessions.
fn calls(block: &str) -> Vec<Call> {
    let mut found = Vec::new();
    let lines = block.replace("\\\n", " ").replace("cargo run -- ", "legwork ");
    for part in lines.lines().flat_map(|line| line.split(" # ").next()).flat_map(|line| line.split(['|', ';', '&'])) {
        let mut words = part.split_whitespace().skip_while(|word| {
            matches!(*word, "$" | "-" | "run:" | "if" | "!")
                || word.split_once('=').is_some_and(|(name, _)| !name.contains('-'))
        });
        if words.next() != Some("legwork") {
            continue;
        }
        let Some(command) = words.next().filter(|word| !word.starts_with('-')) else { continue };
        let mut words = words.peekable();
        let next = words.peek().copied().unwrap_or_default().to_owned();
        let options = words.take_while(|word| *word != "--").filter(|word| word.starts_with("--"));
        let options = options.map(|word| word.split_once('=').map_or(word, |(name, _)| name).to_owned());
        found.push(Call { command: command.to_owned(), next, options: options.collect() });
    }
    found
}

/// The commands that the program lists, each with its help: `run`, `runs`, `runs prune`.
fn commands() -> BTreeMap<String, String> {
    let mut commands = BTreeMap::new();
    for name in listed_commands(&help_of(&[])) {
        let help = help_of(&[&name]);
        for below in listed_commands(&help) {
            commands.insert(format!("{name} {below}"), help_of(&[&name, &below]));
        }
        commands.insert(name, help);
    }
    commands
}

fn help_of(command: &[&str]) -> String {
    let help = TestFolder::new().legwork(command).arg("--help").run();
    help.assert_code(0).assert_stderr("");
    help.stdout
}

/// The commands in a help text.
fn listed_commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    // A line with more indentation continues the line above it.
    let names = listed.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(ToOwned::to_owned).collect()
}

#[test]
fn every_command_in_the_documentation_exists() {
    let commands = commands();
    assert!(commands.contains_key("run") && commands.contains_key("validate"), "{:?}", commands.keys());
    let mut shown = BTreeSet::new();
    for (path, text) in documents() {
        let blocks = code_blocks(&text, &["sh", "bash", "console", "yaml", "text"]);
        for call in blocks.iter().flat_map(|block| calls(block)) {
            let below = commands.get(&format!("{} {}", call.command, call.next));
            let Some(help) = below.or_else(|| commands.get(&call.command)) else {
                panic!("{}: there is no `legwork {}`", path.display(), call.command);
            };
            for option in &call.options {
                let known = help.split(|letter: char| letter.is_whitespace() || ",[]=".contains(letter));
                assert!(
                    known.into_iter().any(|word| word == option),
                    "{}: `legwork {}` has no {option}",
                    path.display(),
                    call.command
                );
            }
            shown.insert(call.command);
        }
    }
    assert!(shown.len() > 8, "only {shown:?} are shown in examples");
}

/// Whether YAML is a complete job, as opposed to a script, a workflow, or a fragment of a job.
fn is_job(text: &str) -> bool {
    serde_yaml::from_str::<Value>(text).is_ok_and(|value| value["parent"]["prompt"] != Value::Null)
}

/// Writes the context files and skills of a job, and commits them where it takes them from `origin/main`.
fn write_agent_files(folder: &TestFolder, job: &Value) {
    let agents = job["subagents"].as_object().into_iter().flatten().map(|(_, agent)| agent);
    for agent in [job, &job["parent"]].into_iter().chain(agents) {
        let entries = |key: &str| agent[key].as_array().cloned().unwrap_or_default().into_iter();
        let path = |entry: &Value, key: &str| entry.as_str().or(entry[key].as_str()).unwrap().to_owned();
        for entry in entries("context") {
            folder.write(&path(&entry, "file").replace('*', "x"), "Be brief.\n");
        }
        for entry in entries("skills") {
            let skill = path(&entry, "folder");
            let name = skill.rsplit('/').next().unwrap();
            folder.write(
                &format!("{skill}/SKILL.md"),
                format!("---\nname: {name}\ndescription: Helps.\n---\nBe brief.\n"),
            );
        }
    }
    if job.to_string().contains("origin/main") {
        folder.git(&["init", "--quiet"]);
        folder.commit_all();
        folder.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    }
}

#[test]
fn every_job_in_the_documentation_is_valid() {
    let mut count = 0;
    for (path, text) in documents() {
        let blocks = code_blocks(&text, &["yaml"]).into_iter().filter(|text| is_job(text));
        for job in blocks.filter(|_| !is_rule_page(&path)) {
            let folder = TestFolder::new();
            for (_, rest) in job.match_indices("file: ").map(|(at, found)| job.split_at(at + found.len())) {
                let file: String =
                    rest.chars().take_while(|letter| !letter.is_whitespace() && !"},".contains(*letter)).collect();
                folder.write(&file, if file.starts_with("hosts/") { "index.example.com\n" } else { "Be brief.\n" });
            }
            write_agent_files(&folder, &serde_yaml::from_str(&job).unwrap());
            folder.write("example.yaml", &job);
            let ended = folder.legwork(&["validate", "example.yaml"]).run();
            assert!(ended.exited_with(0), "{}: {}{}", path.display(), ended.stdout, ended.stderr);
            count += 1;
        }
    }
    assert!(count > 15, "only {count} jobs in README.md and the book");
}

/// A provider name that the examples of prices use.
const PROVIDERS: &str = "[providers.local]\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:8080/v1\"\n";

#[test]
fn every_data_block_in_the_documentation_can_be_read() {
    for (path, text) in documents() {
        for block in code_blocks(&text, &["json"]) {
            let error = serde_json::from_str::<Value>(&block).err();
            assert!(error.is_none(), "{}: {error:?}\n{block}", path.display());
        }
        for block in code_blocks(&text, &["yaml"]).iter().filter(|_| !is_rule_page(&path)) {
            let error = serde_yaml::from_str::<Value>(block).err();
            assert!(error.is_none(), "{}: {error:?}\n{block}", path.display());
        }
        for block in code_blocks(&text, &["toml"]) {
            let folder = TestFolder::new();
            let file = if block.starts_with("[models.") { "prices" } else { "providers" };
            // Prices can name providers that another example defines.
            folder
                .write("config/legwork/providers.toml", PROVIDERS)
                .write(&format!("config/legwork/{file}.toml"), &block);
            folder.write(
                "job.yaml",
                "model: anthropic/claude-haiku-4-5\nparent: { prompt: x, tools: [] }\nlimits: { cost_usd: 1 }\n",
            );
            let ended = folder.legwork(&["validate", "job.yaml"]).env("XDG_CONFIG_HOME", folder.at("config")).run();
            assert!(ended.exited_with(0), "{}: {}{}", path.display(), ended.stdout, ended.stderr);
        }
    }
}

/// The targets of links and images, without those on the web.
fn links(text: &str) -> Vec<String> {
    // Text in backticks isn't a link.
    let shown: String = prose(text).split('`').step_by(2).collect();
    let targets = shown.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    targets.map(ToOwned::to_owned).collect()
}

/// The ids that mdBook and GitHub assign to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let page = prose(text);
    for heading in
        page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')))
    {
        let id: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter_map(|letter| match letter {
                ' ' => Some('-'),
                letter if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
                _ => None,
            })
            .collect();
        let mut unique = id.clone();
        let mut count = 0;
        while !found.insert(unique.clone()) {
            count += 1;
            unique = format!("{id}-{count}");
        }
    }
    found
}

#[test]
fn every_link_in_the_documentation_has_a_target() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, text) in documents() {
        for link in links(&text) {
            count += 1;
            let (file, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            // The book's site has only files in docs/src.
            let leaves_the_book =
                path.starts_with("docs") && target.components().any(|part| part.as_os_str() == "..") && {
                    let resolved = root().join(&target).canonicalize().unwrap_or_default();
                    !resolved.starts_with(root().join("docs/src").canonicalize().unwrap())
                };
            let is_there = root().join(&target).exists() && !leaves_the_book;
            let has_anchor = || anchor.is_none_or(|anchor| anchors(&read(&target)).contains(anchor));
            if !is_there || !has_anchor() {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links");
    assert!(wrong.is_empty(), "no such page or heading:\n{}", wrong.join("\n"));
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let listed: BTreeSet<PathBuf> =
        links(&read("docs/src/SUMMARY.md")).iter().map(|link| Path::new("docs/src").join(link)).collect();
    for path in documents().into_keys().filter(|path| path.starts_with("docs/src") && !path.ends_with("SUMMARY.md")) {
        assert!(listed.contains(&path), "docs/src/SUMMARY.md doesn't list {}", path.display());
    }
}

#[test]
fn the_page_about_records_agrees_with_the_schemas() {
    let page = read("docs/src/record-format.md");
    let table = page.lines().skip_while(|line| !line.starts_with("| `type` | meaning")).skip(2);
    let listed: BTreeSet<&str> = table.map_while(|line| line.split('`').nth(1)).collect();
    let schema: Value = serde_json::from_str(&read("schemas/events.schema.json")).unwrap();
    let mut types = BTreeSet::new();
    let mut open = vec![&schema];
    while let Some(value) = open.pop() {
        types.extend(value["properties"]["type"]["const"].as_str());
        open.extend(value.as_object().into_iter().flat_map(|object| object.values()));
        open.extend(value.as_array().into_iter().flatten());
    }
    assert_eq!(listed, types);
    let examples: Vec<Value> =
        code_blocks(&page, &["json"]).iter().map(|block| serde_json::from_str(block).unwrap()).collect();
    let [line, result] = examples.as_slice() else { panic!("{} examples", examples.len()) };
    assert_eq!(schema_error(line), None);
    let schema = serde_json::from_str(&read("schemas/result.schema.json")).unwrap();
    let error = jsonschema::validator_for(&schema).unwrap().iter_errors(result).next().map(|error| error.to_string());
    assert_eq!(error, None);
}

#[test]
fn the_book_has_every_key_of_a_job_in_a_table() {
    let pages =
        ["docs/src/job-reference.md", "docs/src/tool-servers.md", "docs/src/before-the-agent.md"].map(read).join("\n");
    let rows = pages.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let listed: BTreeSet<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let schema: Value = serde_json::from_str(&read("schemas/job.schema.json")).unwrap();
    let (mut keys, mut open) = (BTreeSet::new(), vec![&schema]);
    while let Some(value) = open.pop() {
        // A key of a job has a description; the names of tools are on their own page.
        let properties = value["properties"].as_object().into_iter().flatten();
        let described = properties.filter(|(_, key)| key["description"].is_string() && key["doNotSuggest"].is_null());
        keys.extend(described.map(|(key, _)| key.as_str()));
        open.extend(value.as_object().into_iter().flat_map(|object| object.values()));
        open.extend(value.as_array().into_iter().flatten());
    }
    // Keys of the mappings in which a file, a skill or a header is written: other rows show them.
    let parts = ["file", "folder", "ref", "prefix"];
    let missing: Vec<&&str> = keys.iter().filter(|key| !listed.contains(**key) && !parts.contains(*key)).collect();
    assert!(keys.len() > 50 && missing.is_empty(), "{} keys; without a row: {missing:?}", keys.len());
}

#[test]
fn the_book_shows_the_job_that_init_writes() {
    let folder = TestFolder::new();
    folder.legwork(&["init"]).run().assert_code(0);
    let shown = code_blocks(&read("docs/src/getting-started.md"), &["yaml"]);
    assert!(shown.contains(&folder.read("jobs/first.yaml")), "docs/src/getting-started.md shows another first job");
}

#[test]
fn texts_about_the_source_name_files_that_exist() {
    for (text, at_least) in [("docs/src/contributing.md", 15), ("jobs/tour.script.yaml", 8)] {
        let page = read(text);
        let folders = ["src/", "tests/", "benches/", "fuzz/", "jobs/", "schemas/", "docs/", ".ci/"];
        let spans = page.split('`').skip(1).step_by(2);
        let paths =
            spans.filter(|span| folders.iter().any(|folder| span.starts_with(folder)) && !span.contains([' ', '*']));
        // Words in capitals are placeholders, as in `src/tools/NAME.rs`.
        let paths: Vec<&str> = paths.filter(|path| !path.contains(char::is_uppercase)).collect();
        assert!(paths.len() > at_least, "only {paths:?}");
        for path in paths {
            assert!(root().join(path).exists(), "{text}: there is no {path}");
        }
    }
}

/// Compares an output with the text block of a page that begins with these characters. In the block, `[...]` stands for what
/// is left out.
fn assert_shown(page: &str, start: &str, output: &str) {
    let blocks = code_blocks(&read(page), &["text"]);
    let shown = blocks.iter().find_map(|block| block.strip_prefix(start)).expect("the page shows this output");
    let mut rest = output;
    for part in shown.split("[...]").map(|part| part.trim_matches([' ', '\n'])) {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("{page}: not in the output:\n{part}\n\n{output}")).1;
    }
}

#[test]
fn the_book_shows_the_plan_of_the_job_that_init_writes() {
    let folder = TestFolder::new();
    folder.legwork(&["init"]).run().assert_code(0);
    let ended = folder.legwork(&["run", "jobs/first.yaml", "--dry-run"]).run();
    let workspace = folder.path().canonicalize().unwrap();
    let plan = ended.assert_code(0).stdout.replace(workspace.to_str().unwrap(), "/home/you/project");
    assert_shown("docs/src/getting-started.md", "job   ", &plan);
}

#[test]
fn the_book_shows_the_findings_of_its_example() {
    let folder = TestFolder::new();
    let page = "docs/src/validation.md";
    let job = code_blocks(&read(page), &["text"]).into_iter().find(|block| block.starts_with("inputs:")).unwrap();
    let ended = folder.write("jobs/review.yaml", job).legwork(&["validate"]).run();
    let output = format!("{}{}", ended.assert_code(3).stdout, ended.stderr);
    assert_shown(page, "$ legwork validate\n", &output);
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 200, "README.md has {lines} lines: the rest belongs in the book");
}

#[test]
fn every_job_of_the_repository_is_valid() {
    let yaml: Vec<String> = files("jobs").iter().map(|path| path.display().to_string()).collect();
    let (scripts, jobs): (Vec<&String>, Vec<&String>) = yaml
        .iter()
        .filter(|path| path.ends_with(".yaml") && !path.contains("/tests/"))
        .partition(|path| path.ends_with(".script.yaml"));
    assert!(jobs.len() >= 5, "jobs: {jobs:?}");
    for job in &jobs {
        let script = job.replace(".yaml", ".script.yaml");
        assert!(scripts.contains(&&script), "{job} can't be run without a key: there is no {script}");
    }
    let path = root().join("jobs");
    let ended = TestFolder::new().legwork(&["validate"]).arg(&path).run();
    ended.assert_code(0);
}

#[test]
fn the_schemas_are_up_to_date() {
    for (arguments, file) in [
        (["schema"].as_slice(), "schemas/job.schema.json"),
        (&["schema", "script"], "schemas/script.schema.json"),
        (&["schema", "expect"], "schemas/expect.schema.json"),
        (&["schema", "result"], "schemas/result.schema.json"),
        (&["schema", "events"], "schemas/events.schema.json"),
        (&["schema", "runs"], "schemas/runs.schema.json"),
    ] {
        let printed = TestFolder::new().legwork(arguments).run();
        printed.assert_code(0);
        assert!(printed.stdout == read(file), "{file} is old: write the output of `legwork {}`", arguments.join(" "));
    }
}

#[test]
fn markdown_is_read_correctly() {
    let text = "# A `b`: c_d\n## A b c_d\n[x](y.md#a) `[z](n)` [w\nv](https://z)\n```yaml\na: [b](c)\n# No\n```\n![p](q.svg)\n```\nno\n```\n";
    assert_eq!(code_blocks(text, &["yaml"]), ["a: [b](c)\n# No\n"]);
    assert_eq!(links(text), ["y.md#a", "q.svg"]);
    assert_eq!(anchors(text), ["a-b-c_d", "a-b-c_d-1"].map(String::from).into());
    assert!(is_job("model: a/b\nparent: { prompt: x, tools: [] }"));
    assert!(!is_job("parent:\n  - text: x"));
    assert!(!is_job("on: push\njobs: {}"));
    let block = "$ KEY=... legwork run a.yaml --set x=y --jobs=2 # --no\ncat x | legwork test \\\n  --repeat 3\n\
                 - run: legwork show > legwork.xml\nlegwork --version\ncargo run -- diff a b\nlegwork isn't --this\n";
    let found: Vec<String> =
        calls(block).iter().map(|call| format!("{} {}", call.command, call.options.join(" "))).collect();
    assert_eq!(found, ["run --set --jobs", "test --repeat", "show ", "diff ", "isn't --this"]);
}
