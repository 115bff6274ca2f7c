//! Answers lookups with addresses that stand for names. Nothing is ever forwarded: a lookup would be a message.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;

use super::egress::CallEgress;
use super::names::HostName;
use super::refused_reason::RefusedReason;
use crate::sync::IgnorePoison;

/// How many names one command can look up.
const MAX_NAMES: usize = 16_384;
/// How long a program may keep an answer, in seconds.
const TTL: u32 = 30;
/// The longest query that is read; longer ones don't fit into one packet of the Internet either.
const MAX_QUERY: usize = 1500;
/// See RFC 1035, sections 3.2 and 4.1.
const HEADER: usize = 12;
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
const CLASS_ANY: u16 = 255;
const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// The addresses that stand for names in one command.
#[derive(Debug, Default)]
pub(super) struct StandIns(Mutex<Assigned>);

#[derive(Debug, Default)]
struct Assigned {
    by_name: HashMap<HostName, Ipv4Addr>,
    names: Vec<HostName>,
}

impl StandIns {
    /// The address that stands for a name; `None` if there are too many names.
    fn address(&self, name: &HostName) -> Option<Ipv4Addr> {
        let mut assigned = self.0.lock().ignore_poison();
        if let Some(known) = assigned.by_name.get(name) {
            return Some(*known);
        }
        if assigned.names.len() >= MAX_NAMES {
            return None;
        }
        assigned.names.push(name.clone());
        let [high, low] = (assigned.names.len() as u16).to_be_bytes();
        let address = Ipv4Addr::new(127, 13, high, low);
        assigned.by_name.insert(name.clone(), address);
        Some(address)
    }

    /// The name that an address stands for.
    pub(super) fn name(&self, address: Ipv4Addr) -> Option<HostName> {
        let [127, 13, high, low] = address.octets() else { return None };
        let number = usize::from(u16::from_be_bytes([high, low]));
        self.0.lock().ignore_poison().names.get(number.checked_sub(1)?).cloned()
    }
}

/// Answers the lookups of a command, for as long as it is polled.
pub(super) async fn serve(socket: UdpSocket, call: CallEgress, stand_ins: Arc<StandIns>) {
    let mut query = [0; MAX_QUERY];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut query).await else {
            // The error of an earlier answer whose receiver was gone.
            tokio::task::yield_now().await;
            continue;
        };
        if let Some(answer) = answer(&query[..length], &call, &stand_ins) {
            // Whoever asked may be gone.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// The answer to a query; `None` if that is no query.
fn answer(query: &[u8], call: &CallEgress, stand_ins: &StandIns) -> Option<Vec<u8>> {
    let header = query.get(..HEADER)?;
    let is_answer = header[2] & 0x80 != 0;
    if is_answer {
        return None;
    }
    let reply = |code: u8, question: &[u8], address: Option<Ipv4Addr>| {
        let mut reply = header[..2].to_vec();
        // An answer, with the query's kind and its wish for recursion, which is available.
        reply.extend([0x80 | header[2] & 0x79, 0x80 | code]);
        let counts = [u16::from(!question.is_empty()), u16::from(address.is_some()), 0, 0];
        reply.extend(counts.into_iter().flat_map(u16::to_be_bytes));
        reply.extend_from_slice(question);
        if let Some(address) = address {
            // The name is that of the question.
            reply.extend([0xc0, HEADER as u8]);
            reply.extend([TYPE_A, CLASS_IN].into_iter().flat_map(u16::to_be_bytes));
            reply.extend(TTL.to_be_bytes());
            reply.extend([0, 4]);
            reply.extend(address.octets());
        }
        reply
    };
    if header[2] & 0x78 != 0 {
        return Some(reply(NOT_IMPLEMENTED, &[], None));
    }
    let Some((name, kind, class, question)) = read_question(query).filter(|_| header[4..6] == [0, 1]) else {
        return Some(reply(FORMAT_ERROR, &[], None));
    };
    if class != CLASS_IN && class != CLASS_ANY {
        return Some(reply(NOT_IMPLEMENTED, question, None));
    }
    let text = String::from_utf8_lossy(&name).to_ascii_lowercase();
    if text == "localhost" || text.ends_with(".localhost") {
        return Some(reply(0, question, (kind == TYPE_A).then_some(Ipv4Addr::LOCALHOST)));
    }
    let host = HostName::parse(&text).ok().filter(|host| host.as_str() == text && call.list().names(host));
    let Some(host) = host else {
        // Not what an address is called: nobody has asked for a host.
        if !text.ends_with(".arpa") {
            call.refuse_lookup(&text, kind == TYPE_A);
        }
        return Some(reply(NO_SUCH_NAME, question, None));
    };
    // The name exists, but has nothing of another kind.
    if kind != TYPE_A {
        return Some(reply(0, question, None));
    }
    match stand_ins.address(&host) {
        Some(address) => Some(reply(0, question, Some(address))),
        None => {
            call.refuse(host.as_str(), None, RefusedReason::Unreachable);
            Some(reply(SERVER_FAILURE, question, None))
        }
    }
}

/// The first question: its name with dots, kind, class and bytes.
fn read_question(query: &[u8]) -> Option<(Vec<u8>, u16, u16, &[u8])> {
    let mut name = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // Longer is a reference, which a first question can't have.
        if length > 63 || name.len() + length > 255 {
            return None;
        }
        if !name.is_empty() {
            name.push(b'.');
        }
        // A dot within a label would be read as two labels.
        let label = query.get(at..at + length)?;
        name.extend(label.iter().map(|byte| if *byte == b'.' { b'?' } else { *byte }));
        at += length;
    }
    let number = |at: usize| Some(u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]));
    Some((name, number(at)?, number(at + 2)?, &query[HEADER..at + 4]))
}

