//! The user's own configuration: where it is, and its prices, read once where a command needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::servers::UNREADABLE;
use super::{Surroundings, input};
use crate::diagnostic::Diagnostic;
use crate::error::Error;
use crate::lints::{Own, unknown_provider};
use crate::price::{OwnPrices, Prices};
use crate::providers::address::{is_at, is_here, shown_base};
use crate::providers::named::{Read, Servers};
use crate::providers::{Entry, PROVIDERS, find};
use crate::{toml_file, yaml};

impl Surroundings {
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
    pub(super) fn own(&self) -> Result<Own, Error> {
        match self.own_and_findings() {
            (own, findings) if findings.is_empty() => Ok(own),
            (_, findings) => Err(Error::Configuration(findings)),
        }
    }

    /// As [`Surroundings::own`], for who goes on all the same: with everything that is wrong.
    pub(super) fn own_and_findings(&self) -> (Own, Vec<Diagnostic>) {
        let Read { servers, findings } = self.read_servers();
        let (prices, of_prices) = match self.read_prices() {
            Ok(prices) => (prices.clone(), &[][..]),
            Err(findings) => (Prices::without_broken().at(self.addresses()), findings.as_slice()),
        };
        let own = Own { servers: servers.clone(), prices, here: self.here(servers) };
        (own, [findings, of_prices].concat())
    }

    /// The providers and servers whose address is this machine's.
    fn here(&self, servers: &Servers) -> BTreeSet<String> {
        let built_in = PROVIDERS.iter().filter_map(|entry| Some((entry.name, self.variable(entry.home?.variable)?)));
        let named = servers.iter().map(|server| (server.name(), server.base_url()));
        built_in.chain(named).filter(|(_, base)| is_here(base)).map(|(name, _)| name.to_owned()).collect()
    }

    /// Where the user's own prices are, or would be.
    pub(super) fn prices_file(&self) -> Option<PathBuf> {
        self.configuration_file("prices.toml")
    }

    /// The files of it that lie in the workspace: no tool may change them.
    pub(super) fn own_files_below(&self, workspace: &Path) -> Vec<PathBuf> {
        let files = [self.servers_file(), self.prices_file()].into_iter().flatten();
        let whole = |file: PathBuf| {
            let (above, real) = file.ancestors().skip(1).find_map(|above| Some((above, above.canonicalize().ok()?)))?;
            Some(real.join(file.strip_prefix(above).ok()?))
        };
        files.filter_map(whole).filter(|file| file.starts_with(workspace)).collect()
    }

    fn read_prices(&self) -> &Result<Prices, Vec<Diagnostic>> {
        self.prices.get_or_init(|| match self.prices_file() {
            Some(path) => read(&path, &|provider| unknown_provider(provider, &self.read_servers().servers))
                .map(|prices| prices.at(self.addresses())),
            None => Ok(Prices::new().at(self.addresses())),
        })
    }

    /// The base addresses of providers and servers that aren't their providers' own nor this machine's, without credentials.
    fn addresses(&self) -> BTreeMap<String, String> {
        let servers = &self.read_servers().servers;
        let built_in =
            PROVIDERS.iter().filter_map(|entry| Some((entry.name, self.variable(entry.home?.variable)?, entry)));
        let named = servers.iter().filter_map(|server| Some((server.name(), server.base_url(), find(server.api())?)));
        let is_elsewhere =
            |base: &str, entry: &Entry| !is_here(base) && entry.home.is_some_and(|home| !is_at(base, home.address));
        let elsewhere = built_in.chain(named).filter(|(_, base, entry)| is_elsewhere(base, entry));
        elsewhere.filter_map(|(name, base, _)| Some((name.to_owned(), shown_base(base)?))).collect()
    }
}

fn read(path: &Path, unknown: &dyn Fn(&str) -> Option<String>) -> Result<Prices, Vec<Diagnostic>> {
    // Who may not look into the folder has no configuration in it.
    let is_absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied);
    if path.symlink_metadata().is_err_and(|error| is_absent(error.kind())) {
        return Ok(Prices::new());
    }
    let bytes = input::read_bounded(path, yaml::MAX_BYTES)
        .map_err(|why| vec![input::unreadable(path, &why).help(UNREADABLE)])?;
    let source = toml_file::source(&path.to_string_lossy(), &bytes).map_err(|finding| vec![finding])?;
    OwnPrices::read(&source, unknown).map(Prices::with)
}
