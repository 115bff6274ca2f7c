use super::*;

/// The findings in a file with two known keys and a table of named tables, as `line:column code: message`.
fn found(text: &str) -> Vec<String> {
    let source = read_source("x.toml", text.as_bytes()).unwrap();
    let (reading, root) = TomlReader::parse(&source);
    let mut fields = TableReader::new(&reading, root.get_ref(), 0..0);
    fields.text("name");
    fields.number("rate");
    fields.count("tokens");
    for (_, mut entry) in fields.named_tables("models") {
        entry.number("input");
        entry.require("input", "say it");
        entry.tables("tiers").into_iter().for_each(TableReader::finish);
        entry.finish();
    }
    fields.finish();
    let shown = |finding: Diagnostic| {
        let (line, column) = finding.span.start();
        format!("{line}:{column} {}: {}", finding.code, finding.message)
    };
    reading.finish().into_iter().map(shown).collect()
}

#[test]
fn valid_values_are_read() {
    let text = "\u{feff}name = 'ä'\r\nrate = 3 # ok\r\ntokens = 0xff\n[models.\"a/b\"]\ninput = 1e-1\n[[models.'a/b'.tiers]]\n";
    assert_eq!(found(text), [""; 0]);
    assert_eq!(found(""), [""; 0]);
    assert_eq!(found("rate = inf\ntokens = 1_000"), [""; 0]);
}

#[test]
fn every_error_is_found_at_its_place() {
    let text =
        "naem = 'ä'\nrate = \"3\"\r\ntokens = -1\nmodels.x = 3\n[models.\"a/b\"]\ntiers = [1, {x = 2}]\n[other]\n";
    assert_eq!(
        found(text),
        [
            "1:1 unknown-key: unknown key `naem`",
            "2:8 wrong-type: expected a number, found a value of type string",
            "3:10 out-of-range: the number is too large or less than 0",
            "4:12 wrong-type: expected a table, found a value of type integer",
            "5:9 missing-key: required key `input` is missing",
            "6:10 wrong-type: expected a table, found a value of type integer",
            "6:14 unknown-key: unknown key `x`",
            "7:2 unknown-key: unknown key `other`",
        ]
    );
    assert_eq!(found("rate = 1e999\ntokens = 99999999999999999999").len(), 1);
}

#[test]
fn a_broken_line_is_one_finding_and_the_rest_is_read() {
    let text = "name = \nrate = = 3\ntokens = true\ntokens = 4\n[models.a\ninput = 1\n";
    let found = found(text);
    let starts: Vec<&str> = found.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        starts,
        ["1:8 toml-syntax", "2:8 toml-syntax", "3:10 wrong-type", "4:1 duplicate-key", "5:10 toml-syntax"],
        "{found:#?}"
    );
}

#[test]
fn duplicates_are_found() {
    let text = "[models.a]\ninput = 1\n[models.a]\ninput = 2\n\n[models.b]\ninput = 1\ninput = 1\n";
    let found = found(text);
    assert_eq!(
        found,
        [
            "3:9 duplicate-key: this key is set twice",
            "4:1 duplicate-key: this key is set twice",
            "8:1 duplicate-key: this key is set twice"
        ]
    );
}

#[test]
fn every_syntax_error_has_a_help() {
    for (text, help) in [
        ("name = x", "straight quotes"),
        ("name = “x”", "straight quotes"),
        ("[models", "close the heading"),
        ("[my models]", "close the heading"),
        ("name = \"x", "close the quotes"),
        ("name = 'x", "close the quotes"),
        ("name = \"\\q\"", "for a backslash"),
        ("name = 'x'\rrate = 1", "line ends"),
        ("name = 'x' rate = 1", "a line of its own"),
        ("name: 'x'", "KEY = \"VALUE\""),
        ("name", "KEY = \"VALUE\""),
        ("{\"name\": 1}", "KEY = \"VALUE\""),
    ] {
        let source = read_source("x.toml", text.as_bytes()).unwrap();
        let findings = TomlReader::parse(&source).0.finish();
        let first = findings.first().unwrap();
        assert!(first.help.as_deref().is_some_and(|is| is.contains(help)), "{text}\n{first:?}");
    }
}

#[test]
fn invalid_text_is_an_error() {
    assert_eq!(read_source("x", b"a\0").unwrap_err().code, "toml-syntax");
    assert_eq!(read_source("x", b"a = '\xff'").unwrap_err().code, "not-utf8");
    assert!(!found(&"[".repeat(100_000)).is_empty());
    assert!(!found(&format!("name = {}", "[".repeat(100_000))).is_empty());
    assert!(!found("name = \"\u{1b}[2J\"").is_empty());
}
