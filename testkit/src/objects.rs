//! An object store that fails, is slow, and answers twice.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// The request is lost.
    Lost,
    /// The request is carried out, and its answer is lost.
    Unanswered,
    /// The request is carried out twice, as by a client that repeats it; the second answer counts.
    Twice,
    Slow,
}

/// A store in front of another one. What happens to a call depends on its number alone.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    calls: Arc<AtomicU64>,
    failures: AtomicU64,
}

impl Faulty {
    /// In front of this one.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            calls: Arc::default(),
            failures: AtomicU64::new(0),
        }
    }

    /// Calls whose caller was told of a failure, but for deletions and parts of objects.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// All calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    async fn trouble(&self) -> Trouble {
        let trouble = trouble(&self.calls).await;
        if matches!(trouble, Trouble::Lost | Trouble::Unanswered) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        trouble
    }

    async fn call<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        match self.trouble().await {
            Trouble::None | Trouble::Slow => call().await,
            Trouble::Lost => Err(failure()),
            Trouble::Unanswered => {
                let _ = call().await;
                Err(failure())
            }
            Trouble::Twice => {
                let _ = call().await;
                call().await
            }
        }
    }
}

async fn trouble(calls: &AtomicU64) -> Trouble {
    let call = calls.fetch_add(1, Ordering::Relaxed);
    // Spread, so that no sequence of calls has the same trouble each time.
    let spread = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let trouble = match spread % 24 {
        0 => Trouble::Lost,
        1 => Trouble::Unanswered,
        2 | 3 => Trouble::Twice,
        4 => Trouble::Slow,
        _ => Trouble::None,
    };
    if trouble == Trouble::Slow {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    trouble
}

/// The parts of an object. A part is lost, or its answer; a repeated part would be another one.
#[derive(Debug)]
struct FaultyParts {
    inner: Box<dyn MultipartUpload>,
    calls: Arc<AtomicU64>,
}

#[async_trait]
impl MultipartUpload for FaultyParts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, calls) = (self.inner.put_part(data), Arc::clone(&self.calls));
        async move {
            let trouble = trouble(&calls).await;
            if trouble == Trouble::Lost {
                return Err(failure());
            }
            part.await?;
            if trouble == Trouble::Unanswered {
                return Err(failure());
            }
            Ok(())
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        match trouble(&self.calls).await {
            Trouble::Lost => Err(failure()),
            Trouble::Unanswered => {
                self.inner.complete().await?;
                Err(failure())
            }
            _ => self.inner.complete().await,
        }
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

/// A store without conditional writes, where another writer replaces what is written.
#[derive(Debug)]
pub struct Overtaken {
    inner: Arc<dyn ObjectStore>,
    other: Bytes,
}

impl Overtaken {
    /// In front of this one; the other writer writes `other`.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, other: Bytes) -> Self {
        Self { inner, other }
    }
}

impl fmt::Display for Overtaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "overtaken {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Overtaken {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        if opts.mode == PutMode::Create {
            return Err(Error::NotImplemented {
                operation: "conditional puts".to_owned(),
                implementer: self.to_string(),
            });
        }
        let written = self.inner.put_opts(location, payload, opts.clone()).await?;
        let other = self.other.clone().into();
        self.inner.put_opts(location, other, opts).await?;
        Ok(written)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn failure() -> Error {
    Error::Generic {
        store: "faulty",
        source: "the connection was lost".into(),
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let put = self.call(|| self.inner.put_opts(location, payload.clone(), opts.clone()));
        match put.await {
            // S3 answers so if it has just seen another request for the object.
            Err(Error::Generic { .. }) if opts.mode == PutMode::Create => {
                Err(Error::AlreadyExists {
                    path: location.to_string(),
                    source: "conflict".into(),
                })
            }
            put => put,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self
            .call(|| self.inner.put_multipart_opts(location, opts.clone()))
            .await?;
        let calls = Arc::clone(&self.calls);
        Ok(Box::new(FaultyParts { inner, calls }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.call(|| self.inner.get_opts(location, options.clone()))
            .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (inner, calls) = (Arc::clone(&self.inner), Arc::clone(&self.calls));
        locations
            .then(move |location| {
                let (inner, calls) = (Arc::clone(&inner), Arc::clone(&calls));
                async move {
                    let (trouble, location) = (trouble(&calls).await, location?);
                    if trouble == Trouble::Lost {
                        return Err(failure());
                    }
                    inner.delete(&location).await?;
                    match trouble {
                        Trouble::Unanswered => Err(failure()),
                        Trouble::Twice => inner.delete(&location).await.map(|()| location),
                        _ => Ok(location),
                    }
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.trouble().now_or_never() {
            Some(Trouble::Lost | Trouble::Unanswered) => {
                stream::once(async { Err(failure()) }).boxed()
            }
            _ => self.inner.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.call(|| self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.call(|| self.inner.copy_opts(from, to, options.clone()))
            .await
    }
}
