//! Rules of the environment, or of a config file.

use super::random::Random;
use super::rules::{Act, Rule, index_of, rules};
use crate::config::{config, parts};
use crate::table::Call;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuipc_sys::CuResult;
use std::sync::OnceLock;
use std::time::Duration;

/// Something in them cannot be understood: no driver starts.
static WRONG: AtomicBool = AtomicBool::new(false);

/// The code with which a call answers if they cannot be understood.
pub(super) fn refusal(call: usize) -> Option<CuResult> {
    let refused = call == Call::init as usize && WRONG.load(Ordering::SeqCst);
    refused.then_some(CuResult::UNKNOWN)
}

/// Takes them, once.
pub(super) fn taken() {
    static TAKEN: OnceLock<()> = OnceLock::new();
    TAKEN.get_or_init(|| {
        let texts = &config().faults;
        let mut rules = rules();
        let mut is_right = true;
        let mut check = |name: &str, entry: &str, form: &str, right: bool| {
            if !right {
                eprintln!("gpuipc-emulated: {name} = {entry:?}: not {form}; cuInit will fail");
                is_right = false;
            }
        };
        for entry in parts(texts.fail.as_deref().unwrap_or_default()) {
            let rule = rule(entry, |code| Some(Act::Fail(CuResult(code.parse().ok()?))));
            check("fail", entry, "SYMBOL@NTH=CODE", rule.is_some());
            rule.into_iter().for_each(|rule| rules.add(rule));
        }
        for entry in parts(texts.delay.as_deref().unwrap_or_default()) {
            let rule = rule(entry, |time| {
                Some(Act::Delay(Duration::from_millis(time.parse().ok()?)))
            });
            check("delay", entry, "SYMBOL@NTH=MILLISECONDS", rule.is_some());
            rule.into_iter().for_each(|rule| rules.add(rule));
        }
        for entry in parts(texts.random.as_deref().unwrap_or_default()) {
            let random = random(entry);
            check(
                "random",
                entry,
                "SEED:PER_MILLE[:SYMBOL+SYMBOL..]",
                random.is_some(),
            );
            random
                .into_iter()
                .for_each(|random| rules.add_random(random));
        }
        WRONG.store(!is_right, Ordering::SeqCst);
    });
}

fn rule(entry: &str, act: impl FnOnce(&str) -> Option<Act>) -> Option<Rule> {
    let (symbol, rest) = entry.split_once('@')?;
    let (nth, what) = rest.split_once('=')?;
    let (first, last) = match nth {
        "*" => (1, u64::MAX),
        nth => {
            let nth = nth.parse().ok().filter(|nth| *nth > 0)?;
            (nth, nth)
        }
    };
    Some(Rule {
        call: index_of(symbol)?,
        first,
        last,
        act: act(what)?,
    })
}

fn random(entry: &str) -> Option<Random> {
    let (seed, rest) = entry.split_once(':')?;
    let (per_mille, symbols) = rest.split_once(':').unwrap_or((rest, ""));
    let symbols = symbols.split('+').filter(|symbol| !symbol.is_empty());
    let calls = symbols.map(index_of).collect::<Option<Vec<_>>>()?;
    let per_mille = per_mille.parse().ok().filter(|share| *share <= 1000)?;
    Some(Random::new(seed.parse().ok()?, per_mille, calls))
}

#[cfg(test)]
mod tests {
    use super::{Act, random, rule};
    use gpuipc_sys::CuResult;

    #[test]
    fn rules_as_written() {
        let fail = |entry| rule(entry, |code| Some(Act::Fail(CuResult(code.parse().ok()?))));
        let second = fail("cuMemMap@2=801").expect("a rule");
        assert_eq!((second.first, second.last), (2, 2));
        assert_eq!(second.act, Act::Fail(CuResult::NOT_SUPPORTED));
        assert_eq!(fail("cuMemMap@*=1").expect("a rule").last, u64::MAX);
        for bad in [
            "cuMemMap",
            "cuMemMap@0=1",
            "cuMemMap@1",
            "cuNothing@1=1",
            "cuMemMap@1=x",
        ] {
            assert!(fail(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn chances_as_written() {
        for good in ["7:20", "7:1000:cuMemMap", "7:20:cuMemMap+cuMemUnmap"] {
            assert!(random(good).is_some(), "{good}");
        }
        for bad in ["7", "7:", "x:20", "7:1001", "7:20:cuNothing"] {
            assert!(random(bad).is_none(), "{bad}");
        }
    }
}
