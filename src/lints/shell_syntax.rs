//! Checks that the commands of steps and checks are valid for bash, and that their failures count.

use std::ops::Range;

use rable::{ListOperator, Node as ShellNode, NodeKind as ShellKind};

use crate::diagnostic::{Diagnostic, rule};
use crate::yaml::{Node, Spanned};

use super::{Lint, LintContext};

/// The longest command that is checked, in bytes, and the greatest number of nested constructs. The parser is recursive.
const MAX_COMMAND: usize = 64 << 10;
const MAX_NESTED: usize = 80;

/// The size of the parser's stack, in bytes. The parser's own limit on depth needs that much.
const STACK: usize = 64 << 20;

/// Commands that bash can't parse, lines whose failure bash ignores, and scripts that YAML joins to one line.
pub(super) const LINT: Lint = Lint {
    rules: &[rule!(Error "shell-syntax"), rule!(Warning "ignored-failure"), rule!(Warning "folded-script")],
    check,
};

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    for run in subject.job.scripts().filter(|run| !run.node.is_placeholder()) {
        findings.extend(folded_line(run));
        let Some(parsed) = parse(&run.value) else { continue };
        let (at, message) = match parsed {
            Err(error) => error,
            Ok(ignored) => {
                findings.extend(ignored.into_iter().map(|ignored| ignored.finding(&run.node)));
                continue;
            }
        };
        {
            let end = run.value.trim_end().len();
            let at = at.min(end.saturating_sub(1));
            let start = run.value.floor_char_boundary(at);
            let place = run.node.place_of_range(start..run.value.ceil_char_boundary(at + 1));
            let finding = Diagnostic::error("shell-syntax", place, format!("invalid shell syntax: {message}"));
            findings.push(finding.help(match is_cut_by_comment(&run.node) {
                true => {
                    "` #` starts a comment of YAML: put the command in quotes, or write it as a block after `run: |`"
                }
                false => "check that everything before it is closed",
            }));
        }
    }
}

/// Whether a text without quotes ends at a comment.
fn is_cut_by_comment(node: &Node) -> bool {
    let place = node.place();
    let rest = &place.source.text[place.range.end..];
    node.is_plain() && rest.lines().next().is_some_and(|rest| rest.trim_start().starts_with('#'))
}

/// Reports the first line that YAML joins to the one before it although it looks like a command of its own.
fn folded_line(run: &Spanned<String>) -> Option<Diagnostic> {
    let place = run.node.content_place();
    let written = &place.source.text[place.range.clone()];
    let starts_alone =
        |line: &str| line.starts_with(|letter: char| letter.is_alphanumeric() || "_.!/[{:".contains(letter));
    let is_open = |line: &str| {
        let last = line.rsplit([' ', '\t']).next().unwrap_or_default();
        line.ends_with(['\\', '|', '&', '(', '{', ';']) || ["do", "then", "else"].contains(&last)
    };
    let mut before = "";
    for line in written.lines().map(str::trim) {
        let is_joined = !before.is_empty() && run.value.contains(&format!("{before} {line}"));
        // `\` and the space that takes the place of the line break are a character of a word.
        let is_escape = before.ends_with('\\') && run.value.contains(&format!("{before} {line}"));
        if is_joined && (is_escape || starts_alone(line) && !is_open(before)) {
            let start = place.range.start + (line.as_ptr().addr() - written.as_ptr().addr());
            let place = crate::diagnostic::SourceSpan { range: start..start + line.len(), ..place };
            let finding = Diagnostic::warning("folded-script", place, "YAML joins this line to the one before it");
            return Some(finding.help(
                "write `run: |` so that each line is a command; there, a line that ends with `\\` continues in the next",
            ));
        }
        before = line;
    }
    None
}

/// A part of a script whose failure doesn't fail the check.
struct IgnoredFailure {
    /// The bytes of the script.
    range: Range<usize>,
    is_negation: bool,
}

impl IgnoredFailure {
    fn finding(self, node: &Node) -> Diagnostic {
        let (message, help) = match self.is_negation {
            true => (
                "this line never fails the check: `bash -e` ignores the result of `!`, except in the last line",
                "write `if COMMAND; then exit 1; fi`, or make it the last line",
            ),
            false => (
                "a failure before `&&` doesn't fail the check: `bash -e` ignores it, except in the last line",
                "write the commands in lines of their own, without `&&`",
            ),
        };
        Diagnostic::warning("ignored-failure", node.place_of_range(self.range), message).help(help)
    }
}

