//! `kvctl top`: shows live what the cluster does, on a terminal.

mod columns;
mod frame;
mod screen;
mod views;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
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
use frame::Frame;
use screen::Choice;
use views::{View, column_names, text_of};

/// Time span of the chart of requests.
const PAST: Duration = Duration::from_secs(15 * 60);
const HOT_KEYS: u32 = 10;
/// How often the keyboard's reader checks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Show live what the cluster does: load, memory, health, hot keys, changes, partitions, heat.
///
/// Figures of load cover each node's last five seconds; a percentile is at most twice too high. A
/// figure is never cut: columns that do not fit are left out, and the last line says how many.
///
/// Keys: `1` to `7` choose a view, Tab and Shift-Tab the next and the previous one. The left and
/// right arrows sort by another column and show it. `r` reverses the order, the up and down arrows
/// scroll, `q` quits.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Time between updates.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = positive_duration)]
    every: Duration,
    /// Show this view first; as text, show only this one. Default: the first one with the column of
    /// `--sort`; as text, all.
    #[arg(long, value_enum, value_name = "VIEW")]
    view: Option<View>,
    /// Sort every view that has this column by it.
    #[arg(long, value_name = "COLUMN", value_parser = PossibleValuesParser::new(column_names()))]
    sort: Option<String>,
    /// Reverse the order.
    #[arg(long)]
    reverse: bool,
    /// Print one frame as text and exit. Default if standard output is not a terminal.
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let mut choice = choose(&args)?;
    let client = global.client()?;
    if !args.once && !global.json() && out.screen().terminal {
        return watch(args.every, &mut choice, &client).await;
    }
    let views = args
        .view
        .map_or_else(|| View::ALL.to_vec(), |view| vec![view]);
    let views = views
        .iter()
        .map(|view| (*view, choice.sorts[*view as usize]));
    let views: Vec<_> = views.collect();
    loop {
        let frame = look(&client).await?;
        if global.json() {
            out.json(&frame)?;
        } else {
            out.line(text_of(&frame, &views, args.reverse))?;
        }
        if args.once || !global.json() {
            return Ok(());
        }
        out.flush()?;
        tokio::time::sleep(args.every).await;
    }
}