#[cfg(test)]
mod tests {
    use super::super::{Egress, EgressRules, HostRule, Refused, UploadMeter};
    use super::*;

    fn call(entries: &[&str]) -> CallEgress {
        let list = entries.iter().flat_map(|entry| HostRule::parse_entry(entry).unwrap()).collect();
        Egress::new(EgressRules { list, ..EgressRules::default() }, UploadMeter::default()).call()
    }

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(label.len() as u8);
            query.extend(label.as_bytes());
        }
        query.push(0);
        query.extend([kind, CLASS_IN].into_iter().flat_map(u16::to_be_bytes));
        query
    }

    /// The code, and the address if there is one.
    fn outcome(answer: &[u8]) -> (u8, Option<[u8; 4]>) {
        assert_eq!((&answer[..2], answer[2] & 0x80), (&[0x12, 0x34][..], 0x80));
        let has_address = answer[6..8] == [0, 1];
        (answer[3] & 15, has_address.then(|| answer[answer.len() - 4..].try_into().unwrap()))
    }

    #[test]
    fn allowed_names_get_an_address_that_stands_for_them() {
        let (call, stand_ins) = (call(&["a.test", "*.b.test:22"]), StandIns::default());
        let ask = |name: &str, kind| outcome(&answer(&query(name, kind), &call, &stand_ins).unwrap());
        assert_eq!(ask("a.test", TYPE_A), (0, Some([127, 13, 0, 1])));
        assert_eq!(ask("X.B.test", TYPE_A), (0, Some([127, 13, 0, 2])));
        assert_eq!(ask("A.TEST", TYPE_A), (0, Some([127, 13, 0, 1])));
        // AAAA, SVCB, HTTPS, MX, TXT.
        for kind in [28, 64, 65, 15, 16] {
            assert_eq!(ask("a.test", kind), (0, None), "{kind}");
        }
        assert_eq!(ask("localhost", TYPE_A), (0, Some([127, 0, 0, 1])));
        assert_eq!(ask("1.0.13.127.in-addr.arpa", 12), (NO_SUCH_NAME, None));
        assert!(call.take_traffic().is_empty());
        assert_eq!(stand_ins.name(Ipv4Addr::new(127, 13, 0, 2)).unwrap().as_str(), "x.b.test");
        for other in [[127, 13, 0, 0], [127, 13, 0, 3], [127, 0, 0, 1], [10, 13, 0, 1]] {
            assert_eq!(stand_ins.name(Ipv4Addr::from(other)), None);
        }
    }

    #[test]
    fn other_names_are_refused_and_counted_once_a_lookup() {
        let (call, stand_ins) = (call(&["a.test"]), StandIns::default());
        for kind in [TYPE_A, 28] {
            let reply = answer(&query("secret.evil.test", kind), &call, &stand_ins).unwrap();
            assert_eq!(outcome(&reply), (NO_SUCH_NAME, None));
        }
        let host = "secret.evil.test".to_owned();
        let refused = Refused { host, port: None, reason: RefusedReason::NotListed, count: 1 };
        assert_eq!(call.take_traffic().refused, [refused]);
        // A label with a dot in it isn't two labels.
        let mut dotted = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 6];
        dotted.extend(b"a.test\0\0\x01\0\x01");
        assert_eq!(outcome(&answer(&dotted, &call, &stand_ins).unwrap()), (NO_SUCH_NAME, None));
    }

    #[test]
    fn broken_queries_get_an_error_or_nothing() {
        let (call, stand_ins) = (call(&["a.test"]), StandIns::default());
        let whole = query("a.test", TYPE_A);
        for end in 0..whole.len() {
            let reply = answer(&whole[..end], &call, &stand_ins);
            assert_eq!(reply.map(|reply| outcome(&reply).0), (end >= HEADER).then_some(FORMAT_ERROR), "{end}");
        }
        let changed = |at: usize, byte: u8| {
            let mut query = whole.clone();
            query[at] = byte;
            answer(&query, &call, &stand_ins).map(|reply| outcome(&reply).0)
        };
        assert_eq!(changed(2, 0x80), None);
        assert_eq!(changed(2, 0x28), Some(NOT_IMPLEMENTED));
        assert_eq!(changed(5, 2), Some(FORMAT_ERROR));
        assert_eq!(changed(12, 0xc0), Some(FORMAT_ERROR));
        assert_eq!(changed(whole.len() - 1, 3), Some(NOT_IMPLEMENTED));
    }

    #[test]
    fn names_are_bounded() {
        let (call, stand_ins) = (call(&["*.a.test"]), StandIns::default());
        for number in 0..=MAX_NAMES {
            let reply = answer(&query(&format!("n{number}.a.test"), TYPE_A), &call, &stand_ins).unwrap();
            assert_eq!(outcome(&reply).0, if number < MAX_NAMES { 0 } else { SERVER_FAILURE });
        }
        assert_eq!(call.take_traffic().refused.len(), 1);
    }
}
