//! Rules that allow as much as `bash` without rules does: programs that run what they are given, and programs that send
//! it away.

use super::rules::words;

/// How a program comes to run, or to send, anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExecutionKind {
    /// It runs the program that its words or its standard input hold, unless a file of its own is named.
    Interpreter,
    /// Its first word says what it does, and some of these run others.
    Subcommands,
    /// It runs the command that its words are, behind its own options.
    Wrapper,
    /// One of its options or words runs a command, or sends a file away: any further words are too many.
    AnyArgument,
}

/// The programs, each with the words that have to follow for it to be so.
const PROGRAMS: &[(&str, ExecutionKind)] = &[
    // Shells and languages.
    ("sh", ExecutionKind::Interpreter),
    ("bash", ExecutionKind::Interpreter),
    ("dash", ExecutionKind::Interpreter),
    ("ash", ExecutionKind::Interpreter),
    ("zsh", ExecutionKind::Interpreter),
    ("ksh", ExecutionKind::Interpreter),
    ("mksh", ExecutionKind::Interpreter),
    ("fish", ExecutionKind::Interpreter),
    ("csh", ExecutionKind::Interpreter),
    ("tcsh", ExecutionKind::Interpreter),
    ("pwsh", ExecutionKind::Interpreter),
    ("nu", ExecutionKind::Interpreter),
    ("python", ExecutionKind::Interpreter),
    ("pypy", ExecutionKind::Interpreter),
    ("ipython", ExecutionKind::Interpreter),
    ("perl", ExecutionKind::Interpreter),
    ("ruby", ExecutionKind::Interpreter),
    ("irb", ExecutionKind::Interpreter),
    ("node", ExecutionKind::Interpreter),
    ("nodejs", ExecutionKind::Interpreter),
    ("deno", ExecutionKind::Interpreter),
    ("bun", ExecutionKind::Interpreter),
    ("tsx", ExecutionKind::Interpreter),
    ("ts-node", ExecutionKind::Interpreter),
    ("php", ExecutionKind::Interpreter),
    ("lua", ExecutionKind::Interpreter),
    ("luajit", ExecutionKind::Interpreter),
    ("tclsh", ExecutionKind::Interpreter),
    ("expect", ExecutionKind::Interpreter),
    ("awk", ExecutionKind::Interpreter),
    ("gawk", ExecutionKind::Interpreter),
    ("mawk", ExecutionKind::Interpreter),
    ("nawk", ExecutionKind::Interpreter),
    ("elixir", ExecutionKind::Interpreter),
    ("julia", ExecutionKind::Interpreter),
    ("R", ExecutionKind::Interpreter),
    ("Rscript", ExecutionKind::Interpreter),
    ("ghci", ExecutionKind::Interpreter),
    ("groovy", ExecutionKind::Interpreter),
    ("jshell", ExecutionKind::Interpreter),
    ("osascript", ExecutionKind::Interpreter),
    ("source", ExecutionKind::Interpreter),
    (".", ExecutionKind::Interpreter),
    ("eval", ExecutionKind::Wrapper),
    // Programs that run others.
    ("env", ExecutionKind::Wrapper),
    ("command", ExecutionKind::Wrapper),
    ("exec", ExecutionKind::Wrapper),
    ("builtin", ExecutionKind::Wrapper),
    ("nohup", ExecutionKind::Wrapper),
    ("timeout", ExecutionKind::Wrapper),
    ("nice", ExecutionKind::Wrapper),
    ("ionice", ExecutionKind::Wrapper),
    ("chrt", ExecutionKind::Wrapper),
    ("taskset", ExecutionKind::Wrapper),
    ("setsid", ExecutionKind::Wrapper),
    ("stdbuf", ExecutionKind::Wrapper),
    ("time", ExecutionKind::Wrapper),
    ("sudo", ExecutionKind::Wrapper),
    ("doas", ExecutionKind::Wrapper),
    ("su", ExecutionKind::AnyArgument),
    ("runuser", ExecutionKind::AnyArgument),
    ("setpriv", ExecutionKind::Wrapper),
    ("unshare", ExecutionKind::Wrapper),
    ("nsenter", ExecutionKind::Wrapper),
    ("chroot", ExecutionKind::AnyArgument),
    ("flock", ExecutionKind::AnyArgument),
    ("strace", ExecutionKind::AnyArgument),
    ("ltrace", ExecutionKind::AnyArgument),
    ("gdb", ExecutionKind::AnyArgument),
    ("script", ExecutionKind::AnyArgument),
    ("watch", ExecutionKind::AnyArgument),
    ("entr", ExecutionKind::AnyArgument),
    ("parallel", ExecutionKind::AnyArgument),
    ("xargs", ExecutionKind::Wrapper),
    ("busybox", ExecutionKind::Wrapper),
    ("toybox", ExecutionKind::Wrapper),
    ("find", ExecutionKind::AnyArgument),
    ("fd", ExecutionKind::AnyArgument),
    ("make", ExecutionKind::AnyArgument),
    ("gmake", ExecutionKind::AnyArgument),
    ("just", ExecutionKind::AnyArgument),
    ("ninja", ExecutionKind::AnyArgument),
    ("tar", ExecutionKind::AnyArgument),
    ("zip", ExecutionKind::AnyArgument),
    ("sed", ExecutionKind::AnyArgument),
    ("ed", ExecutionKind::AnyArgument),
    ("ex", ExecutionKind::AnyArgument),
    ("vi", ExecutionKind::AnyArgument),
    ("vim", ExecutionKind::AnyArgument),
    ("nvim", ExecutionKind::AnyArgument),
    ("emacs", ExecutionKind::AnyArgument),
    ("less", ExecutionKind::AnyArgument),
    ("man", ExecutionKind::AnyArgument),
    ("sqlite3", ExecutionKind::AnyArgument),
    ("psql", ExecutionKind::AnyArgument),
    ("mysql", ExecutionKind::AnyArgument),
    ("npx", ExecutionKind::AnyArgument),
    ("bunx", ExecutionKind::AnyArgument),
    ("pnpx", ExecutionKind::AnyArgument),
    ("uvx", ExecutionKind::AnyArgument),
    // Only without, or with these, further words.
    ("bun run", ExecutionKind::Interpreter),
    ("bun x", ExecutionKind::AnyArgument),
    ("bun exec", ExecutionKind::AnyArgument),
    ("deno run", ExecutionKind::Interpreter),
    ("deno eval", ExecutionKind::AnyArgument),
    ("uv", ExecutionKind::Subcommands),
    ("uv run", ExecutionKind::Wrapper),
    ("npm", ExecutionKind::Subcommands),
    ("npm exec", ExecutionKind::AnyArgument),
    ("npm x", ExecutionKind::AnyArgument),
    ("pnpm", ExecutionKind::Subcommands),
    ("pnpm exec", ExecutionKind::AnyArgument),
    ("pnpm dlx", ExecutionKind::AnyArgument),
    ("yarn", ExecutionKind::Subcommands),
    ("yarn exec", ExecutionKind::AnyArgument),
    ("yarn dlx", ExecutionKind::AnyArgument),
    ("pipx", ExecutionKind::Subcommands),
    ("pipx run", ExecutionKind::AnyArgument),
    ("pip", ExecutionKind::Subcommands),
    ("pip install", ExecutionKind::AnyArgument),
    ("poetry", ExecutionKind::Subcommands),
    ("poetry run", ExecutionKind::Wrapper),
    ("bundle", ExecutionKind::Subcommands),
    ("bundle exec", ExecutionKind::Wrapper),
    ("go", ExecutionKind::Subcommands),
    ("go run", ExecutionKind::Interpreter),
    ("cargo", ExecutionKind::Subcommands),
    ("docker", ExecutionKind::Subcommands),
    ("docker run", ExecutionKind::AnyArgument),
    ("docker exec", ExecutionKind::AnyArgument),
    ("podman", ExecutionKind::Subcommands),
    ("podman run", ExecutionKind::AnyArgument),
    ("podman exec", ExecutionKind::AnyArgument),
    ("kubectl", ExecutionKind::Subcommands),
    ("kubectl exec", ExecutionKind::AnyArgument),
    ("kubectl run", ExecutionKind::AnyArgument),
    ("git", ExecutionKind::Subcommands),
    ("git bisect", ExecutionKind::AnyArgument),
    ("git clone", ExecutionKind::AnyArgument),
    ("git config", ExecutionKind::AnyArgument),
    ("git difftool", ExecutionKind::AnyArgument),
    ("git fetch", ExecutionKind::AnyArgument),
    ("git filter-branch", ExecutionKind::AnyArgument),
    ("git grep", ExecutionKind::AnyArgument),
    ("git ls-remote", ExecutionKind::AnyArgument),
    ("git mergetool", ExecutionKind::AnyArgument),
    ("git pull", ExecutionKind::AnyArgument),
    ("git push", ExecutionKind::AnyArgument),
    ("git rebase", ExecutionKind::AnyArgument),
    ("git submodule", ExecutionKind::AnyArgument),
    // Programs that send what they are given.
    ("curl", ExecutionKind::AnyArgument),
    ("wget", ExecutionKind::AnyArgument),
    ("http", ExecutionKind::AnyArgument),
    ("https", ExecutionKind::AnyArgument),
    ("nc", ExecutionKind::AnyArgument),
    ("ncat", ExecutionKind::AnyArgument),
    ("netcat", ExecutionKind::AnyArgument),
    ("socat", ExecutionKind::AnyArgument),
    ("openssl", ExecutionKind::AnyArgument),
    ("ssh", ExecutionKind::AnyArgument),
    ("scp", ExecutionKind::AnyArgument),
    ("sftp", ExecutionKind::AnyArgument),
    ("ftp", ExecutionKind::AnyArgument),
    ("rsync", ExecutionKind::AnyArgument),
    ("rclone", ExecutionKind::AnyArgument),
    ("telnet", ExecutionKind::AnyArgument),
    ("gh", ExecutionKind::Subcommands),
    ("gh api", ExecutionKind::AnyArgument),
    ("gh gist", ExecutionKind::AnyArgument),
    ("aws", ExecutionKind::Subcommands),
    ("gcloud", ExecutionKind::Subcommands),
    ("az", ExecutionKind::Subcommands),
];

