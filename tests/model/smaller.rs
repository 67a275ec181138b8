//! A script that fails, made as short and as plain as it can be.
//!
//! proptest makes lists smaller before it makes their elements smaller, and never
//! comes back; here what an element's number means depends on the list. So both
//! are done in turn until nothing goes any more.

use crate::step::{Case, Kind, Options, Registered, Step};

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
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Step)| {
        let mut plainer = step.clone();
        change(&mut plainer);
        all.push(plainer);
    };
    for smaller in 0..number(&mut step.clone()).map_or(0, |number| *number) {
        add(&|plainer| {
            if let Some(number) = number(plainer) {
                *number = smaller;
            }
        });
    }
    match step {
        Step::Alloc { .. } => {
            for change in [
                |plainer: &mut Step| {
                    if let Step::Alloc { longer, .. } = plainer {
                        *longer = false;
                    }
                },
                |plainer: &mut Step| {
                    if let Step::Alloc { second, .. } = plainer {
                        *second = false;
                    }
                },
                |plainer: &mut Step| {
                    if let Step::Alloc { kind, .. } = plainer {
                        *kind = Kind::VmmFd;
                    }
                },
            ] {
                add(&change);
            }
        }
        Step::Export { .. } => {
            for change in [
                |plainer: &mut Step| {
                    if let Step::Export { types, .. } = plainer {
                        types.clear();
                    }
                },
                |plainer: &mut Step| {
                    if let Step::Export { on_demand, .. } = plainer {
                        *on_demand = false;
                    }
                },
                |plainer: &mut Step| {
                    if let Step::Export { registered, .. } = plainer {
                        *registered = None;
                    }
                },
                |plainer: &mut Step| {
                    if let Step::Export { registered, .. } = plainer {
                        *registered = registered.and(Some(Registered::Alone));
                    }
                },
                |plainer: &mut Step| {
                    if let Step::Export { start, .. } = plainer {
                        *start = 0;
                    }
                },
                |plainer: &mut Step| {
                    if let Step::Export { len, .. } = plainer {
                        *len = 0;
                    }
                },
            ] {
                add(&change);
            }
        }
        Step::Import {
            process,
            offer,
            options,
        } => {
            let (process, offer) = (*process, *offer);
            for options in plainer_options(options) {
                add(&|plainer| {
                    *plainer = Step::Import {
                        process,
                        offer,
                        options: options.clone(),
                    };
                });
            }
        }
        _ => {}
    }
    all.retain(|plainer| plainer != step);
    all
}

fn plainer_options(options: &Options) -> Vec<Options> {
    vec![
        Options {
            types: Vec::new(),
            ..options.clone()
        },
        Options {
            live: false,
            ..options.clone()
        },
        Options {
            read_only: false,
            ..options.clone()
        },
        Options {
            device: None,
            ..options.clone()
        },
        Options {
            more: false,
            ..options.clone()
        },
        Options {
            host: false,
            ..options.clone()
        },
        Options {
            ask: false,
            ..options.clone()
        },
        Options {
            place: None,
            ..options.clone()
        },
    ]
}

/// What a step names first.
fn number(step: &mut Step) -> Option<&mut usize> {
    match step {
        Step::Import { offer, .. } | Step::DropOffer { offer } => Some(offer),
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
