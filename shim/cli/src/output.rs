//! Lines on stdout, and how a command fails.

use std::fmt;
use std::io::{self, Write};

/// Why a command ends with exit code 1.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What went wrong, in words.
    Text(String),
    /// The importing process went wrong: there is nobody to go on with.
    Importer(String),
    /// Nobody takes the output any more, or it cannot be written.
    Stdout(io::Error),
}

impl Failure {
    /// A failure in words.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Says it on stderr. A reader that went away (`gpuipc .. | head -1`) has
    /// seen what it wanted: nothing is said then.
    pub(crate) fn report(&self) {
        if !matches!(self, Self::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            // Where stderr is closed, too, the exit code has to do.
            let _ = writeln!(io::stderr(), "gpuipc: {self}");
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Importer(text) => f.write_str(text),
            Self::Stdout(error) => write!(f, "the output cannot be written: {error}"),
        }
    }
}

impl From<gpuipc::Error> for Failure {
    fn from(error: gpuipc::Error) -> Self {
        Self::Text(error.to_string())
    }
}

impl From<gpuipc::DriverError> for Failure {
    fn from(error: gpuipc::DriverError) -> Self {
        Self::Text(error.to_string())
    }
}

/// Writes one line, or several with line ends between them. (`println!`
/// panics when nobody reads.)
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(Failure::Stdout)
}
