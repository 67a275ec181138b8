//! A script that fails, made as short and as plain as it can be.
//!
//! proptest makes lists smaller before it makes their elements smaller, and never
//! comes back; here what an element's number means depends on the list. So both
//! are done in turn until nothing goes any more.

use crate::step::{Case, Kind, Registered, Step};

/// Scripts that are played to find a smaller one.
const MOST_TRIES: usize = 2000;

/// The smallest script for which `fails` says why it fails.
pub(crate) fn smallest(
    mut case: Case,
    mut why: String,
    mut fails: impl FnMut(&Case) -> Option<String>,
) -> (Case, String) {
    let mut tries = 0;
    while tries < MOST_TRIES {
        let found = shorter(&case).chain(plainer(&case)).find_map(|smaller| {
            tries += 1;
            Some((fails(&smaller)?, smaller))
        });
        match found {
            Some((still, smaller)) => (case, why) = (smaller, still),
            None => break,
        }
    }
    (case, why)
}

/// Without some steps, many first.
fn shorter(case: &Case) -> impl Iterator<Item = Case> {
    let count = case.steps.len();
    let sizes = core::iter::successors(Some(count), |size| (*size > 1).then_some(size / 2));
    let cuts = sizes.flat_map(move |size| {
        let starts = (0..count).step_by(size.max(1));
        starts.map(move |start| start..(start + size).min(count))
    });
    cuts.map(|cut| {
        let mut shorter = case.clone();
        shorter.steps.drain(cut);
        shorter
    })
}

/// With one step, or the order at the end, plainer than it is.
fn plainer(case: &Case) -> impl Iterator<Item = Case> {
    let order = (case.order != 0).then(|| Case {
        order: 0,
        ..case.clone()
    });
    let steps = case.steps.iter().enumerate().flat_map(move |(at, step)| {
        plainer_steps(step).into_iter().map(move |step| {
            let mut plainer = case.clone();
            plainer.steps[at] = step;
            plainer
        })
    });
    order.into_iter().chain(steps)
}

/// Every step that differs from this one in one thing, which is plainer.
fn plainer_steps(step: &Step) -> Vec<Step> {
    let numbers = 0..number(&mut step.clone()).map_or(0, |number| *number);
    let smaller = numbers.map(|smaller| {
        let mut plainer = step.clone();
        if let Some(number) = number(&mut plainer) {
            *number = smaller;
        }
        plainer
    });
    let simpler = (0..).map_while(|nth| {
        let mut plainer = step.clone();
        simplify(&mut plainer, nth).then_some(plainer)
    });
    let all = smaller.chain(simpler);
    all.filter(|plainer| plainer != step).collect()
}

/// Makes the nth thing of a step as plain as it can be; whether it has so many.
fn simplify(step: &mut Step, nth: usize) -> bool {
    match step {
        Step::Alloc {
            kind,
            longer,
            second,
            ..
        } => match nth {
            0 => *longer = false,
            1 => *second = false,
            2 => *kind = Kind::VmmFd,
            _ => return false,
        },
        Step::Export {
            start,
            len,
            types,
            on_demand,
            registered,
            ..
        } => match nth {
            0 => types.clear(),
            1 => *on_demand = false,
            2 => *registered = None,
            3 => *registered = registered.and(Some(Registered::Alone)),
            4 => *start = 0,
            5 => *len = 0,
            _ => return false,
        },
        Step::Import { options, .. } => match nth {
            0 => options.types.clear(),
            1 => options.live = false,
            2 => options.read_only = false,
            3 => options.device = None,
            4 => options.more = false,
            5 => options.host = false,
            6 => options.ask = false,
            7 => options.place = None,
            _ => return false,
        },
        _ => return false,
    }
    true
}

/// What a step names first.
fn number(step: &mut Step) -> Option<&mut usize> {
    match step {
        Step::Import { export, .. } | Step::DropExport { export } => Some(export),
        Step::Write { buffer, .. } | Step::Export { buffer, .. } | Step::Free { buffer } => {
            Some(buffer)
        }
        Step::Read { mapping }
        | Step::WriteThrough { mapping, .. }
        | Step::ExportMapping { mapping }
        | Step::DropMapping { mapping }
        | Step::Unmap { mapping } => Some(mapping),
        Step::DropPlace { place } => Some(place),
        Step::Alloc { process, .. }
        | Step::Reserve { process }
        | Step::DropIpc { process }
        | Step::CloseIdle { process }
        | Step::Fork { process, .. }
        | Step::Kill { process } => Some(process),
    }
}
