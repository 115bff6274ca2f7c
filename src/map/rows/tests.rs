use serde_json::{Value, json};

use super::*;
use crate::plan::{Cell, CellValue};
use crate::yaml;

const JOB: &str = "\
inputs:
  path: { type: string }
  count: { type: integer, default: 1 }
  token: { type: string, secret: true }
model: anthropic/claude-sonnet-4-5
parent: { prompt: x, tools: [] }
";

fn job() -> Job {
    yaml::read::<Job>(&Source::new("job.yaml", JOB)).value.unwrap()
}

fn read_as(name: &str, content: &[u8], id: Option<&str>) -> Result<Rows, Vec<String>> {
    let format = RowFormat::detect(Path::new(name), content);
    let read = read(name, content.to_vec(), format, id, &job());
    let read = read.and_then(|rows| if rows.findings.is_empty() { Ok(rows) } else { Err(rows.findings) });
    read.map_err(|findings| {
        let shown = findings.iter().map(|it| {
            let (line, column) = it.span.start();
            format!("{line}:{column} {} {}", it.code, it.message)
        });
        shown.collect()
    })
}

/// The ids of rows, and their values as JSON.
fn values(rows: &Rows) -> Vec<(String, Value)> {
    let cell = |cell: &Cell| match &cell.value {
        CellValue::Text(text) => (cell.name.to_string(), json!(text)),
        CellValue::Json(value) => (cell.name.to_string(), value.clone()),
    };
    rows.rows.iter().map(|row| (row.id.clone(), Value::Object(row.cells.iter().map(cell).collect()))).collect()
}

#[test]
fn the_three_formats_give_the_same_rows() {
    let csv = read_as("r.csv", b"\xef\xbb\xbfpath,n\r\n\"a,\"\"b\nc\",1\r\nsecond,2\r\n", Some("n")).unwrap();
    let jsonl =
        read_as("r.jsonl", b"{\"path\": \"a,\\\"b\\nc\", \"n\": 1}\n\n{\"n\": 2, \"path\": \"second\"}", Some("n"))
            .unwrap();
    let array =
        read_as("-", b" [{\"path\": \"a,\\\"b\\nc\", \"n\": 1}, {\"n\": 2, \"path\": \"second\"}]", Some("n")).unwrap();
    let expected = vec![("1".to_owned(), json!({"path": "a,\"b\nc"})), ("2".to_owned(), json!({"path": "second"}))];
    for rows in [&csv, &jsonl, &array] {
        assert_eq!(values(rows), expected);
        for cell in rows.rows.iter().flat_map(|row| &row.cells) {
            let quoted = &rows.source.text[cell.range.clone()];
            assert!(quoted.contains("second") || quoted.contains("a,"), "{quoted}");
        }
    }
}

#[test]
fn without_an_id_column_the_id_depends_on_the_values_alone() {
    let ids = |name: &str, content: &str| -> Vec<String> {
        read_as(name, content.as_bytes(), None).unwrap().rows.into_iter().map(|row| row.id).collect()
    };
    let first = ids("r.csv", "path,count\na,1\nb,2\n");
    assert_eq!(first, ids("r.jsonl", "{\"count\":1,\"path\":\"a\"}\n{\"path\":\"b\",\"count\":2}\n"));
    assert_ne!(first[0], first[1]);
    assert_eq!(first[0].len(), 16);
}

