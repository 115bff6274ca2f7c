//! Attacks in which the runner is killed before it checks the effects of a command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::attack_fixture::{AttackFixture, Tier, User};
use super::users_and_tiers;
use crate::running::run_failures::wait_until;
use crate::support::program::RunningProgram;

/// Attacks that bubblewrap can't prevent and the comparison must find: on paths that were missing at the start, and on
/// git folders with `git: commit`.
const IN_BOTH_TIERS: [&str; 1] = ["\
    echo 'touch ran' > .envrc; mkdir -p .vscode; echo '{}' > .vscode/tasks.json; \
    mkdir .git/rebase-merge; echo 'exec touch ran' > .git/rebase-merge/git-rebase-todo; \
    ln -sf ../../outside/file .git/COMMIT_EDITMSG; echo x > .git/SQUASH_MSG"];

const WITH_LANDLOCK: [&str; 2] = [
    "echo 'touch ran' > .git/hooks/x; chmod +x .git/hooks/x; sed -i s/Go/Stop/ job.yaml; echo x >> .github/workflows/x.yml; \
     echo '!*' > runs/.gitignore; ln -sfn ../../src runs/job/latest; \
     mkdir -p runs/job/20990101-000000-aaaaaa; cp runs/job/2[0-8]*/events.jsonl runs/job/20990101-000000-aaaaaa",
    "mv .git .git-aside; mkdir -p .git/hooks; echo x > .git/hooks/post-checkout; rm -rf .git-aside/config; \
     rm -f job.yaml; mkdir job.yaml; echo x > job.yaml/x; rm -rf .github; ln -s ../outside .github; rm -rf runs/job/latest",
];

/// Adds waits before and after an attack. No `touch` says that it is done: where the runner sets the times of files for commands,
/// a stopped one doesn't answer.
fn with_delays(attack: &str) -> String {
    let wait = |file: &str| format!("until [ -e {file} ]; do sleep 0.01; done");
    format!("PATH=/usr/bin:/bin; touch ready; {}; {attack}; : > done; {}", wait("go"), wait("over"))
}

/// The content of the workspace, except the run's own record and the files that synchronize test and command.
fn workspace_state(workspace: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![workspace.to_owned()];
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = path.strip_prefix(workspace).unwrap().to_string_lossy().into_owned();
            let is_own = name.starts_with("runs/job/2") && !name.contains("2099");
            if is_own || ["ready", "go", "done", "over"].contains(&name.as_str()) || name.contains(".not-a-record") {
                continue;
            }
            let content = match path.symlink_metadata() {
                Ok(found) if found.is_symlink() => {
                    std::fs::read_link(&path).map(|to| to.into_os_string().into_encoded_bytes())
                }
                Ok(found) if found.is_dir() => {
                    open.push(path.clone());
                    Ok(Vec::new())
                }
                _ => std::fs::read(&path),
            };
            all.insert(name.into(), content.unwrap_or_default());
        }
    }
    // Objects aren't copied, and moved files can stay in their new location.
    all.retain(|path: &PathBuf, _| !path.starts_with(".git-aside") && !path.starts_with(".git/objects"));
    all
}

/// Runs an attack to its end and kills the runner. The original state must then be restored.
fn kill_during(user: User, tier: Tier, attack: &str, kill: impl Fn(&AttackFixture, &RunningProgram)) -> AttackFixture {
    let place = AttackFixture::new(user).unwrap();
    if IN_BOTH_TIERS.contains(&attack) {
        place.edit_job("network: none", "network: none\ngit: commit");
    }
    place.write(".github/workflows/x.yml", "on: push\n");
    let workspace = place.workspace();
    let running = place.program(tier, &[with_delays(attack)]).spawn();
    wait_until(|| workspace.join("ready").exists());
    let before = workspace_state(&workspace);
    place.write("go", "");
    wait_until(|| workspace.join("done").exists());
    assert!(workspace_state(&workspace) != before, "{user:?} in {tier:?}: {attack}: nothing was attacked");
    kill(&place, &running);
    assert_eq!(running.wait().signal(), Some(9));
    let mut now = workspace_state(&workspace);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    while now != before && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
        now = workspace_state(&workspace);
    }
    let names = |all: &BTreeMap<PathBuf, Vec<u8>>, other: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<PathBuf> {
        all.iter().filter(|(path, content)| other.get(*path) != Some(content)).map(|(path, _)| path.clone()).collect()
    };
    let (wrong, missing) = (names(&now, &before), names(&before, &now));
    assert!(now == before, "{user:?} in {tier:?}: {attack}: {wrong:?} instead of {missing:?}");
    let outside = std::fs::read_to_string(place.root().join("outside/file")).unwrap();
    assert_eq!(outside.trim(), super::attack_fixture::SECRET);
    place
}

/// Whether an object folder of the workspace has a folder of legwork's. Its files can't be removed without changing modes.
fn has_object_copies(workspace: &Path) -> bool {
    let names = std::fs::read_dir(workspace.join(".git/objects")).unwrap().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with("tmp_objdir-legwork-"))
}

fn attacks(tier: Tier) -> impl Iterator<Item = &'static str> {
    let with_landlock = WITH_LANDLOCK.into_iter().filter(move |_| tier == Tier::Landlock);
    IN_BOTH_TIERS.into_iter().chain(with_landlock)
}

#[test]
fn protected_paths_are_restored_if_the_run_is_killed_during_a_command() {
    for (user, tier) in users_and_tiers() {
        for attack in attacks(tier) {
            let place = kill_during(user, tier, attack, |_, running| {
                running.signal(Signal::KILL);
            });
            wait_until(|| !has_object_copies(&place.workspace()));
        }
    }
}

#[test]
fn protected_paths_are_restored_if_the_run_is_killed_before_the_comparison() {
    for (user, tier) in users_and_tiers() {
        for attack in attacks(tier) {
            kill_during(user, tier, attack, |place, running| {
                running.signal(Signal::STOP);
                place.write("over", "");
                // The command has ended, but the runner hasn't handled its end.
                wait_until(|| children(running.pid()).iter().any(|child| is_zombie(*child)));
                running.signal(Signal::KILL);
            });
        }
    }
}

fn children(process: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    list.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Whether a process is a zombie.
fn is_zombie(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

#[test]
fn changes_by_the_user_after_a_run_are_kept() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        place.run(tier, &["PATH=/usr/bin:/bin; touch made".to_owned()]).assert_code(0);
        place.edit_job("Go.", "Go on.").write(".git/hooks/mine", "echo mine\n").write(".envrc", "mine\n");
        let after = workspace_state(&place.workspace());
        // A process that outlived the run would have time to revert the changes.
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(workspace_state(&place.workspace()) == after, "{user:?} in {tier:?}");
    }
}
