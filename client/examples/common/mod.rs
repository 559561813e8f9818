//! Setup that all examples share.

use torc_client::{Client, Error};

pub(crate) type Failure = Box<dyn std::error::Error>;

/// The first node of `kvd playground`.
const PLAYGROUND: &str = "http://127.0.0.1:7401";

/// A client of the cluster that `--endpoint URL,...` or `TORC_ENDPOINTS` names, and the other arguments.
pub(crate) async fn connect() -> Result<(Client, Vec<String>), Error> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut endpoints = std::env::var("TORC_ENDPOINTS").unwrap_or_else(|_| PLAYGROUND.to_owned());
    if arguments.len() >= 2 && arguments[0] == "--endpoint" {
        endpoints = arguments.drain(..2).next_back().unwrap_or(endpoints);
    }
    let client = Client::connect(endpoints.split(',')).await?;
    Ok((client, arguments))
}
