//! Locations of backups.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use tokio::io::AsyncReadExt as _;
use url::Url;

use crate::BackupError;

/// Bytes of a file to send at a time. Object stores need at least 5 MiB.
const PIECE: usize = 8 << 20;

/// A directory (`file:///DIR`), or a prefix in an object store (`s3://BUCKET/PREFIX`, with the feature `s3`).
#[derive(Debug, Clone)]
pub struct Location {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The directory, if it is one.
    dir: Option<PathBuf>,
}

impl Location {
    /// Checks a URL; nothing is read or written yet.
    ///
    /// # Errors
    /// [`BackupError::Url`].
    pub fn open(url: &str) -> Result<Self, BackupError> {
        let wrong = |what: String| BackupError::Url {
            url: without_secrets(url),
            what,
        };
        let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        if parsed.scheme() == "file" {
            let path = parsed.to_file_path();
            let path = path.map_err(|()| wrong("write file:///DIR".to_owned()))?;
            if path.parent().is_none() {
                return Err(wrong(
                    "name a directory for backups, not the root".to_owned(),
                ));
            }
            let prefix = Path::from_absolute_path(&path);
            return Ok(Self {
                store: Arc::new(LocalFileSystem::new().with_fsync(true)),
                prefix: prefix.map_err(|error| wrong(error.to_string()))?,
                dir: Some(path),
            });
        }
        #[cfg(feature = "s3")]
        if parsed.scheme() == "s3" {
            use object_store::aws::AmazonS3Builder;
            // The one provider of this program; it may have been chosen before.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let built = AmazonS3Builder::from_env().with_url(url).build();
            let store = built.map_err(|error| wrong(error.to_string()))?;
            let prefix = Path::from_url_path(parsed.path());
            return Ok(Self {
                store: Arc::new(store),
                prefix: prefix.map_err(|error| wrong(error.to_string()))?,
                dir: None,
            });
        }
        Err(wrong(format!(
            "{}:// is not supported: use file:///DIR{}",
            parsed.scheme(),
            if cfg!(feature = "s3") {
                " or s3://BUCKET/PREFIX"
            } else {
                ", or build with the feature s3"
            }
        )))
    }

    fn path(&self, object: &str) -> Path {
        let prefix = self.prefix.parts().map(|part| part.as_ref().to_owned());
        let parts = prefix.chain(object.split('/').map(str::to_owned));
        parts.collect()
    }