/// Options of programs with subcommands whose value is the next word.
const WITH_VALUE: &[&str] = &[
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

/// Options after which a program only says something about itself.
const INFO_OPTIONS: &[&str] = &["--version", "-V", "-v", "--help", "-h"];

/// Whether a rule of `allow` lets a command do whatever it likes, or send whatever it can read.
pub(crate) fn is_unrestricted(rule: &str) -> bool {
    words(rule).is_some_and(|(words, open)| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        runs_arbitrary_code(&words, open)
    })
}

/// Whether these words, with any further ones where they are `open`, run anything.
fn runs_arbitrary_code(words: &[&str], open: bool) -> bool {
    let Some((program, rest)) = words.split_first() else { return open };
    let name = base_name(program);
    let of = |name: &str| PROGRAMS.iter().find(|(known, _)| *known == name).map(|(_, way)| *way);
    // What its first word does, it does behind options, too.
    let rest = if of(name) == Some(ExecutionKind::Subcommands) { skip_options(rest) } else { rest };
    let with_next = rest.first().map(|next| format!("{name} {next}"));
    let (way, rest) = match with_next.as_deref().and_then(of) {
        Some(way) => (way, &rest[1..]),
        None => match of(name) {
            Some(way) => (way, rest),
            None => return false,
        },
    };
    let is_option = |word: &&str| word.starts_with(['-', '+']) || word.contains('=');
    match way {
        ExecutionKind::AnyArgument => open,
        ExecutionKind::Subcommands => open && rest.iter().all(is_option),
        // With nothing but options it reads its program from what comes next, or from its standard input.
        ExecutionKind::Interpreter => {
            let reads_input = rest.len() + 1 == words.len() && !rest.iter().any(|word| INFO_OPTIONS.contains(word));
            (open || reads_input) && rest.iter().all(is_option)
        }
        ExecutionKind::Wrapper => {
            // What it appends to the words comes from its standard input.
            let open = open || name == "xargs";
            let is_known = |word: &str| of(base_name(word)).is_some();
            let is_own = |at: usize| {
                let is_value = at > 0 && rest[at - 1].starts_with('-');
                is_value || is_option(&rest[at]) || rest[at].starts_with(|letter: char| letter.is_ascii_digit())
            };
            match rest.iter().position(|word| is_known(word)) {
                Some(at) => runs_arbitrary_code(&rest[at..], open),
                None => open && (0..rest.len()).all(is_own),
            }
        }
    }
}

/// The words behind a program's own options, such as those of `git -C DIR log`.
fn skip_options<'a, 'b>(mut words: &'a [&'b str]) -> &'a [&'b str] {
    while let [option, rest @ ..] = words {
        words = match rest {
            _ if !option.starts_with(['-', '+']) => return words,
            [_, rest @ ..] if WITH_VALUE.contains(option) => rest,
            _ => rest,
        };
    }
    words
}

/// `python3` for `/usr/bin/python3.12`, without its version: `python`.
fn base_name(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or(program);
    let bare = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-'));
    // `7z` and `.` keep what they are.
    if bare.is_empty() || name == "sqlite3" { name } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_what_it_is_given_is_free() {
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
    fn a_fixed_command_is_not() {
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
    fn no_program_stands_here_twice() {
        for (at, (name, _)) in PROGRAMS.iter().enumerate() {
            assert!(!PROGRAMS[..at].iter().any(|(other, _)| other == name), "{name}");
        }
    }
}
