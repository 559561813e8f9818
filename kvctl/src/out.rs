//! Standard output, for data only. Progress and errors go to stderr.

use std::fmt;
use std::io::{self, BufWriter, Write};

use serde::Serialize;

use crate::failure::Failure;

/// The target of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Columns to draw in.
    pub(crate) width: usize,
    /// Lines to draw in.
    pub(crate) height: usize,
    /// Whether it is a terminal, which can show colours and redraw.
    pub(crate) terminal: bool,
    /// Whether to use colours.
    pub(crate) colour: bool,
}

impl Screen {
    /// Without a terminal.
    const PLAIN: Self = Self {
        width: 100,
        height: 40,
        terminal: false,
        colour: false,
    };

    /// From standard output, `NO_COLOR` and `TERM`.
    pub(crate) fn of_stdout() -> Self {
        let term = console::Term::stdout();
        if !term.is_term() {
            return Self::PLAIN;
        }
        let (height, width) = term.size();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            width: usize::from(width),
            height: usize::from(height),
            terminal: true,
            colour: !no_colour && !dumb,
        }
    }
}

/// Prints a line on stderr. Ignores failures.
pub(crate) fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Buffered standard output. Every failed write is a [`Failure::Stdout`].
pub(crate) struct Out {
    writer: BufWriter<Box<dyn Write>>,
    screen: Screen,
}

impl Out {
    pub(crate) fn stdout() -> Self {
        Self {
            writer: BufWriter::with_capacity(1 << 16, Box::new(io::stdout())),
            screen: Screen::of_stdout(),
        }
    }

    pub(crate) const fn screen(&self) -> Screen {
        self.screen
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.write(|writer| writer.write_all(bytes))
    }

    /// Writes text and a line end.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        self.write(|writer| writeln!(writer, "{text}"))
    }

    /// Writes one JSON value on one line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.write(|writer| {
            serde_json::to_writer(&mut *writer, value)?;
            writer.write_all(b"\n")
        })
    }

    /// Flushes the buffer to the operating system.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.write(Write::flush)
    }

    /// Writes with a function on `io::Write`.
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut self.writer).map_err(Failure::Stdout)
    }
}

/// Fails unless `OUTPUT.md` names every field of a value that commands print.
#[cfg(test)]
pub(crate) fn assert_documented(value: &impl Serialize) {
    assert_named(value, include_str!("../OUTPUT.md"));
}

/// Fails unless the section of `OUTPUT.md` with this heading names every field of a value.
#[cfg(test)]
pub(crate) fn assert_documented_under(heading: &str, value: &impl Serialize) {
    let sections = include_str!("../OUTPUT.md").split("\n### ");
    let mut found = sections.filter(|section| section.starts_with(heading));
    assert_named(value, found.next().unwrap());
}

#[cfg(test)]
fn assert_named(value: &impl Serialize, text: &str) {
    fn check(value: &serde_json::Value, text: &str) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    let quoted = format!("\"{name}\"");
                    assert!(text.contains(&quoted), "OUTPUT.md does not name {quoted}");
                    check(value, text);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| check(item, text)),
            _ => {}
        }
    }
    check(&serde_json::to_value(value).unwrap(), text);
}