    /// Creates an object. Returns whether it was new.
    pub(crate) async fn create(&self, object: &str, bytes: Bytes) -> Result<bool, BackupError> {
        let options = PutOptions::from(PutMode::Create);
        let path = self.path(object);
        match self.store.put_opts(&path, bytes.into(), options).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(source) => Err(failed("write", object)(source)),
        }
    }

    /// Makes a synced file an object named by its content. A directory on the same file system takes
    /// the file itself; anything else gets a copy. Awaits `pace` for each piece.
    pub(crate) async fn upload<F: Future<Output = ()> + Send>(
        &self,
        object: &str,
        file: &FilePath,
        pace: impl Fn(u64) -> F + Send,
    ) -> Result<(), BackupError> {
        if let Some(dir) = &self.dir {
            let (from, to) = (file.to_owned(), dir.join(object));
            let moved = tokio::task::spawn_blocking(move || move_file(&from, &to)).await;
            // Whatever prevented it: a copy works, or tells why not.
            if let Ok(Ok(mut left)) = moved {
                while left > 0 {
                    let piece = left.min(PIECE as u64);
                    pace(piece).await;
                    left -= piece;
                }
                return Ok(());
            }
        }
        let mut file = tokio::fs::File::open(file)
            .await
            .map_err(BackupError::io("open a pack that was just written"))?;
        let path = self.path(object);
        let upload = self.store.put_multipart(&path).await;
        let mut upload = upload.map_err(failed("write", object))?;
        let sending = async {
            loop {
                let mut piece = Vec::with_capacity(PIECE);
                let read = (&mut file).take(PIECE as u64).read_to_end(&mut piece).await;
                read.map_err(BackupError::io("read a pack that was just written"))?;
                if piece.is_empty() {
                    break;
                }
                pace(piece.len() as u64).await;
                let sent = upload.put_part(piece.into()).await;
                sent.map_err(failed("write", object))?;
            }
            upload.complete().await.map_err(failed("write", object))
        };
        match sending.await {
            Ok(_) => Ok(()),
            Err(error) => {
                // What was sent is of no use; if even this fails, the store collects it.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// The bytes of an object of at most `longest` bytes; `None` if it does not exist.
    pub(crate) async fn read(
        &self,
        object: &str,
        longest: u64,
    ) -> Result<Option<Bytes>, BackupError> {
        let got = match self.store.get(&self.path(object)).await {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(source) => return Err(failed("read", object)(source)),
        };
        if got.meta.size > longest {
            return Err(BackupError::damaged(object, "it is too long"));
        }
        got.bytes().await.map(Some).map_err(failed("read", object))
    }

    /// A part of an object, exactly as long as requested.
    pub(crate) async fn read_range(
        &self,
        object: &str,
        range: Range<u64>,
    ) -> Result<Bytes, BackupError> {
        let wanted = range.end - range.start;
        let got = self.store.get_range(&self.path(object), range).await;
        let bytes = got.map_err(|source| match source {
            Error::NotFound { .. } => BackupError::damaged(object, "it is missing"),
            source => failed("read", object)(source),
        })?;
        if bytes.len() as u64 != wanted {
            return Err(BackupError::damaged(object, "it is cut off"));
        }
        Ok(bytes)
    }

    /// The length of an object; `None` if it does not exist.
    pub(crate) async fn len(&self, object: &str) -> Result<Option<u64>, BackupError> {
        match self.store.head(&self.path(object)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(failed("look for", object)(source)),
        }
    }

    /// The objects below a name, relative to it, each with its length.
    pub(crate) async fn list(&self, below: &str) -> Result<Vec<(String, u64)>, BackupError> {
        let path = self.path(below);
        let listed: Result<Vec<_>, _> = self.store.list(Some(&path)).try_collect().await;
        let listed = match listed {
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            listed => listed.map_err(failed("list", below))?,
        };
        let relative = listed.iter().filter_map(|meta| {
            let parts = meta.location.prefix_match(&path)?;
            let name: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
            Some((name.join("/"), meta.size))
        });
        Ok(relative.collect())
    }

    /// Removes an object, if it exists.
    pub(crate) async fn remove(&self, object: &str) -> Result<(), BackupError> {
        match self.store.delete(&self.path(object)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(failed("remove", object)(source)),
        }
    }
}

/// Moves a synced file durably. Returns its length.
fn move_file(from: &FilePath, to: &FilePath) -> io::Result<u64> {
    let len = fs::metadata(from)?.len();
    let dir = to.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(dir)?;
    fs::rename(from, to)?;
    // Of the directories that were just made, too.
    for dir in dir.ancestors().take(2) {
        File::open(dir)?.sync_all()?;
    }
    Ok(len)
}

fn failed(action: &'static str, object: &str) -> impl FnOnce(Error) -> BackupError {
    let object = object.to_owned();
    move |source| BackupError::Object {
        action,
        object,
        source,
    }
}

/// A URL without user, password and query, safe to print.
fn without_secrets(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        return "the URL".to_owned();
    };
    parsed.set_query(None);
    // Only fails where there is none to remove.
    let _ = parsed.set_password(None);
    let _ = parsed.set_username("");
    parsed.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_directory_takes_the_file_itself_and_anything_else_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let url = Url::from_directory_path(dir.path().join("backups")).unwrap();
        let directory = Location::open(url.as_str()).unwrap();
        let copying = Location {
            dir: None,
            ..directory.clone()
        };
        let content = vec![7; PIECE + 5];
        for (location, is_copied) in [(directory, false), (copying, true)] {
            let file = dir.path().join("file");
            fs::write(&file, &content).unwrap();
            let paced = AtomicU64::new(0);
            let pace = |bytes| {
                paced.fetch_add(bytes, Ordering::Relaxed);
                std::future::ready(())
            };
            let object = format!("packs/copied-{is_copied}");
            location.upload(&object, &file, pace).await.unwrap();
            assert_eq!(file.exists(), is_copied);
            assert_eq!(paced.into_inner(), content.len() as u64);
            let read = location.read(&object, u64::MAX).await.unwrap();
            assert_eq!(read.unwrap(), content);
        }
    }
}
