use serde_json::{Value, json};

use crate::{failure::Failure, output::line};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    Warning,
    Unfit,
}

/// What was found out about one thing.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) about: &'static str,
    pub(super) level: Level,
    pub(super) says: String,
    /// What to do.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(about: &'static str, says: impl Into<String>) -> Self {
        Self {
            about,
            level: Level::Ok,
            says: says.into(),
            advice: None,
        }
    }

    pub(super) fn warning(about: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            ..Self::ok(about, says).advise(advice)
        }
    }

    pub(super) fn unfit(about: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            level: Level::Unfit,
            ..Self::ok(about, says).advise(advice)
        }
    }

    pub(super) fn advise(self, advice: impl Into<String>) -> Self {
        Self {
            advice: Some(advice.into()),
            ..self
        }
    }

    pub(super) fn tell(&self) -> Result<(), Failure> {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "WARNING",
            Level::Unfit => "UNFIT",
        };
        line(&format_args!("{level:8} {:12} {}", self.about, self.says))?;
        if let Some(advice) = self.advice.as_ref().filter(|advice| !advice.is_empty()) {
            line(&format_args!("{:21} > {advice}", ""))?;
        }
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "about": self.about,
            "level": match self.level {
                Level::Ok => "ok",
                Level::Warning => "warning",
                Level::Unfit => "unfit",
            },
            "says": self.says,
            "advice": self.advice,
        })
    }
}
