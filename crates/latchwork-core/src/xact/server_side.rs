/// What tells a transaction from all others in the server, so that another connection can end it: a statement that was
/// abandoned runs on there, with the locks of its transaction.
#[derive(Clone, Debug)]
pub struct ServerSide {
    pid: i32,
    begun: String,
    spared: Option<&'static str>,
}

impl ServerSide {
    /// A transaction of the server process `pid` (`pg_backend_pid()`), begun at `CURRENT_TIMESTAMP`, as the server writes it.
    ///
    /// A number would not depend on the session's `DateStyle`, but to compute it costs as much as to take the lock.
    #[must_use]
    pub fn new(pid: i32, begun: impl Into<String>) -> Self {
        let begun = begun.into();
        let spared = None;
        Self { pid, begun, spared }
    }

    /// The server process.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// The same, which is let go on when it has come as far as this query, such as its COMMIT.
    #[must_use]
    pub fn sparing(self, query: &'static str) -> Self {
        let spared = Some(query);
        Self { spared, ..self }
    }

    /// A query, to be sent on another connection of the same role, that ends the session if it is still in that transaction.
    /// It has one column, `ended`, and no row if it is not, or if the other connection writes times otherwise: another
    /// `DateStyle` than the default, `ISO`, has to be the same on both, and so has the `TimeZone` then.
    #[must_use]
    pub fn terminate(&self) -> String {
        let (pid, begun) = (self.pid, self.begun.replace('\'', "''"));
        let began_then = if self.is_iso() {
            format!("xact_start OPERATOR(pg_catalog.=) '{begun}'::pg_catalog.timestamptz")
        } else {
            // It cannot be read back for certain: a name of a time zone, such as IST, can mean several.
            format!("xact_start::pg_catalog.text OPERATOR(pg_catalog.=) '{begun}'::pg_catalog.text")
        };
        let spared = self.spared.map(|query| {
            let query = query.replace('\'', "''");
            format!(" AND query OPERATOR(pg_catalog.<>) '{query}'::pg_catalog.text")
        });
        format!(
            "SELECT pg_catalog.pg_terminate_backend(pid) AS ended FROM pg_catalog.pg_stat_activity \
             WHERE pid OPERATOR(pg_catalog.=) {pid} AND {began_then}{}",
            spared.unwrap_or_default()
        )
    }

    /// Whether the time begins with its year, as in `2026-11-30 12:00:00.5+01`.
    fn is_iso(&self) -> bool {
        let year = self.begun.split('-').next().unwrap_or_default();
        year.len() >= 4 && year.bytes().all(|digit| digit.is_ascii_digit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_where_it_means_one_and_compared_as_it_is_written_elsewhere() {
        for (begun, is_read) in [
            ("2026-11-30 12:00:00.123456+00", true),
            ("10026-11-30 12:00:00+05:30", true),
            ("30.11.2026 17:30:00.123456 IST", false),
            ("30/11/2026 17:30:00.123456 IST", false),
            ("Mon Nov 30 17:30:00.123456 2026 IST", false),
        ] {
            let terminate = ServerSide::new(7, begun).terminate();
            assert!(terminate.contains("(pg_catalog.=) 7 "), "{terminate}");
            assert!(terminate.contains(&format!("'{begun}'")), "{terminate}");
            assert_eq!(terminate.contains("::pg_catalog.timestamptz"), is_read, "{terminate}");
        }
    }

    #[test]
    fn a_time_cannot_leave_its_quotes() {
        let terminate = ServerSide::new(7, "' OR true --").terminate();
        assert!(terminate.contains("''' OR true --'"), "{terminate}");
    }
}
