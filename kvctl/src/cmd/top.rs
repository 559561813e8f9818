//! `kvctl top`: shows live what the cluster does, on a terminal.

mod frame;
mod screen;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, channel, unbounded_channel};
use torc_client::{Client, Error, HotKeysOptions};

use crate::args::positive_duration;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::progress::ProgressRate;
use crate::text;
use frame::{Column, Frame};
use screen::View;

/// Time span of the chart of requests.
const PAST: Duration = Duration::from_secs(15 * 60);
const HOT_KEYS: u32 = 10;
/// How often the keyboard's reader checks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Show live what the cluster does: requests, latencies, nodes, changes, hot keys.
///
/// Figures cover each node's last five seconds; a percentile is at most twice too high. Press `q`
/// to quit, the left and right arrows to sort by another column, `r` to reverse the order.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Time between updates.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = positive_duration)]
    every: Duration,
    /// Sort the nodes by this column.
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Column::Node)]
    sort: Column,
    /// Reverse the order.
    #[arg(long)]
    reverse: bool,
    /// Print one frame as text and exit. Default if standard output is not a terminal.
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    if !args.once && !global.json() && out.screen().terminal {
        return watch(&args, &client).await;
    }
    loop {
        let frame = look(&client).await?;
        if global.json() {
            out.json(&frame)?;
        } else {
            out.line(frame.text(args.sort, args.reverse))?;
        }
        if args.once || !global.json() {
            return Ok(());
        }
        out.flush()?;
        tokio::time::sleep(args.every).await;
    }
}

async fn look(client: &Client) -> Result<Frame, Error> {
    let options = HotKeysOptions {
        top: Some(HOT_KEYS),
        ..HotKeysOptions::default()
    };
    let (status, hot) = tokio::join!(client.status_with_load(PAST), client.hot_keys(options));
    // Show the rest even if nodes do not count accesses.
    Ok(Frame::of(status?, hot, text::now_ms()))
}

async fn watch(args: &Args, client: &Client) -> Result<(), Failure> {
    // Installed before the terminal changes, so that it is always restored.
    let signal = |kind| unix::signal(kind).map_err(Failure::Runtime);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let watched = match ratatui::try_init() {
        Ok(mut terminal) => tokio::select! {
            watched = watch_on(&mut terminal, args, client) => watched,
            _ = terminate.recv() => Err(Failure::Interrupted),
            _ = hang_up.recv() => Err(Failure::Interrupted),
        },
        // It may have changed already.
        Err(error) => Err(Failure::Stdout(error)),
    };
    ratatui::restore();
    watched
}

async fn watch_on(
    terminal: &mut DefaultTerminal,
    args: &Args,
    client: &Client,
) -> Result<(), Failure> {
    let (started, mut keys) = (Instant::now(), keyboard());
    let mut view = View {
        sort: args.sort,
        reverse: args.reverse,
        rate: ProgressRate::default(),
        problem: None,
    };
    let mut frame = None;
    let mut looks = looks(client.clone(), args.every);
    loop {
        let drawing = terminal.draw(|canvas| screen::draw(canvas, frame.as_ref(), &view));
        drawing.map_err(Failure::Stdout)?;
        tokio::select! {
            Some(event) = keys.recv() => match event {
                Ok(Event::Key(key)) if !obey(key, &mut view) => return Ok(()),
                Ok(_) => {}
                Err(source) => {
                    let path = Path::new("the terminal");
                    return Err(Failure::file("read keys from", path, source));
                }
            },
            Some(looked) = looks.recv() => match looked {
                Ok(seen) => {
                    match &seen.status.transition {
                        Some(running) => view.rate.note(started.elapsed(), running),
                        None => view.rate = ProgressRate::default(),
                    }
                    view.problem = None;
                    frame = Some(seen);
                }
                Err(error) => view.problem = Some(Failure::from(error).line()),
            },
        }
    }
}

/// Fetches one frame after the other, independent of the keyboard.
fn looks(client: Client, every: Duration) -> Receiver<Result<Frame, Error>> {
    let (sender, receiver) = channel(1);
    tokio::spawn(async move {
        while sender.send(look(&client).await).await.is_ok() {
            tokio::time::sleep(every).await;
        }
    });
    receiver
}

/// Handles a key. `false`: quit.
fn obey(key: KeyEvent, view: &mut View) -> bool {
    if key.kind == KeyEventKind::Release {
        return true;
    }
    let count = Column::ALL.len();
    let at = Column::ALL.iter().position(|column| *column == view.sort);
    let at = at.unwrap_or(0);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('r') => view.reverse = !view.reverse,
        KeyCode::Right => view.sort = Column::ALL[(at + 1) % count],
        KeyCode::Left => view.sort = Column::ALL[(at + count - 1) % count],
        _ => {}
    }
    true
}

/// Keyboard events. A thread reads the terminal and ends after an error, or when the receiver is
/// gone.
fn keyboard() -> UnboundedReceiver<io::Result<Event>> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let read = match event::poll(LOOK_EVERY) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let is_over = read.is_err();
            if sender.send(read).is_err() || is_over {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_reverse_and_end() {
        let mut view = View {
            sort: Column::Node,
            reverse: false,
            rate: ProgressRate::default(),
            problem: None,
        };
        let press = |code, view: &mut View| obey(KeyEvent::from(code), view);
        assert!(press(KeyCode::Left, &mut view));
        assert_eq!(view.sort, Column::FreeDisk, "the columns are a circle");
        assert!(press(KeyCode::Right, &mut view) && press(KeyCode::Right, &mut view));
        assert_eq!(view.sort, Column::Zone);
        assert!(press(KeyCode::Char('r'), &mut view) && view.reverse);
        assert!(press(KeyCode::Char('x'), &mut view));
        assert!(!press(KeyCode::Char('q'), &mut view));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!obey(interrupt, &mut view));
    }
}
