//! Measures validation of many job files: through the library on one thread, and with the whole command. Both are
//! compared with decoding alone by yaml_serde, the successor of serde_yaml.

use std::path::Path;
use std::process::Command;

use legwork::diagnostic::Severity;
use legwork::template::JobDir;
use legwork::{lints, yaml};

use crate::aims;
use crate::measure::{self, Measurement};
use crate::{job_generator, median, plain_types};

/// The number of files of each kind.
const FILES: usize = 10_000;

/// Folder, title, target time, and the arguments of this program or of legwork.
const ROWS: [(&str, &str, &str, &[&str]); 8] = [
    ("good", "checked through the library", "10,000 files/s", &["--check"]),
    ("good", "the whole command `legwork validate FOLDER`", "", &["validate"]),
    ("good", "serde_yaml alone, into the job's types", "", &["--decode", "jobs"]),
    ("good", "serde_yaml alone, into values of any type", "", &["--decode", "values"]),
    ("bad", "22 errors each, checked through the library", "10,000 files/s", &["--check"]),
    ("bad", "22 errors each, the whole command", "", &["validate"]),
    ("bad", "22 errors each, serde_yaml into types: the first", "", &["--decode", "jobs"]),
    ("bad", "22 errors each, serde_yaml into values: none", "", &["--decode", "values"]),
];

/// Writes the files and prints the table.
pub(crate) fn compare(legwork: &Path, runs: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut size = 0;
    for (kind, text) in [("good", job_generator::good as fn(usize) -> String), ("bad", job_generator::bad)] {
        let below = folder.path().join(kind);
        std::fs::create_dir(&below).expect("a folder");
        for number in 0..FILES {
            let text = text(number);
            size += text.len();
            std::fs::write(below.join(format!("{number:05}.yaml")), text).expect("a job");
        }
    }
    let each = size as f64 / 2.0 / FILES as f64 / 1000.0;
    println!(
        "\n{FILES} job files of {each:.1} kB, read from disk; the whole process on one thread, runs interleaved\n"
    );
    println!("| {:<48} | {:<14} | {:<32} | {:>12} | {:>9} |", "", "aim", "files a second", "CPU a file", "memory");
    println!("|{0:-<50}|{0:-<16}|{0:-<34}|{0:->13}:|{0:->10}:|", "");
    let this_program = std::env::current_exe().expect("this program");
    let mut figures: Vec<Vec<Measurement>> = ROWS.iter().map(|_| Vec::new()).collect();
    // The first run only warms the caches.
    for run in 0..=runs {
        for ((kind, title, _, arguments), figures) in ROWS.iter().zip(&mut figures) {
            let program = if arguments[0] == "validate" { legwork } else { &this_program };
            let mut command = Command::new(&this_program);
            command.arg("--measure").arg(program).args(*arguments).arg(folder.path().join(kind)).env_clear();
            let expected = if (*kind, arguments[0]) == ("bad", "validate") { 3 } else { 0 };
            let figure =
                measure::measure_with_code(&mut command, expected).unwrap_or_else(|why| panic!("{title}: {why}"));
            if run > 0 {
                figures.push(figure);
            }
        }
    }
    for ((kind, title, aim, arguments), figures) in ROWS.iter().zip(&figures) {
        let rate = |wall: f64| FILES as f64 / wall * 1e3;
        let walls = figures.iter().map(|figure| figure.wall);
        let (least, greatest) = walls.clone().fold((f64::MAX, 0.0_f64), |(a, b), wall| (a.min(wall), b.max(wall)));
        let rates = format!("{:.0} ({:.0} to {:.0})", rate(median(walls.clone())), rate(greatest), rate(least));
        let cpu = median(figures.iter().map(|figure| figure.cpu)) * 1e3 / FILES as f64;
        let middle = rate(median(walls));
        let memory = figures.iter().map(|figure| figure.memory).max().unwrap_or_default() as f64 / 1e6;
        match (*kind, arguments[0]) {
            ("good", "validate") => {
                aims::at_least("`validate`, all cores of this machine", 10_000.0, middle, "files/s");
            }
            ("good", "--check") => aims::at_least("`validate`, one core", 6_000.0, middle, "files/s"),
            _ => {}
        }
        println!(
            "| {title:<48} | {aim:<14} | {rates:<32} | {:>12} | {:>9} |",
            format!("{cpu:.1} µs"),
            format!("{memory:.1} MB")
        );
    }
}

/// Checks every file of a folder in a separate process, and panics if it misses a mistake.
pub(crate) fn check(path: &Path) {
    let folder = JobDir::open(path).expect("the folder");
    let expected = if path.ends_with("bad") { job_generator::MISTAKES } else { 0 };
    for entry in std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("a file").path()) {
        let bytes = std::fs::read(&entry).expect("a job");
        let source = yaml::read_bytes(&entry.to_string_lossy(), &bytes).expect("a text");
        let checked = lints::check(&source, Some(&folder));
        let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        assert!(
            errors == expected && checked.findings.len() == expected,
            "{}: {:#?}",
            entry.display(),
            checked.findings
        );
    }
}

/// Decodes every file of a folder in a separate process.
pub(crate) fn decode(what: &str, folder: &Path) {
    let is_bad = folder.ends_with("bad");
    match what {
        "jobs" => assert_eq!(plain_types::jobs(folder), if is_bad { 0 } else { FILES }),
        _ => assert_eq!(plain_types::values(folder), FILES),
    }
}
