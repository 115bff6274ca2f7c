//! Every git command that changes something, in both tiers: none of them loses a branch, a tag, a
//! stash, an entry of a log, what is staged or what isn't committed, unless that is what it is for, and none ends the run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::attack_fixture::{AttackFixture, Tier, User, outputs};
use super::users_and_tiers;
use crate::support::in_parallel;

/// What a command may do with `git: commit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Nothing that is checked here.
    Other,
    /// It moves, makes or deletes branches and tags.
    References,
    /// It throws uncommitted work away.
    Discards,
}
use Purpose::{Discards, Other, References};

/// Each has lost something or ended a run.
const COMMANDS: [(&str, Purpose); 17] = [
    ("git branch -D feature", References),
    ("git branch -m feature other", References),
    ("git stash -q; git cherry-pick feature~1 feature", Other),
    ("git config user.email x@y.example", Other),
    ("git init", Other),
    ("git reflog expire --expire=now --all", Other),
    ("git reflog delete HEAD@{0}; git reflog delete main@{1}", Other),
    ("git reflog expire --expire=now --expire-unreachable=now main", Other),
    ("git remote add other x", Other),
    ("git remote rename origin up", Other),
    ("git remote rm origin", Other),
    ("git sparse-checkout set sub", Other),
    ("git stash -q -u", Other),
    ("git submodule deinit -f --all", Other),
    ("git update-index --split-index", Other),
    ("git update-ref -d refs/heads/feature", References),
    ("rm -rf .git/logs", Other),
];

/// All others.
const MORE_COMMANDS: [(&str, Purpose); 79] = [
    ("git am --abort", Other),
    ("git format-patch -1 --stdout > p; git stash -q; git reset -q --hard HEAD~1; git am p", References),
    ("git archive HEAD > a.tar", Other),
    ("git bisect start HEAD HEAD~2; git bisect reset", Other),
    ("git branch -d feature", Other),
    ("git branch -u origin/main", Other),
    ("git branch -f feature HEAD", References),
    ("git branch --edit-description", Other),
    ("git bundle create b.bundle --all", Other),
    ("git checkout -- .", Discards),
    ("git checkout -q -f", Discards),
    ("git checkout -q -b new", References),
    ("git stash -q; git checkout -q feature", Other),
    ("git checkout -q --orphan fresh", Other),
    ("git checkout -q --detach", Other),
    ("git checkout-index -a -f", Discards),
    ("git stash -q; git cherry-pick feature; git cherry-pick --abort", Other),
    ("git clean -qfd", Discards),
    ("git clean -qfdx", Discards),
    ("git clone -q . copy", Other),
    ("git commit -q --amend -m y", References),
    ("git commit -q --fixup HEAD", References),
    ("git commit -q --allow-empty -m e; git reset -q --hard HEAD~1", Discards),
    ("git add -A; git commit -qm all; git reset -q --hard HEAD~1", Other),
    ("git commit-graph write --reachable", Other),
    ("git config --unset remote.origin.url", Other),
    ("git fast-export --all | git fast-import --force", Other),
    ("git fetch --prune origin", Other),
    ("git filter-branch -f --msg-filter cat HEAD~1..HEAD", Other),
    ("git fsck --lost-found", Other),
    ("git gc -q --auto", Other),
    ("git gc -q --aggressive --prune=now", Other),
    ("git instaweb", Other),
    ("git maintenance run", Other),
    ("git stash -q; git merge feature; git merge --abort", Other),
    ("git merge --squash origin/main", Other),
    ("git multi-pack-index write", Other),
    ("git mv src/main.txt src/moved.txt", Other),
    ("git notes add -m n; git notes remove", References),
    ("git pack-refs --all --prune", Other),
    ("git prune --expire=now", Other),
    ("git pull --rebase", Other),
    ("git push -q origin HEAD:refs/heads/pushed", Other),
    ("git read-tree HEAD", Other),
    ("git read-tree --reset -u HEAD", Discards),
    ("git stash -q; git rebase feature; git rebase --abort", Other),
    ("git stash -q; git rebase -q --onto HEAD~1 HEAD~1", Other),
    ("git stash -q; GIT_SEQUENCE_EDITOR=true git rebase -q -i HEAD~2", Other),
    ("git remote prune origin", Other),
    ("git remote set-head origin -d", Other),
    ("git remote set-url origin x", Other),
    ("git repack -qadf", Other),
    ("git replace HEAD~1 HEAD", Other),
    ("git rerere", Other),
    ("git reset -q --hard", Discards),
    ("git reset -q --hard HEAD~1", Discards),
    ("git reset -q --soft HEAD~1", References),
    ("git restore .", Discards),
    ("git stash -q; git revert --no-edit HEAD", References),
    ("git rm -qrf src", Discards),
    ("git rm -q --cached -r src", Other),
    ("git sparse-checkout init; git sparse-checkout disable", Other),
    ("git stash -q -a", Other),
    ("git stash -q; git stash pop -q", Other),
    ("git stash drop; git stash clear", Other),
    ("git stash -q; git stash branch fromstash", References),
    ("git submodule init; git submodule sync; git submodule update", Other),
    ("git stash -q; git switch -q feature", Other),
    ("git symbolic-ref HEAD refs/heads/feature", Other),
    ("git symbolic-ref -d HEAD", Other),
    ("git tag -f v1 HEAD~1", References),
    ("git update-index --assume-unchanged src/main.txt", Other),
    ("git update-index --fsmonitor; git update-index --untracked-cache", Other),
    ("git update-ref -d HEAD", References),
    ("git update-ref refs/heads/feature HEAD", References),
    ("git update-server-info", Other),
    ("git worktree add -q wt; git worktree remove wt", References),
    ("git worktree prune", Other),
    ("vim -c 'wq' src/main.txt; git commit", Other),
];

