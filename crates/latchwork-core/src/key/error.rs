use super::MAX_NAME_LEN;
use super::namespace::MIN_SECRET_LEN;

/// Why no key could be made.
///
/// The texts never repeat the name: it may be megabytes long or private.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The name has no part, or only empty ones.
    #[error("the name of a lock is empty: pass a name that says what is locked, such as \"nightly-report\"")]
    EmptyName,
    /// The name is longer than [`MAX_NAME_LEN`].
    #[error(
        "the name of a lock has {len} bytes, more than the {MAX_NAME_LEN} allowed: lock on an identifier or a hash of \
         the content instead of the content"
    )]
    #[non_exhaustive]
    NameTooLong {
        /// The length that was asked for, in bytes, over all parts.
        len: usize,
    },
    /// The name holds a NUL character, which no PostgreSQL text can hold.
    #[error(
        "the name of a lock holds a NUL character at byte {at} of part {part}, which PostgreSQL text cannot hold: \
         remove it, or encode binary names as hexadecimal or base64"
    )]
    #[non_exhaustive]
    NulInName {
        /// The part, counted from 0.
        part: usize,
        /// The byte within that part, counted from 0.
        at: usize,
    },
    /// The namespace is empty.
    #[error(
        "the namespace is empty: name it after the application, or use Namespace::unnamed() to share the names of all \
         programs that have no namespace"
    )]
    EmptyNamespace,
    /// The namespace is longer than [`MAX_NAME_LEN`].
    #[error("the namespace has {len} bytes, more than the {MAX_NAME_LEN} allowed: name it after the application")]
    #[non_exhaustive]
    NamespaceTooLong {
        /// The length that was asked for, in bytes.
        len: usize,
    },
    /// The namespace holds a NUL character, which no PostgreSQL text can hold.
    #[error("the namespace holds a NUL character, which PostgreSQL text cannot hold: remove it")]
    NulInNamespace,
    /// The secret is too short to keep anybody from guessing it.
    #[error(
        "the secret of the namespace has {len} bytes and needs at least {MIN_SECRET_LEN}: take random bytes from the \
         secret store, the same on every instance, and check that the setting is not empty"
    )]
    #[non_exhaustive]
    SecretTooShort {
        /// The length that was passed, in bytes.
        len: usize,
    },
    /// The namespace has a secret, which an SQL text would give away.
    #[error(
        "a namespace with a secret has no SQL form, for its text would show the secret in the server's log: compute the \
         key in the program and pass it as a bigint"
    )]
    SecretInSql,
    /// A placeholder of an SQL text has the number 0.
    #[error("there is no placeholder $0 in SQL: count from 1")]
    PlaceholderZero,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_says_what_to_do_in_the_style_of_the_project() {
        let errors = [
            KeyError::EmptyName,
            KeyError::NameTooLong { len: 70_000 },
            KeyError::NulInName { part: 0, at: 1 },
            KeyError::EmptyNamespace,
            KeyError::NamespaceTooLong { len: 70_000 },
            KeyError::NulInNamespace,
            KeyError::SecretTooShort { len: 0 },
            KeyError::SecretInSql,
            KeyError::PlaceholderZero,
        ];
        for error in errors {
            let text = error.to_string();
            assert!(
                text.contains(": ") && !text.ends_with('.') && text.starts_with(char::is_lowercase),
                "{text}"
            );
        }
    }
}
