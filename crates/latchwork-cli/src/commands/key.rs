use clap::Args;
use latchwork_core::{Key, key::sql::SqlPart};
use serde_json::{Value, json};

use crate::{
    args::unused_url,
    failure::{Failure, Status},
    name::{NamespaceArgs, key_of},
    output::line,
    tool::Tool,
};

/// Shows the key of a name in every form, and the SQL that locks it
///
/// Needs no database.
#[derive(Debug, Args)]
#[command(arg = unused_url())]
pub(crate) struct KeyArgs {
    /// The name, or its parts: `order 42` is what ["order", "42"] is in a program
    #[arg(
        value_name = "NAME",
        required_unless_present = "compat",
        allow_negative_numbers = true
    )]
    parts: Vec<String>,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Shows the keys that other tools have for this name; several with commas
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    compat: Vec<Tool>,
    /// NAME is a number, a pair of two numbers, or classid/objid/objsubid as pg_locks has them
    #[arg(long, conflicts_with = "compat")]
    raw: bool,
    /// Writes JSON, a line for each key
    #[arg(long)]
    json: bool,
}

/// A key, and how it came to be.
struct Shown {
    tool: Option<Tool>,
    key: Key,
    /// Computes it in the server.
    sql: Option<String>,
}

impl KeyArgs {
    pub(crate) fn perform(self) -> Result<Status, Failure> {
        for (index, shown) in self.keys()?.iter().enumerate() {
            if self.json {
                line(&shown.json())?;
                continue;
            }
            if index > 0 {
                line(&"")?;
            }
            shown.tell()?;
        }
        Ok(Status::SUCCESS)
    }

    fn keys(&self) -> Result<Vec<Shown>, Failure> {
        if self.compat.is_empty() {
            return Ok(vec![self.key_of(None)?]);
        }
        self.compat.iter().map(|tool| self.key_of(Some(*tool))).collect()
    }

    fn key_of(&self, tool: Option<Tool>) -> Result<Shown, Failure> {
        let key = key_of(&self.parts, &self.namespace, tool, self.raw)?;
        let sql = match tool {
            Some(tool) => tool.sql(&self.parts),
            None if self.raw => None,
            None => {
                let parts: Vec<SqlPart<'_>> = self.parts.iter().map(|part| SqlPart::Text(part)).collect();
                Some(self.namespace.namespace()?.sql(&parts)?)
            }
        };
        Ok(Shown { tool, key, sql })
    }
}

impl Shown {
    fn pg_locks(&self) -> String {
        let key = self.key;
        format!("{}/{}/{}", key.classid(), key.objid(), key.objsubid())
    }

    fn call(&self, function: &str) -> String {
        format!("SELECT pg_catalog.{function}({})", self.key.sql_arguments())
    }

    fn json(&self) -> Value {
        json!({
            "tool": self.tool.map(Tool::name),
            "key": self.key.to_string(),
            "bigint": self.key.as_bigint(),
            "pair": self.key.as_pair().map(|(first, second)| [first, second]),
            "classid": self.key.classid(),
            "objid": self.key.objid(),
            "objsubid": self.key.objsubid(),
            "sql": {
                "compute": self.sql,
                "lock": self.call("pg_advisory_lock"),
                "try": self.call("pg_try_advisory_lock"),
                "unlock": self.call("pg_advisory_unlock"),
                "lock_in_transaction": self.call("pg_advisory_xact_lock"),
            },
        })
    }

    fn tell(&self) -> Result<(), Failure> {
        let bigint = self.key.as_bigint().map(|number| number.to_string());
        let pair = self.key.as_pair().map(|(first, second)| format!("({first}, {second})"));
        // The two spaces never meet, so a key has no form in the other one.
        let none = || "none: the key is in the other space".to_owned();
        let rows = [
            ("tool", self.tool.map(Tool::name)),
            ("bigint", Some(bigint.unwrap_or_else(none))),
            ("pair", Some(pair.unwrap_or_else(none))),
            ("classid/objid/objsubid", Some(self.pg_locks())),
            ("computed by", self.sql.as_ref().map(|sql| format!("SELECT {sql}"))),
            ("locked by", Some(self.call("pg_advisory_lock"))),
            ("tried by", Some(self.call("pg_try_advisory_lock"))),
            ("unlocked by", Some(self.call("pg_advisory_unlock"))),
            ("in a transaction", Some(self.call("pg_advisory_xact_lock"))),
        ];
        for (label, value) in rows {
            if let Some(value) = value {
                line(&format_args!("{label:22}  {value}"))?;
            }
        }
        Ok(())
    }
}
