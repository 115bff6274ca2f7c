use super::*;

#[test]
fn the_time_of_an_id_is_read() {
    let time = |id: &str| time_of_id(id).map(|time| time.to_string());
    assert_eq!(time("20261123-044234-1d3hq0").as_deref(), Some("2026-11-23T04:42:34Z"));
    assert_eq!([time("nightly"), time("20269923-044234-1d3hq0")], [None, None]);
}
