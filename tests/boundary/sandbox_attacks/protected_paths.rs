//! Attacks on protected paths in the workspace.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::attack_fixture::{AttackFixture, Tier};
use super::users_and_tiers;
use crate::support::sample;

/// Each attack runs separately, because with landlock the first change ends the run.
const ATTACKS: [&str; 17] = [
    "echo 'touch ran' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "echo '[core] fsmonitor = ./x' >> .git/config",
    "git config core.hooksPath hooks",
    "sed -i s/Go/Stop/ job.yaml",
    "rm -f job.yaml",
    "chmod 666 job.yaml",
    "mv .git .git-aside; mkdir -p .git/hooks; echo x > .git/hooks/post-checkout",
    "mv .git/hooks .git/aside; mkdir .git/hooks; echo x > .git/hooks/post-checkout",
    "rm -rf .git/hooks; ln -s ../../outside .git/hooks",
    "mv job.yaml other.yaml; echo 'model: x/y' > job.yaml",
    "echo x > copy; ln -f copy job.yaml; echo y >> copy",
    "echo ../elsewhere > .git/commondir",
    "mkdir -p .git/info; printf '* filter=x\\n' > .git/info/attributes",
    "printf '[core]\\n\\tfsmonitor = x\\n' > .git/config.worktree",
    "for plan in runs/*/2*/plan.json; do echo x > $plan; done",
    "for job in runs/*/2*/job.yaml; do echo '# x' >> $job; done",
    "for journal in runs/*/2*/events.jsonl; do sed -i s/Go/Stop/ $journal; done; sleep 0.02",
];

/// All protected files, with mode and content.
fn protected_state(workspace: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open: Vec<_> =
        [".git/hooks", ".git/config", "job.yaml", ".git/commondir", ".git/info/attributes", ".git/config.worktree"]
            .map(|name| workspace.join(name))
            .into();
    while let Some(path) = open.pop() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        }
        let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        all.push((path.display().to_string(), metadata.permissions().mode(), content));
    }
    all.sort();
    all
}

#[test]
fn protected_paths_do_not_change() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        let before = protected_state(&place.workspace());
        for attack in sample(ATTACKS, ATTACKS.len().div_ceil(3)) {
            let command = format!("PATH=/usr/bin:/bin; {attack}");
            let ended = place.run(tier, &[command]);
            assert_eq!(
                protected_state(&place.workspace()),
                before,
                "{user:?} in {tier:?}: {attack}\n{}",
                ended.full_output()
            );
            let folder = ended.run_folder();
            let (plan, result) = (folder.plan(), folder.result());
            assert!(plan["parent"].is_object(), "{user:?} in {tier:?}: {attack}");
            assert!(!folder.file("job.yaml").contains("# x"), "{user:?} in {tier:?}: {attack}");
            match (tier, result["outcome"].as_str().unwrap()) {
                (Tier::Landlock, "environment_failed") => {
                    let message = result["error"]["message"].as_str().unwrap();
                    assert!(message.contains("protected") || message.contains("journal"), "{message}");
                }
                (Tier::Bubblewrap, "completed" | "environment_failed") => {}
                // Restored, and the model is told.
                (Tier::Landlock, "completed") if attack == "rm -f job.yaml" => {
                    let told = super::attack_fixture::outputs(&folder.events()).any(|text| text.contains("Restored"));
                    assert!(told, "{}", ended.full_output());
                }
                // The kernel denies this attack itself.
                (Tier::Landlock, "completed") if attack.starts_with("chmod") || attack.starts_with("git config") => {}
                (_, other) => panic!("{user:?} in {tier:?}: {attack}: {other}\n{}", ended.full_output()),
            }
        }
    }
}

#[test]
fn the_attacks_succeed_without_a_sandbox() {
    let place = AttackFixture::new(super::User::Current).unwrap();
    for attack in ATTACKS.iter().filter(|attack| !attack.contains("runs/")) {
        let before = protected_state(&place.workspace());
        place.run(Tier::Off, &[(*attack).to_owned()]);
        assert_ne!(protected_state(&place.workspace()), before, "{attack}");
        let workspace = place.workspace();
        let script = "rm -rf .git job.yaml other.yaml copy .git-aside; git init -q .; \
                      printf 'model: anthropic/claude-haiku-4-5\\nparent: { prompt: Go., tools: [bash] }\\n' > job.yaml";
        let again = std::process::Command::new("bash").args(["-c", script]).current_dir(workspace).status();
        assert!(again.unwrap().success());
    }
}

/// Files that instruct other programs.
const CONFIG_FILES: [&str; 9] = [
    "echo x >> .github/workflows/ci.yml",
    "echo x > .github/workflows/new.yml",
    "echo 'touch ran' > .envrc",
    "mkdir -p .vscode; echo '{}' > .vscode/tasks.json",
    "echo x > .gitlab-ci.yml",
    "mkdir -p .devcontainer; echo '{}' > .devcontainer/devcontainer.json",
    "sed -i s/Other/Evil/ other.yaml",
    "mkdir -p jobs; cp job.yaml jobs/evil.yaml",
    "rm -rf deploy",
];

