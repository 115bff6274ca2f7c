//! Every file of an open set is in the set's table.

use super::source::sources;

/// Folder, trait and table of each open set. Formats are functions: the compiler warns about one that no table has.
const OPEN_SETS: [(&str, &str, &str); 4] = [
    ("tools", "Tool", "TOOLS"),
    ("providers", "Provider", "PROVIDERS"),
    ("lints", "Lint", "LINTS"),
    ("exports", "ExportFormat", "EXPORTS"),
];

/// Members that aren't in a table, each with a reason.
const EXEMPT_MEMBERS: [(&str, &str); 7] = [
    ("server_tool", "tool servers list them; a job names the server"),
    ("skill", "agents with skills have it; no list of tools names it"),
    ("submit_result", "agents that return data have it; no list of tools names it"),
    ("set_state", "the parent of a job with a state has it; no list of tools names it"),
    ("output", "agents have the outputs of the job; an entry `output` lists them"),
    ("file_tool", "the tools that work on files are values of its type"),
    ("transport", "the providers with one endpoint are values of its type"),
];

#[test]
fn every_file_of_an_open_set_is_registered() {
    let sources = sources();
    for (folder, kind, table) in OPEN_SETS {
        let here = || sources.iter().filter(|file| file.module.first().is_some_and(|top| top == folder));
        let definition = here().find_map(|file| table_of(&file.code, table));
        let definition = definition.unwrap_or_else(|| panic!("src/{folder} has no table {table}"));
        let mut members = 0;
        for file in here().filter(|file| implements(&file.code, kind) || declares_row(&file.code)) {
            let Some(name) = file.module.get(1) else { continue };
            members += 1;
            if EXEMPT_MEMBERS.iter().any(|(exempt, _)| exempt == name) {
                assert!(
                    !definition.contains(&format!("{name}::")),
                    "{name} is in {table}: remove it from EXEMPT_MEMBERS"
                );
                continue;
            }
            let path = file.path.display();
            assert!(definition.contains(&format!("{name}::")), "{path} implements {kind} and isn't in {table}");
        }
        assert!(members > 0, "no file in src/{folder} implements {kind}");
    }
}

/// The text between a constant's `=` and the end of its list.
fn table_of<'a>(code: &'a str, table: &str) -> Option<&'a str> {
    let starts = ["const", "static"].map(|word| code.find(&format!("{word} {table}:")));
    let definition = &code[starts.into_iter().flatten().next()?..];
    let list = &definition[definition.find('=')?..];
    Some(&list[..list.find("];")?])
}

/// Whether there is the row of a tool or a provider for their table.
pub(super) fn declares_row(code: &str) -> bool {
    ["const BUILTIN: Builtin =", "const SPEC: ProviderSpec ="].iter().any(|row| code.contains(row))
}

/// Whether there is an `impl Kind for`, with or without parameters, or a constant of the type `Kind`.
pub(super) fn implements(code: &str, kind: &str) -> bool {
    code.lines().map(str::trim_start).any(|line| {
        let is_impl = line.starts_with("impl")
            && line.split_once(" for ").is_some_and(|(head, _)| head.ends_with(&format!(" {kind}")));
        is_impl || (line.contains("const ") && line.contains(&format!(": {kind} = {kind} {{")))
    })
}

#[test]
fn a_table_and_its_members_are_found_in_the_code() {
    let code = "pub const TOOLS: &[&dyn Declared] = &[\n    &bash::Declared,\n    &glob::Declared,\n];\nfn f() {}";
    assert!(table_of(code, "TOOLS").is_some_and(|list| list.contains("bash::") && !list.contains("fn")));
    assert!(table_of(code, "LINTS").is_none());
    assert!(implements("impl Tool for Bash {", "Tool"));
    assert!(implements("    impl<T: Read> super::Tool for Bash<T> {".replace("super::", "").as_str(), "Tool"));
    assert!(!implements("impl ToolSpec for Bash {", "Tool"));
    assert!(implements("pub(super) const LINT: Lint = Lint { rules: &[], check };", "Lint"));
}
