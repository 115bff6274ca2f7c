//! Records the commit of a release build, so that `legwork --version --verbose` can name it.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a build script gets and gives its settings like this"
)]

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=LEGWORK_COMMIT");
    println!("cargo::rustc-env=LEGWORK_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    // The tests start the debug build thousands of times, and each start would move a quarter of a million addresses.
    let is_debug = std::env::var("PROFILE").as_deref() == Ok("debug");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if is_debug && target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    // A debug build is made again and again: it shouldn't start anew because of a commit.
    if std::env::var("PROFILE").as_deref() != Ok("release") || std::env::var_os("LEGWORK_COMMIT").is_some() {
        println!("cargo::rerun-if-changed=build.rs");
        return;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    // Without a repository, as in a downloaded crate, there is no commit.
    let (Some(commit), Some(head)) = (git(&["rev-parse", "HEAD"]), git(&["rev-parse", "--git-path", "logs/HEAD"]))
    else {
        println!("cargo::rerun-if-changed=build.rs");
        return;
    };
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={head}");
    println!("cargo::rustc-env=LEGWORK_COMMIT={commit}");
}
