//! Every driver call, made to fail at every use.

use crate::cells::Cells;
use crate::codes::{DRIVER_CODES, FEW_CODES, FEW_UNDO_CODES, ONE_CODE, undoes};
use crate::is_long;
use crate::stage::{Case, Fault, Kind, Outcome, Round, Side, Stage, Uses};
use std::collections::BTreeSet;

#[test]
fn legacy_memory_with_every_driver_call_failing() {
    run(Kind::CudaMalloc);
}

#[test]
fn memory_with_a_descriptor_with_every_driver_call_failing() {
    run(Kind::VmmFd);
}

#[test]
fn memory_with_a_fabric_handle_with_every_driver_call_failing() {
    run(Kind::VmmFabric);
}

#[test]
fn a_handle_of_all_types_with_every_driver_call_failing() {
    run(Kind::AllTypes);
}

#[test]
fn memory_side_by_side_with_every_driver_call_failing() {
    run(Kind::Segments);
}

#[test]
fn memory_of_a_pool_with_every_driver_call_failing() {
    run(Kind::Pool);
}

#[test]
fn memory_of_a_pool_of_the_fabric_with_every_driver_call_failing() {
    run(Kind::PoolFabric);
}

#[test]
fn host_memory_with_every_driver_call_failing() {
    run(Kind::HostNuma);
}

fn run(kind: Kind) {
    let mut cells = Cells::default();
    let mut seen = Seen::new();
    for case in Case::all(kind) {
        Run::new(case).all(&mut cells, &mut seen);
    }
    cells.end();
}

