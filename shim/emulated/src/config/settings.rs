//! Where each setting's text comes from.

use super::profile::PROFILES;
use std::collections::BTreeMap;
use std::io;

const PREFIX: &str = "GPUIPC_EMULATED_";
/// Variables that go on like this are between tests and their processes.
const FOR_TESTS: &str = "TEST_";

/// Every setting with its default, where it has one. Its variable is the
/// prefix and its name in capitals.
const KEYS: &[(&str, Option<&str>)] = &[
    ("dir", None),
    ("gpus", Some("2")),
    ("uuids", Some("")),
    ("visible", None),
    ("peer", Some("all")),
    ("peer_limit", Some("none")),
    ("imex", None),
    ("memory", Some("139GiB")),
    ("room", Some("taken")),
    ("attributes", Some("")),
    ("granularity", Some("2MiB")),
    ("multicast_granularity", Some("2MiB")),
    ("multicast_slots", Some("128")),
    ("driver_version", Some("13000")),
    ("missing", Some("")),
    ("stale_pool", Some("old")),
    ("fail", None),
    ("delay", None),
    ("random", None),
];

/// The texts, and what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// By setting: the text, and where it was written.
    texts: BTreeMap<&'static str, (String, String)>,
    /// What is wrong, a line each.
    pub(super) problems: Vec<String>,
}

fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase())
}

impl Settings {
    /// Reads the profile, then the file, then the environment. A variable
    /// without text counts as not set.
    pub(super) fn collect(
        variable: impl Fn(&str) -> Option<String>,
        names: &[String],
        file: impl Fn(&str) -> io::Result<String>,
    ) -> Self {
        let given = |key: &str| variable(&variable_of(key)).filter(|text| !text.is_empty());
        let mut settings = Self::default();
        let lines = given("config").map(|path| settings.lines(&path, file(&path)));
        let lines = lines.unwrap_or_default();
        let in_file = lines.iter().rev().find(|line| line.key == "profile");
        let profile = given("profile")
            .map(|name| (name, variable_of("profile")))
            .or_else(|| in_file.map(|line| (line.text.clone(), line.place.clone())));
        if let Some((name, place)) = profile {
            settings.apply_profile(&name, &place);
        }
        for line in lines {
            match KEYS.iter().find(|(key, _)| *key == line.key) {
                Some((key, _)) => settings.set(key, line.text, line.place),
                None if line.key == "profile" => {}
                None => settings.problems.push(format!(
                    "{}: there is no setting {:?}",
                    line.place, line.key
                )),
            }
        }
        for name in names {
            let Some(key) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let known = ["CONFIG", "PROFILE"].contains(&key)
                || KEYS.iter().any(|(known, _)| known.to_uppercase() == key);
            if !known && !key.starts_with(FOR_TESTS) {
                settings
                    .problems
                    .push(format!("{name}: there is no such setting"));
            }
        }
        for (key, _) in KEYS {
            if let Some(text) = given(key) {
                settings.set(key, text, variable_of(key));
            }
        }
        settings
    }

    fn set(&mut self, key: &'static str, text: String, place: String) {
        self.texts.insert(key, (text, place));
    }

    fn apply_profile(&mut self, name: &str, place: &str) {
        let Some((_, values)) = PROFILES.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = PROFILES.iter().map(|(known, _)| *known).collect();
            self.problems.push(format!(
                "{place}: there is no profile {name:?}; there are {}",
                known.join(", ")
            ));
            return;
        };
        for (key, text) in *values {
            self.set(key, (*text).to_owned(), format!("profile {name}"));
        }
    }

    fn lines(&mut self, path: &str, text: io::Result<String>) -> Vec<Line> {
        let source = variable_of("config");
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                self.problems
                    .push(format!("{source}: {path} cannot be read: {error}"));
                return Vec::new();
            }
        };
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = format!("{path} line {}", index + 1);
            match line.split_once('=') {
                Some((key, text)) => lines.push(Line {
                    key: key.trim().to_owned(),
                    text: text.trim().to_owned(),
                    place,
                }),
                None => self
                    .problems
                    .push(format!("{place}: {line:?} is not `setting = value`")),
            }
        }
        lines
    }

    /// A setting's text, where it was given.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.texts.get(key).map(|(text, _)| text.clone())
    }

    /// A setting's value; its default's where the text cannot be understood,
    /// which is then a problem.
    pub(super) fn take<T: Default>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let default = KEYS.iter().find(|(known, _)| *known == key);
        let default = default.and_then(|(_, text)| *text).unwrap_or_default();
        if let Some((text, place)) = self.texts.get(key) {
            match parse(text) {
                Ok(value) => return value,
                Err(reason) => self
                    .problems
                    .push(format!("{place}: {key} = {text:?}: {reason}")),
            }
        }
        parse(default).unwrap_or_default()
    }
}

struct Line {
    key: String,
    text: String,
    place: String,
}
