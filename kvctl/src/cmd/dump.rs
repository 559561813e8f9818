//! `kvctl dump`: writes every record of the namespace, for `load` to read.

use std::io::IsTerminal as _;
use std::pin::pin;

use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use torc_client::{Entry, ScanOptions};

use crate::failure::Failure;
use crate::format::{Format, Row};
use crate::global::Global;
use crate::out::Out;
use crate::text;

/// Write every record of the namespace to standard output.
///
/// `load` reads the output; `kvctl load --help` describes the formats. Records come in
/// ring order: sort two dumps before you compare them. Loading a dump stores the same
/// keys, values and expiry times, but new versions. Each key is read linearizably; the
/// whole is not a snapshot of one moment.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Format of the output.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Ndjson)]
    format: Format,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let bar = spinner(out);
    let mut entries = pin!(client.scan(ScanOptions::default()));
    let mut records = 0;
    out.write(|writer| args.format.write_header(writer))?;
    while let Some(entry) = entries.next().await {
        let row = match entry {
            Ok(entry) => row(entry),
            Err(error) => return Err(incomplete(error.into(), records)),
        };
        out.write(|writer| args.format.write_row(&row, writer))
            .map_err(|failure| incomplete(failure, records))?;
        records += 1;
        if records % 1024 == 0 {
            bar.set_message(text::count(records));
            bar.tick();
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn row(entry: Entry) -> Row {
    Row {
        key: entry.key,
        value: entry.value,
        expires_at_ms: entry.expires_at_ms,
    }
}

fn incomplete(failure: Failure, records: u64) -> Failure {
    let records = text::counted(records, "record");
    failure.after(format!("the dump is incomplete: it has {records}"))
}

/// A spinner, on a terminal that does not show the dump itself.
fn spinner(out: &Out) -> ProgressBar {
    if out.screen().terminal || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} records");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}
