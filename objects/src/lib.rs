//! Objects in a directory or in an object store, for backups and generations.
//!
//! A [`Location`] is a directory, or a prefix in an object store. A complete object is never changed;
//! a damaged one may be removed and sent again.
//!
//! Invariants:
//! * A URL names a bucket, never a host. Endpoint and credentials come from the environment of the
//!   process, so a URL from elsewhere makes it connect nowhere else.
//! * A request whose answer is lost is not a failure: what was written is read back, and what only reads
//!   is repeated for a moment.
//! * Memory is bounded: of a file that is sent, one piece; of an object, what the caller asks for.
//!
//! Absent on purpose: what the objects mean.

mod error;
mod location;
mod object;

pub use error::ObjectError;
pub use location::{Location, check_url, url_of};
pub use object::Object;
