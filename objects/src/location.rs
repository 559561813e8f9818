//! Locations of objects.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Component, Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::{Path, PathPart};
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode};
use tokio::io::AsyncReadExt as _;
use url::Url;

use crate::ObjectError;

/// Bytes of a file to send at a time. Object stores need at least 5 MiB.
const PIECE: usize = 8 << 20;

/// Attempts of a request that only reads, and the pause after the first one, which doubles from attempt to
/// attempt: 1.6 s in all.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(50);

/// A directory (`file:///DIR`), or a prefix in an object store (`s3://BUCKET/PREFIX` with the
/// feature `s3`, `gs://BUCKET/PREFIX` with `gcs`, `az://CONTAINER/PREFIX` with `azure`).
#[derive(Debug, Clone)]
pub struct Location {
    /// Without a slash at its end.
    url: String,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    /// The directory, if it is one.
    dir: Option<PathBuf>,
}

/// The object that [`Location::probe`] writes.
const PROBE: &str = "write-probe";

/// What a URL names.
enum Named {
    Dir(Path, PathBuf),
    /// A bucket, by the scheme of its service.
    Bucket(Path, String),
}

/// Checks the form of a URL, even of a service that this program was built without.
///
/// # Errors
/// [`ObjectError::Url`].
pub fn check_url(url: &str) -> Result<(), ObjectError> {
    named(url).map(drop)
}

fn named(url: &str) -> Result<Named, ObjectError> {
    let wrong = |what: &str| wrong(url, what);
    let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    match parsed.scheme() {
        "file" => {
            let path = parsed.to_file_path();
            let path = path.map_err(|()| wrong("write file:///DIR"))?;
            if parsed.query().is_some() || parsed.fragment().is_some() {
                return Err(wrong("write `?` as %3F and `#` as %23"));
            }
            if path.parent().is_none() {
                return Err(wrong("name a directory, not the root"));
            }
            let prefix = Path::from_absolute_path(&path);
            let prefix = prefix.map_err(|error| wrong(&error.to_string()))?;
            Ok(Named::Dir(prefix, path))
        }
        scheme @ ("s3" | "gs" | "az") => {
            let names_more = !parsed.username().is_empty()
                || parsed.password().is_some()
                || parsed.port().is_some()
                || parsed.query().is_some()
                || parsed.fragment().is_some();
            // The bucket may become a part of a host name.
            let is_bucket = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
            let bucket = parsed.host_str().unwrap_or_default();
            if names_more || bucket.is_empty() || !bucket.bytes().all(is_bucket) {
                let what = format!("write {scheme}://BUCKET/PREFIX and nothing more");
                return Err(wrong(&what));
            }
            let prefix = Path::from_url_path(parsed.path());
            let prefix = prefix.map_err(|error| wrong(&error.to_string()))?;
            Ok(Named::Bucket(prefix, scheme.to_owned()))
        }
        other => Err(wrong(&format!(
            "{other}:// is not supported: use file:///DIR or s3://BUCKET/PREFIX"
        ))),
    }
}

/// The URL of a directory or file, which need not exist.
///
/// # Errors
/// [`ObjectError::Io`]: the current directory is gone.
pub fn url_of(path: &FilePath) -> Result<String, ObjectError> {
    let url = std::path::absolute(path).and_then(|path| {
        Url::from_file_path(path).map_err(|()| io::Error::from(io::ErrorKind::InvalidInput))
    });
    let url = url.map_err(ObjectError::io("find a directory"))?;
    Ok(url.into())
}

