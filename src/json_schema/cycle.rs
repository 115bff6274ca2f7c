//! References that lead back to themselves, or multiply: validating a value with such a schema would never end.

use std::collections::{HashMap, HashSet};

use super::schema_walk::SchemaLocation;

/// A schema whose reference leads back to where it comes from, along schemas that the same value has to fit.
pub(super) fn find(same: &HashMap<SchemaLocation, Vec<SchemaLocation>>) -> Option<SchemaLocation> {
    let mut starts: Vec<&SchemaLocation> = same.keys().collect();
    starts.sort_unstable();
    let mut done: HashSet<&SchemaLocation> = HashSet::new();
    for start in starts {
        // Each with how many of its ways were taken.
        let mut path: Vec<(&SchemaLocation, usize)> = vec![(start, 0)];
        let mut on_path: HashSet<&SchemaLocation> = HashSet::from([start]);
        if done.contains(start) {
            continue;
        }
        while let Some((at, taken)) = path.last_mut() {
            let (from, next) = (*at, same.get(*at).and_then(|ways| ways.get(*taken)));
            *taken += 1;
            match next {
                Some(next) if on_path.contains(next) => return Some(from.clone()),
                Some(next) if !done.contains(next) => {
                    on_path.insert(next);
                    path.push((next, 0));
                }
                Some(_) => {}
                None => {
                    done.insert(from);
                    on_path.remove(from);
                    path.pop();
                }
            }
        }
    }
    None
}

/// A schema that applies more than `most` schemas to one value, through references that lead to the same place in several
/// ways. There must be no cycle.
pub(super) fn find_fan_out(same: &HashMap<SchemaLocation, Vec<SchemaLocation>>, most: u64) -> Option<SchemaLocation> {
    let mut starts: Vec<&SchemaLocation> = same.keys().collect();
    starts.sort_unstable();
    let mut applied: HashMap<&SchemaLocation, u64> = HashMap::new();
    for start in starts {
        let mut open = vec![start];
        while let Some(at) = open.last().copied() {
            let ways = same.get(at).map_or(&[][..], Vec::as_slice);
            let unknown: Vec<&SchemaLocation> = ways.iter().filter(|way| !applied.contains_key(way)).collect();
            if unknown.is_empty() {
                let below = ways.iter().map(|way| applied[way]).fold(1, u64::saturating_add);
                if below > most {
                    return Some(at.clone());
                }
                applied.insert(at, below);
                open.pop();
            } else {
                open.extend(unknown);
            }
        }
    }
    None
}
