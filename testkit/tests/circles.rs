//! Modules do not use each other in circles, so each can be read after those that it uses.
//!
//! A module is a file. A parent and its child may use each other. Tests do not count.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// The modules of a crate and what they use.
#[derive(Default)]
struct Crate {
    /// Each path in the module's text, from the root of the crate.
    paths: BTreeMap<Module, Vec<Module>>,
    /// The names that a module imports, with their paths from the root of the crate.
    imports: BTreeMap<(Module, String), Module>,
}

impl Crate {
    fn read(src: &Path) -> Self {
        let mut read = Self::default();
        let mut folders = vec![(src.to_owned(), Module::new())];
        let mut texts = Vec::new();
        while let Some((folder, above)) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let mut module = above.clone();
                if !["mod", "lib", "main"].contains(&name.as_str()) {
                    module.push(name);
                }
                if path.is_dir() {
                    folders.push((path, module));
                } else if path.extension().is_some_and(|it| it == "rs") {
                    read.paths.entry(module.clone()).or_default();
                    texts.push((module, std::fs::read_to_string(path).unwrap()));
                }
            }
        }
        for (module, text) in texts {
            read.scan(&module, &text);
        }
        read
    }

    fn scan(&mut self, module: &Module, text: &str) {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = text.lines().map(|line| line.split("//").next().unwrap());
        let text = lines.collect::<Vec<_>>().join("\n");
        let tokens = tokens(&text);
        let mut at = 0;
        while at < tokens.len() {
            let is_use = tokens[at] == "use" && tokens.get(at + 1) != Some(&"<");
            let is_path = ["crate", "super", "self"].contains(&tokens[at])
                && tokens.get(at + 1) == Some(&"::");
            let mut found = Vec::new();
            if is_use {
                at = tree(&tokens, at + 1, &[], &mut found);
            } else if is_path {
                let mut path = vec![tokens[at]];
                while tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(is_name) {
                    path.push(tokens[at + 2]);
                    at += 2;
                }
                found.push((path, None));
            }
            for (path, name) in found {
                if let Some(path) = self.absolute(module, &path) {
                    let name = name.or(path.last().map(String::as_str));
                    if let Some(name) = name.filter(|_| is_use) {
                        let key = (module.clone(), name.to_owned());
                        self.imports.insert(key, path.clone());
                    }
                    self.paths.get_mut(module).unwrap().push(path);
                }
            }
            at += 1;
        }
    }

    /// A path of this crate from its root; `None` if another crate's.
    fn absolute(&self, module: &Module, path: &[&str]) -> Option<Module> {
        let mut base = module.clone();
        let mut rest = path;
        match path.first()? {
            &"crate" => (base, rest) = (Module::new(), &path[1..]),
            &"self" => rest = &path[1..],
            &"super" => {
                while rest.first() == Some(&"super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child => {
                base.push((*child).to_owned());
                let is_here = self.paths.contains_key(&base);
                base.pop();
                if !is_here {
                    return None;
                }
            }
        }
        base.extend(rest.iter().map(|it| (*it).to_owned()));
        Some(base)
    }

    /// The module that defines what a path names.
    fn definer(&self, path: &Module) -> Option<Module> {
        let mut path = path.clone();
        for _ in 0..8 {
            let len = (0..=path.len()).rfind(|len| self.paths.contains_key(&path[..*len]))?;
            let module = path[..len].to_vec();
            let Some(name) = path.get(len) else {
                return Some(module);
            };
            let Some(import) = self.imports.get(&(module.clone(), name.clone())) else {
                return Some(module);
            };
            let further = [import, &path[len + 1..]].concat();
            if further == path {
                return Some(module);
            }
            path = further;
        }
        None
    }

    /// Each set of modules that reach each other.
    fn circles(&self) -> BTreeSet<BTreeSet<String>> {
        let is_within = |one: &Module, other: &Module| one.starts_with(other);
        let mut uses: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, paths) in &self.paths {
            let used = paths.iter().filter_map(|path| self.definer(path));
            let used = used.filter(|it| !is_within(it, module) && !is_within(module, it));
            uses.insert(module, used.collect());
        }
        let reached = |from: &Module| {
            let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
            while let Some(module) = left.pop() {
                left.extend(
                    uses[module]
                        .iter()
                        .filter(|it| reached.insert((*it).clone())),
                );
            }
            reached
        };
        let reached: BTreeMap<&Module, _> = uses.keys().map(|it| (*it, reached(it))).collect();
        let circle = |module: &Module| {
            let others = reached[module].iter();
            let others = others.filter(|it| reached[*it].contains(module));
            others.map(|it| it.join("::")).collect::<BTreeSet<_>>()
        };
        let circles = reached.keys().map(|it| circle(it));
        circles.filter(|circle| !circle.is_empty()).collect()
    }
}

fn is_name(token: &&str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Names, `::`, and all other characters one by one.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = if rest.starts_with("::") {
            2
        } else if is_part(first) {
            rest.find(|c| !is_part(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(len);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Paths in a tree of imports, each with its new name if it has one; returns where the tree ends.
fn tree<'a>(
    tokens: &[&'a str],
    mut at: usize,
    above: &[&'a str],
    found: &mut Vec<(Vec<&'a str>, Option<&'a str>)>,
) -> usize {
    let mut path = above.to_owned();
    let mut name = None;
    while let Some(token) = tokens.get(at) {
        match *token {
            "{" => {
                loop {
                    at = tree(tokens, at + 1, &path, found);
                    if tokens.get(at) != Some(&",") {
                        break;
                    }
                }
                at += 1;
                return at;
            }
            "," | "}" | ";" => break,
            "as" => {
                name = tokens.get(at + 1).copied();
                at += 1;
            }
            "::" | "*" => {}
            "self" if !path.is_empty() => {}
            part => path.push(part),
        }
        at += 1;
    }
    if path.len() > above.len() || tokens.get(at.wrapping_sub(1)) == Some(&"self") {
        found.push((path, name));
    }
    at
}

fn crates() -> impl Iterator<Item = (String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = std::fs::read_dir(root).unwrap().map(|it| it.unwrap());
    folders.filter_map(|folder| {
        let src = folder.path().join("src");
        let is_crate = src.is_dir() && folder.path().join("Cargo.toml").is_file();
        is_crate.then(|| (folder.file_name().into_string().unwrap(), src))
    })
}

#[test]
fn modules_do_not_use_each_other_in_circles() {
    let found: Vec<String> = crates()
        .flat_map(|(name, src)| {
            let circles = Crate::read(&src).circles().into_iter();
            circles.map(move |circle| format!("{name}: {circle:?}"))
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_circle_through_an_import_of_the_parent_is_found() {
    let mut sample = Crate::default();
    let files = [
        ("", "mod a; mod b; pub use a::{One, Other as Third};"),
        ("a", "use super::b::{self, Two}; // use crate::c;"),
        ("b", "fn f() -> crate::Third { todo!() }"),
        ("c", "use crate::a::One;"),
    ];
    let module = |name: &str| name.split_terminator("::").map(str::to_owned).collect();
    for (name, _) in files {
        sample.paths.insert(module(name), Vec::new());
    }
    for (name, text) in files {
        sample.scan(&module(name), text);
    }
    let circle = ["a", "b"].map(str::to_owned).into();
    assert_eq!(sample.circles(), BTreeSet::from([circle]));
}