#[test]
fn every_mistake_has_its_line_and_column() {
    for (name, content, id, expected) in [
        ("r.csv", "", None, vec!["1:1 no-rows the file has no rows"]),
        ("r.csv", "path\n", None, vec!["2:1 no-rows the file has no rows"]),
        ("r.json", "[]", None, vec!["1:3 no-rows the file has no rows"]),
        ("r.jsonl", "\n \n", None, vec!["3:1 no-rows the file has no rows"]),
        (
            "r.csv",
            "path,paht,token,path\na,b,c,d\n",
            None,
            vec![
                "1:6 unknown-input the job has no input `paht`",
                "1:11 secret-column the input `token` is secret, and a rows file is kept in the record",
                "1:17 duplicate-input the header has the column `path` twice",
            ],
        ),
        (
            "r.csv",
            "src\ntests\n",
            None,
            vec!["1:1 unknown-input the file seems to have no header line: its first line names no input of the job"],
        ),
        ("r.csv", "paht\na\n", None, vec!["1:1 unknown-input the job has no input `paht`"]),
        ("r.csv", "path;count\na;1\n", None, vec!["1:1 rows-syntax the columns are separated by semicolons"]),
        ("r.csv", "\"n\"\t\"x\"\na\t1\n", Some("n"), vec!["1:1 rows-syntax the columns are separated by tabs"]),
        ("r.csv", "\"path\na;path\n", None, vec!["1:1 rows-syntax the quote that begins here is never closed"]),
        (
            "r.csv",
            "token,path\na,b\nc,d\n",
            Some("token"),
            vec!["1:1 secret-column the input `token` is secret, and a rows file is kept in the record"],
        ),
        (
            "r.jsonl",
            "{\"pat\\u0068\": \"a\", \"\\u0071\": 1}",
            None,
            vec!["1:20 unknown-input the job has no input `q`"],
        ),
        (
            "r.jsonl",
            "{\"path\": \"a\", \"\\ud800\": 1}",
            None,
            vec!["1:22 rows-syntax this isn't valid JSON here: unexpected end of hex escape"],
        ),
        (
            "r.csv",
            "path,count\na\nb,c\"d\n\"e\"f,1\ng,2,3\nh,1\n\"i,4\n",
            None,
            vec![
                "2:1 rows-syntax the row has 1 field, and the header has 2",
                "3:3 rows-syntax a quote in a field that isn't quoted",
                "4:3 rows-syntax text after the closing quote of a field",
                "5:1 rows-syntax the row has 3 fields, and the header has 2",
                "7:1 rows-syntax the quote that begins here is never closed",
            ],
        ),
        (
            "r.csv",
            "id,path\n../x,a\nA1,b\na1,c\nA1,d\n,e\n.git,f\na b,g\n",
            Some("id"),
            vec![
                "4:1 duplicate-row-id the id `a1` differs from another one only in case",
                "5:1 duplicate-row-id two rows have the id `A1`",
                "6:1 bad-row-id the id is empty",
            ],
        ),
        ("r.csv", "path\na\n", Some("id"), vec!["1:1 bad-row-id the header has no column `id`, which --id names"]),
        ("r.jsonl", "{\"path\":\"a\"}", Some("id"), vec!["1:1 bad-row-id no row has the key `id`, which --id names"]),
        ("r.jsonl", "{\"id\":null}", Some("id"), vec!["1:1 bad-row-id the row has no `id`, which is its id"]),
        (
            "r.jsonl",
            "{\"path\":\"a\"}\n[1]\n{\"path\":}\n{\"path\":\"b\",\"path\":\"c\"}\n{\"paht\":1}\n{\"path\":\"a\"}\n",
            None,
            vec![
                "2:1 rows-syntax this isn't valid JSON here: invalid type: sequence, expected an object",
                "3:9 rows-syntax this isn't valid JSON here: expected value",
                "4:13 duplicate-input the row has the key `path` twice",
                "5:2 unknown-input the job has no input `paht`",
                "6:1 duplicate-row-id the row has the same values as another one",
            ],
        ),
        (
            "r.json",
            "[{\"path\": \"a\"},\n {\"path\" \"b\"}]",
            None,
            vec!["2:10 rows-syntax this isn't valid JSON here: expected `:`"],
        ),
        ("r.csv", "path\na\0b\n", None, vec!["2:2 rows-syntax a NUL character isn't allowed"]),
    ] {
        assert_eq!(read_as(name, content.as_bytes(), id).unwrap_err(), expected, "{name}: {content}");
    }
    assert_eq!(read_as("r.csv", b"path\na\xff\n", None).unwrap_err(), ["2:2 not-utf8 the byte 0xFF is not UTF-8"]);
}

