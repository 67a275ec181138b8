//! Processes that offer, import, read and drop at random, all on one GPU.

use crate::{PROGRAM, is_long};
use gpuipc_tests::{Peer, Scratch, tried};
use std::collections::BTreeSet;
use std::path::Path;

/// How long, in milliseconds.
fn time() -> u64 {
    if is_long() { 60_000 } else { 5000 }
}

/// A GPU, a folder for its processes' broker names, and one for handles.
struct Ground {
    scratch: Scratch,
    handles: Scratch,
}

impl Ground {
    fn new() -> Self {
        Self {
            scratch: Scratch::new(),
            handles: Scratch::new(),
        }
    }

    /// A process that has done everything once: what stays, is there now.
    fn peer(&self) -> Peer {
        let sockets = self.scratch.path().join("sockets");
        let mut peer = Peer::start_with(PROGRAM, &self.scratch, |command| {
            command.env("GPUIPC_SOCKET_DIR", sockets);
        });
        let (keeper, _) = peer.alloc("vmm-fabric", 4096);
        peer.export(keeper, 0, 4096);
        peer
    }

    fn send(&self, peer: &mut Peer, seed: u64, milliseconds: u64) {
        let folder = self.handles.path().display();
        peer.send(&format!("hammer {folder} {seed} {milliseconds}"));
    }
}

/// What a process did in its time.
#[derive(Debug)]
struct Done {
    exported: u64,
    imported: u64,
    verified: u64,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            exported,
            imported,
            verified,
        } = self;
        write!(
            f,
            "{exported} exports, {imported} imports, {verified} verified reads"
        )
    }
}

fn answer(peer: &mut Peer) -> Done {
    let answer = peer.answer("hammer");
    let numbers: Vec<u64> = answer
        .split(' ')
        .skip(1)
        .map_while(|word| word.parse().ok())
        .collect();
    match (answer.split(' ').next(), numbers.as_slice()) {
        (Some("ok"), &[exported, imported, verified, _gone]) => Done {
            exported,
            imported,
            verified,
        },
        _ => panic!("a process saw: {answer}"),
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the folder").flatten() {
        let path = entry.path();
        // Not what a link leads to.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string());
        }
    }
    found
}

#[test]
fn two_processes_hammering_one_gpu_leave_nothing() {
    let ground = Ground::new();
    let count = if is_long() { 4 } else { 2 };
    let mut peers: Vec<Peer> = (0..count).map(|_| ground.peer()).collect();
    // Once, so that what is opened at the first import is there.
    for (seed, peer) in peers.iter_mut().enumerate() {
        ground.send(peer, seed as u64 + 100, 300);
    }
    for peer in &mut peers {
        answer(peer);
    }
    let before: Vec<String> = peers.iter_mut().map(Peer::state).collect();
    let files_before = files(ground.scratch.path());
    for (seed, peer) in peers.iter_mut().enumerate() {
        ground.send(peer, seed as u64 + 1, time());
    }
    for peer in &mut peers {
        let done = answer(peer);
        tried(&done.to_string());
        assert!(
            done.exported > 100 && done.imported > 100 && done.verified > 100,
            "hardly anything was done: {done:?}"
        );
    }
    for (peer, before) in peers.iter_mut().zip(&before) {
        peer.returns_to(before);
    }
    assert_eq!(files(ground.scratch.path()), files_before);
    assert_eq!(files(ground.handles.path()), BTreeSet::new());
}

#[test]
fn one_that_is_killed_while_hammering_stops_no_other_and_is_cleaned_up_after() {
    let ground = Ground::new();
    for round in 0..if is_long() { 20 } else { 3 } {
        let mut victim = ground.peer();
        let mut others = [ground.peer(), ground.peer()];
        let milliseconds = 1500;
        ground.send(&mut victim, 7 + round, 600_000);
        for (seed, peer) in others.iter_mut().enumerate() {
            ground.send(peer, 70 + 2 * round + seed as u64, milliseconds);
        }
        // Anywhere in what it does.
        std::thread::sleep(std::time::Duration::from_micros(
            400_000 + round * 77_777 % 300_000,
        ));
        victim.kill();
        let victim_s = format!("{}-", victim.pid());
        for peer in &mut others {
            let done = answer(peer);
            tried(&done.to_string());
            assert!(done.imported > 20, "did not go on: {done:?}");
        }
        // What is left in the folder of handles is what the dead one had put there.
        for file in files(ground.handles.path()) {
            let name = file.rsplit('/').next().unwrap_or_default();
            let name = name.trim_start_matches('.');
            assert!(
                name.starts_with(&victim_s) || victim_s.starts_with(name),
                "{file} is not the dead one's"
            );
            std::fs::remove_file(&file).expect("it can be removed");
        }
        drop(others);
    }
    // The next start sweeps, and its first export sweeps the brokers' names.
    let _last = ground.peer();
    let left = files(ground.scratch.path());
    let names: Vec<&str> = left
        .iter()
        .filter_map(|file| file.rsplit('/').next())
        .collect();
    let owners: Vec<&str> = names
        .iter()
        .filter_map(|name| name.strip_suffix(".owner"))
        .collect();
    let [owner] = owners.as_slice() else {
        panic!("more than the last one: {left:?}")
    };
    let sockets = left.iter().filter(|file| file.contains("/sockets/"));
    assert!(sockets.count() <= 2, "{left:?}");
    for file in left.iter().filter(|file| !file.contains("/sockets/")) {
        assert!(file.contains(owner), "{file} is a dead one's: {left:?}");
    }
}
