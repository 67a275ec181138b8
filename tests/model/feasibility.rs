//! The question what an import would come to, and whether the answer is true.

use crate::play::{Done, Play, deviation};
use crate::rules::Expected;

impl Play<'_> {
    /// Asks before an import of which is known what it must come to. Of an import that a
    /// place or a second segment can still spoil the best may be said.
    pub(crate) fn feasibility(
        &mut self,
        life: usize,
        export: usize,
        asked: &str,
        expected: &Expected,
        is_certain: bool,
    ) -> Done {
        let answer = self.ask(life, &format!("can-import {}{asked}", self.hex(export)));
        self.model.lives[life].has_ipc = true;
        let mut words = answer.splitn(3, ' ');
        let ("ok", is_own, answers) = (
            words.next().unwrap_or_default(),
            words.next() == Some("true"),
            words.next().unwrap_or_default(),
        ) else {
            return deviation("an answer on each type", answer);
        };
        // No:TYPE/STEP/REASON, TYPE/Unknown or TYPE/Yes.
        let says = |wanted: &str| {
            let of_type = |feasible: &&str| feasible.split('/').next() == Some(wanted);
            answers.split(',').any(|feasible| of_type(&feasible))
        };
        let is_true = match expected {
            Expected::Own => is_own,
            Expected::Found(mapped) => says(self.model.mapped[*mapped].used.name()),
            Expected::New(mapped) => says(mapped.used.name()),
            Expected::Refused(_) => {
                let may_be = |feasible: &str| !is_certain || !feasible.ends_with("/Yes");
                !is_own && answers.split(',').all(may_be)
            }
        };
        if is_true {
            Ok(())
        } else {
            deviation(format!("can-import foresees {expected:?}"), answer)
        }
    }
}
