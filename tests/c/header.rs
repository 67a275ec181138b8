//! The headers are what the sources give, have every status, and are C and C++.

use crate::compiler::{Compiler, Language};
use crate::{include, skip, sources};
use gpuipc_core::Status;
use std::path::Path;

/// Set to 1 it makes the test write the header instead of comparing it.
const BLESS: &str = "GPUIPC_BLESS";

/// `gpuipc.h`, and `gpuipc_multicast.h`, which has what the files `multicast.rs` define.
fn fresh() -> [(&'static str, String); 2] {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let ffi = workspace.join("ffi");
    let config = |name| cbindgen::Config::from_file(ffi.join(name)).expect("a valid file");
    let mut main = config("cbindgen.toml");
    let mut multicast = cbindgen::Builder::new().with_config(config("cbindgen-multicast.toml"));
    for part in ["objects", "calls"] {
        let path = ffi.join("abi/src").join(part).join("multicast.rs");
        let source = std::fs::read_to_string(&path).expect("a source");
        main.export.exclude.extend(defined(&source));
        multicast = multicast.with_src(path);
    }
    // Of the core only the handle's layout: what stands in its tables is a struct in Rust's syntax,
    // and cbindgen looks into no macro.
    let scratch = gpuipc_tests::Scratch::new();
    let builder = cbindgen::Builder::new()
        .with_config(main)
        .with_crate(ffi.join("abi"));
    let main = ["handle.rs", "ticket.rs", "slot.rs"]
        .into_iter()
        .fold(builder, |builder, name| {
            let source = std::fs::read_to_string(workspace.join("core/src").join(name));
            let copy = scratch.path().join(name);
            std::fs::write(&copy, without_tables(&source.expect("a source"))).expect("a file");
            builder.with_src(copy)
        });
    [("gpuipc.h", main), ("gpuipc_multicast.h", multicast)].map(|(name, builder)| {
        let bindings = builder.generate();
        let bindings = bindings.expect("cbindgen understands the sources");
        let mut text = Vec::new();
        bindings.write(&mut text);
        let text = String::from_utf8(text).expect("a header is text");
        (name, without_links(&text))
    })
}

/// The names for C that a source defines.
fn defined(source: &str) -> Vec<String> {
    let public = source.lines().filter_map(|line| line.strip_prefix("pub "));
    let names = public.filter_map(|line| {
        let mut words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.find(|word| word.to_ascii_lowercase().starts_with("gpuipc_"))
    });
    names.map(str::to_owned).collect()
}

/// The source with the tables of `layout!` as plain structs. A macro's last line is `}` alone.
fn without_tables(source: &str) -> String {
    let mut inside = false;
    let lines = source.lines().filter(|line| {
        let starts = *line == "layout! {";
        let ends = inside && *line == "}";
        inside = (inside || starts) && !ends;
        !starts && !ends
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Links of Rust's documentation, ``[`name`](target)``, mean nothing in C.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        plain.push_str(before);
        let (name, after) = link.split_once("`]").expect("a link has an end");
        plain.push_str(&format!("`{name}`"));
        rest = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').expect("a target has an end").1,
            None => after,
        };
    }
    plain + rest
}

#[test]
fn links_become_plain_names() {
    assert_eq!(
        without_links("of [`new`](Self::new), [`Slot`] and a[3]"),
        "of `new`, `Slot` and a[3]"
    );
}

#[test]
fn the_committed_headers_are_what_the_sources_give() {
    for (name, fresh) in fresh() {
        compare(&include().join(name), &fresh);
    }
}

fn compare(path: &Path, fresh: &str) {
    if std::env::var(BLESS).is_ok_and(|value| value == "1") {
        std::fs::create_dir_all(include()).expect("the folder can be made");
        std::fs::write(path, fresh).expect("the header can be written");
        return;
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let same = committed
        .lines()
        .zip(fresh.lines())
        .take_while(|(old, new)| old == new)
        .count();
    assert!(
        committed == fresh,
        "{} is not up to date from line {} on; {BLESS}=1 with this test rewrites it",
        path.display(),
        same + 1
    );
}

#[test]
fn the_header_has_every_status_with_its_number() {
    let header =
        std::fs::read_to_string(include().join("gpuipc.h")).expect("the header is committed");
    let defined: Vec<(&str, &str)> = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define GPUIPC_")?.split_once(' '))
        .collect();
    let known = (0..1000)
        .map(Status)
        .filter(|status| status.name() != "UNKNOWN");
    for status in known {
        let number = status.0.to_string();
        assert!(
            defined.contains(&(status.name(), number.as_str())),
            "the header lacks GPUIPC_{} {number}",
            status.name()
        );
    }
}

#[test]
fn layouts_and_numbers_are_the_promised_ones_in_c_and_cpp() {
    for (language, standards) in [
        (Language::C, &["c99", "c11", "c17"][..]),
        (Language::Cpp, &["c++11", "c++17", "c++20"][..]),
    ] {
        let Some(compiler) = Compiler::find(language) else {
            skip(language.missing());
            continue;
        };
        for standard in standards {
            compiler.check_syntax(&sources().join("empty.c"), standard);
            // C99 has no _Static_assert: the headers alone.
            if *standard != "c99" {
                compiler.check_syntax(&sources().join("abi.c"), standard);
            }
        }
    }
}

#[test]
fn the_cpp_header_compiles_in_every_standard_that_it_is_for() {
    let Some(compiler) = Compiler::find(Language::Cpp) else {
        return skip(Language::Cpp.missing());
    };
    for standard in ["c++17", "c++20"] {
        compiler.check_syntax(&sources().join("owners.cpp"), standard);
    }
}

/// The code of a language in a page, all of it as one source.
fn code_of(page: &str, language: &str) -> String {
    let start = format!("```{language}\n");
    let blocks = page.split(&start).skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    blocks.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_c_in_the_pages_compiles() {
    let Some(compiler) = Compiler::find(Language::C) else {
        skip(Language::C.missing());
        return;
    };
    let readme = include_str!("../../README.md");
    let porting = include_str!("../../docs/porting.md");
    let scratch = gpuipc_tests::Scratch::new();
    for (name, page) in [("readme.c", readme), ("porting.c", porting)] {
        let code = code_of(page, "c");
        assert!(code.contains("gpuipc_export("), "{name} shows C");
        let source = scratch.path().join(name);
        std::fs::write(&source, code).expect("a file");
        compiler.check_syntax(&source, "c11");
    }
    let link = crate::compiler::NATIVE_LIBRARIES.join(" ");
    assert!(readme.contains(&link), "the README's link line is {link}");
    let header = include_str!("../../ffi/include/gpuipc.h");
    let pkg_config = include_str!("../../ffi/packaging/gpuipc.pc.in");
    assert!(
        header.contains(&link) && pkg_config.contains(&link),
        "one line in all: {link}"
    );
}

#[test]
fn the_cpp_in_the_porting_guide_compiles() {
    let Some(compiler) = Compiler::find(Language::Cpp) else {
        return skip(Language::Cpp.missing());
    };
    // What the code there takes from mscclpp.
    const OF_MSCCLPP: &str = "#include <stdexcept>\n#include <string>\n\
        namespace mscclpp {\n\
        enum class ErrorCode { SystemError, Timeout, InvalidUsage };\n\
        struct Error : std::runtime_error {\n\
        Error(const std::string &message, ErrorCode) : std::runtime_error(message) {}\n\
        };\n}\n";
    let code = code_of(include_str!("../../docs/porting.md"), "cpp");
    assert!(code.contains("struct Owned"), "the guide shows C++");
    let scratch = gpuipc_tests::Scratch::new();
    let source = scratch.path().join("porting.cpp");
    std::fs::write(&source, OF_MSCCLPP.to_owned() + &code).expect("a file");
    for standard in ["c++17", "c++20"] {
        compiler.check_syntax(&source, standard);
    }
}

#[test]
fn every_word_of_the_interface_in_the_pages_exists() {
    let header = concat!(
        include_str!("../../ffi/include/gpuipc.h"),
        include_str!("../../ffi/include/gpuipc_multicast.h")
    );
    let pages = [
        include_str!("../../README.md"),
        include_str!("../../docs/porting.md"),
        include_str!("../../docs/memory.md"),
        include_str!("../../docs/containers.md"),
        include_str!("../../docs/sandboxes.md"),
        include_str!("../../docs/threads.md"),
        include_str!("../../docs/multicast.md"),
    ]
    .join("\n");
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = pages.split(|letter| !is_part(letter));
    // Variables and the emulated driver's settings have names that begin alike.
    let ours = words.filter(|word| word.starts_with("gpuipc_") || word.starts_with("GPUIPC_"));
    for word in ours.filter(|word| !word.contains("EMULATED") && !word.contains("emulated")) {
        let tests_own = ["GPUIPC_TEST_LONG", "GPUIPC_LIBRARY"].contains(&word);
        assert!(
            tests_own || header.contains(word),
            "the header has no {word}"
        );
    }
}