/// The statements of a script that `bash -e` doesn't stop at, by characters. The last one is the result of the script.
fn ignored_failures(script: &[ShellNode]) -> Vec<(Range<usize>, bool)> {
    let mut found: Vec<Option<(Range<usize>, bool)>> = Vec::new();
    for node in script {
        let ShellKind::List { items } = &node.kind else {
            found.push(is_negation(node).then_some((node.span.start..node.span.end, true)));
            continue;
        };
        // One statement is a chain of commands with `&&` and `||`.
        let is_end = |operator: &Option<ListOperator>| !matches!(operator, Some(ListOperator::And | ListOperator::Or));
        for chain in items.split_inclusive(|item| is_end(&item.operator)) {
            let (Some(first), Some(last)) = (chain.first(), chain.last()) else { continue };
            let range = first.command.span.start..last.command.span.end;
            let is_and = |operator: &Option<ListOperator>| matches!(operator, Some(ListOperator::And));
            let (before, _) = chain.split_at(chain.len() - 1);
            let is_exit = is_word_of(&last.command, &["exit", "false"])
                || matches!(last.command.kind, ShellKind::BraceGroup { .. });
            let is_conjunction = !is_exit && !before.is_empty() && before.iter().all(|item| is_and(&item.operator));
            let is_background = matches!(last.operator, Some(ListOperator::Background));
            found.push(match chain {
                _ if is_background => None,
                [only] => is_negation(&only.command).then_some((range, true)),
                // `test ... && COMMAND` is a way to write `if`.
                _ if is_conjunction && !before.iter().all(|item| is_condition(&item.command)) => Some((range, false)),
                _ => None,
            });
        }
    }
    found.pop();
    found.into_iter().flatten().collect()
}

fn is_negation(node: &ShellNode) -> bool {
    matches!(node.kind, ShellKind::Negation { .. })
}

/// Whether a command only tests something.
fn is_condition(node: &ShellNode) -> bool {
    match &node.kind {
        ShellKind::Negation { pipeline } => is_condition(pipeline),
        ShellKind::Command { .. } => is_word_of(node, &["test", "[", "[[", "command"]),
        ShellKind::Pipeline { .. } | ShellKind::Subshell { .. } | ShellKind::BraceGroup { .. } => false,
        // `[[ ]]` and `(( ))`.
        _ => true,
    }
}

/// Whether a command begins with one of these words.
fn is_word_of(node: &ShellNode, names: &[&str]) -> bool {
    let ShellKind::Command { words, .. } = &node.kind else { return false };
    words
        .first()
        .is_some_and(|word| matches!(&word.kind, ShellKind::Word { value, .. } if names.contains(&value.as_str())))
}

/// The parts of a command that can't fail it, or its syntax error with its byte offset; `None` if it can't be judged.
fn parse(command: &str) -> Option<Result<Vec<IgnoredFailure>, (usize, String)>> {
    // The parser doesn't support a `case` without patterns.
    let is_bare_case = command.split_whitespace().collect::<Vec<_>>().windows(2).any(|pair| pair == ["in", "esac"]);
    // It doesn't support conditions of several lines either.
    let is_long = |rest: &str| rest.split_once("]]").is_some_and(|(inside, _)| inside.contains('\n'));
    let has_long_condition = command.split("[[").skip(1).any(is_long);
    let brackets = command.bytes().filter(|byte| matches!(byte, b'(' | b'{' | b'[' | b'`' | b'!')).count();
    let words = ["if", "for", "while", "until", "case", "select", "time", "coproc", "function"];
    let blocks =
        command.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| words.contains(word)).count();
    if is_bare_case || has_long_condition || command.len() > MAX_COMMAND || brackets + blocks > MAX_NESTED {
        return None;
    }
    let text = command.to_owned();
    let parse = move || rable::parse(&text, true).map(|script| ignored_failures(&script));
    let parser = std::thread::Builder::new().stack_size(STACK).spawn(parse);
    // If the parser panics, the command counts as valid.
    let parsed = parser.ok()?.join().ok()?;
    // The parser counts characters.
    let byte = |at: usize| command.char_indices().nth(at).map_or(command.len(), |(at, _)| at);
    let ignored = |(range, is_negation): (Range<usize>, bool)| {
        let range = byte(range.start)..byte(range.end);
        let end = range.start + command[range.clone()].trim_end().len();
        IgnoredFailure { range: range.start..end, is_negation }
    };
    Some(match parsed {
        Ok(found) => Ok(found.into_iter().map(ignored).collect()),
        Err(error) => Err((byte(error.pos()), plain_message(error.message()))),
    })
}

