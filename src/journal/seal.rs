//! The seal that shows with which key a record was made: the first line of the parent's journal, and each line with which the
//! run was resumed, has an HMAC. The first line contains the job, the permissions it grants and its workspace, so no one without
//! the key can make a run continue with more.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest, Sha256};

use crate::text::hex;

/// The field of a sealed line before its checksum.
pub(super) const MAC_FIELD: &str = ",\"mac\":\"";

/// The field of the line with which a run ends, before its checksum: the seal of all that was recorded.
pub(super) const SEAL_FIELD: &str = ",\"seal\":\"";

/// The block size of HMAC-SHA256.
const HMAC_BLOCK_BYTES: usize = 64;

/// The key that records are sealed with. It is never printed, not even with `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordKey(Vec<u8>);

impl RecordKey {
    /// A key from its bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The HMAC over the checksum of the previous line and a line without its last fields, in hexadecimal digits.
    pub(super) fn mac(&self, previous_sum: &str, line: &str) -> String {
        hex(&self.hmac(&[previous_sum.as_bytes(), line.as_bytes()]))
    }

    /// The HMAC over what a map's folder, named by its job and its name, is made for, in hexadecimal digits.
    pub(crate) fn map_mac(&self, job: &str, name: &str, content: &[u8]) -> String {
        hex(&self.hmac(&[b"map\0", job.as_bytes(), b"\0", name.as_bytes(), b"\0", content]))
    }

    /// The HMAC over what was published of a run or a map, in hexadecimal digits.
    pub(crate) fn published_mac(&self, content: &[u8]) -> String {
        hex(&self.hmac(&[b"published\0", content]))
    }

    /// Digests that identify the values of a run's secrets, by name. They reveal nothing about the values without the key.
    pub(crate) fn digest_secrets(&self, run_id: &str, secrets: &[(String, String)]) -> BTreeMap<String, String> {
        let mut messages: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
        for (name, value) in secrets {
            let message =
                messages.entry(name).or_insert_with(|| vec![b"secret\0", run_id.as_bytes(), b"\0", name.as_bytes()]);
            message.extend([&b"\0"[..], value.as_bytes()]);
        }
        messages.into_iter().map(|(name, message)| (name.to_owned(), hex(&self.hmac(&message)))).collect()
    }

    /// The HMAC over the digests of all journals of a run and the line with which it ends, in hexadecimal digits.
    pub(crate) fn run_mac(&self, digests: &RunDigests, line: &str) -> String {
        let mut message: Vec<&[u8]> = vec![b"run\0"];
        for (agent, digest) in &digests.0 {
            message.extend([agent.as_bytes(), b"\0", digest]);
        }
        message.extend([&b"\0"[..], line.as_bytes()]);
        hex(&self.hmac(&message))
    }

    /// HMAC-SHA256 (RFC 2104).
    fn hmac(&self, message: &[&[u8]]) -> [u8; 32] {
        let mut key = [0; HMAC_BLOCK_BYTES];
        if self.0.len() > HMAC_BLOCK_BYTES {
            key[..32].copy_from_slice(&Sha256::digest(&self.0));
        } else {
            key[..self.0.len()].copy_from_slice(&self.0);
        }
        let digest = |pad: u8, parts: &[&[u8]]| {
            let mut digest = Sha256::new();
            digest.update(key.map(|byte| byte ^ pad));
            parts.iter().for_each(|part| digest.update(part));
            <[u8; 32]>::from(digest.finalize())
        };
        let inner = digest(0x36, message);
        digest(0x5c, &[&inner])
    }
}

/// The SHA-256 of the lines of each journal of a run, by agent: of the parent's, those before the line with which the run ends.
#[derive(Debug, Default)]
pub(crate) struct RunDigests(BTreeMap<String, [u8; 32]>);

impl RunDigests {
    /// Adds a journal. One without a line isn't there for a seal: it may not have come to the disk.
    pub(crate) fn add(&mut self, agent: &str, digest: &Sha256) {
        let digest: [u8; 32] = digest.clone().finalize().into();
        if digest != <[u8; 32]>::from(Sha256::digest([])) {
            self.0.insert(agent.to_owned(), digest);
        }
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordKey")
    }
}

