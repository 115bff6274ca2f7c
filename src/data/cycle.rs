//! References that go round without getting anywhere: holding a value against such a schema would never end.

use std::collections::{HashMap, HashSet};

use super::visit::Key;

/// A schema whose reference leads back to where it comes from, along schemas that the same value has to fit.
pub(super) fn find(same: &HashMap<Key, Vec<Key>>) -> Option<Key> {
    let mut starts: Vec<&Key> = same.keys().collect();
    starts.sort_unstable();
    let mut done: HashSet<&Key> = HashSet::new();
    for start in starts {
        // Each with how many of its ways were taken.
        let mut path: Vec<(&Key, usize)> = vec![(start, 0)];
        let mut on_path: HashSet<&Key> = HashSet::from([start]);
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
