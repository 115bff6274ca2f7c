//! Connects to the forge that the environment names, with its token.

use std::collections::BTreeMap;
use std::time::Duration;

use super::forge::Forge;
use super::github::{self, Github};
use super::gitlab::{self, Gitlab};
use super::http_client::{HttpClient, Notify, Pacing, Token};
use crate::error::Error;
use crate::outputs::{self, Trigger};
use crate::run::start_runtime;

/// The time between two requests that create content, unless `LEGWORK_PUBLISH_PAUSE_MS` says another. GitHub asks for it.
const PAUSE_MS: u64 = 1_000;
const RETRY_BASE_MS: u64 = 1_000;
const GITHUB_API: &str = "https://api.github.com";
const GITHUB_SERVER: &str = "https://github.com";

/// The names of the variables that can have a token, by forge, in the order in which they are looked at.
const GITHUB_TOKENS: [&str; 2] = ["GITHUB_TOKEN", "GH_TOKEN"];
const GITLAB_TOKEN: &str = "GITLAB_TOKEN";
const JOB_TOKEN: &str = "CI_JOB_TOKEN";

/// The variables that have a token of a forge, which no command may see.
pub const TOKEN_VARIABLES: [&str; 4] = [GITHUB_TOKENS[0], GITHUB_TOKENS[1], GITLAB_TOKEN, JOB_TOKEN];

/// Connects to the repository of a trigger. Nothing is sent yet, and without `needs_token` nothing will be.
///
/// # Errors
/// There is no token, or it can't be used.
pub fn connect(
    trigger: &Trigger,
    variables: &BTreeMap<String, String>,
    notify: Notify,
    needs_token: bool,
) -> Result<Box<dyn Forge>, Error> {
    let get = |name: &str| variables.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let milliseconds = |name: &str, default: u64| {
        let value = get(name).and_then(|value| value.parse().ok()).unwrap_or(default);
        Duration::from_millis(value)
    };
    let pacing = Pacing {
        pause: milliseconds("LEGWORK_PUBLISH_PAUSE_MS", PAUSE_MS),
        retry_base: milliseconds("LEGWORK_RETRY_BASE_MS", RETRY_BASE_MS),
    };
    let unusable = |why: String| Error::CannotPublish {
        message: why,
        hint: "Check the variables GITHUB_API_URL or CI_API_V4_URL, and the token.".to_owned(),
        is_temporary: false,
    };
    let unneeded = (!needs_token).then_some("none");
    match trigger.forge {
        outputs::Forge::Github => {
            let secret =
                GITHUB_TOKENS.iter().find_map(|name| get(name)).or(unneeded).ok_or_else(|| no_token(trigger))?;
            let token = Token { header: "authorization", scheme: "Bearer ", secret: secret.trim().to_owned() };
            let default = match trigger.server.as_str() {
                GITHUB_SERVER => GITHUB_API.to_owned(),
                server => format!("{server}/api/v3"),
            };
            let api = get("GITHUB_API_URL").map_or(default, str::to_owned);
            let http =
                HttpClient::new(start_runtime()?, &api, &token, github::HEADERS, pacing, notify).map_err(unusable)?;
            Ok(Box::new(Github::new(http, &trigger.repository, get("GITHUB_ACTIONS").is_some())))
        }
        outputs::Forge::Gitlab => {
            let secret = get(GITLAB_TOKEN).or(unneeded).ok_or_else(|| match get(JOB_TOKEN) {
                Some(_) => job_token_only(),
                None => no_token(trigger),
            })?;
            let token = Token { header: "private-token", scheme: "", secret: secret.trim().to_owned() };
            let api = get("CI_API_V4_URL").map_or_else(|| format!("{}/api/v4", trigger.server), str::to_owned);
            let http =
                HttpClient::new(start_runtime()?, &api, &token, gitlab::HEADERS, pacing, notify).map_err(unusable)?;
            Ok(Box::new(Gitlab::new(http, &trigger.repository)))
        }
    }
}

fn no_token(trigger: &Trigger) -> Error {
    let (forge, names) = match trigger.forge {
        outputs::Forge::Github => ("GitHub", "GITHUB_TOKEN or GH_TOKEN"),
        outputs::Forge::Gitlab => ("GitLab", GITLAB_TOKEN),
    };
    Error::CannotPublish {
        message: format!("there is no token for {forge}"),
        hint: format!("Set {names} for this command only; --dry-run needs none."),
        is_temporary: false,
    }
}

fn job_token_only() -> Error {
    Error::CannotPublish {
        message: format!("{JOB_TOKEN} can't write notes, issues or merge requests"),
        hint: format!(
            "Set {GITLAB_TOKEN} to a project access token with the scope `api` and the role Reporter, or Developer for merge \
             requests and commits."
        ),
        is_temporary: false,
    }
}
