//! Rules that allow as much as `bash` without rules: programs that run arbitrary commands, or send arbitrary data.

use super::rules::rule_words;

/// How a program can run arbitrary commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExecutionKind {
    /// It runs code from its arguments or standard input, unless it is given a file.
    Interpreter,
    /// Some of its subcommands can.
    Subcommands,
    /// It runs the command in its arguments.
    Wrapper,
    /// With some option or argument. No further words are safe.
    AnyArgument,
}

/// Programs that run code from their arguments or standard input, unless they are given a file.
const INTERPRETERS: &str = "\
    sh bash dash ash zsh ksh mksh fish csh tcsh pwsh nu python pypy ipython perl ruby irb node nodejs deno \
    bun tsx ts-node php lua luajit tclsh expect awk gawk mawk nawk elixir julia R Rscript ghci groovy jshell \
    osascript source .";

/// Programs whose first word is a subcommand.
const WITH_SUBCOMMANDS: &str =
    "uv npm pnpm yarn pipx pip poetry bundle go cargo docker podman kubectl git gh aws gcloud az";

/// Programs that run the command in their arguments.
const WRAPPERS: &str = "\
    eval env command exec builtin nohup timeout nice ionice chrt taskset setsid stdbuf time sudo doas \
    setpriv unshare nsenter xargs busybox toybox";

/// Programs that run a command from one of their options or arguments, or send files over the network.
const ANY_ARGUMENT: &str = "\
    su runuser chroot flock strace ltrace gdb script watch entr parallel find fd make gmake just ninja tar \
    zip sed ed ex vi vim nvim emacs less man sqlite3 psql mysql npx bunx pnpx uvx curl wget http https nc \
    ncat netcat socat openssl ssh scp sftp ftp rsync rclone telnet";

/// Subcommands that differ from their program.
const SUBCOMMANDS: &[(&str, ExecutionKind, &str)] = &[
    ("bun", ExecutionKind::Interpreter, "run"),
    ("bun", ExecutionKind::AnyArgument, "x exec"),
    ("deno", ExecutionKind::Interpreter, "run"),
    ("deno", ExecutionKind::AnyArgument, "eval"),
    ("uv", ExecutionKind::Wrapper, "run"),
    ("npm", ExecutionKind::AnyArgument, "exec x"),
    ("pnpm", ExecutionKind::AnyArgument, "exec dlx"),
    ("yarn", ExecutionKind::AnyArgument, "exec dlx"),
    ("pipx", ExecutionKind::AnyArgument, "run"),
    ("pip", ExecutionKind::AnyArgument, "install"),
    ("poetry", ExecutionKind::Wrapper, "run"),
    ("bundle", ExecutionKind::Wrapper, "exec"),
    ("go", ExecutionKind::Interpreter, "run"),
    ("docker", ExecutionKind::AnyArgument, "run exec"),
    ("podman", ExecutionKind::AnyArgument, "run exec"),
    ("kubectl", ExecutionKind::AnyArgument, "exec run"),
    (
        "git",
        ExecutionKind::AnyArgument,
        "bisect clone config difftool fetch filter-branch grep ls-remote mergetool pull push rebase submodule",
    ),
    ("gh", ExecutionKind::AnyArgument, "api gist"),
];

/// Options before a subcommand whose value is the next word.
const OPTIONS_WITH_VALUE: &[&str] = &[
    "-C",
    "-H",
    "-c",
    "-n",
    "--context",
    "--cwd",
    "--dir",
    "--directory",
    "--git-dir",
    "--host",
    "--namespace",
    "--prefix",
    "--project",
    "--work-tree",
];

/// Options with which a program only prints information about itself.
const INFO_OPTIONS: &[&str] = &["--version", "-V", "-v", "--help", "-h"];

/// Whether a rule of `allow` permits running arbitrary commands, or sending arbitrary data.
pub(crate) fn is_unrestricted(rule: &str) -> bool {
    rule_words(rule).is_some_and(|(words, open)| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        runs_arbitrary_code(&words, open)
    })
}

/// The kind of a program, or of a program and its subcommand.
fn kind_of(program: &str, subcommand: Option<&str>) -> Option<ExecutionKind> {
    let lists = |list: &str, name: &str| list.split(' ').any(|listed| listed == name);
    if let Some(subcommand) = subcommand {
        let mut rows = SUBCOMMANDS.iter();
        return rows.find(|(name, _, list)| *name == program && lists(list, subcommand)).map(|(_, kind, _)| *kind);
    }
    let kinds = [
        (INTERPRETERS, ExecutionKind::Interpreter),
        (WITH_SUBCOMMANDS, ExecutionKind::Subcommands),
        (WRAPPERS, ExecutionKind::Wrapper),
        (ANY_ARGUMENT, ExecutionKind::AnyArgument),
    ];
    kinds.into_iter().find(|(list, _)| lists(list, program)).map(|(_, kind)| kind)
}

