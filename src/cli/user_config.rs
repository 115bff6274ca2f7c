//! The user's own configuration: where it is, and its prices, read once where a command needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::provider_config::UNREADABLE_CONFIG_HELP;
use super::{CliEnv, read_files};
use crate::diagnostic::Diagnostic;
use crate::error::Error;
use crate::lints::{UserConfig, priced_provider};
use crate::pricing::{PricedProvider, Prices, UserPrices};
use crate::providers::base_url::{display_base, is_loopback, is_on_host_of};
use crate::providers::user_servers::{ParsedServers, UserServers};
use crate::providers::{PROVIDERS, ProviderSpec, find};
use crate::{toml_file, yaml};

impl CliEnv {
    /// What models cost: by the user's own file where it says, else by the table.
    ///
    /// # Errors
    /// The file has mistakes. Then nothing of it is used.
    pub(super) fn prices(&self) -> Result<&Prices, Error> {
        self.read_prices().as_ref().map_err(|findings| Error::Configuration(findings.clone()))
    }

    /// Everything that the user's own configuration says.
    ///
    /// # Errors
    /// It has mistakes: all of them.
    pub(super) fn user_config(&self) -> Result<UserConfig, Error> {
        match self.user_config_with_findings() {
            (own, findings) if findings.is_empty() => Ok(own),
            (_, findings) => Err(Error::Configuration(findings)),
        }
    }

    /// As [`CliEnv::own`], for who goes on all the same: with everything that is wrong.
    pub(super) fn user_config_with_findings(&self) -> (UserConfig, Vec<Diagnostic>) {
        let ParsedServers { servers, findings } = self.user_servers_with_findings();
        let (prices, of_prices) = match self.read_prices() {
            Ok(prices) => (prices.clone(), &[][..]),
            Err(findings) => {
                (Prices::with_unreadable_user_prices().with_base_urls(self.custom_base_urls()), findings.as_slice())
            }
        };
        let own = UserConfig { servers: servers.clone(), prices, local_providers: self.local_providers(servers) };
        (own, [findings, of_prices].concat())
    }

    /// The providers and servers whose address is this machine's.
    fn local_providers(&self, servers: &UserServers) -> BTreeSet<String> {
        let built_in = PROVIDERS
            .iter()
            .filter_map(|entry| Some((entry.name, self.variable(entry.default_endpoint?.base_url_env)?)));
        let named = servers.iter().map(|server| (server.name(), server.base_url()));
        built_in.chain(named).filter(|(_, base)| is_loopback(base)).map(|(name, _)| name.to_owned()).collect()
    }

    /// Where the user's own prices are, or would be.
    pub(super) fn prices_file(&self) -> Option<PathBuf> {
        self.config_file("prices.toml")
    }

    /// The files of it that lie in the workspace: no tool may change them.
    pub(super) fn user_config_files_below(&self, workspace: &Path) -> Vec<PathBuf> {
        let files = [self.providers_file(), self.prices_file()].into_iter().flatten();
        let whole = |file: PathBuf| {
            let (above, real) = file.ancestors().skip(1).find_map(|above| Some((above, above.canonicalize().ok()?)))?;
            Some(real.join(file.strip_prefix(above).ok()?))
        };
        files.filter_map(whole).filter(|file| file.starts_with(workspace)).collect()
    }

    fn read_prices(&self) -> &Result<Prices, Vec<Diagnostic>> {
        self.prices.get_or_init(|| match self.prices_file() {
            Some(path) => read_prices_file(&path, &|provider| {
                priced_provider(provider, &self.user_servers_with_findings().servers)
            })
            .map(|prices| prices.with_base_urls(self.custom_base_urls())),
            None => Ok(Prices::new().with_base_urls(self.custom_base_urls())),
        })
    }

    /// The base addresses of providers and servers that aren't their providers' own nor this machine's, without credentials.
    fn custom_base_urls(&self) -> BTreeMap<String, String> {
        let servers = &self.user_servers_with_findings().servers;
        let built_in = PROVIDERS
            .iter()
            .filter_map(|entry| Some((entry.name, self.variable(entry.default_endpoint?.base_url_env)?, entry)));
        let named = servers.iter().filter_map(|server| Some((server.name(), server.base_url(), find(server.api())?)));
        let is_elsewhere = |base: &str, entry: &ProviderSpec| {
            !is_loopback(base) && entry.default_endpoint.is_some_and(|home| !is_on_host_of(base, home.base_url))
        };
        let elsewhere = built_in.chain(named).filter(|(_, base, entry)| is_elsewhere(base, entry));
        elsewhere.filter_map(|(name, base, _)| Some((name.to_owned(), display_base(base)?))).collect()
    }
}

fn read_prices_file(path: &Path, check_provider: &dyn Fn(&str) -> PricedProvider) -> Result<Prices, Vec<Diagnostic>> {
    // Who may not look into the folder has no configuration in it.
    let is_absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied);
    if path.symlink_metadata().is_err_and(|error| is_absent(error.kind())) {
        return Ok(Prices::new());
    }
    let bytes = read_files::read_bounded(path, yaml::MAX_BYTES)
        .map_err(|why| vec![read_files::unreadable_file(path, &why).help(UNREADABLE_CONFIG_HELP)])?;
    let source = toml_file::read_source(&path.to_string_lossy(), &bytes).map_err(|finding| vec![finding])?;
    UserPrices::read(&source, check_provider).map(Prices::with_user_prices)
}
