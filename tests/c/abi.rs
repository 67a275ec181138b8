//! The binary interface as a list, `abi.txt`: every number, function, struct and
//! member with its place and size. A change of the interface fails here until it
//! is declared, by a variable of its own, so that a new header alone declares
//! nothing.

use crate::compiler::{Compiler, Language};
use crate::{include, skip, sources};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Set to 1 it makes the test write the list instead of comparing it.
const DECLARE: &str = "GPUIPC_DECLARE_ABI";

/// The header without comments and with single spaces.
fn plain_header() -> String {
    let header = std::fs::read_to_string(include().join("gpuipc.h")).expect("it is committed");
    let (_, after) = header
        .split_once("*/")
        .expect("the header begins with words");
    let lines = after
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// `#define NAME VALUE`, but for versions, which every release changes.
fn numbers(header: &str) -> Vec<String> {
    let defines = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define "));
    defines
        .map(str::trim)
        .filter(|define| define.contains(' ') && !define.starts_with("GPUIPC_VERSION"))
        .map(str::to_owned)
        .collect()
}

/// Everything between two semicolons, on one line.
fn declarations(header: &str) -> Vec<String> {
    let code: Vec<&str> = header
        .lines()
        .filter(|line| {
            !line.starts_with('#') && !line.starts_with("extern \"C\"") && *line != "}  "
        })
        .collect();
    let code = code.join(" ");
    // The members of a struct stay with it.
    let (mut all, mut one, mut depth) = (Vec::new(), String::new(), 0);
    for letter in code.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        one.push(letter);
        if letter == ';' && depth == 0 {
            all.push(one.split_whitespace().collect::<Vec<_>>().join(" "));
            one.clear();
        }
    }
    all
}

/// The names and members of each struct and union that C sees into.
fn structs(declarations: &[String]) -> Vec<(String, Vec<String>)> {
    let open = declarations.iter().filter(|one| one.contains('{'));
    open.map(|one| {
        let (_, rest) = one.split_once('{').expect("it has members");
        let (members, name) = rest.rsplit_once('}').expect("it ends");
        let names = members
            .split(';')
            .map(str::trim)
            .filter(|one| !one.is_empty());
        let names = names.map(|member| {
            let word = member.rsplit([' ', '*']).next().unwrap_or(member);
            word.split('[').next().unwrap_or(word).to_owned()
        });
        (name.trim_matches([' ', ';']).to_owned(), names.collect())
    })
    .collect()
}

/// What a C compiler says about places and sizes; `None` without one.
fn layout(structs: &[(String, Vec<String>)], folder: &Path) -> Option<String> {
    let compiler = Compiler::find(Language::C)?;
    let mut source = "#include \"gpuipc.h\"\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for (name, members) in structs {
        writeln!(source, "printf(\"layout {name} %zu\\n\", sizeof({name}));").expect("a string");
        for member in members {
            writeln!(
                source,
                "printf(\"layout {name}.{member} %zu %zu\\n\", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));"
            )
            .expect("a string");
        }
    }
    source.push_str("return 0; }\n");
    let path = folder.join("layout.c");
    std::fs::write(&path, source).expect("a file");
    let output = Command::new(compiler.plain_program(&path, folder)).output();
    let output = output.expect("the program can be started");
    assert!(output.status.success());
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_binary_interface_is_the_declared_one() {
    let header = plain_header();
    let declarations = declarations(&header);
    let structs = structs(&declarations);
    assert!(
        structs.len() >= 8 && declarations.len() > 40,
        "the header is understood"
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("abi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let layout = layout(&structs, &folder);
    std::fs::remove_dir_all(&folder).expect("it was made above");
    let Some(layout) = layout else {
        return skip(Language::C.missing());
    };
    let mut lines = numbers(&header);
    lines.extend(declarations);
    lines.extend(layout.lines().map(str::to_owned));
    let now = lines.join("\n") + "\n";

    let path = sources().join("abi.txt");
    if std::env::var(DECLARE).is_ok_and(|value| value == "1") {
        std::fs::write(&path, now).expect("the list can be written");
        return;
    }
    let declared = std::fs::read_to_string(&path).expect("it is committed");
    let (declared, now): (Vec<&str>, Vec<&str>) =
        (declared.lines().collect(), now.lines().collect());
    let gone: Vec<&&str> = declared.iter().filter(|line| !now.contains(line)).collect();
    let new: Vec<&&str> = now.iter().filter(|line| !declared.contains(line)).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "the binary interface changed.\ngone: {gone:#?}\nnew: {new:#?}\n\
         What is new is declared by {DECLARE}=1 with this test and a line in CHANGELOG.md; \
         what is gone needs a new GPUIPC_ABI_VERSION"
    );
}

/// The variants in the source of an enum of the library, and the macro's names.
fn variants(source: &str, start: &str) -> Vec<String> {
    let (_, block) = source.split_once(start).expect("the list is there");
    let (block, _) = block.split_once("\n}").expect("it ends");
    let lines = block.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_uppercase()))
        .filter_map(|line| line.split([',', ':']).next())
        .map(str::to_owned)
        .collect()
}

/// `FooBar` as `FOO_BAR`.
fn upper_snake(name: &str) -> String {
    let mut upper = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !upper.is_empty() {
            upper.push('_');
        }
        upper.push(letter.to_ascii_uppercase());
    }
    upper
}

#[test]
fn every_step_reason_and_kind_of_memory_has_a_number() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(workspace.join(path)).expect("a source");
    let attempt = read("shim/src/attempt.rs");
    let error = read("shim/src/error.rs");
    let numbers = read("ffi/abi/src/reasons.rs") + &read("ffi/abi/src/kinds.rs");
    let lists = [
        ("Step", "STEP", variants(&attempt, "pub enum Step {")),
        ("Reason", "REASON", variants(&attempt, "\nreasons! {")),
        (
            "MemoryKind",
            "KIND",
            variants(&error, "pub enum MemoryKind {"),
        ),
    ];
    for (name, prefix, variants) in lists {
        assert!(variants.len() > 10, "{name} is understood: {variants:?}");
        for variant in variants {
            let arm = format!(
                "{name}::{variant} => GPUIPC_{prefix}_{},",
                upper_snake(&variant)
            );
            assert!(numbers.contains(&arm), "the C interface lacks {arm}");
        }
    }
}