/// Whether these words, followed by any further ones if `open`, can run arbitrary commands.
fn runs_arbitrary_code(words: &[&str], open: bool) -> bool {
    let Some((program, rest)) = words.split_first() else { return open };
    let name = base_name(program);
    let Some(kind) = kind_of(name, None) else { return false };
    let rest = if kind == ExecutionKind::Subcommands { skip_options(rest) } else { rest };
    let subcommand_kind = rest.first().and_then(|subcommand| kind_of(name, Some(subcommand)));
    let (kind, rest) = subcommand_kind.map_or((kind, rest), |kind| (kind, &rest[1..]));
    let is_option = |word: &&str| word.starts_with(['-', '+']) || word.contains('=');
    match kind {
        ExecutionKind::AnyArgument => open,
        ExecutionKind::Subcommands => open && rest.iter().all(is_option),
        // With options only, it reads code from the next argument or from standard input.
        ExecutionKind::Interpreter => {
            let reads_input = subcommand_kind.is_none() && !rest.iter().any(|word| INFO_OPTIONS.contains(word));
            (open || reads_input) && rest.iter().all(is_option)
        }
        ExecutionKind::Wrapper => {
            // The words that `xargs` appends come from standard input.
            let open = open || name == "xargs";
            let is_own_argument = |at: usize| {
                let is_value = at > 0 && rest[at - 1].starts_with('-');
                is_value || is_option(&rest[at]) || rest[at].starts_with(|letter: char| letter.is_ascii_digit())
            };
            match rest.iter().position(|word| kind_of(base_name(word), None).is_some()) {
                Some(at) => runs_arbitrary_code(&rest[at..], open),
                None => open && (0..rest.len()).all(is_own_argument),
            }
        }
    }
}

/// The words after a program's own options: `log` in `git -C DIR log`.
fn skip_options<'a, 'b>(mut words: &'a [&'b str]) -> &'a [&'b str] {
    while let [option, rest @ ..] = words {
        words = match rest {
            _ if !option.starts_with(['-', '+']) => return words,
            [_, rest @ ..] if OPTIONS_WITH_VALUE.contains(option) => rest,
            _ => rest,
        };
    }
    words
}

/// A program's name without its folder and version: `python` for `/usr/bin/python3.12`.
fn base_name(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or(program);
    let bare = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-'));
    // `7z` and `.` would be empty.
    if bare.is_empty() || name == "sqlite3" { name } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_run_arbitrary_commands_are_found() {
        for rule in [
            "sh -c *",
            "sh *",
            "/bin/sh -c *",
            "bash *",
            "bash",
            "bash -lc *",
            "env *",
            "env A=b *",
            "env python3 -c *",
            "python3 *",
            "python3.12 -c *",
            "python -",
            "perl -ne *",
            "node -e *",
            "ruby *",
            "awk *",
            "xargs *",
            "xargs sh",
            "xargs -n 1 sh -c",
            "find . *",
            "timeout 10 *",
            "timeout -s KILL 10 sh -c *",
            "sudo -u root *",
            "nohup *",
            "make test *",
            "npx *",
            "ssh host *",
            "git *",
            "git -c *",
            "git -C sub *",
            "git -C sub push *",
            "git --no-pager --git-dir .git *",
            "npm --prefix web exec *",
            "git push *",
            "tar *",
            "sed -n *",
            "curl *",
            "uv run *",
            "deno run *",
            "go run *",
            "npm *",
            "gh api *",
            "'sh' \"-c\" *",
        ] {
            assert!(is_unrestricted(rule), "{rule}");
        }
    }

    #[test]
    fn other_rules_are_not() {
        for rule in [
            "git diff *",
            "git status",
            "cargo test *",
            "npm test *",
            "npm run build",
            "python3 scripts/check.py *",
            "python3 -m pytest *",
            "python3 --version",
            "bash scripts/test.sh *",
            "make test",
            "make",
            "find . -name x",
            "curl https://example.com/a",
            "env A=b cargo test *",
            "timeout 10 cargo test *",
            "xargs rm",
            "ls *",
            "rg *",
            "gh pr view *",
            "go test *",
            "awk '{ print $1 }' *",
            "sh -c 'echo hi'",
            "rm # *",
            "",
        ] {
            assert!(!is_unrestricted(rule), "{rule}");
        }
    }

    #[test]
    fn every_program_is_listed_once() {
        let mut programs = [INTERPRETERS, WITH_SUBCOMMANDS, WRAPPERS, ANY_ARGUMENT].join(" ");
        for (program, _, subcommands) in SUBCOMMANDS {
            assert!(kind_of(program, None).is_some(), "{program}");
            subcommands.split(' ').for_each(|subcommand| programs += &format!(" {program}:{subcommand}"));
        }
        let mut programs: Vec<&str> = programs.split(' ').collect();
        programs.sort_unstable();
        assert!(!programs.contains(&""), "every list has single spaces");
        assert_eq!(programs.windows(2).find(|pair| pair[0] == pair[1]), None);
    }
}
