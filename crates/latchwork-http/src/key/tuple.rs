//! Texts, keys, and tuples of extractors.

use latchwork_core::key::{Key, KeyError, Namespace};

use super::{ExtractError, ExtractKey, KeyParts, SetupError};

fn validate_text(text: &str) -> Result<(), SetupError> {
    match Namespace::unnamed().key(text) {
        Ok(_) => Ok(()),
        Err(KeyError::EmptyName) => Err(SetupError::EmptyText),
        Err(error) => Err(SetupError::Text(error)),
    }
}

impl<V> ExtractKey<V> for &'static str {
    fn extract(&self, _: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        parts.push(self);
        Ok(Some(()))
    }

    fn validate(&self) -> Result<(), SetupError> {
        validate_text(self)
    }
}

impl<V> ExtractKey<V> for String {
    fn extract(&self, _: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        parts.push(self);
        Ok(Some(()))
    }

    fn validate(&self) -> Result<(), SetupError> {
        validate_text(self)
    }
}

impl<V> ExtractKey<V> for Key {
    fn extract(&self, _: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        parts.push_key(*self);
        Ok(Some(()))
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        impl<V, $($name: ExtractKey<V>),+> ExtractKey<V> for ($($name,)+) {
            fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
                #[expect(non_snake_case, reason = "the types' names serve for the values")]
                let ($($name,)+) = self;
                $(
                    if $name.extract(view, parts)?.is_none() {
                        return Ok(None);
                    }
                )+
                Ok(Some(()))
            }

            fn validate(&self) -> Result<(), SetupError> {
                #[expect(non_snake_case, reason = "the types' names serve for the values")]
                let ($($name,)+) = self;
                $($name.validate()?;)+
                Ok(())
            }
        }
    };
}

tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