/// What to show at first.
fn choose(args: &Args) -> Result<Choice, Failure> {
    let mut choice = Choice {
        view: args.view.unwrap_or(View::Nodes),
        sorts: View::ALL.map(|view| view.table().sort),
        reverse: args.reverse,
        row: 0,
        rate: ProgressRate::default(),
        problem: None,
    };
    let Some(name) = &args.sort else {
        return Ok(choice);
    };
    let mut having = Vec::new();
    for view in View::ALL {
        if let Some(at) = view.table().position(name) {
            choice.sorts[view as usize] = at;
            having.push(view);
        }
    }
    match args.view {
        None => choice.view = having.first().copied().unwrap_or(View::Nodes),
        Some(view) if having.contains(&view) => {}
        Some(view) => {
            let table = view.table();
            let columns: Vec<_> = table.columns.iter().map(|column| column.name).collect();
            return Err(Failure::Usage(format!(
                "the view `{}` has no column `{name}`: sort by one of {}",
                table.name,
                columns.join(", ")
            )));
        }
    }
    Ok(choice)
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

async fn watch(every: Duration, choice: &mut Choice, client: &Client) -> Result<(), Failure> {
    // Installed before the terminal changes, so that it is always restored.
    let signal = |kind| unix::signal(kind).map_err(Failure::Runtime);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let watched = match ratatui::try_init() {
        Ok(mut terminal) => tokio::select! {
            watched = watch_on(&mut terminal, every, choice, client) => watched,
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
    every: Duration,
    choice: &mut Choice,
    client: &Client,
) -> Result<(), Failure> {
    let (started, mut keys) = (Instant::now(), keyboard());
    let mut frame = None;
    let mut looks = looks(client.clone(), every);
    loop {
        let drawing = terminal.draw(|canvas| screen::draw(canvas, frame.as_ref(), choice));
        drawing.map_err(Failure::Stdout)?;
        tokio::select! {
            Some(event) = keys.recv() => match event {
                Ok(Event::Key(key)) if !obey(key, choice) => return Ok(()),
                Ok(_) => {}
                Err(source) => {
                    let path = Path::new("the terminal");
                    return Err(Failure::file("read keys from", path, source));
                }
            },
            Some(looked) = looks.recv() => match looked {
                Ok(seen) => {
                    match &seen.status.transition {
                        Some(running) => choice.rate.note(started.elapsed(), running),
                        None => choice.rate = ProgressRate::default(),
                    }
                    choice.problem = None;
                    frame = Some(seen);
                }
                Err(error) => choice.problem = Some(Failure::from(error).line()),
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
fn obey(key: KeyEvent, choice: &mut Choice) -> bool {
    if key.kind == KeyEventKind::Release {
        return true;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('r') => choice.reverse = !choice.reverse,
        KeyCode::Char(digit @ '1'..='7') => show(View::ALL[digit as usize - '1' as usize], choice),
        KeyCode::Tab => show(choice.view.next(false), choice),
        KeyCode::BackTab => show(choice.view.next(true), choice),
        KeyCode::Right => sort(1, choice),
        KeyCode::Left => sort(choice.view.table().columns.len() - 1, choice),
        KeyCode::Down => choice.row += 1,
        KeyCode::Up => choice.row = choice.row.saturating_sub(1),
        _ => {}
    }
    true
}

fn show(view: View, choice: &mut Choice) {
    (choice.view, choice.row) = (view, 0);
}

/// Sorts by the column that is `right` places further right, counted on from the first after the last.
fn sort(right: usize, choice: &mut Choice) {
    let by = &mut choice.sorts[choice.view as usize];
    *by = (*by + right) % choice.view.table().columns.len();
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

    fn args(view: Option<View>, sort: Option<&str>) -> Args {
        Args {
            every: Duration::from_secs(2),
            view,
            sort: sort.map(str::to_owned),
            reverse: false,
            once: false,
        }
    }

    #[test]
    fn keys_choose_views_sort_reverse_scroll_and_end() {
        let mut choice = choose(&args(None, None)).unwrap();
        let press = |code, choice: &mut Choice| obey(KeyEvent::from(code), choice);
        let sorted =
            |choice: &Choice| choice.view.table().columns[choice.sorts[choice.view as usize]].name;
        assert!(press(KeyCode::Left, &mut choice));
        assert_eq!(sorted(&choice), "write999", "the columns are a circle");
        assert!(press(KeyCode::Right, &mut choice) && press(KeyCode::Right, &mut choice));
        assert_eq!(sorted(&choice), "zone");
        assert!(press(KeyCode::Down, &mut choice) && choice.row == 1);
        assert!(press(KeyCode::Char('4'), &mut choice));
        assert_eq!((choice.view, choice.row), (View::Keys, 0));
        assert_eq!(sorted(&choice), "accesses", "each view has its own order");
        assert!(press(KeyCode::Tab, &mut choice) && choice.view == View::Changes);
        assert!(press(KeyCode::BackTab, &mut choice) && choice.view == View::Keys);
        assert!(press(KeyCode::Char('1'), &mut choice) && sorted(&choice) == "zone");
        assert!(press(KeyCode::Up, &mut choice) && choice.row == 0);
        assert!(press(KeyCode::Char('r'), &mut choice) && choice.reverse);
        assert!(press(KeyCode::Char('7'), &mut choice) && choice.view == View::Heat);
        assert!(!press(KeyCode::Char('q'), &mut choice));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!obey(interrupt, &mut choice));
    }

    #[test]
    fn a_column_chooses_its_view_and_another_view_refuses_it() {
        let choice = choose(&args(None, Some("compactions"))).unwrap();
        assert_eq!(choice.view, View::Health);
        let choice = choose(&args(Some(View::Memory), Some("node"))).unwrap();
        assert_eq!(choice.view, View::Memory);
        let refused = choose(&args(Some(View::Keys), Some("compactions"))).unwrap_err();
        assert_eq!(refused.code(), crate::failure::Code::Usage);
        let line = refused.line();
        assert!(
            line.contains("has no column `compactions`: sort by one of key, accesses"),
            "{line}"
        );
    }
}
