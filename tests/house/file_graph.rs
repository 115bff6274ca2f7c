//! A graph of which file of `src/` uses an item that another file defines, and the cycles of this graph.
//!
//! The source is read as tokens, not compiled: the tests need no nightly compiler, and the graph is ready in a second.
//! An edge comes from a `use`, from a path such as `crate::job::Job` or `job::Job`, and from a name that the file both
//! re-exports and uses. A re-export alone doesn't make an edge, nor does a `mod` line. Methods aren't tracked.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{SourceFile, sources};

type Path = Vec<String>;

/// The files of `src/` and the edges between them.
pub(super) struct FileGraph {
    modules: BTreeMap<Path, Module>,
    /// From the using file to the defining file, with the names of the items.
    edges: BTreeMap<Path, BTreeMap<Path, BTreeSet<String>>>,
}

/// The parsed content of one file.
#[derive(Default)]
struct Module {
    path: String,
    /// Names of the items that the file defines outside of braces.
    items: BTreeSet<String>,
    /// The target of each name that a `use` imports.
    imports: BTreeMap<String, Path>,
    /// The modules of `use module::*`.
    globs: Vec<Path>,
    /// The paths in use, as written, without re-exports.
    uses: Vec<Path>,
    /// Names that the file both re-exports and uses.
    reexports: BTreeSet<String>,
}

/// An edge: the using file, the defining file, and the names of the items.
pub(super) struct Edge<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    pub(super) names: Vec<&'a str>,
}

impl FileGraph {
    /// The graph of the files in `src/`.
    pub(super) fn of_the_source() -> FileGraph {
        FileGraph::new(&sources())
    }

    fn new(files: &[SourceFile]) -> FileGraph {
        let library = files.iter().filter(|file| !file.path.ends_with("main.rs"));
        let modules: BTreeMap<Path, Module> = library.map(|file| (file.module.clone(), Module::read(file))).collect();
        let mut graph = FileGraph { modules, edges: BTreeMap::new() };
        for (place, module) in &graph.modules {
            let reexports = module.reexports.iter().filter_map(|name| module.imports.get(name)).cloned();
            for used in module.uses.iter().chain(&reexports.collect::<Vec<_>>()) {
                let Some(target) = graph.absolute(place, used) else { continue };
                let Some((defined_in, name)) = graph.definition(&target, 0) else { continue };
                if defined_in == *place {
                    continue;
                }
                graph.edges.entry(place.clone()).or_default().entry(defined_in).or_default().insert(name);
            }
        }
        graph
    }

    /// All edges.
    pub(super) fn edges(&self) -> impl Iterator<Item = Edge<'_>> {
        self.edges.iter().flat_map(move |(from, targets)| {
            targets.iter().map(move |(to, names)| Edge {
                from: &self.modules[from].path,
                to: &self.modules[to].path,
                names: names.iter().map(String::as_str).collect(),
            })
        })
    }

    /// The edges within each group of files in which every file uses every other, directly or indirectly.
    pub(super) fn cycles(&self) -> Vec<Vec<Edge<'_>>> {
        let mut groups: Vec<BTreeSet<&str>> = Vec::new();
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.modules.keys().map(|from| (self.modules[from].path.as_str(), self.reachable(from))).collect();
        for (file, reached) in &reach {
            if reached.contains(file) && !groups.iter().any(|group| group.contains(file)) {
                groups.push(reached.iter().copied().filter(|other| reach[other].contains(file)).collect());
            }
        }
        let inside = |group: &BTreeSet<&str>| {
            self.edges().filter(|edge| group.contains(edge.from) && group.contains(edge.to)).collect()
        };
        groups.iter().map(inside).collect()
    }

    /// All files that one file uses, directly or indirectly.
    fn reachable(&self, from: &Path) -> BTreeSet<&str> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(place) = open.pop() {
            for target in self.edges.get(place).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(self.modules[target].path.as_str()) {
                    open.push(target);
                }
            }
        }
        reached
    }

    /// Resolves a path in a module to a path from the root of the crate. `None` for other crates and local names.
    fn absolute(&self, place: &Path, written: &[String]) -> Option<Path> {
        let (first, rest) = written.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([place, rest].concat()),
            "super" => {
                let up = written.iter().take_while(|name| *name == "super").count();
                let parent = place.get(..place.len().checked_sub(up)?)?;
                Some([parent, &written[up..]].concat())
            }
            name => match self.modules[place].imports.get(name) {
                Some(import) if import != written => Some([&self.absolute(place, import)?, rest].concat()),
                _ => {
                    let child = [place.as_slice(), std::slice::from_ref(first)].concat();
                    self.modules.contains_key(&child).then(|| [&child, rest].concat())
                }
            },
        }
    }

    /// The module that defines the item at this path, through re-exports and imports, and the item's name there.
    fn definition(&self, path: &[String], depth: usize) -> Option<(Path, String)> {
        if depth > 8 {
            return None;
        }
        let length = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]))?;
        let (place, rest) = (path[..length].to_vec(), &path[length..]);
        let Some(name) = rest.first() else {
            // A path to a module isn't an item, but a function can share the module's name.
            let (last, parent) = path.split_last()?;
            return self.modules.get(parent)?.items.contains(last).then(|| (parent.to_vec(), last.clone()));
        };
        let module = &self.modules[&place];
        if module.items.contains(name) || name == "*" {
            return Some((place, name.clone()));
        }
        if let Some(import) = module.imports.get(name) {
            let target = self.absolute(&place, import)?;
            return self.definition(&[&target, &rest[1..]].concat(), depth + 1);
        }
        let globs = module.globs.iter().filter_map(|glob| self.absolute(&place, glob));
        globs.filter_map(|glob| self.definition(&[&glob, rest].concat(), depth + 1)).next()
    }
}