/// The parser's message in plain English.
fn plain_message(message: &str) -> String {
    if let Some((expected, found)) = message.strip_prefix("expected ").and_then(|rest| rest.split_once(", got ")) {
        let expected = token(expected);
        return match token(found).as_str() {
            "" => format!("`{expected}` is missing at the end"),
            _ if expected.is_empty() => "expected the end".to_owned(),
            found if found.starts_with("a ") => format!("`{expected}` is missing before {found}"),
            found => format!("`{expected}` is missing before `{found}`"),
        };
    }
    let quoted = |start: &str| message.strip_prefix(start).map(|rest| rest.trim_matches(['\'', ' ']));
    if let Some(found) = quoted("syntax error near unexpected token").or_else(|| quoted("unexpected reserved word")) {
        return format!("`{found}` isn't valid here");
    }
    if let Some(opened) = message.strip_prefix("unterminated ") {
        let article = if opened.starts_with(['a', 'A']) { "an" } else { "a" };
        return match opened.starts_with(|letter: char| letter.is_alphabetic()) {
            true => format!("{article} {opened} isn't closed"),
            false => format!("`{}` isn't closed", opened.trim_matches('\'')),
        };
    }
    match message {
        "syntax error: unexpected end of input" | "unexpected end of input" => "the command is incomplete".to_owned(),
        _ => message.to_owned(),
    }
}

