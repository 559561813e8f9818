//! gRPC calls whose bytes are chosen freely, on connections that many calls may share.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use rustls::ClientConfig;
use tokio::task::JoinHandle;
use tonic::Code;

use super::connect::{Stream, connect, connect_with};
use super::outcome::Outcome;

/// The beginning of rustls's text for an alert of the node.
const ALERT: &str = "received fatal alert: ";
/// Limit on the bytes read of an answer.
const MOST_READ: usize = 8 << 20;
/// Data in flight when a call is abandoned may still arrive.
const WINDOW: u32 = 1 << 20;
const OPENING: Duration = Duration::from_secs(5);

pub(crate) type Headers = Vec<(String, String)>;

/// A whole call. Cloning it shares the body.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) to: SocketAddr,
    path: Arc<str>,
    headers: Headers,
    body: Bytes,
    answers: Option<usize>,
}

impl Call {
    pub(crate) fn new(
        to: SocketAddr,
        path: impl Into<Arc<str>>,
        headers: Headers,
        body: Bytes,
    ) -> Self {
        Self {
            to,
            path: path.into(),
            headers,
            body,
            answers: None,
        }
    }

    /// An answer must have exactly this many messages.
    pub(crate) const fn with_answers(mut self, count: usize) -> Self {
        self.answers = Some(count);
        self
    }

    /// The length of the request's body, bytes.
    pub(crate) const fn len(&self) -> usize {
        self.body.len()
    }

    /// Makes the call.
    pub(crate) async fn on(self, connection: &Connection) -> Outcome {
        let answer = connection.call(&self.path, &self.headers, self.body).await;
        match self.answers {
            Some(count) if answer.outcome == Outcome::Grpc(Code::Ok) => {
                let answered = answer.messages().len();
                if answered == count {
                    return answer.outcome;
                }
                Outcome::Wrong(format!("{answered} answers to {count} operations"))
            }
            _ => answer.outcome,
        }
    }
}

/// How a call ended, and the messages of its answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    messages: Bytes,
}

impl Answer {
    const fn bare(outcome: Outcome) -> Self {
        Self {
            outcome,
            messages: Bytes::new(),
        }
    }

    /// The first message, if the call was answered with one.
    pub(crate) fn message<M: prost::Message + Default>(&self) -> Option<M> {
        M::decode(self.messages().first()?.clone()).ok()
    }

    /// The messages of the answer, undecoded.
    pub(crate) fn messages(&self) -> Vec<Bytes> {
        let mut rest = self.messages.clone();
        let mut messages = Vec::new();
        while rest.len() >= 5 {
            let len = rest[1..5]
                .iter()
                .fold(0, |len, byte| len << 8 | usize::from(*byte));
            let mut message = rest.split_off(5.min(rest.len()));
            rest = message.split_off(len.min(message.len()));
            messages.push(message);
        }
        messages
    }
}

/// A message with its head, as encoded in a request.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.len());
    bytes.put_u8(0);
    bytes.put_u32(message.len() as u32);
    bytes.put_slice(message);
    bytes.freeze()
}

pub(crate) fn framed_message(message: &impl prost::Message) -> Bytes {
    framed(&message.encode_to_vec())
}

/// A connection; dropping it closes it.
pub(crate) struct Connection {
    sender: SendRequest<Bytes>,
    to: SocketAddr,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub(crate) async fn open(to: SocketAddr) -> Result<Self, Outcome> {
        Self::with_window(to, WINDOW).await
    }

    /// A connection whose streams may receive this many unread bytes.
    pub(crate) async fn with_window(to: SocketAddr, window: u32) -> Result<Self, Outcome> {
        let stream = connect(to).await.map_err(|error| of_io(&error))?;
        Self::on(stream, to, window).await
    }