/// Texts that are in no commit, with their files.
const UNCOMMITTED: [(&str, &str); 3] =
    [("src/main.txt", "not committed\n"), ("staged.txt", "staged\n"), ("sub-folder/untracked.txt", "untracked\n")];

/// How many commands run in one run, each in a repository of its own: all git folders are compared after each command.
const COMMANDS_AT_ONCE: usize = 8;

/// Makes a repository with two branches that conflict, a tag, a stash, a remote, a submodule and uncommitted work.
const SETUP: &str = "set -e
git init -q -b main up; git -C up commit -q --allow-empty -m up
git init -q -b main 0; cd 0; mkdir src sub-folder
echo zero > src/main.txt; printf 'built/\\n' > .gitignore; git add .; git commit -qm zero
git -c protocol.file.allow=always submodule --quiet add ../up sub; git commit -qm sub
git clone -q --bare . ../origin.git; git remote add origin ../origin.git; git fetch -q; git branch -q -u origin/main
for text in one two; do echo $text > src/main.txt; git commit -qam $text; done
git gc -q; git checkout -q -b feature HEAD~1; echo feature > src/main.txt; git commit -qam feature; git checkout -q main
git tag -a -m tag v1; echo stashed > src/main.txt; git stash -q; echo three > src/main.txt; git commit -qam three
echo 'not committed' > src/main.txt; echo untracked > sub-folder/untracked.txt; echo staged > staged.txt; git add staged.txt
cd ..; mv 0 ..; rm -rf up";

/// What must not be lost of a repository.
struct State {
    references: BTreeMap<String, String>,
    head: String,
    logs: BTreeMap<String, Vec<String>>,
    staged: String,
    objects: BTreeSet<String>,
    configuration: String,
    /// The names in the git folder, without those that are compared otherwise.
    names: BTreeSet<PathBuf>,
}

/// The output of git in a repository that belongs to anyone.
fn git(repository: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]).args(arguments).current_dir(repository).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = git.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