/// The text of a token that the parser names; empty for the end of the command.
fn token(name: &str) -> String {
    let name = name.trim_matches('"');
    let written = match name {
        "Eof" => "",
        "Word" | "AssignmentWord" => "a word",
        "Number" => "a number",
        "Newline" => "a line break",
        "Pipe" => "|",
        "PipeBoth" => "|&",
        "And" => "&&",
        "Or" => "||",
        "Semi" => ";",
        "DoubleSemi" => ";;",
        "SemiAnd" => ";&",
        "SemiSemiAnd" => ";;&",
        "Ampersand" => "&",
        "LeftParen" => "(",
        "RightParen" => ")",
        "LeftBrace" => "{",
        "RightBrace" => "}",
        "DoubleLeftBracket" => "[[",
        "DoubleRightBracket" => "]]",
        "Less" => "<",
        "Greater" => ">",
        "Bang" => "!",
        _ if name.chars().all(char::is_alphabetic) => return name.to_lowercase(),
        _ => name,
    };
    written.to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn syntax_error(command: &str) -> Option<(usize, String)> {
        parse(command)?.err()
    }

    #[test]
    fn failures_that_bash_ignores_are_found() {
        for (command, ignored) in [
            ("! grep a b\ntrue", &["! grep a b"][..]),
            ("! grep a b; true", &["! grep a b"]),
            ("true\n! grep a b", &[]),
            ("! grep a b", &[]),
            ("! a | b\n! c ü; ! d\n", &["! a | b", "! c ü"]),
            ("cargo build && cargo test\necho done", &["cargo build && cargo test"]),
            ("echo start\ncargo build && cargo test", &[]),
            ("test -f a && cat a\n[ -n \"$b\" ] && [[ $b == c ]] && echo\ntrue", &[]),
            ("grep -q a b && exit 1\ngrep -q a b && { echo no; exit 1; }\ntrue", &[]),
            ("a || b\na && b || c\na && b &\ntrue", &[]),
            ("if ! a; then exit 1; fi\ntrue", &[]),
        ] {
            let found = parse(command).unwrap().unwrap();
            let found: Vec<&str> = found.iter().map(|it| &command[it.range.clone()]).collect();
            assert_eq!(found, ignored, "{command}");
            // What bash says: each part alone fails, and the whole doesn't.
            let runs = |script: &str| {
                let commands = "a() { false; }; b() { false; }; c() { true; }; d() { false; }; cargo() { false; }; grep() { true; }\n";
                let script = format!("{commands}{script}");
                let ended = Command::new("bash").args(["-e", "-o", "pipefail", "-c", &script]).output();
                ended.unwrap().status.success()
            };
            assert!(ignored.is_empty() || !command.ends_with("true") || runs(command), "{command}");
        }
    }

    /// Whether bash itself can read it.
    fn bash_reads(command: &str) -> bool {
        Command::new("bash").args(["-n", "-c", command]).output().unwrap().status.success()
    }

    #[test]
    fn valid_commands_are_accepted() {
        let not_bash: Vec<_> = RIGHT.iter().filter(|command| !bash_reads(command)).collect();
        assert!(not_bash.is_empty(), "{not_bash:#?}");
        let refused: Vec<_> = RIGHT.iter().filter_map(|command| Some((command, syntax_error(command)?))).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }

    #[test]
    fn invalid_commands_are_found() {
        let missed: Vec<_> =
            WRONG.iter().filter(|command| bash_reads(command) || syntax_error(command).is_none()).collect();
        assert!(missed.is_empty(), "{missed:#?}");
    }

    #[test]
    fn messages_are_in_plain_words() {
        for (command, said) in [
            ("if true; then", "the command is incomplete"),
            ("for x in a; then echo; done", "`do` is missing before `then`"),
            ("while true; do echo", "`done` is missing at the end"),
            ("echo $(ls", "`)` is missing at the end"),
            ("echo (a)", "`)` is missing before a word"),
            ("echo 'a", "a single quote isn't closed"),
            ("a=(b", "an array isn't closed"),
            ("true && && false", "`&&` isn't valid here"),
            ("done", "`done` isn't valid here"),
            ("[[ a == b ]", "`]]` is missing before `]`"),
            ("f() { echo", "`}` is missing at the end"),
            ("if true; echo; fi", "`then` is missing before `fi`"),
        ] {
            assert_eq!(syntax_error(command).map(|(_, message)| message).as_deref(), Some(said), "{command}");
        }
    }

    #[test]
    fn long_and_deep_commands_are_bounded() {
        for part in
            ["a | ", "a && ", "a; ", "! ", "time ", "{ ", "( ", "$( ", "if a; then ", "\"$(", "a=( ", "<<A ", "${a:-"]
        {
            for count in [MAX_NESTED / 2, MAX_NESTED - 1, 10_000] {
                syntax_error(&part.repeat(count));
            }
        }
    }

    const WRONG: &[&str] = &[
        "if true; then",
        "if true; then echo; fi fi",
        "for x in a; then echo; done",
        "while true; do echo",
        "echo 'a",
        "echo \"a",
        "echo $(ls",
        "echo (a)",
        "true && && false",
        "true | | false",
        "| true",
        "case a in b) echo",
        "{ echo",
        "( echo",
        "done",
        "fi",
        "echo )",
        "[[ a ",
        "f() {",
        "; echo",
    ];

    const RIGHT: &[&str] = &[
        "",
        "true",
        "# only a comment",
        "cargo test --quiet 2>&1 | tail -n 20",
        "test -z \"$(git status --porcelain)\"",
        "if [ -f a ]; then cat a; elif [ -d b ]; then ls b; else exit 1; fi",
        "for x in a b; do echo \"$x\"; done",
        "for x; do echo; done",
        "for ((i = 0; i < 3; i++)); do echo $i; done",
        "while read -r line; do echo \"$line\"; done < file",
        "until false; do break; done",
        "case $x in a|b) echo 1;; (c) echo 2;& *) echo 3;;& esac",
        "case x in esac",
        "select x in a b; do break; done",
        "cat <<EOF\nif then 'a\nEOF\necho",
        "cat <<'EOF'\n$(unclosed\nEOF",
        "cat <<-EOF\n\ta\n\tEOF",
        "cat <<A <<B\na\nA\nb\nB",
        "cat <<EOF | grep a\nb\nEOF",
        "cat <<< \"a b\"",
        "a=(1 2 [5]=3 $(ls) \"b c\")",
        "declare -A m=([a]=1 [b]=2)",
        "local -a x=(a b)",
        "a+=(x); a[1]=2; echo ${a[@]} ${#a[@]} ${!a[@]}",
        "echo ${x:-a} ${x:=b} ${x:?c} ${x:+d} ${x#a} ${x##*/} ${x%.*} ${x%%a} ${x/a/b} ${x//a/b} ${x^^} ${x,,} ${x:1:2} ${x@Q}",
        "echo ${x:-\"a b\"} ${x:-'}'} ${x:-$(ls \"a\")}",
        "diff <(ls a) <(ls b)",
        "tee >(cat) < a",
        "[[ $a =~ ^[0-9]+$ ]]",
        "[[ $a =~ (a|b)\\ c ]] && echo ${BASH_REMATCH[1]}",
        "[[ -n $a && ( $b == x* || ! -e c ) ]]",
        "[[ $a == @(a|b)*(c) ]]",
        "[[ a < b ]]",
        "[[ a\n&& b ]]",
        "(( x = 1 + 2 * (3 - 4) )) || true",
        "echo $(( 1 << 2 )) $((x > 1 ? 2 : 3))",
        "echo $(echo $(echo a)) `echo b`",
        "echo \"$(echo \"a\")\" \"`echo \\`echo b\\``\"",
        "f() { echo; }; f",
        "function g { echo; }",
        "function h() ( echo )",
        "f() if true; then echo; fi",
        "{ echo a; echo b; } > out 2>&1 &",
        "( cd a && ls ) ; wait",
        "! true",
        "time ls",
        "time -p ls | cat",
        "coproc cat",
        "exec 3<>file; echo a >&3; exec 3>&-",
        "echo a >| b &> c &>> d 2>/dev/null <&0",
        "x=1 y=2 cmd a",
        "a && b || c ; d & e",
        "a |& b",
        "echo a \\\n  b",
        "echo 'it'\\''s' $'a\\'b' $\"x\"",
        "echo {a,b}{1..3} ~ *.rs ?[a-z]",
        "echo a#b # c 'd",
        "set -euo pipefail\ntrap 'rm -f x' EXIT",
        "python3 - <<'PY'\nimport os\nprint('a' if \"b\" else (1,))\nPY",
        "awk '{ print $1 }' a | sed -e 's/(a)/b/' | jq '.[] | select(.a == \"b\")'",
        "grep -E '^(a|b)$' x || { echo no; exit 1; }",
        "test \"$(wc -l < a)\" -gt 3",
        "[ \"$a\" = \"b\" ] && [ ! -e c ]",
        "if ! grep -q a b; then exit 1; fi",
        "while :; do case $1 in -a) shift;; *) break;; esac; done",
        "for f in *.py; do python -m py_compile \"$f\" || exit 1; done",
        "echo ${1} $1 $# $? $$ $! $- $@ $* \"$@\"",
        "echo \"${a[@]/#/-}\" \"${a[*]%x}\"",
        "find . -name '*.rs' -exec grep -l a {} +",
        "find . -type f -exec sh -c 'echo \"$1\"' _ {} \\;",
        "printf '%s\\n' a b | while IFS= read -r x; do echo \"$x\"; done",
        "if true\nthen\n  echo\nfi",
        "for x in a \\\n  b\ndo\n  echo\ndone",
        "case a in\n  a)\n    echo\n    ;;\nesac",
        "case a in a) ;; esac",
        "a=$(cat <<EOF\nb)\nEOF\n)",
        "a=$(case x in x) echo;; esac)",
        "echo $(# comment\nls)",
        "if (( x )) && [[ y ]]; then :; fi",
        "echo if then else fi done",
        "echo a;\n",
        "\n\necho a\n\n",
        "ls;# c",
        "echo \"a\nb\"",
        "let 'x = 1'",
        "export A=1 B=\"2 3\"",
        "eval \"$x\"",
        "[[ $x == \"a b\" ]]",
        "[[ ! $x ]]",
        "((i++))",
        "echo $[1 + 2]",
        "x=\"${y:-\"z\"}\"",
        "echo \"${x//\\\"/}\"",
        "echo ${x//\\//_}",
        "echo ${x/'}'/a}",
        "cmd < <(other)",
        "mapfile -t lines < <(ls)",
        "echo -e \"\\033[0m\"",
        "a() { local b=$1; [[ $b ]] || return 1; }",
        "if a; then b; fi > out",
        "while a; do b; done | c",
        "for x in \"${a[@]}\"; { echo; }",
        "echo 2>&1>a",
        "echo ü \"日本\"",
        "true &\nfalse",
        "x=y; (echo a); echo b",
        "echo $((16#ff)) $((a[1]))",
        "[[ -v a[1] ]]",
        "echo \"$((1 + 2))\"",
        "echo a{b,'c d'}",
        "echo \\( a \\)",
        "declare -r x=1; readonly y; unset 'a[1]'",
        "cat <<\"E F\"\na\nE F",
        "cat <<\\EOF\na\nEOF",
        "cat <<EOF\n$(echo \"a)\")\nEOF",
        "cat <<EOF\n`echo b`\nEOF",
    ];
}