/// Calls that had all codes at an operation, whatever the way and the context:
/// later ones get a few.
type Seen = BTreeSet<(Side, &'static str, String)>;

/// The cells of a case.
struct Run {
    case: Case,
    stage: Stage,
    /// What the operation gives, and uses, without faults.
    good: Outcome,
    uses: Uses,
    /// What both processes hold before and after it.
    faulty_holds: String,
    other_holds: String,
}

impl Run {
    fn new(case: Case) -> Self {
        let mut stage = Stage::new(case);
        stage.round(&[]).expect("it works without faults");
        let round = stage.round(&[]).expect("it works without faults");
        let good = round.outcome;
        assert!(
            matches!(good, Outcome::Done(_)),
            "{}: {good:?}",
            case.name()
        );
        let (faulty_holds, other_holds) = (stage.faulty().state(), stage.other().state());
        Self {
            case,
            stage,
            good,
            uses: round.uses,
            faulty_holds,
            other_holds,
        }
    }

    fn all(mut self, cells: &mut Cells, seen: &mut Seen) {
        for (symbol, uses) in self.uses.clone() {
            let is_new = seen.insert((self.case.side, self.case.types, symbol.clone()));
            for nth in 1..=uses {
                self.at(cells, &symbol, nth, is_new && nth == 1);
            }
            // A client that is gone shows a little later.
            self.stage.other().returns_to(&self.other_holds);
        }
        self.cold(cells);
        self.failing_undos_of_failures(cells);
    }

    fn name(&self, fault: Fault<'_>) -> String {
        let Fault { symbol, nth, code } = fault;
        format!("{} {symbol}@{nth}={code}", self.case.name())
    }

    /// All codes of one use of a call, or a few.
    fn at(&mut self, cells: &mut Cells, symbol: &str, nth: u64, all: bool) {
        let undo = self.case.side.is_drop() || undoes(symbol);
        let codes: &[u32] = match undo {
            _ if is_long() => &DRIVER_CODES,
            _ if !all && self.case.context != "none" => &ONE_CODE,
            true if all && self.case.types.is_empty() => &DRIVER_CODES,
            true => &FEW_UNDO_CODES,
            false if all => &DRIVER_CODES,
            false => &FEW_CODES,
        };
        for &code in codes {
            let fault = Fault { symbol, nth, code };
            let name = self.name(fault);
            let good = cells.driver(&name, || {
                if undo {
                    self.failing_undo(&[fault])
                } else {
                    self.failing_step(fault)
                }
            });
            // What it left behind is not the next cell's.
            if !good {
                self.stage = Stage::new(self.case);
            } else if undo {
                self.stage.refresh();
            } else {
                continue;
            }
            self.stage.round(&[]).expect("it works without faults");
        }
    }

    /// A step of the way there fails: another way, or an error, and nothing left.
    fn failing_step(&mut self, fault: Fault<'_>) -> Result<(), String> {
        let round = self.stage.round(&[fault])?;
        was_used(&[fault], &round.uses)?;
        says_what_failed(self.case, fault, &round.outcome)?;
        same_context(&round)?;
        self.stage.faulty().returns_to(&self.faulty_holds);
        self.works_again()?;
        self.stage.faulty().returns_to(&self.faulty_holds);
        Ok(())
    }

    /// Giving something back fails: the operation has worked all the same, and
    /// afterwards nothing more stays behind.
    fn failing_undo(&mut self, faults: &[Fault<'_>]) -> Result<(), String> {
        let round = self.stage.round(faults)?;
        was_used(faults, &round.uses)?;
        if let ([fault], Outcome::Refused { .. }) = (faults, &round.outcome) {
            return Err(format!(
                "{} is the caller's: {:?}",
                fault.symbol, round.outcome
            ));
        }
        // Without the call that restores it, it cannot be the same.
        if faults.iter().all(|f| f.symbol != "cuCtxPopCurrent_v2") {
            same_context(&round)?;
        }
        self.works_again()?;
        let holds = self.stage.holds();
        self.works_again()?;
        self.stage.faulty().returns_to(&holds);
        Ok(())
    }

    fn works_again(&mut self) -> Result<(), String> {
        let outcome = self.stage.round(&[])?.outcome;
        if outcome == self.good {
            Ok(())
        } else {
            Err(format!("afterwards, without faults: {outcome:?}"))
        }
    }

    /// Calls that only the first time in a process needs.
    fn cold(&mut self, cells: &mut Cells) {
        if self.case.side.is_drop() || self.case.side == Side::Answer {
            return;
        }
        self.stage.refresh();
        let cold = self.stage.round(&[]).expect("it works without faults");
        for (symbol, uses) in cold.uses {
            let warm = self.uses.get(&symbol).copied().unwrap_or(0);
            for nth in (1..=uses).filter(|_| uses > warm) {
                for code in DRIVER_CODES {
                    let fault = Fault {
                        symbol: &symbol,
                        nth,
                        code,
                    };
                    let name = format!("{} cold", self.name(fault));
                    cells.driver(&name, || {
                        self.stage.refresh();
                        let round = self.stage.round(&[fault])?;
                        was_used(&[fault], &round.uses)?;
                        says_what_failed(self.case, fault, &round.outcome)?;
                        self.works_again()?;
                        let holds = self.stage.holds();
                        self.works_again()?;
                        self.stage.faulty().returns_to(&holds);
                        Ok(())
                    });
                }
            }
        }
    }

    /// A step fails, and then giving back what was there by then.
    fn failing_undos_of_failures(&mut self, cells: &mut Cells) {
        if self.case.side.is_drop() || (self.case.context != "none" && !is_long()) {
            return;
        }
        for (symbol, uses) in self.uses.clone() {
            for nth in (1..=uses).filter(|_| !undoes(&symbol)) {
                let first = Fault {
                    symbol: &symbol,
                    nth,
                    code: 999,
                };
                self.stage.refresh();
                self.stage.round(&[]).expect("it works without faults");
                let Ok(Round { uses: used, .. }) = self.stage.round(&[first]) else {
                    // A wrong cell of its own already.
                    continue;
                };
                for (undo, times) in used.iter().filter(|(symbol, _)| undoes(symbol)) {
                    for nth in 1..=*times {
                        let second = Fault {
                            symbol: undo,
                            nth,
                            code: 999,
                        };
                        let name = format!("{} and {undo}@{nth}=999", self.name(first));
                        cells.driver(&name, || {
                            self.stage.refresh();
                            self.stage.round(&[])?;
                            self.failing_undo(&[first, second])
                        });
                    }
                }
            }
        }
    }
}

fn same_context(round: &Round) -> Result<(), String> {
    let [before, now] = &round.contexts;
    if now == before {
        Ok(())
    } else {
        Err(format!("current context {before:?} became {now:?}"))
    }
}

/// Whether each fault was met.
fn was_used(faults: &[Fault<'_>], uses: &Uses) -> Result<(), String> {
    let met = |fault: &&Fault<'_>| {
        uses.get(fault.symbol)
            .is_some_and(|uses| *uses >= fault.nth)
    };
    match faults.iter().find(|fault| !met(fault)) {
        None => Ok(()),
        Some(Fault { symbol, nth, .. }) => Err(format!("use {nth} of {symbol} was not reached")),
    }
}

/// Whether an error names the call, or the step, that failed, and the code.
fn says_what_failed(case: Case, fault: Fault<'_>, outcome: &Outcome) -> Result<(), String> {
    let Outcome::Refused {
        status,
        attempts,
        text,
    } = outcome
    else {
        return Ok(());
    };
    let Fault { symbol, code, .. } = fault;
    // An answer that means something by itself is told as what it means: that
    // CUDA does not know the pointer, that the memory has changed.
    let is_answered = case.side == Side::Answer && symbol == "cuPointerGetAttribute";
    if code == 1 && (matches!(case.side, Side::Export | Side::ExportAgain) || is_answered) {
        return Ok(());
    }
    let has_code =
        text.contains(&format!("({code})")) || text.contains(&format!("CUresult {code}"));
    if !has_code {
        return Err(format!("the code is not in {status}: {text}"));
    }
    let has_step = attempts.iter().any(|attempt| {
        let step = attempt.split('/').nth(1).unwrap_or_default();
        !step.is_empty() && text.contains(&step.replace('-', " "))
    });
    if has_step || text.contains(symbol) {
        Ok(())
    } else {
        Err(format!("neither call nor step is in {status}: {text}"))
    }
}
