//! A hostile workspace, and content that must not get into a patch.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use serde_json::json;

use super::{RUN, change_lines, prepared, record, write_job_with_commands};
use crate::support::test_folder::TestFolder;

/// A program that leaves a marker if it is run.
fn planted(folder: &TestFolder) -> String {
    let program = folder.home().join("planted");
    let mark = folder.home().join("mark");
    std::fs::write(&program, format!("#!/bin/sh\necho \"$0 $@\" >> {}\ncat\n", mark.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

#[test]
fn programs_named_by_the_repository_do_not_run() {
    let folder = prepared();
    folder.write("job.yaml", "").write("filtered.txt", "1\n").commit_all();
    let program = planted(&folder);
    for (key, value) in [
        ("core.fsmonitor", program.as_str()),
        ("core.hooksPath", "hooks"),
        ("core.pager", &program),
        ("pager.cat-file", &program),
        ("core.sshCommand", &program),
        ("diff.external", &program),
        ("filter.evil.clean", &program),
        ("filter.evil.smudge", &program),
        ("filter.evil.process", &program),
        ("diff.evil.textconv", &program),
        ("diff.evil.command", &program),
        ("alias.cat-file", &format!("!{program}")),
        ("remote.origin.url", &format!("ext::{program}")),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", &program),
        ("extensions.partialClone", "origin"),
        ("core.repositoryFormatVersion", "1"),
    ] {
        folder.git(&["config", key, value]);
    }
    folder.write(".gitattributes", "* filter=evil diff=evil\n");
    // The object's content is missing, so git would try to fetch it.
    let object = folder.git(&["rev-parse", "HEAD:src/gone.txt"]);
    let object = object.trim();
    std::fs::remove_file(folder.at(format!(".git/objects/{}/{}", &object[..2], &object[2..]))).unwrap();
    let mark = folder.home().join("mark");
    let _ = std::fs::remove_file(&mark);
    write_job_with_commands(&folder, &["echo 4 >> a.txt; rm src/gone.txt; echo 2 >> filtered.txt"]);
    let mut legwork = folder.legwork(RUN);
    for name in
        ["GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_PAGER", "GIT_EXEC_PATH", "GIT_ASKPASS", "GIT_PROXY_COMMAND"]
    {
        legwork = legwork.env(name, &program);
    }
    legwork.env("GIT_DIR", "/nonexistent").env("GIT_TRACE", folder.home().join("mark")).run().assert_code(0);
    let changes = record(&folder).result()["changes"].clone();
    let lines = change_lines(&changes);
    assert!(lines.contains(&"a.txt modified +1 -0".to_owned()), "{lines:?}");
    assert!(lines.contains(&"src/gone.txt deleted +? -?".to_owned()), "{lines:?}");
    assert!(!mark.exists(), "{}", std::fs::read_to_string(&mark).unwrap());
    // The planted program runs if git is called without precautions.
    let status = std::process::Command::new("git").args(["status"]).current_dir(folder.path()).output().unwrap();
    assert!(mark.exists(), "the control: {status:?}");
}

#[test]
fn a_git_that_the_run_can_write_is_not_used() {
    let folder = prepared();
    folder.write("job.yaml", "").commit_all();
    let program = planted(&folder);
    // The program exists at the start, is harmless at first, and comes first in PATH.
    folder.write("bin/git", "#!/bin/sh\nPATH=/usr/local/bin:/usr/bin:/bin exec git \"$@\"\n");
    std::fs::set_permissions(folder.at("bin/git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    write_job_with_commands(&folder, &[&format!("cp {program} bin/git; echo 4 >> a.txt")]);
    let path = format!("{}:.:bin:{}", folder.at("bin").display(), std::env::var("PATH").unwrap());
    folder.legwork(RUN).arg("--allow-read").arg(folder.home()).env("PATH", path).run().assert_code(0);
    let lines = change_lines(&record(&folder).result()["changes"]);
    assert!(lines.contains(&"a.txt modified +1 -0".to_owned()), "{lines:?}");
    assert!(lines.contains(&"bin/git modified +2 -1".to_owned()), "{lines:?}");
    assert!(!folder.home().join("mark").exists());
}

#[test]
fn git_objects_are_not_forged() {
    let folder = prepared();
    folder.write("job.yaml", "").commit_all();
    let object = folder.git(&["rev-parse", "HEAD:a.txt"]);
    let (head, tail) = object.trim().split_at(2);
    // Replaces the original object with the content of another one: the file's new content.
    let forge = format!(
        "echo other > a.txt; o=$(git hash-object -w a.txt); rm -f .git/objects/{head}/{tail}; \
         cp .git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-) .git/objects/{head}/{tail}"
    );
    write_job_with_commands(&folder, &[&forge]);
    folder.legwork(RUN).run().assert_code(0);
    // The object is as it was, so the change is known.
    assert_eq!(change_lines(&record(&folder).result()["changes"]), ["a.txt modified +1 -3"]);
    folder.git(&["fsck", "--strict"]);
}

#[test]
fn objects_from_git_are_hashed_for_verification() {
    let folder = prepared();
    folder.write("job.yaml", "").commit_all();
    let program = folder.home().join("programs/git");
    std::fs::create_dir(program.parent().unwrap()).unwrap();
    // The wrong answer has the length of the correct one.
    let answers = "#!/bin/sh\nread name; printf '%s blob 14\\none\\nTWO\\nthree\\n\\n' $name; cat > /dev/null\n";
    std::fs::write(&program, answers).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    write_job_with_commands(&folder, &["echo 4 >> a.txt"]);
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    folder.legwork(RUN).env("PATH", path).run().assert_code(0);
    assert_eq!(change_lines(&record(&folder).result()["changes"]), ["a.txt modified +? -?"]);
}

#[test]
fn links_are_not_followed_and_pipes_are_not_opened() {
    let folder = TestFolder::new();
    let outside = folder.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "top-of-the-hill\n").unwrap();
    folder.write("dir/file", "1\n").write("fifo", "x\n");
    symlink(&outside, folder.at("out")).unwrap();
    let swap = format!(
        "rm fifo; mkfifo fifo new-fifo; rm -r dir; ln -s {0} dir; ln -s {0}/secret leak; ln -s nowhere dangling",
        outside.display()
    );
    write_job_with_commands(&folder, &[&swap]);
    folder.legwork(RUN).run().assert_code(0);
    let expected =
        ["dangling added +1 -0", "dir added +1 -0", "dir/file deleted +0 -1", "fifo deleted +0 -1", "leak added +1 -0"];
    assert_eq!(change_lines(&record(&folder).result()["changes"]), expected);
    record(&folder).assert_absent("top-of-the-hill");
}

#[test]
fn a_pipe_in_place_of_an_object_does_not_block() {
    let folder = prepared();
    folder.write("job.yaml", "").commit_all();
    let object = folder.git(&["rev-parse", "HEAD:a.txt"]);
    let (head, tail) = object.trim().split_at(2);
    let object = folder.at(format!(".git/objects/{head}/{tail}"));
    std::fs::remove_file(&object).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&object).status().unwrap().success());
    write_job_with_commands(&folder, &["echo 4 >> a.txt"]);
    folder.legwork(RUN).timeout(Duration::from_secs(180)).run().assert_code(0);
    let result = record(&folder).result();
    assert_eq!(result["outcome"], "completed");
    assert!(result["changes"].is_null() || change_lines(&result["changes"]) == ["a.txt modified +? -?"], "{result}");
}

#[test]
fn an_ignore_file_written_by_the_run_does_not_hide_changes_silently() {
    let folder = prepared();
    write_job_with_commands(
        &folder,
        &["mkdir new; echo '*' > new/.gitignore; echo 1 > new/hidden; echo a.txt > .ignore; echo 4 >> a.txt"],
    );
    folder.legwork(RUN).run().assert_code(0);
    let lines = change_lines(&record(&folder).result()["changes"]);
    assert_eq!(lines, [".ignore added +1 -0", "a.txt modified +1 -0"]);
    let patch = record(&folder).file("changes.patch");
    assert!(
        patch.lines().last().unwrap().starts_with("# new files that the run itself added to ignore files"),
        "{patch}"
    );
    assert!(patch.contains("`new/hidden`"), "{patch}");
}

#[test]
fn secrets_are_neither_in_the_patch_nor_in_the_baseline() {
    let folder = prepared();
    folder.write("job.yaml", "").commit_all();
    // The file is neither ignored nor tracked, so its content is kept at the start.
    folder.write("dot.env", "a=1\nTOKEN=hush-hush-hush\nb=2\n");
    write_job_with_commands(
        &folder,
        &[
            "sed -i s/a=1/a=2/ dot.env; echo \"t: $INPUT_TOKEN\" > new.txt; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)",
            "true",
        ],
    );
    let job = folder.read("job.yaml");
    folder.write("job.yaml", format!("{job}inputs: {{ token: {{ type: string, secret: true }} }}\n"));
    let give = ["--set-env", "token=T", "--sandbox", "off"];
    let cut = folder.legwork(RUN).args(give).env("T", "hush-hush-hush").run();
    assert_eq!(cut.signal(), Some(9));
    assert!(record(&folder).has("workspace.start"));
    record(&folder).assert_absent("hush-hush-hush");
    let out = folder.home().join("runs").display().to_string();
    let resumed = folder.legwork(&["resume", "latest", "--out", &out]).args(give).env("T", "hush-hush-hush").run();
    resumed.assert_code(0);
    record(&folder).assert_absent("hush-hush-hush");
    let patch = record(&folder).file("changes.patch");
    assert!(patch.contains("-a=1\n+a=2\n TOKEN=[masked:token]\n") && patch.contains("+t: [masked:token]\n"), "{patch}");
    assert!(patch.contains("# secrets are masked"), "{patch}");
    assert_eq!(change_lines(&record(&folder).result()["changes"]), ["dot.env modified +1 -1", "new.txt added +1 -0"]);
    assert_eq!(record(&folder).result()["outcome"], json!("completed"));
}