/// The HMAC of a line, and what it was computed from.
#[derive(Debug)]
pub(super) struct Seal {
    previous_sum: String,
    line: String,
    mac: String,
}

impl Seal {
    /// Parses the seal of a line without its checksum, if it has one.
    pub(super) fn parse(previous_sum: &str, line: &str) -> Option<Self> {
        let (line, mac) = line.strip_suffix('"')?.rsplit_once(MAC_FIELD)?;
        Some(Self { previous_sum: previous_sum.to_owned(), line: line.to_owned(), mac: mac.to_owned() })
    }

    /// Whether the line was sealed with this key.
    pub(super) fn verify(&self, key: &RecordKey) -> bool {
        is_same_mac(&key.mac(&self.previous_sum, &self.line), &self.mac)
    }
}

/// Whether two HMACs are equal, in constant time.
pub(crate) fn is_same_mac(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other));
    one.len() == other.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test cases 1, 2 and 6.
    #[test]
    fn the_hmac_matches_the_standard() {
        for (key, message, mac) in [
            (vec![0x0b; 20], "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe".to_vec(),
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex(&RecordKey::new(key).hmac(&[message.as_bytes()])), mac, "{message}");
        }
    }

    #[test]
    fn a_seal_is_valid_for_one_line_one_predecessor_and_one_key() {
        let key = RecordKey::new("a key of some length");
        let line = format!("{{\"a\":1{MAC_FIELD}{}\"", key.mac("0123", "{\"a\":1"));
        assert!(Seal::parse("0123", &line).unwrap().verify(&key));
        assert!(!Seal::parse("4567", &line).unwrap().verify(&key));
        assert!(!Seal::parse("0123", &line.replace("1,", "2,")).unwrap().verify(&key));
        assert!(!Seal::parse("0123", &line).unwrap().verify(&RecordKey::new("another key")));
        assert!(Seal::parse("0123", "{\"a\":1").is_none());
        assert!(!Seal::parse("0123", &format!("{{\"a\":1{MAC_FIELD}\"")).unwrap().verify(&key));
        assert_eq!(format!("{key:?}"), "RecordKey");
    }

    #[test]
    fn a_seal_fits_one_key_all_journals_and_the_last_line() {
        let key = RecordKey::new("a key of enough length");
        let digests = |journals: &[(&str, &str)]| {
            let mut digests = RunDigests::default();
            journals.iter().for_each(|(agent, lines)| digests.add(agent, &Sha256::new_with_prefix(lines)));
            digests
        };
        let journals = [("parent", "one\ntwo\n"), ("explorer-1", "three\n")];
        let seal = key.run_mac(&digests(&journals), "{\"end\":1}");
        assert!(is_same_mac(&seal, &key.run_mac(&digests(&journals), "{\"end\":1}")));
        // In another order, and with a journal in which nothing is.
        let same = [journals[1], ("explorer-2", ""), journals[0]];
        assert_eq!(key.run_mac(&digests(&same), "{\"end\":1}"), seal);
        let others = [
            [("parent", "one\ntwo!\n"), journals[1]].to_vec(),
            [journals[0], ("explorer-1", "four\n")].to_vec(),
            [journals[0], ("explorer-2", "three\n")].to_vec(),
            [("parent", "three\n"), ("explorer-1", "one\ntwo\n")].to_vec(),
            journals[..1].to_vec(),
        ];
        for other in others {
            assert!(!is_same_mac(&key.run_mac(&digests(&other), "{\"end\":1}"), &seal), "{other:?}");
        }
        assert!(!is_same_mac(&key.run_mac(&digests(&journals), "{\"end\":2}"), &seal));
        assert!(!is_same_mac(
            &RecordKey::new("another key of that length").run_mac(&digests(&journals), "{\"end\":1}"),
            &seal
        ));
        assert!(!is_same_mac(&seal[..62], &seal) && !is_same_mac("", &seal));
    }
}
