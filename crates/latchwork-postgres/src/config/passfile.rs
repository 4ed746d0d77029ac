//! The password file of libpq.

use std::fs;
use std::path::Path;

use super::Secret;

/// What a line of a password file is matched against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// Looks a password up; a file that is missing, or that others may read, has none.
pub(super) fn lookup(path: &Path, wanted: Wanted<'_>) -> Option<Secret> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() {
        return None;
    }
    if others_may_read(&metadata) {
        tracing::warn!(
            target: "latchwork::postgres",
            file = %path.display(),
            "the password file is ignored, since others may read it; set its permissions to 0600"
        );
        return None;
    }
    find(&fs::read_to_string(path).ok()?, wanted)
}

#[cfg(unix)]
fn others_may_read(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn others_may_read(_: &fs::Metadata) -> bool {
    false
}

fn find(text: &str, wanted: Wanted<'_>) -> Option<Secret> {
    let port = wanted.port.to_string();
    let expected = [wanted.host, &port, wanted.database, wanted.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split(line);
        let (password, pattern) = fields.split_last()?;
        let matches =
            pattern.len() == expected.len() && pattern.iter().zip(expected).all(|(p, e)| p.raw == "*" || p.text == e);
        matches.then(|| Secret::new(password.text.clone()))
    })
}

#[derive(Default)]
struct Field {
    text: String,
    /// As written: an escaped star is a star, a bare one matches everything.
    raw: String,
}

/// Splits a line at its first four colons that no backslash precedes.
fn split(line: &str) -> Vec<Field> {
    let mut fields = vec![Field::default()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let last = fields.len() - 1;
        match c {
            ':' if last < 4 => fields.push(Field::default()),
            '\\' => {
                let escaped = chars.next().unwrap_or('\\');
                fields[last].raw.push('\\');
                fields[last].raw.push(escaped);
                fields[last].text.push(escaped);
            }
            c => {
                fields[last].raw.push(c);
                fields[last].text.push(c);
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted<'_> = Wanted {
        host: "db.example",
        port: 5432,
        database: "app",
        user: "svc",
    };

    fn found(text: &str) -> Option<String> {
        find(text, WANTED).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn first_matching_line_wins() {
        let text = "# comment\nother:5432:app:svc:wrong\ndb.example:5432:app:svc:right\n*:*:*:*:late\n";
        assert_eq!(found(text).as_deref(), Some("right"));
    }

    #[test]
    fn star_matches_anything_but_an_escaped_star_does_not() {
        assert_eq!(found("*:*:*:*:any").as_deref(), Some("any"));
        assert_eq!(found(r"\*:*:*:*:any"), None);
    }

    #[test]
    fn escapes_and_colons_in_the_password_are_kept() {
        assert_eq!(found(r"db.example:5432:app:svc:a\:b:c\\d").as_deref(), Some(r"a:b:c\d"));
    }

    #[test]
    fn short_lines_match_nothing() {
        assert_eq!(found("db.example:5432:app:svc"), None);
        assert_eq!(found(""), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_ignored() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("latchwork-passfile-{:x}", fastrand::u64(..)));
        fs::write(&path, "*:*:*:*:any").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(lookup(&path, WANTED).is_none());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            lookup(&path, WANTED).map(|s| s.expose().to_owned()).as_deref(),
            Some("any")
        );
        fs::remove_file(&path).unwrap();
        assert!(lookup(&path, WANTED).is_none());
    }
}
