//! An object store that fails, is slow, and answers twice.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
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
    calls: AtomicU64,
}

impl Faulty {
    /// In front of this one.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            calls: AtomicU64::new(0),
        }
    }

    async fn trouble(&self) -> Trouble {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
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
        self.call(|| self.inner.put_opts(location, payload.clone(), opts.clone()))
            .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.call(|| self.inner.put_multipart_opts(location, opts.clone()))
            .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.call(|| self.inner.get_opts(location, options.clone()))
            .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
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
