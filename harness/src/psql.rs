use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::installation::find_program;
use crate::user::clear_postgres_environment;
use crate::{HarnessError, Installation};

/// Runs SQL through `psql`: bare values, a row a line, nothing at all after the first error.
pub(crate) fn psql(url: &str, installation: &Installation, sql: &str) -> Result<String, HarnessError> {
    let program = find_psql(installation).ok_or(HarnessError::MissingProgram {
        program: "psql",
        package: "postgresql-client",
    })?;
    let mut command = Command::new(program);
    clear_postgres_environment(&mut command);
    let mut child = command
        .args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            "--file=-",
        ])
        .arg(url)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(HarnessError::io("start psql"))?;
    if let Some(mut input) = child.stdin.take() {
        // One that has already failed to connect closes its input; its exit status tells.
        drop(input.write_all(sql.as_bytes()));
    }
    let output = child.wait_with_output().map_err(HarnessError::io("wait for psql"))?;
    if !output.status.success() {
        let output_text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(HarnessError::Failed {
            program: "psql".to_owned(),
            status: output.status.to_string(),
            output: output_text,
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end_matches('\n')
        .to_owned())
}

/// Unpacked majors come without a client; any other's will do.
fn find_psql(installation: &Installation) -> Option<PathBuf> {
    let own = installation.program("psql");
    if own.is_file() {
        return Some(own);
    }
    let others = || {
        Installation::all()
            .into_iter()
            .map(|other| other.program("psql"))
            .find(|path| path.is_file())
    };
    find_program("psql").or_else(others)
}
