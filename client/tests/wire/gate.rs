//! A TCP proxy in front of a node, whose connections can be cut and refused.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};

type Pipes = Arc<Mutex<Vec<AbortHandle>>>;

pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    upstream: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
    pipes: Pipes,
    /// Bound and never listening: while the gate is closed, the port refuses connections and no
    /// other process gets it.
    _reserved: TcpSocket,
}

impl Gate {
    pub(crate) fn closed(upstream: SocketAddr) -> Self {
        let reserved = TcpSocket::new_v4().unwrap();
        reserved.set_reuseaddr(true).unwrap();
        reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self {
            address: reserved.local_addr().unwrap(),
            upstream,
            accepting: Mutex::default(),
            pipes: Pipes::default(),
            _reserved: reserved,
        }
    }

    pub(crate) async fn open(&self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let accepting = tokio::spawn(accept(listener, self.upstream, Arc::clone(&self.pipes)));
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

    /// Cuts every connection, whatever is on it.
    pub(crate) fn cut(&self) {
        for pipe in self.pipes.lock().unwrap().drain(..) {
            pipe.abort();
        }
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, pipes: Pipes) {
    loop {
        let (downstream, _) = listener.accept().await.unwrap();
        let pipe = tokio::spawn(pipe(downstream, upstream));
        pipes.lock().unwrap().push(pipe.abort_handle());
    }
}

async fn pipe(mut downstream: TcpStream, upstream: SocketAddr) {
    let mut upstream = TcpStream::connect(upstream).await.unwrap();
    downstream.set_nodelay(true).unwrap();
    upstream.set_nodelay(true).unwrap();
    // In any case, both ends are closed.
    let _ = copy_bidirectional(&mut downstream, &mut upstream).await;
}