impl Module {
    fn read(file: &SourceFile) -> Module {
        let mut module = Module { path: file.path.to_string_lossy().into_owned(), ..Module::default() };
        let tokens = tokens(&file.code);
        let token = |at: usize| tokens.get(at).copied().unwrap_or_default();
        let (mut reexported, mut mentioned) = (BTreeSet::new(), BTreeSet::new());
        let (mut depth, mut at) = (0_usize, 0);
        while at < tokens.len() {
            match tokens[at] {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                "use" if token(at + 1) != "<" => {
                    let length = tokens[at..].iter().position(|token| *token == ";").unwrap_or(tokens.len() - at);
                    let is_reexport = at > 0 && matches!(tokens[at - 1], "pub" | ")");
                    for (path, name) in leaves(&tokens[at + 1..at + length]) {
                        if name == "*" {
                            module.globs.push(path[..path.len() - 1].to_vec());
                        } else {
                            module.imports.insert(name.clone(), path.clone());
                        }
                        if is_reexport {
                            reexported.insert(name);
                        } else {
                            module.uses.push(path);
                        }
                    }
                    at += length;
                }
                "macro_rules" if token(at + 1) == "!" => {
                    module.items.insert(token(at + 2).to_owned());
                    at += 2;
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" if depth == 0 => {
                    let name = if token(at + 1) == "mut" { token(at + 2) } else { token(at + 1) };
                    if is_name(name) && !matches!(name, "fn" | "unsafe" | "async" | "extern") {
                        module.items.insert(name.to_owned());
                    }
                }
                "mod" if token(at + 2) == "{" => {
                    module.items.insert(token(at + 1).to_owned());
                }
                name if is_name(name) && !matches!(at.checked_sub(1).map(token), Some("." | "::")) => {
                    let mut path = vec![name.to_owned()];
                    while token(at + 1) == "::" && is_name(token(at + 2)) {
                        path.push(token(at + 2).to_owned());
                        at += 2;
                    }
                    // Modules, fields and locals can share a function's name, so only calls count.
                    if name.starts_with(char::is_uppercase) || matches!(token(at + 1), "(" | "!") {
                        mentioned.insert(name.to_owned());
                    }
                    if path.len() > 1 {
                        module.uses.push(path);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        module.reexports = &reexported & &mentioned;
        module
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// The words, `::` and single punctuation characters of source code without comments and literals.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        found.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    found
}

/// The paths of a `use` tree, each with the name that it introduces.
fn leaves(tree: &[&str]) -> Vec<(Path, String)> {
    fn walk(tree: &[&str], prefix: &[String], found: &mut Vec<(Path, String)>) {
        let mut path = prefix.to_vec();
        let mut at = 0;
        while at < tree.len() {
            match tree[at] {
                "{" => {
                    let (mut depth, mut start) = (0, at + 1);
                    for (here, token) in tree.iter().enumerate().skip(at) {
                        match *token {
                            "{" => depth += 1,
                            "}" => depth -= 1,
                            _ => {}
                        }
                        if depth == 0 || (depth == 1 && *token == ",") {
                            walk(&tree[start..here], &path, found);
                            start = here + 1;
                        }
                    }
                    return;
                }
                "::" => {}
                "as" => break,
                "self" if !path.is_empty() => {}
                name => path.push(name.to_owned()),
            }
            at += 1;
        }
        let alias = if tree.get(at) == Some(&"as") { tree.get(at + 1).map(|name| (*name).to_owned()) } else { None };
        if let Some(name) = alias.or_else(|| path.last().cloned()).filter(|_| !tree.is_empty()) {
            found.push((path, name));
        }
    }
    let mut found = Vec::new();
    walk(tree, &[], &mut found);
    found
}

/// Builds the graph of files that are given as path below `src/` and source.
fn graph(files: &[(&str, &str)]) -> FileGraph {
    let files: Vec<SourceFile> = files.iter().map(|(path, code)| SourceFile::new(path, code)).collect();
    FileGraph::new(&files)
}

/// The edges between such files, as `from > to`.
fn edges_of(files: &[(&str, &str)]) -> Vec<String> {
    graph(files).edges().map(|edge| format!("{} > {}: {}", edge.from, edge.to, edge.names.join(" "))).collect()
}

#[test]
fn an_edge_leads_to_the_file_that_defines_the_item() {
    let tools =
        ("src/tools/mod.rs", "mod bash; mod tool; pub use tool::Tool; pub(crate) const TOOLS: &[u8] = &[bash::B];");
    let tool = ("src/tools/tool.rs", "pub trait Tool { fn call(&self); }");
    let from_bash = |code: &str| {
        let files = [tools, tool, ("src/tools/bash.rs", code), ("src/lib.rs", "pub mod tools; pub fn version() {}")];
        let edges = edges_of(&files)
            .into_iter()
            .filter_map(|edge| edge.strip_prefix("src/tools/bash.rs > ").map(str::to_owned));
        edges.collect::<Vec<_>>()
    };
    let to_tool = ["src/tools/tool.rs: Tool"];
    assert_eq!(from_bash("use super::Tool;"), to_tool, "a re-export leads to the definition");
    assert_eq!(from_bash("use crate::tools::tool::{Tool as Other};"), to_tool);
    assert_eq!(from_bash("use crate::{tools::{self}, version};"), ["src/lib.rs: version"]);
    assert_eq!(from_bash("use crate::tools; fn f(x: &dyn tools::Tool) {}"), to_tool);
    assert_eq!(from_bash("use super::tool; impl tool::Tool for X {}"), to_tool);
    assert_eq!(from_bash("fn f(x: &dyn super::Tool) { super::super::version() }"), ["src/lib.rs: version", to_tool[0]]);
    assert_eq!(from_bash("fn f() { use super::TOOLS; }"), ["src/tools/mod.rs: TOOLS"]);
    assert_eq!(from_bash("use super::*;"), ["src/tools/mod.rs: *"]);
    assert_eq!(from_bash("pub(crate) use super::Tool;"), [""; 0], "a re-export is no use");
    assert_eq!(from_bash("pub(crate) use super::Tool; impl Tool for X {}"), to_tool, "unless the file uses the name");
    assert_eq!(from_bash("use std::tools::Tool; struct Tool; fn f() { other::tool::Tool; x.super_tool() }"), [""; 0]);
}

#[test]
fn cycles_are_found() {
    let shown = |files: &[(&str, &str)]| {
        let graph = graph(files);
        let cycles = graph.cycles();
        cycles.iter().map(|cycle| cycle.iter().map(|edge| edge.from.to_owned()).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let none: [Vec<String>; 0] = [];
    let parent = "mod a; mod b; pub(crate) use a::A; pub(crate) fn list() {}";
    let below = [("src/x/mod.rs", parent), ("src/x/a.rs", "pub struct A;"), ("src/x/b.rs", "use super::{A, list};")];
    assert_eq!(shown(&below), none, "the parent only re-exports");
    let used =
        [("src/x/mod.rs", "mod b; fn f() { b::g() } pub struct P;"), ("src/x/b.rs", "use super::P; pub fn g() {}")];
    assert_eq!(shown(&used), [["src/x/mod.rs", "src/x/b.rs"]]);
    let long = [
        ("src/a.rs", "use crate::b::B; pub struct A;"),
        ("src/b.rs", "use crate::c::C; pub struct B;"),
        ("src/c.rs", "use crate::a::A; pub struct C;"),
        ("src/d.rs", "use crate::a::A;"),
    ];
    assert_eq!(shown(&long), [["src/a.rs", "src/b.rs", "src/c.rs"]]);
}
