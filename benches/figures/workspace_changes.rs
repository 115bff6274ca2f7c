//! Measures the cost of change tracking: a run with one call in large workspaces, compared with the same run with a
//! tool that can't change files.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::measure;
use crate::median;

/// Numbers of files in the workspace.
const COUNTS: [usize; 3] = [10, 1_000, 10_000];

/// Prints the table of results.
pub(crate) fn compare(legwork: &Path, runs: usize) {
    println!(
        "\nchange tracking: a run of one call, the whole process; with `write_file`, which can change files, and with"
    );
    println!("`read_file`, which can't\n");
    println!("| {:<34} | {:>14} | {:>14} | {:>12} |", "", "write_file", "read_file", "more");
    println!("|{0:-<36}|{0:->15}:|{0:->15}:|{0:->13}:|", "");
    let this_program = std::env::current_exe().expect("this program");
    for (kind, prepare) in [("no repository", None), ("a repository", Some(committed as fn(&Path)))] {
        for count in COUNTS {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let work = folder.path().join("work");
            for number in 0..count {
                let below = work.join(format!("folder{}/sub{}", number / 500, number / 25));
                std::fs::create_dir_all(&below).expect("a folder");
                std::fs::write(below.join(format!("file{number}.rs")), format!("// {number}\n").repeat(40))
                    .expect("a file");
            }
            for (tool, input) in [
                ("write_file", json!({ "path": "new.txt", "content": "1\n" })),
                ("read_file", json!({ "path": "folder0/sub0/file0.rs" })),
            ] {
                let job = format!("model: anthropic/claude-sonnet-4-6\nparent: {{ prompt: go, tools: [{tool}] }}\n");
                std::fs::write(folder.path().join(format!("{tool}.yaml")), job).expect("the job");
                let turns = json!([{ "calls": [{ "tool": tool, "input": input }] }, { "text": "done" }]);
                let replies = json!({ "parent": turns }).to_string();
                std::fs::write(folder.path().join(format!("{tool}.replies.yaml")), replies).expect("the replies");
            }
            if let Some(prepare) = prepare {
                prepare(&work);
            }
            let mut walls = [Vec::new(), Vec::new()];
            // The first run only warms the caches.
            for run in 0..=runs {
                for (tool, walls) in ["write_file", "read_file"].into_iter().zip(&mut walls) {
                    let mut command = Command::new(&this_program);
                    let model = format!("replay/{tool}.replies.yaml");
                    command.arg("--measure").arg(legwork).args(["run", &format!("{tool}.yaml"), "--model", &model]);
                    command.args(["--workspace", "work"]).current_dir(folder.path()).env_clear();
                    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
                    let figure = measure::measure(&mut command).unwrap_or_else(|why| panic!("{tool}: {why}"));
                    if run > 0 {
                        walls.push(figure.wall);
                    }
                }
            }
            let [with, without] = walls.map(|walls| median(walls.into_iter()));
            println!(
                "| {:<34} | {:>14} | {:>14} | {:>12} |",
                format!("{count} files, {kind}"),
                format!("{with:.1} ms"),
                format!("{without:.1} ms"),
                format!("{:.1} ms", with - without)
            );
        }
    }
}

fn committed(folder: &Path) {
    for arguments in [&["init", "--quiet"][..], &["add", "--all"], &["commit", "--quiet", "--message=start"]] {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=b", "-c", "commit.gpgSign=false"]).args(arguments);
        assert!(git.current_dir(folder).status().expect("git").success(), "git {arguments:?}");
    }
}
