//! The way out of a run whose commands or tool servers are kept to lists of hosts.

use super::host::Host;
use crate::egress::{Egress, EgressRules, UploadMeter, UpstreamProxy};
use crate::error::Error;
use crate::event::RunOptions;
use crate::plan::Plan;

/// The way out that all lists of a plan share; `None` if it has none. `sent` bytes were sent before the run was resumed.
///
/// # Errors
/// An option of the operator, or the address of the machine's proxy, is wrong.
pub fn way_out(plan: &Plan, options: &RunOptions, sent: u64, host: &Host<'_>) -> Result<Option<Egress>, Error> {
    if !plan.has_hosts() {
        return Ok(None);
    }
    let rules = EgressRules {
        list: plan.network.hosts().cloned().unwrap_or_default(),
        private: parsed("--allow-private", &options.allow_private, "Write HOST:PORT, such as db.corp.example:5432.")?,
        connect_to: parsed("--connect-to", &options.connect_to, "Write HOST:PORT:ADDRESS:PORT, as for curl.")?,
        proxy: proxy(host)?,
    };
    Ok(Some(Egress::new(rules, UploadMeter::new(plan.limits.upload_bytes, sent))))
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    option: &str,
    values: &[String],
    hint: &'static str,
) -> Result<Vec<T>, Error> {
    let parse = |value: &String| value.parse().map_err(|why| Error::usage(format!("{option}: {why}"), hint));
    values.iter().map(parse).collect()
}

/// The proxy through which this machine reaches others.
fn proxy(host: &Host<'_>) -> Result<Option<UpstreamProxy>, Error> {
    let variable = |names: [&str; 2]| names.into_iter().find_map(|name| host.variable(name)).unwrap_or_default();
    let address = variable(["HTTPS_PROXY", "https_proxy"]);
    if address.is_empty() {
        return Ok(None);
    }
    let proxy = UpstreamProxy::parse(address, variable(["NO_PROXY", "no_proxy"]));
    proxy.map(Some).map_err(|why| Error::usage(why.to_string(), "Correct the variable, or unset it."))
}