impl State {
    fn of(repository: &Path) -> Self {
        let folder = repository.join(".git");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let references = git(repository, &["for-each-ref", "--format=%(refname) %(objectname)"]);
        let references = references.lines().filter_map(|line| line.split_once(' '));
        let logs = files_below(&folder.join("logs")).into_iter().map(|log| {
            let name = log.strip_prefix(folder.join("logs")).unwrap().display().to_string();
            let entries = std::fs::read_to_string(log).unwrap();
            (name, entries.lines().map(str::to_owned).collect())
        });
        let compared_otherwise = ["objects", "logs", "refs", "packed-refs", "modules"];
        let names = files_below(&folder).into_iter().map(|path| path.strip_prefix(&folder).unwrap().to_owned());
        Self {
            references: references.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            head: read("HEAD"),
            logs: logs.collect(),
            staged: git(repository, &["ls-files", "-s"]),
            objects: git(repository, &["cat-file", "--batch-all-objects", "--batch-check"])
                .lines()
                .map(str::to_owned)
                .collect(),
            configuration: read("config"),
            names: names.filter(|path| !compared_otherwise.iter().any(|first| path.starts_with(first))).collect(),
        }
    }

    fn stashes(&self) -> BTreeSet<&str> {
        let log = self.logs.get("refs/stash").map_or(&[][..], Vec::as_slice);
        log.iter().filter_map(|entry| entry.split(' ').nth(1)).collect()
    }
}

/// The repository of a command after the run. `before` is that before.
fn assert_nothing_lost(before: &State, repository: &Path, purpose: Purpose, access: &str, what: &str) {
    let now = State::of(repository);
    let fsck = git(repository, &["fsck", "--full", "--no-dangling"]);
    assert!(!["error", "missing", "broken", "fatal"].iter().any(|word| fsck.contains(word)), "{what}: {fsck}");
    assert!(before.objects.is_subset(&now.objects), "{what}: objects are missing");
    assert_eq!(now.configuration, before.configuration, "{what}");
    assert!(before.stashes().is_subset(&now.stashes()), "{what}: {:?}", now.logs);
    let without_stash = |state: &State| {
        let mut references = state.references.clone();
        references.remove("refs/stash");
        references
    };
    if purpose == Other || access == "read" {
        assert_eq!(without_stash(&now), without_stash(before), "{what}");
    }
    if access == "read" {
        assert_eq!((&now.head, &now.staged), (&before.head, &before.staged), "{what}");
        assert_eq!(now.names, before.names, "{what}");
    }
    let entries: BTreeSet<&str> = now.logs.values().flatten().map(String::as_str).collect();
    for (name, log) in before.logs.iter().filter(|(name, _)| *name != "refs/stash") {
        let is_there = name == "HEAD" || now.references.contains_key(name);
        let lost: Vec<&String> = log.iter().filter(|entry| is_there && !entries.contains(entry.as_str())).collect();
        assert!(lost.is_empty(), "{what}: {name}: {lost:?}");
    }
    let leads_to = |value: &String| {
        now.references.values().any(|reference| reference == value)
            || entries.iter().any(|entry| entry.split(' ').nth(1) == Some(value))
    };
    for (name, value) in before.references.iter().filter(|(name, _)| name.starts_with("refs/heads/")) {
        assert!(leads_to(value), "{what}: {name} is lost: {:?}", now.logs);
    }
    if purpose != Discards {
        let reachable = git(repository, &["rev-list", "--objects", "--all", "--reflog", "--indexed-objects"]);
        for (file, text) in UNCOMMITTED {
            let is_there =
                files_below(repository).iter().any(|file| std::fs::read(file).is_ok_and(|is| is == text.as_bytes()));
            let object = sha1_of_blob(text);
            assert!(is_there || reachable.contains(&object), "{what}: {file} is lost");
        }
    }
}

