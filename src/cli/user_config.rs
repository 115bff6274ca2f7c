//! The user's configuration: `providers.toml` and `prices.toml`, read when a command needs them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::env::CliEnv;
use super::read_files;
use crate::diagnostic::{Diagnostic, Source};
use crate::error::Error;
use crate::lints::{UserConfig, priced_provider};
use crate::pricing::{Prices, UserPrices};
use crate::providers::base_url::{display_base, is_loopback, is_on_host_of};
use crate::providers::user_servers::{FILE_NAME, ParsedServers, UserServers, unreadable};
use crate::providers::{PROVIDERS, ProviderSpec, find};
use crate::sandbox::programs::Folders;
use crate::sandbox::protected_paths::canonical_as_far_as_possible;
use crate::{toml_file, yaml};

impl CliEnv {
    /// The servers in `providers.toml`; none if there is no such file.
    ///
    /// # Errors
    /// The file has mistakes. Nothing may run then, since the variables that hold keys aren't known.
    pub(super) fn user_servers(&self) -> Result<&UserServers, Error> {
        let ParsedServers { servers, findings } = self.parsed_servers();
        if findings.is_empty() { Ok(servers) } else { Err(Error::Configuration(findings.clone())) }
    }

    /// The valid servers in `providers.toml`, and the mistakes in it.
    pub(super) fn parsed_servers(&self) -> &ParsedServers {
        self.servers.get_or_init(|| match self.config_file(FILE_NAME) {
            Some(path) => read_providers_file(&path),
            None => ParsedServers { servers: UserServers::default(), findings: Vec::new() },
        })
    }

    /// Refuses a `providers.toml` that a job could have written, or that came with a checkout: it says which programs print keys,
    /// and which servers get them.
    ///
    /// # Errors
    /// It is in one of the folders, or a link on the way to it is.
    pub(super) fn check_user_config(&self, changeable: &Folders) -> Result<(), Error> {
        let existing = self.config_file(FILE_NAME).filter(|path| path.symlink_metadata().is_ok());
        match existing {
            Some(path) if changeable.lead_through(&path) => Err(Error::usage(
                format!(
                    "{} isn't used: it is in the workspace or its repository, so a job or a checkout could have written it",
                    path.display()
                ),
                "Move the folder out of it: set HOME or XDG_CONFIG_HOME to a folder that no job can change.",
            )),
            _ => Ok(()),
        }
    }

    /// The path of `prices.toml`, whether or not it exists.
    pub(super) fn prices_file(&self) -> Option<PathBuf> {
        self.config_file("prices.toml")
    }

    /// The path of a configuration file: below `$XDG_CONFIG_HOME`, else below `~/.config`.
    fn config_file(&self, name: &str) -> Option<PathBuf> {
        self.xdg_file("XDG_CONFIG_HOME", ".config", name)
    }

    /// What models cost: the prices in `prices.toml`, then those of the built-in table.
    ///
    /// # Errors
    /// The file has mistakes. Then none of it is used.
    pub(super) fn prices(&self) -> Result<&Prices, Error> {
        self.read_prices().as_ref().map_err(|findings| Error::Configuration(findings.clone()))
    }

    fn read_prices(&self) -> &Result<Prices, Vec<Diagnostic>> {
        self.prices.get_or_init(|| {
            let prices = match self.prices_file().and_then(|path| read_config_file(&path)) {
                None => Prices::new(),
                Some(Ok(source)) => {
                    let check_provider = |provider: &str| priced_provider(provider, &self.parsed_servers().servers);
                    Prices::with_user_prices(UserPrices::read(&source, &check_provider)?)
                }
                Some(Err(finding)) => return Err(vec![finding]),
            };
            Ok(prices.with_base_urls(self.custom_base_urls()))
        })
    }

    /// The whole configuration of the user.
    ///
    /// # Errors
    /// All mistakes in its files.
    pub(super) fn user_config(&self) -> Result<UserConfig, Error> {
        let (config, findings) = self.user_config_with_findings();
        if findings.is_empty() { Ok(config) } else { Err(Error::Configuration(findings)) }
    }

    /// The valid part of the user's configuration, and all mistakes in its files.
    pub(super) fn user_config_with_findings(&self) -> (UserConfig, Vec<Diagnostic>) {
        let ParsedServers { servers, findings } = self.parsed_servers();
        let (prices, price_findings) = match self.read_prices() {
            Ok(prices) => (prices.clone(), &[][..]),
            Err(findings) => {
                (Prices::with_unreadable_user_prices().with_base_urls(self.custom_base_urls()), findings.as_slice())
            }
        };
        let local_providers =
            self.base_urls().filter(|(_, base, _)| is_loopback(base)).map(|(name, ..)| name.to_owned()).collect();
        let config = UserConfig { servers: servers.clone(), prices, local_providers, skips_tool_lock: false };
        (config, [findings, price_findings].concat())
    }

    /// The absolute paths of the configuration files, without links in the part that exists.
    pub(super) fn user_config_files(&self) -> Vec<PathBuf> {
        let files = [self.config_file(FILE_NAME), self.prices_file()].into_iter().flatten();
        files.map(|file| canonical_as_far_as_possible(&file)).collect()
    }

    /// The base URLs that the user has set: the name of the provider or server, the URL, and the provider with its API.
    pub(super) fn base_urls(&self) -> impl Iterator<Item = (&str, &str, &'static ProviderSpec)> {
        let built_in = PROVIDERS.iter().filter_map(|provider| {
            Some((provider.name, self.variable(provider.default_endpoint?.base_url_env)?, provider))
        });
        let servers = self.parsed_servers().servers.iter();
        built_in.chain(servers.filter_map(|server| Some((&*server.name, &*server.base_url, find(server.api)?))))
    }

    /// The base URLs that are neither the provider's own nor on this machine, without credentials.
    fn custom_base_urls(&self) -> BTreeMap<String, String> {
        let custom = self.base_urls().filter(|(_, base, provider)| {
            !is_loopback(base)
                && provider.default_endpoint.is_some_and(|default| !is_on_host_of(base, default.base_url))
        });
        custom.filter_map(|(name, base, _)| Some((name.to_owned(), display_base(base)?))).collect()
    }
}

/// Reads a file of the user's configuration; `None` if there is none.
fn read_config_file(path: &Path) -> Option<Result<Arc<Source>, Diagnostic>> {
    // A folder that the user may not enter holds no configuration of theirs.
    let is_absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied);
    if path.symlink_metadata().is_err_and(|error| is_absent(error.kind())) {
        return None;
    }
    Some(match read_files::read_bounded(path, yaml::MAX_BYTES) {
        Ok(bytes) => toml_file::read_source(&path.to_string_lossy(), &bytes),
        Err(why) => {
            Err(read_files::unreadable_file(path, &why).help("make it a regular file that you can read, or remove it"))
        }
    })
}

fn read_providers_file(path: &Path) -> ParsedServers {
    let name = path.to_string_lossy();
    match read_config_file(path) {
        None => ParsedServers { servers: UserServers::empty_in(&name), findings: Vec::new() },
        Some(Ok(source)) => UserServers::read(&source),
        Some(Err(finding)) => {
            ParsedServers { servers: UserServers::unreadable_in(&name), findings: vec![unreadable(finding)] }
        }
    }
}
