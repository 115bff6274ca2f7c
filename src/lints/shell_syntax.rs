//! Checks that the commands of checks are valid for bash.

use crate::diagnostic::{Diagnostic, rule};

use super::{Lint, LintContext};

/// The longest command that is checked, in bytes, and the greatest number of nested constructs. The parser is recursive.
const MAX_COMMAND: usize = 64 << 10;
const MAX_NESTED: usize = 80;

/// The size of the parser's stack, in bytes. The parser's own limit on depth needs that much.
const STACK: usize = 64 << 20;

/// Commands that bash can't parse.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Error "shell-syntax")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    for run in subject.job.checks.iter().map(|check| &check.run).filter(|run| !run.node.is_placeholder()) {
        if let Some((at, message)) = syntax_error(&run.value) {
            let end = run.value.trim_end().len();
            let at = at.min(end.saturating_sub(1));
            let start = run.value.floor_char_boundary(at);
            let place = run.node.place_of_range(start..run.value.ceil_char_boundary(at + 1));
            let finding = Diagnostic::error("shell-syntax", place, format!("invalid shell syntax: {message}"));
            findings.push(finding.help("check that everything before it is closed"));
        }
    }
}

/// The syntax error of a command, with its byte offset.
fn syntax_error(command: &str) -> Option<(usize, String)> {
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
    let parser = std::thread::Builder::new().stack_size(STACK).spawn(move || rable::parse(&text, true).err());
    // If the parser panics, the command counts as valid.
    let error = parser.ok()?.join().ok()??;
    // The parser counts characters.
    let at = command.char_indices().nth(error.pos()).map_or(command.len(), |(at, _)| at);
    Some((at, plain_message(error.message())))
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