fn sha1_of_blob(text: &str) -> String {
    use sha1::Digest;

    let digest = sha1::Sha1::digest(format!("blob {}\0{text}", text.len()).as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shell(place: &AttackFixture, script: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(place.workspace()).env("GIT_CONFIG_GLOBAL", "/dev/null");
    for person in ["AUTHOR", "COMMITTER"] {
        shell.env(format!("GIT_{person}_NAME"), "a").env(format!("GIT_{person}_EMAIL"), "a@b.example");
    }
    let ended = shell.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Each tier with what commands can do there at most and at least, as an ordinary user if there is one.
fn tiers_and_access() -> impl Iterator<Item = (User, Tier, &'static str)> {
    let users: BTreeMap<u8, (User, Tier)> = users_and_tiers().map(|(user, tier)| (tier as u8, (user, tier))).collect();
    let access = |tier| if tier == Tier::Landlock { &["commit", "read"][..] } else { &["commit"] };
    users.into_values().flat_map(move |(user, tier)| access(tier).iter().map(move |access| (user, tier, *access)))
}

#[test]
fn git_commands_lose_nothing_and_do_not_end_the_run() {
    run_all(&COMMANDS);
}

#[test]
#[ignore = "takes minutes"]
fn no_git_command_loses_anything_or_ends_the_run() {
    run_all(&MORE_COMMANDS);
}

fn run_all(commands: &[(&str, Purpose)]) {
    in_parallel(tiers_and_access(), |(user, tier, access)| {
        let place = AttackFixture::new(user).unwrap();
        place.edit_job("network: none", &format!("network: none\ngit: {access}"));
        std::fs::remove_dir_all(place.workspace().join(".git")).unwrap();
        shell(&place, SETUP);
        let before = State::of(&place.root().join("0"));
        let person =
            "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.example GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.example";
        for commands in commands.chunks(COMMANDS_AT_ONCE) {
            let numbers = || 0..commands.len();
            for number in numbers() {
                shell(&place, &format!("rm -rf {number}; cp -a ../0 {number}"));
            }
            let call = |(number, (command, _)): (usize, &(&str, Purpose))| {
                format!("PATH=/usr/local/bin:/usr/bin:/bin; export {person}; cd {number} && {{ {command}; }}; :")
            };
            let ended = place.run(tier, &numbers().zip(commands).map(call).collect::<Vec<_>>());
            let texts: Vec<String> = outputs(&ended.run_folder().events()).collect();
            for (number, (command, purpose)) in numbers().zip(commands) {
                let what = format!("{user:?} in {tier:?}, {access}: {command}: {:?}", texts.get(number));
                assert!(number < texts.len(), "{what}: the run has ended\n{}", ended.full_output());
                assert_nothing_lost(&before, &place.workspace().join(number.to_string()), *purpose, access, &what);
            }
            ended.assert_code(0);
        }
    });
}

/// In landlock's tier the files are removed; they are there again before the next command, and the run continues.
#[test]
fn a_command_that_removes_the_job_file_does_not_end_the_run() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        place.write("jobs/more.yaml", "more\n").write(".envrc", "mine\n").write(".gitignore", "/runs/\n/legwork\n");
        place.edit_job("network: none", "network: none\nprotect: [jobs/]");
        place.git(&["rm", "-q", "--cached", "job.yaml"]);
        place.git(&["commit", "-qam", "the job isn't tracked"]);
        let job = std::fs::read_to_string(place.workspace().join("job.yaml")).unwrap();
        let commands = ["git clean -qfd", "git stash -u", "rm -rf jobs .envrc job.yaml"];
        let outputs = place.outputs(tier, &commands.map(str::to_owned));
        let read = |name: &str| std::fs::read_to_string(place.workspace().join(name)).unwrap_or_default();
        assert_eq!((read("job.yaml"), read("jobs/more.yaml"), read(".envrc")), (job, "more\n".into(), "mine\n".into()));
        if tier == Tier::Landlock {
            assert!(
                outputs.iter().all(|output| output.contains("Restored") && output.contains("`job.yaml`")),
                "{outputs:?}"
            );
        }
    }
}