#[test]
fn hostile_sizes_are_refused() {
    let long = format!("path\n{}\n", "x".repeat(2 << 20));
    assert_eq!(
        read_as("r.csv", long.as_bytes(), None).unwrap_err(),
        ["2:1 too-large the value of `path` is larger than 1 MiB"]
    );
    let many = (0..1_000_000).fold("path\n".to_owned(), |text, row| text + &format!("{row}\n"));
    assert_eq!(
        read_as("r.csv", many.as_bytes(), None).unwrap_err(),
        ["100002:1 too-large the file has more than 100000 rows"]
    );
    // Rows with mistakes count, too, and a repeated id isn't looked for in all rows.
    let repeated = "path\n".to_owned()
        + &(0..60_000).fold(String::new(), |text, row| text + &format!("{row}\n"))
        + &"59999\n".repeat(60_000);
    let found = read_as("r.csv", repeated.as_bytes(), Some("path")).unwrap_err();
    assert_eq!((found.len(), found.last().unwrap().contains("39001 more findings")), (1_001, true));
    let deep = format!("{{\"path\": {}}}", "[".repeat(100_000));
    assert_eq!(read_as("r.jsonl", deep.as_bytes(), None).unwrap_err().len(), 1);
    let wrong = "{\"x\":1}\n".repeat(5_000);
    let found = read_as("r.jsonl", wrong.as_bytes(), None).unwrap_err();
    assert_eq!((found.len(), found.last().unwrap().contains("4000 more findings")), (1_001, true));
}

#[test]
fn ids_without_a_job_are_those_of_the_rows() {
    for (name, content, id) in [
        ("r.csv", "path,count\na,1\nb,2\n", None),
        ("r.csv", "key,path\nx,a\ny,b\n", Some("key")),
        ("r.jsonl", "{\"path\": \"a\"}\n{\"count\": 2, \"path\": \"b\"}\n", None),
        ("r.json", "[{\"path\": \"a\", \"count\": 7}]", Some("count")),
    ] {
        let rows = read_as(name, content.as_bytes(), id).unwrap();
        let expected: Vec<String> = rows.rows.into_iter().map(|row| row.id).collect();
        let format = RowFormat::detect(Path::new(name), content.as_bytes());
        assert_eq!(read_ids(name, content.into(), format, id).unwrap(), expected, "{content}");
    }
    let twice = read_ids("r.csv", b"k\na\nA\n".to_vec(), RowFormat::Csv, Some("k")).unwrap_err();
    assert_eq!(twice[0].message, "the id `A` differs from another one only in case");
}

#[test]
fn an_id_from_any_text_is_readable_and_unique() {
    for (text, start) in [
        ("cart", "cart"),
        ("src/a.py", "src-a.py-"),
        ("src/A.py", "src-A.py-"),
        ("../x", "x-"),
        (".git", "git-"),
        ("a b", "a-b-"),
        ("latest", "latest-"),
        ("日本", "row-"),
        ("issues (1)", "issues-1-"),
    ] {
        let id = readable_id(text);
        assert_eq!(id_mistake(&id), None, "{text}: {id}");
        assert!(id.starts_with(start) && (id == text || id.len() == start.len() + 8), "{text}: {id}");
    }
    let long = "deep/".repeat(100);
    assert!(readable_id(&format!("{long}a.py")).contains("deep-a.py-"));
    assert!(id_mistake(&readable_id(&long)).is_none());
    assert_ne!(readable_id("a/b"), readable_id("a b"));
    assert_eq!(readable_id(""), "");
}

#[test]
fn columns_can_be_left_out() {
    let only = ["path".to_owned()];
    let ignored = ["size".to_owned(), "owner".to_owned()];
    let content = "path,size,owner\na,1,me\nb,2,you\n";
    let by = |columns: ColumnOptions<'_>| {
        let rows = read("r.csv", content.as_bytes().to_vec(), RowFormat::Csv, columns, &job()).unwrap();
        values(&rows)
    };
    let chosen = by(ColumnOptions { only: &only, ..ColumnOptions::default() });
    assert_eq!(chosen, by(ColumnOptions { ignored: &ignored, ..ColumnOptions::default() }));
    assert_eq!(chosen[0].1, json!({"path": "a"}));
    let ids = read_ids(
        "r.csv",
        content.as_bytes().to_vec(),
        RowFormat::Csv,
        ColumnOptions { ignored: &ignored, ..ColumnOptions::default() },
    );
    assert_eq!(ids.unwrap(), chosen.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>());
}
