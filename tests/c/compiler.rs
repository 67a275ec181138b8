//! The C and C++ compilers of this machine: what `CC` and `CXX` name, else `cc`
//! and `c++`.

use crate::include;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// What `--print native-static-libs` says of libgpuipc.a.
pub(crate) const NATIVE_LIBRARIES: [&str; 7] = [
    "-lgcc_s",
    "-lutil",
    "-lrt",
    "-lpthread",
    "-lm",
    "-ldl",
    "-lc",
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    C,
    Cpp,
}

impl Language {
    /// Why a test does nothing.
    pub(crate) const fn missing(self) -> &'static str {
        match self {
            Self::C => "no C compiler (CC, cc)",
            Self::Cpp => "no C++ compiler (CXX, c++)",
        }
    }

    /// What programs are written in.
    const fn standard(self) -> &'static str {
        match self {
            Self::C => "c11",
            Self::Cpp => "c++17",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "c++",
        }
    }
}

/// Which library a program is linked with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Library {
    Static,
    Shared,
}

pub(crate) struct Compiler {
    tool: cc::Tool,
    language: Language,
}

impl Compiler {
    /// The compiler, if there is one.
    pub(crate) fn find(language: Language) -> Option<Self> {
        // Where this test runs is where the programs run.
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let tool = cc::Build::new()
            .cpp(matches!(language, Language::Cpp))
            .host(&target)
            .target(&target)
            .opt_level(1)
            .debug(true)
            .cargo_metadata(false)
            .cargo_output(false)
            .try_get_compiler()
            .ok()?;
        let works = Command::new(tool.path())
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        works.then_some(Self { tool, language })
    }

    fn command(&self, standard: &str) -> Command {
        let mut command = self.tool.to_command();
        command
            .args(WARNINGS)
            .arg(format!("-std={standard}"))
            .arg("-I")
            .arg(include())
            .args(["-x", self.language.name()]);
        command
    }

    /// Compiles without a result; panics with the compiler's words.
    pub(crate) fn check_syntax(&self, source: &Path, standard: &str) {
        run(self.command(standard).arg("-fsyntax-only").arg(source));
    }

    /// The same for a source with headers that have extensions and warnings of
    /// their own.
    pub(crate) fn check_foreign_syntax(&self, source: &Path) {
        let mut command = self.tool.to_command();
        run(command
            .args(["-std=gnu11", "-w", "-fsyntax-only", "-x", "c"])
            .arg(source));
    }

    /// Makes a program of one source in `folder`, linked as the header's users link,
    /// with more of the compiler's flags.
    pub(crate) fn program(
        &self,
        source: &Path,
        library: Library,
        folder: &Path,
        flags: &[&str],
    ) -> PathBuf {
        let program = folder.join(source.file_stem().expect("a source has a name"));
        let libraries = crate::libraries();
        let mut command = self.command(self.language.standard());
        command
            .args(flags)
            .arg(source)
            .args(["-x", "none"])
            .arg("-o")
            .arg(&program);
        match library {
            Library::Static => command
                .arg(libraries.join("libgpuipc.a"))
                .args(NATIVE_LIBRARIES),
            // Of a folder with both, -lgpuipc means the shared one.
            Library::Shared => command
                .arg("-L")
                .arg(&libraries)
                .arg("-lgpuipc")
                .arg(format!("-Wl,-rpath,{}", libraries.display())),
        };
        run(&mut command);
        program
    }
}

impl Compiler {
    /// Whether the compiler makes programs with these flags.
    pub(crate) fn takes(&self, flags: &[&str]) -> bool {
        let mut command = self.command(self.language.standard());
        let made = command
            .args(flags)
            .arg(crate::sources().join("empty.c"))
            .args(["-o", "/dev/null"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        made.is_ok_and(|status| status.success())
    }

    /// Makes a shared object of one source with the static library in it.
    pub(crate) fn plugin(&self, source: &Path, folder: &Path, flags: &[&str]) -> PathBuf {
        let plugin = folder.join(source.file_stem().expect("a source has a name"));
        let plugin = plugin.with_extension("so");
        let mut command = self.command(self.language.standard());
        command
            .args(["-shared", "-fPIC"])
            .args(flags)
            .arg(source)
            .args(["-x", "none", "-o"])
            .arg(&plugin)
            .arg(crate::libraries().join("libgpuipc.a"))
            .args(NATIVE_LIBRARIES);
        run(&mut command);
        plugin
    }

    /// Makes a program of one source that uses no library of ours.
    pub(crate) fn plain_program(&self, source: &Path, folder: &Path) -> PathBuf {
        self.linked_program(source, folder, &[])
    }

    /// The same with these shared libraries.
    pub(crate) fn linked_program(
        &self,
        source: &Path,
        folder: &Path,
        libraries: &[&Path],
    ) -> PathBuf {
        let program = folder.join(source.file_stem().expect("a source has a name"));
        let mut command = self.command("c11");
        command.arg(source).arg("-o").arg(&program);
        run(command.args(["-x", "none"]).args(libraries));
        program
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("the compiler was found before");
    assert!(
        output.status.success(),
        "{} {}\n{}",
        command.get_program().display(),
        command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
