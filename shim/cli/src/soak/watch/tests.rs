//! What is told of workers that do not do as they must.

use super::*;
use crate::driver::Kind;
use crate::soak::ground::Ground;

fn watch_of(words: &str) -> Watch {
    let folder = std::env::temp_dir().join(format!(
        "gpuipc-watch-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let ground = Ground(folder);
    std::fs::create_dir_all(ground.notices().0).expect("a folder");
    let recipe = Recipe {
        kind: Kind::Emulated,
        device: 0,
        seed: 1,
        ground,
        without: Vec::new(),
    };
    let mut watch = Watch::start(recipe, 0, ProgressBar::hidden()).expect("nobody starts");
    let who = Who {
        worker: 0,
        incarnation: 0,
    };
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", words]);
    let worker = watch.ears.listen_to(who, &mut shell).expect("sh starts");
    watch.workers.push(worker);
    watch
}

/// What is told of a worker that says this.
fn told_of(words: &str) -> Outcome {
    let mut watch = watch_of(words);
    watch.end().expect("it ends");
    watch.recipe.ground.remove();
    std::mem::take(&mut watch.outcome)
}

#[test]
fn silence_and_a_call_that_does_not_end_are_hangs() {
    let (short, long) = (Duration::from_secs(9), HANG + Duration::from_secs(1));
    assert!(!is_hang(short, short));
    assert!(is_hang(long, short));
    assert!(is_hang(short, long));
}

#[test]
fn one_that_hangs_is_killed_and_told_with_what_it_did() {
    let long = HANG.as_millis() + 1;
    let outcome = told_of(&format!(
        r#"echo '{{"say":"report","tally":{{"deeds":{{}},"numbers":{{}}}},"doing":"import x","doing_ms":{long}}}'; exec sleep 1000"#
    ));
    assert_eq!(outcome.hangs, 1, "{outcome:?}");
    assert!(outcome.failures[0].contains("import x"), "{outcome:?}");
    assert!(
        outcome.failures[0].contains("seed 1, worker 0.0"),
        "{outcome:?}"
    );
}

#[test]
fn a_failure_a_leak_and_a_bad_end_are_told() {
    let failed = told_of(
        r#"echo '{"say":"failure","what":"wrong bytes"}'; echo '{"say":"end","leaks":[]}'"#,
    );
    assert_eq!(failed.failures, ["seed 1, worker 0.0, wrong bytes"]);
    let leak = told_of(
        r#"echo '{"say":"end","leaks":[{"item":"threads","before":1,"after":2,"counts":true,"detail":""}]}'"#,
    );
    assert!(
        leak.failures.is_empty() && leak.leaks[0].is_leaked(),
        "{leak:?}"
    );
    assert!(leak.leaks[0].detail.contains("0.0: 1 then 2"), "{leak:?}");
    let ended = told_of(r#"echo '{"say":"end","leaks":[]}'; exit 3"#);
    assert!(ended.failures[0].contains("ended badly"), "{ended:?}");
    let good = told_of(r#"echo '{"say":"end","leaks":[]}'"#);
    assert!(good.failures.is_empty() && good.ended == 1, "{good:?}");
}

#[test]
fn one_that_dies_while_all_end_is_told_and_not_started_anew() {
    let outcome = told_of("exit 3");
    assert_eq!(outcome.failures.len(), 1, "{outcome:?}");
    assert!(outcome.failures[0].contains("it has ended"), "{outcome:?}");
}
