//! The Debian package of `[package.metadata.deb]`, as far as it can be checked without building it:
//! its files exist, and match the unit and the user that it installs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails where it panics"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Table;

fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn deb() -> Table {
    let manifest: Table = read(&manifest_dir().join("Cargo.toml")).parse().unwrap();
    let deb = manifest["package"]["metadata"]["deb"].as_table();
    deb.unwrap().clone()
}

/// The source of each file, by its destination.
fn assets(deb: &Table) -> BTreeMap<PathBuf, String> {
    let assets = deb["assets"].as_array().unwrap().iter();
    assets
        .map(|asset| {
            let [from, to, mode] = [0, 1, 2].map(|at| asset[at].as_str().unwrap().to_owned());
            let is_program = to.starts_with("usr/bin/");
            assert_eq!(mode, if is_program { "755" } else { "644" }, "{to}");
            let mut path = Path::new("/").join(&to);
            if to.ends_with('/') {
                path.push(Path::new(&from).file_name().unwrap());
            }
            (path, from)
        })
        .collect()
}

/// The values of a key of a unit.
fn values<'a>(unit: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = unit.lines();
    lines.filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
}

#[test]
fn everything_that_the_package_takes_is_there() {
    let deb = deb();
    for from in assets(&deb).values() {
        match from.strip_prefix("target/release/") {
            None => assert!(manifest_dir().join(from).is_file(), "{from}"),
            // A program of this name is built.
            Some(program) => {
                let built = ["../server/Cargo.toml", "../kvctl/Cargo.toml"];
                let names = built.map(|file| read(&manifest_dir().join(file)));
                let bin = format!("[[bin]]\nname = \"{program}\"\n");
                assert!(names.iter().any(|it| it.contains(&bin)), "{program}");
            }
        }
    }
    let license = deb["license-file"][0].as_str().unwrap();
    assert!(manifest_dir().join(license).is_file(), "{license}");
}

#[test]
fn the_unit_finds_what_the_package_installs() {
    let deb = deb();
    let assets = assets(&deb);
    let units = deb["systemd-units"].as_table().unwrap();
    let folder = manifest_dir().join(units["unit-scripts"].as_str().unwrap());
    let name = units["unit-name"].as_str().unwrap();
    let unit = read(&folder.join(format!("{name}.service")));

    let command: Vec<_> = values(&unit, "ExecStart")
        .flat_map(str::split_whitespace)
        .collect();
    let [program, "serve", "--config", config] = command[..] else {
        panic!("{command:?}");
    };
    assert!(assets.contains_key(&Path::new("/usr/bin").join(program)));
    assert!(assets.contains_key(Path::new(config)));
    let conf_files = deb["conf-files"].as_array().unwrap();
    assert!(
        conf_files.iter().any(|it| it.as_str() == Some(config)),
        "an upgrade keeps what an administrator wrote"
    );
    for document in values(&unit, "Documentation") {
        let path = document.strip_prefix("file:").unwrap();
        assert!(assets.contains_key(Path::new(path)), "{path}");
    }

    // The unit's user is created before the unit can start.
    let sysusers = assets
        .iter()
        .find(|(to, _)| to.starts_with("/usr/lib/sysusers.d"));
    let (to, from) = sysusers.expect("a file of users");
    let users = read(&manifest_dir().join(from));
    for key in ["User", "Group"] {
        let user = values(&unit, key).next().unwrap();
        assert!(
            users
                .lines()
                .any(|line| line.starts_with(&format!("u {user} ")))
        );
    }
    let scripts = manifest_dir().join(deb["maintainer-scripts"].as_str().unwrap());
    let makes = format!("systemd-sysusers {}", to.file_name().unwrap().display());
    let script = read(&scripts.join("postinst"));
    assert!(script.contains(&makes), "{script}");
    assert!(
        script.contains("\n#DEBHELPER#"),
        "what cargo-deb adds for the unit"
    );
}
