//! A failed write must not hide what the peer said before it closed the connection.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose failed writes are reported by reading, after all that the peer sent.
///
/// With TLS 1.3 a client may write before the node has refused its certificate. The node's alert
/// is then there to read, but HTTP/2 reports the first error it meets, and drops the connection
/// when that is a write's. So writes to a connection that the peer closed succeed and go nowhere,
/// until reading has ended.
#[derive(Debug)]
pub struct LastWords<S> {
    stream: S,
    failed: Option<io::Error>,
}

impl<S> LastWords<S> {
    pub(crate) const fn of(stream: S) -> Self {
        Self {
            stream,
            failed: None,
        }
    }

    /// Keeps the error of a write for the reader, if the peer has closed the connection.
    fn written<T>(&mut self, result: io::Result<T>, nowhere: T) -> io::Result<T> {
        match result {
            Err(error) if is_closed(&error) => {
                self.failed = Some(error);
                Ok(nowhere)
            }
            result => result,
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

impl<S: AsyncRead + Unpin> AsyncRead for LastWords<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, into));
        let ended = match &read {
            Ok(()) => into.filled().len() == before && into.remaining() > 0,
            Err(error) => is_closed(error) || error.kind() == ErrorKind::UnexpectedEof,
        };
        match self.failed.take_if(|_| ended) {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Ready(read),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LastWords<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.failed.is_some() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        Poll::Ready(self.written(result, bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bytes.iter().map(|part| part.len()).sum();
        if self.failed.is_some() {
            return Poll::Ready(Ok(length));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, bytes));
        Poll::Ready(self.written(result, length))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.failed.is_some() {
            return Poll::Ready(Ok(()));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_flush(context));
        Poll::Ready(self.written(result, ()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