/// The path without symbolic links and `..`, whether or not it exists.
fn resolved(path: &FilePath) -> io::Result<PathBuf> {
    let mut real = PathBuf::new();
    for part in std::path::absolute(path)?.components() {
        if part == Component::ParentDir {
            real.pop();
            continue;
        }
        real.push(part);
        match real.canonicalize() {
            Ok(found) => real = found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(real)
}

fn wrong(url: &str, what: &str) -> ObjectError {
    ObjectError::Url {
        url: without_secrets(url),
        what: what.to_owned(),
    }
}

/// The object store of a URL, set up by the environment.
fn service(url: &str, scheme: &str) -> Result<Arc<dyn ObjectStore>, ObjectError> {
    #[cfg(feature = "cloud")]
    {
        // The one provider of this program; it may have been chosen before.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    match scheme {
        #[cfg(feature = "s3")]
        "s3" => {
            let builder = object_store::aws::AmazonS3Builder::from_env().with_url(url);
            built(url, "AWS_", builder.build())
        }
        #[cfg(feature = "gcs")]
        "gs" => {
            let builder = object_store::gcp::GoogleCloudStorageBuilder::from_env().with_url(url);
            built(url, "GOOGLE_", builder.build())
        }
        #[cfg(feature = "azure")]
        "az" => {
            let builder = object_store::azure::MicrosoftAzureBuilder::from_env().with_url(url);
            built(url, "AZURE_", builder.build())
        }
        _ => {
            let feature = match scheme {
                "gs" => "gcs",
                "az" => "azure",
                _ => "s3",
            };
            let what = format!("this program was built without the feature `{feature}`");
            Err(wrong(url, &what))
        }
    }
}

/// Without any variable of the service, the client library would ask the machine's metadata address
/// for credentials. A URL alone must not cause that.
#[cfg(feature = "cloud")]
fn built<S: ObjectStore>(
    url: &str,
    variables: &str,
    store: Result<S, Error>,
) -> Result<Arc<dyn ObjectStore>, ObjectError> {
    let is_set_up = std::env::vars_os().any(|(name, _)| {
        let name = name.to_string_lossy();
        name.starts_with(variables)
    });
    if !is_set_up {
        let what = format!(
            "this process has no {variables}… environment variables: set the credentials, and the region, \
             endpoint or account that the service needs"
        );
        return Err(wrong(url, &what));
    }
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(wrong(url, &crate::error::with_causes(&error))),
    }
}

impl Location {
    /// Checks a URL; nothing is read or written yet.
    ///
    /// # Errors
    /// [`ObjectError::Url`].
    pub fn open(url: &str) -> Result<Self, ObjectError> {
        let own = url.trim_end_matches('/').to_owned();
        Ok(match named(url)? {
            Named::Dir(prefix, dir) => Self {
                url: own,
                store: Arc::new(LocalFileSystem::new().with_fsync(true)),
                prefix,
                dir: Some(dir),
            },
            Named::Bucket(prefix, scheme) => Self {
                url: own,
                store: service(url, &scheme)?,
                prefix,
                dir: None,
            },
        })
    }

    /// The same location behind another store, which may be slow, or fail.
    #[must_use]
    pub fn through(
        &self,
        other: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>,
    ) -> Self {
        Self {
            url: self.url.clone(),
            store: other(Arc::clone(&self.store)),
            prefix: self.prefix.clone(),
            dir: None,
        }
    }

    fn path(&self, object: &str) -> Path {
        // The prefix is in its stored form already.
        let prefix = self.prefix.parts();
        prefix
            .chain(object.split('/').map(PathPart::from))
            .collect()
    }

    /// Its URL, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The directory, if it is one.
    #[must_use]
    pub fn dir(&self) -> Option<&FilePath> {
        self.dir.as_deref()
    }

    /// Whether it is this directory or below it, whatever links lead there.
    ///
    /// # Errors
    /// [`ObjectError::Io`]: a directory on the way cannot be read.
    pub fn is_within(&self, dir: &FilePath) -> Result<bool, ObjectError> {
        let Some(own) = &self.dir else {
            return Ok(false);
        };
        let within = resolved(own).and_then(|own| Ok(own.starts_with(resolved(dir)?)));
        within.map_err(ObjectError::io("find the directory of a location"))
    }

    /// Shows that it can be written: writes a small object, and removes it. Who may write but not remove leaves it
    /// there, under one name for all.
    ///
    /// # Errors
    /// [`ObjectError::Object`]: nothing but this object may have been written.
    pub async fn probe(&self) -> Result<(), ObjectError> {
        let written = self.store.put(&self.path(PROBE), "torc\n".into()).await;
        written.map_err(failed("write", PROBE))?;
        let _ = self.remove(PROBE).await;
        Ok(())
    }

    /// Creates an object. Returns whether it now has these bytes; otherwise another writer has
    /// created it.
    ///
    /// If the answer is lost, a repeated request finds the object there, as if another writer had
    /// created it. So the object is read back. Some stores know no conditional writes: there, two
    /// writers that create an object at the same moment may both be told that it has their bytes.
    ///
    /// # Errors
    /// [`ObjectError::Object`]: it may have been created.
    pub async fn create(&self, object: &str, bytes: Bytes) -> Result<bool, ObjectError> {
        let path = self.path(object);
        let put = |mode: PutMode| {
            let (bytes, path) = (bytes.clone(), path.clone());
            async move { self.store.put_opts(&path, bytes.into(), mode.into()).await }
        };
        let failure = match put(PutMode::Create).await {
            Ok(_) => return Ok(true),
            Err(Error::NotImplemented { .. }) => match self.len(object).await? {
                Some(_) => None,
                None => put(PutMode::Overwrite).await.err(),
            },
            Err(error) => Some(error),
        };
        match (self.read(object, bytes.len() as u64).await, failure) {
            (Ok(Some(stored)), _) if stored == bytes => Ok(true),
            (Ok(None), None) => Err(ObjectError::damaged(object, "it is gone again")),
            (
                Ok(Some(_)) | Err(ObjectError::Damaged { .. }),
                None | Some(Error::AlreadyExists { .. }),
            ) => Ok(false),
            (Err(error), None | Some(Error::AlreadyExists { .. })) => Err(error),
            // A store may also say that it exists because two requests met, and neither created it.
            (_, Some(source)) => Err(failed("write", object)(source)),
        }
    }

    /// Makes a synced file an object named by its content. A directory on the same file system takes
    /// the file itself; anything else gets a copy. Awaits `pace` before it writes each piece of a copy.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub async fn hand_over<F: Future<Output = ()> + Send>(
        &self,
        object: &str,
        file: &FilePath,
        pace: impl Fn(u64) -> F + Send,
    ) -> Result<(), ObjectError> {
        if let Some(dir) = &self.dir {
            let (from, to) = (file.to_owned(), dir.join(object));
            let moved = tokio::task::spawn_blocking(move || move_file(&from, &to)).await;
            let moved = moved.unwrap_or_else(|error| Err(io::Error::other(error)));
            let moved = moved.map_err(ObjectError::io("move a file to its location"))?;
            // Whatever prevented it: a copy works, or tells why not.
            if moved {
                return Ok(());
            }
        }
        self.upload(object, file, pace).await.map(drop)
    }

    /// Writes a file as an object named by its content, unless one of its length is there. Returns
    /// whether it was sent. Awaits `pace` before it sends each piece.
    ///
    /// # Errors
    /// [`ObjectError::Object`], [`ObjectError::Io`].
    pub async fn upload<F: Future<Output = ()> + Send>(
        &self,
        object: &str,
        file: &FilePath,
        pace: impl Fn(u64) -> F + Send,
    ) -> Result<bool, ObjectError> {
        let (mut file, len) = opened(file).await?;
        if self.len(object).await? == Some(len) {
            return Ok(false);
        }
        match self.send(object, &mut file, len, pace).await {
            Ok(()) => Ok(true),
            // If only the answer was lost, the object is there.
            Err(_) if self.len(object).await.is_ok_and(|found| found == Some(len)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Writes a file as an object, whatever is there. Meanwhile readers find what was there before.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub async fn replace<F: Future<Output = ()> + Send>(
        &self,
        object: &str,
        file: &FilePath,
        pace: impl Fn(u64) -> F + Send,
    ) -> Result<(), ObjectError> {
        let (mut file, len) = opened(file).await?;
        self.send(object, &mut file, len, pace).await
    }

    async fn send<F: Future<Output = ()> + Send>(
        &self,
        object: &str,
        file: &mut tokio::fs::File,
        len: u64,
        pace: impl Fn(u64) -> F + Send,
    ) -> Result<(), ObjectError> {
        let path = self.path(object);
        if len <= PIECE as u64 {
            let bytes = piece(file).await?;
            check_len(bytes.len() as u64, len)?;
            pace(len).await;
            let sent = self.store.put(&path, bytes.into()).await;
            return sent.map(drop).map_err(failed("write", object));
        }
        let upload = self.store.put_multipart(&path).await;
        let mut upload = upload.map_err(failed("write", object))?;
        let sending = async {
            let mut total = 0;
            loop {
                let bytes = piece(file).await?;
                if bytes.is_empty() {
                    break;
                }
                total += bytes.len() as u64;
                pace(bytes.len() as u64).await;
                let sent = upload.put_part(bytes.into()).await;
                sent.map_err(failed("write", object))?;
            }
            check_len(total, len)?;
            upload.complete().await.map_err(failed("write", object))
        };
        match sending.await {
            Ok(_) => Ok(()),
            Err(error) => {
                // What was sent is of no use. If even this fails, it stays until a rule of the bucket
                // removes it.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Repeats what only reads while an object store fails, because it may cut its answers off. What the
    /// disk cannot read now, it cannot read later.
    pub(crate) async fn retried<'a, T>(
        &'a self,
        read: impl Fn() -> BoxFuture<'a, Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match read().await {
                Err(Error::Generic { .. } | Error::JoinError { .. }) if self.dir.is_none() => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                done => return done,
            }
        }
        read().await
    }

    /// The bytes of an object of at most `longest` bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ObjectError::Damaged`]: it is longer. [`ObjectError::Object`].
    pub async fn read(&self, object: &str, longest: u64) -> Result<Option<Bytes>, ObjectError> {
        let path = self.path(object);
        let read = self.retried(|| {
            let path = path.clone();
            Box::pin(async move {
                let got = self.store.get(&path).await?;
                if got.meta.size > longest {
                    return Ok(None);
                }
                got.bytes().await.map(Some)
            })
        });
        match read.await {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) => Err(ObjectError::damaged(object, "it is too long")),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(failed("read", object)(source)),
        }
    }

    /// A part of an object, exactly as long as requested.
    ///
    /// # Errors
    /// [`ObjectError::Damaged`]: it is missing or shorter. [`ObjectError::Object`].
    pub async fn read_range(&self, object: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let wanted = range.end.saturating_sub(range.start);
        let cut_off = || ObjectError::damaged(object, "it is cut off");
        let path = self.path(object);
        let read = self.retried(|| {
            let (path, range) = (path.clone(), range.clone());
            Box::pin(async move {
                let read = self.store.get_range(&path, range.clone()).await;
                let Err(error) = read else {
                    return read.map(Some);
                };
                // Stores do not say in one way that a range is not there.
                match self.store.head(&path).await {
                    Ok(meta) if meta.size < range.end => Ok(None),
                    _ => Err(error),
                }
            })
        });
        match read.await {
            Ok(Some(bytes)) if bytes.len() as u64 == wanted => Ok(bytes),
            Ok(_) => Err(cut_off()),
            Err(Error::NotFound { .. }) => Err(ObjectError::damaged(object, "it is missing")),
            Err(source) => Err(failed("read", object)(source)),
        }
    }

    /// The length of an object; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ObjectError::Object`].
    pub async fn len(&self, object: &str) -> Result<Option<u64>, ObjectError> {
        let path = self.path(object);
        match self
            .retried(|| {
                let path = path.clone();
                Box::pin(async move { self.store.head(&path).await })
            })
            .await
        {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(failed("look for", object)(source)),
        }
    }

    /// The objects at all depths below a name, relative to it, each with its length.
    ///
    /// # Errors
    /// [`ObjectError::Object`].
    pub async fn list(&self, below: &str) -> Result<Vec<(String, u64)>, ObjectError> {
        let path = self.path(below);
        let list = || -> BoxFuture<'_, Result<Vec<_>, Error>> {
            self.store.list(Some(&path)).try_collect().boxed()
        };
        let listed = match self.retried(list).await {
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            listed => listed.map_err(failed("list", path.as_ref()))?,
        };
        let named = |meta: &ObjectMeta| Some((relative(&meta.location, &path)?, meta.size));
        Ok(listed.iter().filter_map(named).collect())
    }

    /// The names of the objects that are not below another name. Reads no directory below.
    ///
    /// # Errors
    /// [`ObjectError::Object`].
    pub async fn names(&self) -> Result<Vec<String>, ObjectError> {
        let path = &self.prefix;
        let list = || -> BoxFuture<'_, _> { self.store.list_with_delimiter(Some(path)) };
        let listed = match self.retried(list).await {
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            listed => listed.map_err(failed("list", path.as_ref()))?,
        };
        let objects = listed.objects.iter();
        Ok(objects
            .filter_map(|meta| relative(&meta.location, path))
            .collect())
    }

    /// Removes an object, if it exists.
    ///
    /// # Errors
    /// [`ObjectError::Object`].
    pub async fn remove(&self, object: &str) -> Result<(), ObjectError> {
        match self.store.delete(&self.path(object)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(failed("remove", object)(source)),
        }
    }
}

/// Moves a synced file durably. Returns false if it is where it was.
fn move_file(from: &FilePath, to: &FilePath) -> io::Result<bool> {
    let dir = to.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let moved = fs::create_dir_all(dir).and_then(|()| fs::rename(from, to));
    if moved.is_err() {
        return Ok(false);
    }
    // Of the directories that were just made, too.
    for dir in dir.ancestors().take(2) {
        File::open(dir)?.sync_all()?;
    }
    Ok(true)
}

fn check_len(read: u64, len: u64) -> Result<(), ObjectError> {
    if read == len {
        return Ok(());
    }
    let what = format!("the file changed from {len} to {read} bytes while being sent");
    Err(ObjectError::io("send a file that changes")(
        io::Error::other(what),
    ))
}

/// A file to send, and its length.
async fn opened(file: &FilePath) -> Result<(tokio::fs::File, u64), ObjectError> {
    let file = tokio::fs::File::open(file).await;
    let file = file.map_err(ObjectError::io("open a file to send"))?;
    let len = file.metadata().await;
    let len = len.map_err(ObjectError::io("read a file to send"))?.len();
    Ok((file, len))
}

/// The next piece of a file; empty at its end.
async fn piece(file: &mut tokio::fs::File) -> Result<Bytes, ObjectError> {
    let mut piece = Vec::new();
    let read = file.take(PIECE as u64).read_to_end(&mut piece).await;
    read.map_err(ObjectError::io("read a file to send"))?;
    Ok(piece.into())
}

/// The name of an object below a path.
pub(crate) fn relative(object: &Path, below: &Path) -> Option<String> {
    let parts = object.prefix_match(below)?;
    let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
    Some(parts.join("/"))
}

pub(crate) fn failed(action: &'static str, object: &str) -> impl FnOnce(Error) -> ObjectError {
    let object = object.to_owned();
    move |source| ObjectError::Object {
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
    parsed.set_fragment(None);
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
        let url = Url::from_directory_path(dir.path().join("objects")).unwrap();
        let directory = Location::open(url.as_str()).unwrap();
        let copying = directory.through(|store| store);
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
            location.hand_over(&object, &file, pace).await.unwrap();
            assert_eq!(file.exists(), is_copied);
            let sent = if is_copied { content.len() } else { 0 };
            assert_eq!(
                paced.into_inner(),
                sent as u64,
                "a moved file is not written"
            );
            let read = location.read(&object, u64::MAX).await.unwrap();
            assert_eq!(read.unwrap(), content);
        }
    }

    #[test]
    fn a_file_is_moved_or_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (from, taken) = (dir.path().join("from"), dir.path().join("taken"));
        fs::write(&from, "content").unwrap();
        fs::write(&taken, "a file, not a directory").unwrap();
        let moved = move_file(&from, &taken.join("to")).unwrap();
        assert_eq!((moved, from.exists()), (false, true));
        let moved = move_file(&from, &dir.path().join("new/to")).unwrap();
        assert_eq!((moved, from.exists()), (true, false));
    }

    #[tokio::test]
    async fn a_file_that_changes_meanwhile_is_not_sent() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::open(&url_of(&dir.path().join("objects")).unwrap()).unwrap();
        let path = dir.path().join("file");
        for (had, has) in [(100, 99), (PIECE + 5, PIECE + 4), (PIECE + 5, PIECE + 6)] {
            fs::write(&path, vec![7; has]).unwrap();
            let mut file = tokio::fs::File::open(&path).await.unwrap();
            let sent = location.send("object", &mut file, had as u64, |_| std::future::ready(()));
            let refused = sent.await.unwrap_err();
            assert!(matches!(refused, ObjectError::Io { .. }), "{refused}");
            assert_eq!(location.len("object").await.unwrap(), None);
        }
    }
}
