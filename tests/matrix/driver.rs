//! Every driver call, made to fail at every use.

use crate::cells::Cells;
use crate::codes::{DRIVER_CODES, FEW_CODES, FEW_UNDO_CODES, undoes};
use crate::is_long;
use crate::stage::{Case, Fault, Kind, Outcome, Side, Stage, Uses};

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

fn run(kind: Kind) {
    let mut cells = Cells::default();
    for case in cases(kind) {
        Run::new(case).all(&mut cells);
    }
    cells.end();
}

/// With and without a current context; each order where there is one.
fn cases(kind: Kind) -> Vec<Case> {
    let mut cases = Vec::new();
    for context in ["none", "0"] {
        for types in kind.orders() {
            for side in [
                Side::Export,
                Side::ExportAgain,
                Side::DropOffer,
                Side::DropBuffer,
                Side::Import,
                Side::Answer,
                Side::DropMapping,
            ] {
                let exports = !matches!(side, Side::Import | Side::Answer | Side::DropMapping);
                let has_order = !matches!(side, Side::DropOffer | Side::DropBuffer);
                if (kind == Kind::AllTypes && exports) || (!has_order && !types.is_empty()) {
                    continue;
                }
                cases.push(Case {
                    kind,
                    side,
                    types,
                    context,
                });
            }
        }
    }
    cases
}

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
        let (good, uses) = stage.round(&[]).expect("it works without faults");
        assert!(matches!(good, Outcome::Done(_)), "{good:?}");
        let (faulty_holds, other_holds) = (stage.faulty().state(), stage.other().state());
        Self {
            case,
            stage,
            good,
            uses,
            faulty_holds,
            other_holds,
        }
    }

    fn all(mut self, cells: &mut Cells) {
        for (symbol, uses) in self.uses.clone() {
            for nth in 1..=uses {
                self.at(cells, &symbol, nth);
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

    /// All codes of one use of a call.
    fn at(&mut self, cells: &mut Cells, symbol: &str, nth: u64) {
        let undo = self.case.side.is_drop() || undoes(symbol);
        let is_main = self.case.types.is_empty() && self.case.context == "none";
        let codes: &[u32] = match undo {
            _ if is_long() => &DRIVER_CODES,
            true if is_main && nth == 1 => &DRIVER_CODES,
            true => &FEW_UNDO_CODES,
            false if nth == 1 => &DRIVER_CODES,
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
        let current = self.stage.faulty().ok("current");
        let (outcome, uses) = self.stage.round(&[fault])?;
        was_used(&[fault], &uses)?;
        says_what_failed(self.case, fault, &outcome)?;
        self.same_context(&current)?;
        self.stage.faulty().returns_to(&self.faulty_holds);
        self.works_again()?;
        self.stage.faulty().returns_to(&self.faulty_holds);
        Ok(())
    }

    /// Giving something back fails: the operation has worked all the same, and
    /// afterwards nothing more stays behind.
    fn failing_undo(&mut self, faults: &[Fault<'_>]) -> Result<(), String> {
        let current = self.stage.faulty().ok("current");
        let (outcome, uses) = self.stage.round(faults)?;
        was_used(faults, &uses)?;
        if let ([fault], Outcome::Refused { .. }) = (faults, &outcome) {
            return Err(format!("{} is the caller's: {outcome:?}", fault.symbol));
        }
        // Without the call that restores it, it cannot be the same.
        if faults.iter().all(|f| f.symbol != "cuCtxPopCurrent_v2") {
            self.same_context(&current)?;
        }
        self.works_again()?;
        let holds = self.holds();
        self.works_again()?;
        self.stage.faulty().returns_to(&holds);
        Ok(())
    }

    fn same_context(&mut self, before: &str) -> Result<(), String> {
        let now = self.stage.faulty().ok("current");
        if now == before {
            Ok(())
        } else {
            Err(format!("current context {before:?} became {now:?}"))
        }
    }

    /// What the process holds. An exporter notices a little later that an
    /// importer has left.
    fn holds(&mut self) -> String {
        if self.case.side.in_exporter() {
            self.stage.faulty().state()
        } else {
            self.stage.faulty().ok("state")
        }
    }

    fn works_again(&mut self) -> Result<(), String> {
        let (outcome, _) = self.stage.round(&[])?;
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
        let (_, cold) = self.stage.round(&[]).expect("it works without faults");
        for (symbol, uses) in cold {
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
                        let (outcome, uses) = self.stage.round(&[fault])?;
                        was_used(&[fault], &uses)?;
                        says_what_failed(self.case, fault, &outcome)?;
                        self.works_again()?;
                        let holds = self.holds();
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
                let Ok((_, used)) = self.stage.round(&[first]) else {
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
    if code == 1 && matches!(case.side, Side::Export | Side::ExportAgain | Side::Answer) {
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
