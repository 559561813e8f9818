//! A TCP proxy in front of a node, whose connections can be cut, held and refused.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

type Pipes = Arc<Mutex<Vec<AbortHandle>>>;

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    upstream: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
    pipes: Pipes,
    /// Whether new connections are accepted and pass nothing on.
    held: watch::Sender<bool>,
    /// Bound and never listening: while the proxy is closed, the port refuses connections and no
    /// other process gets it.
    _reserved: TcpSocket,
}

impl Proxy {
    pub(crate) fn closed(upstream: SocketAddr) -> Self {
        let reserved = TcpSocket::new_v4().unwrap();
        reserved.set_reuseaddr(true).unwrap();
        reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self {
            address: reserved.local_addr().unwrap(),
            upstream,
            accepting: Mutex::default(),
            pipes: Pipes::default(),
            held: watch::Sender::new(false),
            _reserved: reserved,
        }
    }

    pub(crate) async fn open(&self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let accepting = tokio::spawn(accept(
            listener,
            self.upstream,
            Arc::clone(&self.pipes),
            self.held.subscribe(),
        ));
        *self.accepting.lock().unwrap() = Some(accepting);
    }

    /// Refuses new connections and cuts the existing ones.
    pub(crate) async fn close(&self) {
        let accepting = self.accepting.lock().unwrap().take();
        if let Some(accepting) = accepting {
            accepting.abort();
            assert!(accepting.await.unwrap_err().is_cancelled());
        }
        self.cut();
    }

    /// Cuts every connection. New ones pass nothing on until they are released, as those of a
    /// process that is stopped.
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
        self.cut();
    }

    pub(crate) fn release(&self) {
        self.held.send_replace(false);
    }

    /// Cuts every connection, whatever is on it.
    pub(crate) fn cut(&self) {
        for pipe in self.pipes.lock().unwrap().drain(..) {
            pipe.abort();
        }
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    pipes: Pipes,
    held: watch::Receiver<bool>,
) {
    loop {
        let (downstream, _) = listener.accept().await.unwrap();
        let pipe = tokio::spawn(pipe(downstream, upstream, held.clone()));
        pipes.lock().unwrap().push(pipe.abort_handle());
    }
}

async fn pipe(mut downstream: TcpStream, upstream: SocketAddr, mut held: watch::Receiver<bool>) {
    held.wait_for(|is_held| !is_held).await.unwrap();
    let mut upstream = TcpStream::connect(upstream).await.unwrap();
    downstream.set_nodelay(true).unwrap();
    upstream.set_nodelay(true).unwrap();
    // In any case, both ends are closed.
    let _ = copy_bidirectional(&mut downstream, &mut upstream).await;
}
