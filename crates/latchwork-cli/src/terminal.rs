//! The terminal that this process is controlled by, if there is one.

use std::{fs::File, os::fd::AsFd};

use rustix::{
    process::{Signal, getpgrp, kill_current_process_group},
    termios::{LocalModes, tcgetattr, tcgetpgrp},
};

/// Whether there is one. What standard input is says nothing of that: in `pg_dump | latchwork run restore -- psql` it is a
/// pipe, and psql asks the terminal for the password.
pub(crate) fn is_there() -> bool {
    terminal().is_some()
}

/// Whether our process group is in the foreground, so that what is typed, Ctrl-C too, goes to all of it.
pub(crate) fn is_ours() -> bool {
    terminal().is_some_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

/// Has all of our process group go on, whoever was stopped: that is a whole job of the shell.
pub(crate) fn go_on() {
    let _ = kill_current_process_group(Signal::CONT);
}

/// Whether what is written to a file would stop our process group, by `stty tostop` in the background. Since we take the
/// signal and are not stopped, the write would be tried again and again.
pub(crate) fn stops_writers(file: impl AsFd) -> bool {
    let stops = tcgetattr(file).is_ok_and(|settings| settings.local_modes.contains(LocalModes::TOSTOP));
    stops && !is_ours()
}

fn terminal() -> Option<File> {
    File::open("/dev/tty").ok()
}