    /// A connection with this configuration of TLS, or in plain text.
    pub(crate) async fn open_with(
        to: SocketAddr,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, Outcome> {
        let stream = connect_with(to, tls).await.map_err(|error| of_io(&error))?;
        Self::on(stream, to, WINDOW).await
    }

    async fn on(stream: Stream, to: SocketAddr, window: u32) -> Result<Self, Outcome> {
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(window)
            .initial_connection_window_size(64 << 20)
            .max_concurrent_reset_streams(10_000);
        let shaken = tokio::time::timeout(OPENING, builder.handshake(stream)).await;
        let shaken = shaken.map_err(|_| Outcome::Silent)?;
        let (sender, connection) = shaken.map_err(|error| of_h2(&error))?;
        let driver = tokio::spawn(async move {
            // Its streams report how it ends.
            let _ = connection.await;
        });
        Ok(Self { sender, to, driver })
    }

    /// Starts a call without sending the request's body.
    pub(crate) async fn begin(
        &self,
        path: &str,
        headers: &Headers,
        is_all: bool,
    ) -> Result<(h2::client::ResponseFuture, SendStream<Bytes>), Outcome> {
        let mut request = http::Request::post(format!("http://{}{path}", self.to));
        let names_type = headers.iter().any(|(name, _)| name == "content-type");
        if !names_type {
            request = request.header("content-type", "application/grpc");
        }
        request = request.header("te", "trailers");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request
            .body(())
            .map_err(|error| Outcome::Wrong(format!("no request: {error}")))?;
        let ready = self.sender.clone().ready().await;
        let mut ready = ready.map_err(|error| of_h2(&error))?;
        ready
            .send_request(request, is_all)
            .map_err(|error| of_h2(&error))
    }

    /// Makes a whole call.
    pub(crate) async fn call(&self, path: &str, headers: &Headers, body: Bytes) -> Answer {
        let (response, stream) = match self.begin(path, headers, false).await {
            Ok(begun) => begun,
            Err(outcome) => return Answer::bare(outcome),
        };
        // A node may answer before it has read the whole request.
        let writing = write(stream, body);
        let reading = read(response);
        tokio::pin!(writing, reading);
        tokio::select! {
            answer = &mut reading => answer,
            _ = &mut writing => reading.await,
        }
    }
}

/// Sends the whole body as the node's window allows, and ends the request.
async fn write(mut stream: SendStream<Bytes>, body: Bytes) -> Result<(), h2::Error> {
    push(&mut stream, body).await?;
    stream.send_data(Bytes::new(), true)
}

/// Sends all bytes.
pub(crate) async fn push(stream: &mut SendStream<Bytes>, mut body: Bytes) -> Result<(), h2::Error> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let granted = futures::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let Some(granted) = granted else {
            return Err(h2::Reason::CANCEL.into());
        };
        let granted = granted?.min(body.len());
        if granted > 0 {
            stream.send_data(body.split_to(granted), false)?;
        }
    }
    Ok(())
}

/// Reads an answer to its end.
pub(crate) async fn read(response: h2::client::ResponseFuture) -> Answer {
    let response = match response.await {
        Ok(response) => response,
        Err(error) => return Answer::bare(of_h2(&error)),
    };
    let status = response.status().as_u16();
    if status != 200 {
        return Answer::bare(Outcome::Http(status, 1));
    }
    let of_headers = code(response.headers());
    // A node never does this on purpose, so the message shows the source.
    if of_headers == Some(Code::Unknown) {
        let said = response.headers().get("grpc-message");
        let said = said.map_or("nothing".into(), |said| {
            String::from_utf8_lossy(said.as_bytes())
        });
        return Answer::bare(Outcome::Wrong(format!("Unknown: {said}")));
    }
    let mut messages = BytesMut::new();
    let mut body = response.into_body();
    let outcome = match read_body(&mut body, &mut messages).await {
        Ok(of_trailers) => match of_trailers.or(of_headers) {
            Some(code) => Outcome::Grpc(code),
            None if messages.len() >= MOST_READ => Outcome::Grpc(Code::Ok),
            None => Outcome::Wrong("an answer without a status".to_owned()),
        },
        // A proper refusal may be followed by a reset.
        Err(error) => of_headers.map_or_else(|| of_h2(&error), Outcome::Grpc),
    };
    Answer {
        outcome,
        messages: messages.freeze(),
    }
}

async fn read_body(body: &mut RecvStream, into: &mut BytesMut) -> Result<Option<Code>, h2::Error> {
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        into.extend_from_slice(&data);
        if into.len() >= MOST_READ {
            return Ok(None);
        }
    }
    let trailers = body.trailers().await?;
    Ok(trailers.as_ref().and_then(code))
}

fn code(headers: &http::HeaderMap) -> Option<Code> {
    let code = headers.get("grpc-status")?;
    Some(Code::from_bytes(code.as_bytes()))
}

/// The outcome of an HTTP/2 error.
pub(crate) fn of_h2(error: &h2::Error) -> Outcome {
    if let Some(error) = error.get_io() {
        return of_io(error);
    }
    match error.reason() {
        Some(reason) if error.is_go_away() => Outcome::GoAway(reason.into()),
        Some(reason) => Outcome::Reset(reason.into()),
        None => Outcome::Wrong(error.to_string()),
    }
}

pub(crate) fn of_io(error: &io::Error) -> Outcome {
    let cause = error.get_ref();
    let cause = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let is_plain_text = matches!(cause, Some(rustls::Error::InvalidMessage(_)));
    // Both end the connection. HTTP/2 keeps only the text of an alert.
    if is_plain_text || error.to_string().starts_with(ALERT) {
        return Outcome::Closed;
    }
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => Outcome::Closed,
        io::ErrorKind::TimedOut => Outcome::Silent,
        _ => Outcome::Wrong(error.to_string()),
    }
}