fn config_file_contents(workspace: &Path) -> Vec<(String, Vec<u8>)> {
    let names = [".github", ".envrc", ".vscode", ".gitlab-ci.yml", ".devcontainer", "other.yaml", "jobs", "deploy"];
    let mut open: Vec<_> = names.map(|name| workspace.join(name)).into();
    let mut all = Vec::new();
    while let Some(path) = open.pop() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        }
        let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        all.push((path.display().to_string(), content));
    }
    all.sort();
    all
}

#[test]
fn configuration_of_other_programs_does_not_change() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        place.edit_job("network: none", "network: none\nprotect: [deploy/]\nallow_changes: [.github/notes.md]");
        place
            .write(".github/workflows/ci.yml", "on: push\n")
            .write("other.yaml", "model: a/b\nparent: { prompt: Other., tools: [] }\n")
            .write("deploy/prod.sh", "echo deploy\n");
        let before = config_file_contents(&place.workspace());
        for attack in CONFIG_FILES {
            let ended = place.run(tier, &[format!("PATH=/usr/bin:/bin; {attack}")]);
            assert_eq!(
                config_file_contents(&place.workspace()),
                before,
                "{user:?} in {tier:?}: {attack}\n{}",
                ended.full_output()
            );
            let outcome = ended.run_folder().result()["outcome"].as_str().unwrap().to_owned();
            let may_complete = tier == Tier::Bubblewrap || attack == "rm -rf deploy";
            assert!(
                may_complete && outcome == "completed" || outcome == "environment_failed",
                "{user:?} in {tier:?}: {attack}: {outcome}"
            );
        }
        let allowed =
            "PATH=/usr/bin:/bin; echo new > .github/notes.md; sed -i s/new/old/ .github/notes.md; mkdir -p src/.x";
        place.run(tier, &[allowed.to_owned()]).assert_code(0);
        assert_eq!(std::fs::read_to_string(place.workspace().join(".github/notes.md")).unwrap(), "old\n");
    }
}

#[test]
fn the_job_and_its_prompts_are_always_protected() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        place.edit_job("prompt: Go.", "prompt: { file: .github/prompts/go.md }");
        place.edit_job("network: none", "network: none\nallow_changes: [job.yaml, .github]");
        place.write(".github/prompts/go.md", "Go.\n").write(".github/notes.md", "old\n");
        let files = ["job.yaml", ".github/prompts/go.md"].map(|name| place.workspace().join(name));
        let before = files.each_ref().map(|path| std::fs::read(path).unwrap());
        for attack in [
            "echo '# x' >> job.yaml",
            "echo x >> .github/prompts/go.md",
            "mv .github g; cp -r g .github; echo x > .github/prompts/go.md",
        ] {
            let ended = place.run(tier, &[format!("PATH=/usr/bin:/bin; {attack}")]);
            assert_eq!(
                files.each_ref().map(|path| std::fs::read(path).unwrap()),
                before,
                "{user:?} in {tier:?}: {attack}"
            );
            let outcome = ended.run_folder().result()["outcome"].as_str().unwrap().to_owned();
            assert!(
                outcome == "environment_failed" || tier == Tier::Bubblewrap,
                "{user:?}: {attack}: {}",
                ended.full_output()
            );
        }
        place.run(tier, &["echo new > .github/notes.md".to_owned()]).assert_code(0);
        assert_eq!(std::fs::read_to_string(place.workspace().join(".github/notes.md")).unwrap(), "new\n");
    }
}

/// On Linux these are other names, and no longer after a checkout on macOS or Windows.
#[test]
fn other_spellings_of_protected_names_do_not_appear() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        std::fs::create_dir(place.workspace().join(".VSCode")).unwrap();
        for attack in [
            "mkdir -p .GitHub/workflows && echo x > .GitHub/workflows/x.yml",
            "echo x > .ENVRC",
            "mkdir .git\u{200c}hub",
            "cp job.yaml JOB.yaml",
        ] {
            let ended = place.run(tier, &[format!("PATH=/usr/bin:/bin; {attack}")]);
            let names = std::fs::read_dir(place.workspace()).unwrap().map(|entry| entry.unwrap().file_name());
            let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            for name in [".GitHub", ".ENVRC", ".git\u{200c}hub", "JOB.yaml"] {
                assert!(!names.iter().any(|found| found == name), "{user:?} in {tier:?}: {attack}: {names:?}");
            }
            assert!(names.iter().any(|name| name == ".VSCode"), "what was there before stays");
            let result = ended.run_folder().result();
            assert_eq!(result["outcome"], "environment_failed", "{user:?} in {tier:?}: {attack}");
            assert!(result["error"]["message"].as_str().unwrap().contains("protected"), "{result}");
        }
        // No program obeys the folder of records.
        let ended = place.run(tier, &["PATH=/usr/bin:/bin; mkdir Runs".to_owned()]);
        assert_eq!(ended.run_folder().result()["outcome"], "completed", "{user:?} in {tier:?}");
        assert!(place.workspace().join("Runs").exists());
    }
}
