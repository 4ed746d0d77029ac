//! A command and all that it has started, where it has no process group of its own.

use std::{
    collections::HashSet,
    fmt, fs, process,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, getpid, kill_process, test_kill_process};

/// A command, and whatever descends from it, as `/proc` shows it.
///
/// A child whose parent has ended is no descendant any more as far as `/proc` knows. So what the command starts is known by
/// a mark in its environment too. Where there is no `/proc`, it is the command alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    root: Pid,
    /// When the command began, so that another process that gets its number later is not taken for it.
    began: u64,
    mark: Mark,
}

/// What tells the processes of one run from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u128);

impl Mark {
    /// That of watchdogs. The one of a run inside another must outlive that run, whatever is sent to the outer one's tree.
    pub(crate) const WATCHDOG: Self = Self(0);

    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // One process makes one mark at a time, and its number is not another's at the same time.
        Self(now.as_nanos() << 32 | u128::from(process::id()))
    }

    /// The mark of a process, if it has one and lets us see it.
    fn of(pid: i32) -> Option<Self> {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut marks = environment.split(|byte| *byte == 0).filter_map(|variable| {
            let value = str::from_utf8(variable).ok()?.strip_prefix(MARK)?.strip_prefix('=')?;
            value.parse().ok()
        });
        marks.next()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl FromStr for Mark {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl Tree {
    /// The tree of a process that is there, if only as one that has ended and nobody has waited for.
    pub(crate) fn of(root: Pid, mark: Mark) -> Self {
        let began = Process::read(root.as_raw_pid()).map_or(0, |process| process.began);
        Self { root, began, mark }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.members().is_empty()
    }

    /// Sends a signal to all, also to those who were started meanwhile; to these not without end, unless it is one that ends
    /// them: who ignores it may go on starting others.
    ///
    /// What a `latchwork` among them runs has a mark of its own, and gets the signal from that one, so as not to get it twice.
    pub(crate) fn send(&self, signal: Signal) {
        let is_ours = |pid: Pid| {
            let mark = Mark::of(pid.as_raw_pid());
            mark.is_none_or(|mark| mark == self.mark)
        };
        let mut told = HashSet::new();
        let looks = if signal == Signal::KILL { u32::MAX } else { LOOKS };
        for _ in 0..looks {
            let before = told.len();
            for pid in self.members() {
                if told.insert(pid) && (signal == Signal::KILL || is_ours(pid)) {
                    let _ = kill_process(pid, signal);
                }
            }
            if told.len() == before {
                return;
            }
        }
    }

    /// Without watchdogs of a `latchwork` among them: one ends what that has left behind, when all others are gone.
    fn members(&self) -> Vec<Pid> {
        let Some(all) = Process::all() else {
            return Vec::from_iter(test_kill_process(self.root).is_ok().then_some(self.root));
        };
        let root = self.root.as_raw_pid();
        let mut found: HashSet<i32> = all
            .iter()
            .filter(|process| {
                (process.pid == root && process.began == self.began) || Mark::of(process.pid) == Some(self.mark)
            })
            .map(|process| process.pid)
            .collect();
        loop {
            let before = found.len();
            let children = all.iter().filter(|process| found.contains(&process.parent));
            let children: Vec<i32> = children.map(|process| process.pid).collect();
            found.extend(children);
            if found.len() == before {
                break;
            }
        }
        let us = getpid().as_raw_pid();
        all.iter()
            .filter(|process| process.lives && process.pid != us && found.contains(&process.pid))
            .filter(|process| Mark::of(process.pid) != Some(Mark::WATCHDOG))
            .filter_map(|process| Pid::from_raw(process.pid))
            .collect()
    }
}

/// `ROOT BEGAN MARK`, as the watchdog is told.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.root.as_raw_pid(), self.began, self.mark)
    }
}

impl Tree {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            root: read_pid(words.next()?)?,
            began: words.next()?.parse().ok()?,
            mark: words.next()?.parse().ok()?,
        })
    }
}

/// The variable that has the mark.
pub(crate) const MARK: &str = "LATCHWORK_RUN";

/// Neither 0 nor 1 nor a negative number, which would mean others.
pub(crate) fn read_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok().filter(|pid: &i32| *pid > 1)?)
}

/// How often a signal looks for those who were started since it was sent.
const LOOKS: u32 = 4;

struct Process {
    pid: i32,
    parent: i32,
    began: u64,
    /// It has not ended.
    lives: bool,
}

impl Process {
    /// All that there are; `None` where the system does not tell.
    fn all() -> Option<Vec<Self>> {
        // Ours is there, or the folder is not what it is on Linux.
        Self::read(getpid().as_raw_pid())?;
        let entries = fs::read_dir("/proc").ok()?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Some(pids.filter_map(Self::read).collect())
    }

    fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, stat: &str) -> Option<Self> {
        // The name before them may hold blanks and brackets.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            began: fields.get(19)?.parse().ok()?,
            // One whose first thread alone has ended looks as if all of it had.
            lives: !matches!(*fields.first()?, "Z" | "X")
                || fields.get(17)?.parse().is_ok_and(|threads: u32| threads > 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_watchdog_is_told_is_read_back() {
        let tree = Tree::of(getpid(), Mark::new());
        assert_eq!(Tree::read(&tree.to_string()), Some(tree));
        for text in ["", "7", "1 2 3", "-7 2 3", "7 2", "7 2 x"] {
            assert_eq!(Tree::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_whose_first_thread_alone_has_ended_lives() {
        let rest = "7 7 7 0 -1 4227084 2936 6527 3 0 2 1 5 0 20 0";
        for (state, threads, lives) in [("S", 1, true), ("Z", 1, false), ("Z", 2, true), ("X", 0, false)] {
            let stat = format!("9 (a) b) {state} {rest} {threads} 0 586326 0");
            let process = Process::parse(9, &stat).unwrap();
            assert_eq!(
                (process.lives, process.parent, process.began),
                (lives, 7, 586_326),
                "{stat}"
            );
        }
    }

    #[test]
    fn a_number_that_is_another_process_now_is_not_in_the_tree() {
        let mut tree = Tree::of(rustix::process::getppid().unwrap(), Mark::new());
        assert!(!tree.is_gone());
        tree.began += 1;
        assert!(tree.is_gone());
    }
}
