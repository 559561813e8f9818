//! Where a build is made, where its files are sent, and how its directory is removed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use torc_build::{BuildError, MANIFEST_FILE};
use torc_objects::Location;

use super::{Args, failure};
use crate::failure::Failure;
use crate::out::note;

/// Where a build is made, and where its files are sent.
pub(super) struct Places {
    pub(super) work: PathBuf,
    pub(super) url: Option<String>,
}

impl Places {
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        let out = args.out.to_str().unwrap_or_default();
        let url = if out.contains("://") {
            out.to_owned()
        } else if args.work.is_some() {
            torc_objects::url_of(&args.out)?
        } else {
            let (work, url) = (args.out.clone(), None);
            return Ok(Self { work, url });
        };
        // A reader would take such a URL for that of a manifest.
        let is_url = args.out.to_str() == Some(url.as_str());
        if is_url && torc_build::source_of(url.trim_end_matches('/')).0 != url.trim_end_matches('/')
        {
            return Err(Failure::Usage(format!(
                "a location must not end in .json, as manifests do: choose another one than {url}"
            )));
        }
        // Fails before the build, not after it.
        let location = Location::open(&url)?;
        let work = match (&args.work, location.dir()) {
            (Some(work), _) => work.clone(),
            (None, Some(dir)) => {
                let (work, url) = (dir.to_owned(), None);
                return Ok(Self { work, url });
            }
            (None, None) => {
                let name = url.trim_end_matches('/').rsplit('/').next();
                PathBuf::from(format!("{}.build", name.unwrap_or_default()))
            }
        };
        if let Some(dir) = location
            .dir()
            .filter(|dir| dir.join(MANIFEST_FILE).exists())
        {
            let dir = dir.to_owned();
            return Err(failure(BuildError::Complete { dir }));
        }
        if location.is_within(&work)? {
            return Err(Failure::Usage(format!(
                "--out is in {}, which is removed after the files were copied: choose another --work",
                work.display()
            )));
        }
        Ok(Self {
            work,
            url: Some(url),
        })
    }
}

/// Removes the directory of a build that was sent, and the link that names it. Gives it another name
/// first, so that no kill leaves a part of a build under its own.
pub(super) fn remove(work: &Path) -> Result<(), Failure> {
    let file = |source| Failure::file("remove", work, source);
    // Without a slash at its end, which would follow a link.
    let work = work.components().collect::<PathBuf>();
    let dir = work.canonicalize().map_err(file)?;
    remove_dir(&dir)?;
    if work.is_symlink() {
        std::fs::remove_file(&work).map_err(file)?;
    }
    Ok(())
}

fn remove_dir(dir: &Path) -> Result<(), Failure> {
    let file = |source| Failure::file("remove", dir, source);
    let is_current = std::env::current_dir().is_ok_and(|current| current == dir);
    if let Some(name) = dir.file_name().filter(|_| !is_current) {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".removed");
        let removed = dir.with_file_name(hidden);
        // What a kill has left of an earlier one.
        match std::fs::remove_dir_all(&removed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file(error)),
            _ => {}
        }
        if std::fs::rename(dir, &removed).is_ok() {
            return std::fs::remove_dir_all(&removed).map_err(file);
        }
    }
    // A mount, or the current directory.
    empty(dir)?;
    if is_current {
        return Ok(());
    }
    if let Err(error) = std::fs::remove_dir(dir) {
        note(format_args!(
            "{} is empty and stays: {error}",
            dir.display()
        ));
    }
    Ok(())
}

/// Removes the content of a directory, the journal and the manifest first and the plan last. If a kill
/// interrupts it, a repeated command finds a plan without a journal, and builds again.
fn empty(dir: &Path) -> Result<(), Failure> {
    let file = |source| Failure::file("remove", dir, source);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(file)? {
        entries.push(entry.map_err(file)?.path());
    }
    entries.sort_by_key(|path| match path.file_name().and_then(OsStr::to_str) {
        Some("journal.ndjson") => 0,
        Some(MANIFEST_FILE) => 1,
        Some("plan.json") => 3,
        Some("lock") => 4,
        _ => 2,
    });
    for path in entries {
        let removed = if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        removed.map_err(|source| Failure::file("remove", &path, source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    fn places(out: &str, work: Option<&str>) -> Result<Places, Failure> {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: Args,
        }
        let work = work.iter().flat_map(|work| ["--work", work]);
        let line = ["build", "--from", "rows.csv", "--out", out].into_iter();
        let command = <Command as clap::Parser>::try_parse_from(line.chain(work));
        Places::of(&command.unwrap().args)
    }

    #[test]
    fn the_result_is_never_removed_with_the_work() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("{}/{name}", dir.path().display());
        std::fs::create_dir(path("real")).unwrap();
        std::os::unix::fs::symlink(path("real"), path("link")).unwrap();
        for (out, work) in [
            ("gen", "gen"),
            ("gen", "./gen/"),
            ("w/out", "w"),
            ("real/gen", "link"),
            ("link/gen", "real/../real"),
        ] {
            for out in [path(out), format!("file://{}", path(out))] {
                let refused = places(&out, Some(&path(work))).err().unwrap();
                assert_eq!(refused.code(), Code::Usage, "{out} {work}: {refused}");
            }
        }
        let places = places(&path("my gen#3"), Some(&path("my gen#3.build"))).unwrap();
        let url = Location::open(&places.url.unwrap()).unwrap();
        assert_eq!(url.dir(), Some(dir.path().join("my gen#3").as_path()));
    }

    #[test]
    fn a_url_of_a_directory_names_the_directory() {
        assert_eq!(
            places("file:///my%20gen", None).unwrap().work,
            Path::new("/my gen")
        );
        for wrong in [
            "file://nas/gen",
            "file:///gen#3",
            "ftp://host/gen",
            "s3://b/gen.json/",
        ] {
            let refused = places(wrong, None).err().unwrap();
            assert_eq!(refused.code(), Code::Usage, "{wrong}: {refused}");
        }
    }

    #[test]
    fn the_directory_of_a_build_is_removed_with_what_a_kill_left_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(".work.removed");
        let work = dir.path().join("work");
        for dir in [&left, &work.join("runs")] {
            std::fs::create_dir_all(dir).unwrap();
            std::fs::write(dir.join("file"), "").unwrap();
        }
        remove(&work).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::create_dir_all(work.join("runs")).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&work, &link).unwrap();
        remove(&link.join("")).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::create_dir_all(work.join("runs")).unwrap();
        std::fs::write(work.join("plan.json"), "").unwrap();
        empty(&work).unwrap();
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
    }
}
