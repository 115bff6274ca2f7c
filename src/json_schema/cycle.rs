//! Finds references that lead back to themselves, or multiply: validation would never end.

use std::collections::{HashMap, HashSet};

use super::schema_reader::SchemaLocation;

/// A schema that can't be validated in reasonable time.
pub(super) enum Endless {
    /// It applies itself to the same value.
    Cycle(SchemaLocation),
    /// It applies too many schemas to the same value.
    FanOut(SchemaLocation),
}

/// Looks for a cycle, or for a schema that applies more than `max` schemas to one value. `in_place` holds, for each schema,
/// those that apply to the same value.
pub(super) fn find_endless(in_place: &HashMap<SchemaLocation, Vec<SchemaLocation>>, max: u64) -> Option<Endless> {
    let mut starts: Vec<&SchemaLocation> = in_place.keys().collect();
    starts.sort_unstable();
    let mut applied: HashMap<&SchemaLocation, u64> = HashMap::new();
    for start in starts {
        if applied.contains_key(start) {
            continue;
        }
        // Each with the number of its schemas that were visited.
        let mut path: Vec<(&SchemaLocation, usize)> = vec![(start, 0)];
        let mut on_path: HashSet<&SchemaLocation> = HashSet::from([start]);
        while let Some((at, visited)) = path.last_mut() {
            let at = *at;
            let below = in_place.get(at).map_or(&[][..], Vec::as_slice);
            let next = below.get(*visited);
            *visited += 1;
            match next {
                Some(next) if applied.contains_key(next) => {}
                Some(next) if !on_path.insert(next) => return Some(Endless::Cycle(at.clone())),
                Some(next) => path.push((next, 0)),
                None => {
                    let count = below.iter().map(|next| applied[next]).fold(1, u64::saturating_add);
                    if count > max {
                        return Some(Endless::FanOut(at.clone()));
                    }
                    applied.insert(at, count);
                    on_path.remove(at);
                    path.pop();
                }
            }
        }
    }
    None
}
