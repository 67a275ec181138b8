//! The disturbances by the names that a user can leave them out by: what is left shows
//! which of them a failure needs.

use clap::ValueEnum;

/// A disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Trouble {
    /// Workers killed by SIGKILL
    Kills,
    /// Workers stopped for a while
    Stops,
    /// Signals that interrupt system calls
    Signals,
    /// A full table of files, and low limits of it (the emulated driver only)
    Files,
    /// Driver calls that fail (the emulated driver only)
    Faults,
    /// Forked children
    Forks,
    /// Descriptors that the broker's thread makes when one is asked for
    Demand,
}

/// As the option wants them.
pub(super) fn list(troubles: &[Trouble]) -> String {
    let names = troubles.iter().filter_map(ValueEnum::to_possible_value);
    let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
    names.join(",")
}
