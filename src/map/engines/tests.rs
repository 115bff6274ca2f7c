use std::collections::BTreeMap;

use super::engine::{shell_word, yaml_string};
use super::*;

fn shard(argument: &str, variables: &[(&str, &str)]) -> Result<String, String> {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    Shard::parse(argument, &variable).map(|shard| shard.to_string()).map_err(|error| error.message)
}

#[test]
fn every_engine_names_its_shard() {
    let slurm = |id: &'static str| {
        [
            ("SLURM_ARRAY_TASK_ID", id),
            ("SLURM_ARRAY_TASK_MIN", "10"),
            ("SLURM_ARRAY_TASK_MAX", "18"),
            ("SLURM_ARRAY_TASK_STEP", "4"),
        ]
    };
    for (variables, expected) in [
        (slurm("10").to_vec(), "1/3"),
        (slurm("18").to_vec(), "3/3"),
        (vec![("JOB_COMPLETION_INDEX", "0"), ("LEGWORK_SHARDS", "4")], "1/4"),
        (vec![("AWS_BATCH_JOB_ARRAY_INDEX", "3"), ("AWS_BATCH_JOB_ARRAY_SIZE", "4")], "4/4"),
        (vec![("CLOUD_RUN_TASK_INDEX", "1"), ("CLOUD_RUN_TASK_COUNT", "2")], "2/2"),
        (vec![("CI_NODE_INDEX", "1"), ("CI_NODE_TOTAL", "5")], "1/5"),
        (vec![("BUILDKITE_PARALLEL_JOB", "0"), ("BUILDKITE_PARALLEL_JOB_COUNT", "5")], "1/5"),
    ] {
        assert_eq!(shard("auto", &variables).as_deref(), Ok(expected), "{variables:?}");
    }
    for (variables, expected) in [
        (vec![], "--shard auto: no variable of an engine is set"),
        (slurm("11").to_vec(), "--shard auto: the value of SLURM_ARRAY_TASK_ID doesn't fit the number of shards"),
        (
            vec![
                ("SLURM_ARRAY_TASK_ID", "0"),
                ("SLURM_ARRAY_TASK_MIN", "0"),
                ("SLURM_ARRAY_TASK_MAX", "18446744073709551615"),
            ],
            "--shard auto: the value of SLURM_ARRAY_TASK_ID doesn't fit the number of shards",
        ),
        (
            vec![("JOB_COMPLETION_INDEX", "0")],
            "--shard auto: JOB_COMPLETION_INDEX is set, but not LEGWORK_SHARDS, so the number of shards is unknown",
        ),
        (vec![("CI_NODE_INDEX", "x")], "--shard auto: the variable CI_NODE_INDEX is `x`, which isn't a number"),
        (
            vec![("CI_NODE_INDEX", "0"), ("CI_NODE_TOTAL", "5")],
            "--shard auto: the value of CI_NODE_INDEX doesn't fit the number of shards",
        ),
    ] {
        assert_eq!(shard("auto", &variables), Err(expected.to_owned()), "{variables:?}");
    }
    for wrong in ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", "+1/3", "1/+3", ""] {
        assert_eq!(shard(wrong, &[]), Err(format!("--shard {wrong}: this isn't a shard")));
    }
}

#[test]
fn every_row_belongs_to_exactly_one_shard() {
    let shards: Vec<Shard> = (1..=7).map(|k| Shard::parse(&format!("{k}/7"), &|_| None).unwrap()).collect();
    let mut sizes = [0; 7];
    for row in 0..700 {
        let owners: Vec<usize> = (0..7).filter(|at| shards[*at].contains(&format!("row-{row}"))).collect();
        assert_eq!(owners.len(), 1);
        sizes[owners[0]] += 1;
    }
    assert!(sizes.iter().all(|size| (60..150).contains(size)), "{sizes:?}");
}

#[test]
fn words_with_special_characters_are_quoted() {
    for (word, quoted) in [
        ("jobs/a.yaml", "jobs/a.yaml"),
        ("", "''"),
        ("a b", "'a b'"),
        ("x';touch y;'", r"'x'\'';touch y;'\'''"),
        ("$(id)", "'$(id)'"),
        ("*", "'*'"),
        ("~", "'~'"),
        ("#", "'#'"),
    ] {
        assert_eq!(shell_word(word), quoted);
    }
    assert_eq!(yaml_string("a: \"b\" # c"), r#""a: \"b\" # c""#);
}
