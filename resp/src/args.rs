//! The arguments of a command, taken one by one.

use bytes::Bytes;

use crate::error::CommandError;
use crate::number;
use crate::parser::Request;

pub(crate) struct Args(std::vec::IntoIter<Bytes>);

impl Args {
    /// The arguments after the command's name.
    pub(crate) fn of(request: Request) -> Self {
        let mut arguments = request.into_iter();
        arguments.next();
        Self(arguments)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_slice().len()
    }

    /// The next argument, which is required.
    pub(crate) fn take(&mut self) -> Result<Bytes, CommandError> {
        self.0.next().ok_or(CommandError::Syntax)
    }

    /// The next argument, if any.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        self.0.next()
    }

    /// Takes the next argument if it is this word, in any case.
    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let next = self.0.as_slice().first();
        let is_it = next.is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()));
        if is_it {
            self.0.next();
        }
        is_it
    }

    pub(crate) fn take_whole(&mut self) -> Result<i64, CommandError> {
        number::whole(&self.take()?).ok_or(CommandError::NotInteger)
    }

    /// Refuses any further argument.
    pub(crate) fn end(self) -> Result<(), CommandError> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(CommandError::Syntax)
        }
    }

    pub(crate) fn rest(self) -> impl ExactSizeIterator<Item = Bytes> {
        self.0
    }
}

/// The first characters of a client's argument, safe to print.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let most = bytes.len().min(128);
    String::from_utf8_lossy(&bytes[..most]).into_owned()
}
