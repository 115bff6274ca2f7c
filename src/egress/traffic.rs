//! What a call has reached, and what it was refused.

use super::names::{HostName, HostRule};
use super::refused_reason::RefusedReason;

/// How many different refusals are kept a call. The last one counts the rest.
pub const MAX_REFUSALS: usize = 100;
/// How many different hosts are kept a call. The last one counts the rest.
const MAX_USED: usize = 1_000;

/// A refusal, and how often there was the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The name, or the address if none was used.
    pub host: String,
    /// `None` for a lookup.
    pub port: Option<u16>,
    /// Why.
    pub reason: RefusedReason,
    /// How often.
    pub count: u64,
}

impl Refused {
    /// The name or address, with the port if there is one.
    pub fn target(&self) -> String {
        self.port.map_or_else(|| self.host.clone(), |port| format!("{}:{port}", self.host))
    }
}

/// A host that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// The name.
    pub host: HostName,
    /// The port.
    pub port: u16,
    /// How many connections.
    pub connections: u64,
    /// The bytes that the command sent.
    pub sent_bytes: u64,
    /// The bytes that it received.
    pub received_bytes: u64,
}

/// What one call has reached and was refused, in the order of the first time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallTraffic {
    /// At most [`MAX_REFUSALS`].
    pub refused: Vec<Refused>,
    /// The hosts that were reached.
    pub used: Vec<Used>,
}

impl CallTraffic {
    /// Whether nothing was reached and nothing refused.
    pub fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.used.is_empty()
    }

    /// Adds what later traffic has refused, within the same bounds. What it has used is left out.
    pub fn add_refused(&mut self, later: &Self) {
        for refused in &later.refused {
            let is_same = |known: &&mut Refused| {
                known.host == refused.host && known.port == refused.port && known.reason == refused.reason
            };
            if let Some(known) = self.refused.iter_mut().find(is_same) {
                known.count = known.count.saturating_add(refused.count);
            } else if self.refused.len() < MAX_REFUSALS {
                self.refused.push(refused.clone());
            } else if let Some(last) = self.refused.last_mut() {
                last.count = last.count.saturating_add(refused.count);
            }
        }
    }

    /// Counts a refusal.
    pub(super) fn refuse(&mut self, host: &str, port: Option<u16>, reason: RefusedReason) {
        let is_same = |known: &&mut Refused| known.host == host && known.port == port && known.reason == reason;
        if let Some(known) = self.refused.iter_mut().find(is_same) {
            known.count += 1;
        } else if self.refused.len() < MAX_REFUSALS {
            self.refused.push(Refused { host: host.to_owned(), port, reason, count: 1 });
        } else if let Some(last) = self.refused.last_mut() {
            last.count += 1;
        }
    }

    /// Counts a refused lookup. The question for another kind of address is part of the same lookup.
    pub(super) fn refuse_lookup(&mut self, host: &str, is_first_kind: bool) {
        let is_same =
            |known: &Refused| known.host == host && known.port.is_none() && known.reason == RefusedReason::NotListed;
        if is_first_kind || self.refused.len() < MAX_REFUSALS && !self.refused.iter().any(is_same) {
            self.refuse(host, None, RefusedReason::NotListed);
        }
    }

    /// Counts a connection and bytes.
    pub(super) fn count(&mut self, host: &HostName, port: u16, connections: u64, sent: u64, received: u64) {
        let at = self.used.iter().position(|known| known.host == *host && known.port == port);
        let at = at.or_else(|| self.used.len().checked_sub(1).filter(|last| last + 1 >= MAX_USED));
        let at = at.unwrap_or_else(|| {
            let host = host.clone();
            self.used.push(Used { host, port, connections: 0, sent_bytes: 0, received_bytes: 0 });
            self.used.len() - 1
        });
        if let Some(used) = self.used.get_mut(at) {
            used.connections += connections;
            used.sent_bytes = used.sent_bytes.saturating_add(sent);
            used.received_bytes = used.received_bytes.saturating_add(received);
        }
    }

    /// The refusals that a longer list would have allowed, as rules; a lookup counts as one for port 443.
    pub fn missing_rules(&self) -> Vec<HostRule> {
        let about_list = self.refused.iter().filter(|refused| refused.reason.is_about_list());
        let rules = about_list.filter_map(|refused| {
            let name = HostName::parse(&refused.host).ok()?;
            Some(HostRule::exact(name, refused.port.unwrap_or(super::names::DEFAULT_PORT)))
        });
        let mut rules: Vec<HostRule> = rules.collect();
        rules.sort();
        rules.dedup();
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_refusals_are_a_hundred_lines_that_count_them_all() {
        let mut traffic = CallTraffic::default();
        for number in 0..10_000 {
            traffic.refuse(&format!("host-{number}.test"), None, RefusedReason::NotListed);
        }
        assert_eq!(traffic.refused.len(), MAX_REFUSALS);
        assert_eq!(traffic.refused.iter().map(|refused| refused.count).sum::<u64>(), 10_000);
    }

    #[test]
    fn the_same_host_is_one_line() {
        let mut traffic = CallTraffic::default();
        let host = HostName::parse("a.test").unwrap();
        traffic.count(&host, 443, 1, 0, 0);
        traffic.count(&host, 443, 0, 5, 7);
        traffic.count(&host, 443, 1, 1, 1);
        traffic.refuse("b.test", Some(443), RefusedReason::PortNotListed);
        traffic.refuse("b.test", Some(443), RefusedReason::PortNotListed);
        let used = Used { host, port: 443, connections: 2, sent_bytes: 6, received_bytes: 8 };
        assert_eq!(traffic.used, [used]);
        assert_eq!(traffic.refused[0].count, 2);
        assert_eq!(traffic.missing_rules(), [HostRule::exact(HostName::parse("b.test").unwrap(), 443)]);
    }

    #[test]
    fn many_hosts_are_bounded() {
        let mut traffic = CallTraffic::default();
        for number in 0..3_000 {
            traffic.count(&HostName::parse(&format!("h{number}.test")).unwrap(), 443, 1, 1, 0);
        }
        assert_eq!(traffic.used.len(), MAX_USED);
        assert_eq!(traffic.used.iter().map(|used| used.sent_bytes).sum::<u64>(), 3_000);
    }
}
