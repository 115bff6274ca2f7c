//! Attacks by a malicious command, in every tier that works on the machine, as root and as an ordinary user. Each
//! attack succeeds without a sandbox, or reports on stderr that the machine itself prevents it.

mod attack_fixture;
mod escape_attempts;
mod git;
mod git_commands;
mod killed_runner;
mod listed_hosts;
mod protected_paths;
mod runs_folder;
mod syscall_probes;

use self::attack_fixture::{Tier, User, tiers};

const USERS: [User; 2] = [User::Current, User::Unprivileged];

#[test]
fn at_least_one_tier_is_tested_in_ci() {
    let some = USERS.iter().any(|user| !tiers(*user).is_empty());
    assert!(some || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no tier works here, so none was tested");
}

/// All combinations of users and tiers.
fn users_and_tiers() -> impl Iterator<Item = (User, Tier)> {
    USERS.into_iter().flat_map(|user| tiers(user).iter().map(move |tier| (user, *tier)))
}
