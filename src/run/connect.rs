//! Connects to the providers of a plan's models.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Error;
use crate::plan::Plan;
use crate::providers::{ConnectContext, Model, Provider, ProviderError, ProviderErrorKind};

/// Opens every provider that the plan's models for which `is_wanted` is true need, without sending anything. A missing key is
/// found here.
///
/// # Errors
/// A provider can't be used.
pub fn connect<'a>(
    plan: &Plan,
    is_wanted: &dyn Fn(&Model) -> bool,
    with: impl Fn(&Model) -> Result<ConnectContext<'a>, Error>,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    let mut opened = BTreeMap::new();
    for model in plan.models().filter(|model| is_wanted(model)) {
        let key = model.reply_source();
        if opened.contains_key(&key) {
            continue;
        }
        let entry = model.spec().ok_or_else(|| {
            let what = format!("there is no provider `{}`", model.provider);
            let hint = "`legwork providers` lists all providers, and says where you can add a server of your own";
            Error::Provider(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint))
        })?;
        opened.insert(key, (entry.connect)(&with(model)?).map_err(Error::Provider)?);
    }
    Ok(opened)
}
