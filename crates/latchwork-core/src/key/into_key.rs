use super::{Key, KeyError, Namespace};

/// Everything that a lock can be named by: a [`Key`], a name, or a name in parts.
///
/// | given | is |
/// |---|---|
/// | `Key`, `&Key` | that key; the namespace plays no part |
/// | `&str`, `String`, `&String` | [`Namespace::key`] |
/// | `[&str; N]`, `&[&str; N]`, `&[&str]` | [`Namespace::key_of`] |
/// | `(&str, &str)`, `(&str, String)`, `(&str, &String)` | the two parts |
/// | `(&str, 42)`, any integer type | the parts `"..."` and `"42"` (decimal) |
///
/// The trait is sealed: make a [`Key`] from a type of your own.
///
/// # Examples
///
/// ```
/// use latchwork_core::key::{IntoKey, Namespace};
///
/// let shop = Namespace::new("shop")?;
/// let key = ("order", 42).into_key(&shop)?;
/// assert_eq!(key, ["order", "42"].into_key(&shop)?);
/// # Ok::<(), latchwork_core::key::KeyError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a lock",
    note = "take a name (`\"order/42\"`), its parts (`[\"order\", id]` or `(\"order\", 42)`), or a raw number (`Key::bigint(42)`)"
)]
pub trait IntoKey: sealed::Sealed {
    /// Makes the key.
    ///
    /// # Errors
    ///
    /// As [`Namespace::key_of`] for names; none for a [`Key`].
    fn into_key(self, namespace: &Namespace) -> Result<Key, KeyError>;
}

mod sealed {
    #[expect(unnameable_types, reason = "what seals the trait")]
    pub trait Sealed {
        /// The name as people read it, its parts between slashes; the number of a key.
        fn label(&self) -> String;
    }
}

macro_rules! into_key {
    ($([$($generics:tt)*] $given:ty: |$value:ident, $namespace:ident| $make:expr, $label:expr;)+) => {$(
        impl<$($generics)*> sealed::Sealed for $given {
            fn label(&self) -> String {
                let $value = self;
                $label
            }
        }

        impl<$($generics)*> IntoKey for $given {
            fn into_key(self, $namespace: &Namespace) -> Result<Key, KeyError> {
                let $value = self;
                $make
            }
        }
    )+};
}

into_key! {
    [] Key: |key, _namespace| Ok(key), key.to_string();
    [] &Key: |key, _namespace| Ok(*key), key.to_string();
    [] &str: |name, namespace| namespace.key(name), (*name).to_owned();
    [] &String: |name, namespace| namespace.key(name), (*name).clone();
    [] String: |name, namespace| namespace.key(&name), name.clone();
    [] &[&str]: |parts, namespace| namespace.key_of(parts), parts.join("/");
    [const N: usize] [&str; N]: |parts, namespace| namespace.key_of(&parts), parts.join("/");
    [const N: usize] &[&str; N]: |parts, namespace| namespace.key_of(parts), parts.join("/");
    [] (&str, &str): |pair, namespace| namespace.key_of(&[pair.0, pair.1]), [pair.0, pair.1].join("/");
    [] (&str, &String): |pair, namespace| namespace.key_of(&[pair.0, pair.1]), [pair.0, pair.1].join("/");
    [] (&str, String): |pair, namespace| namespace.key_of(&[pair.0, &pair.1]), [pair.0, &pair.1].join("/");
}

macro_rules! kind_and_number {
    ($($number:ty)+) => {into_key! {$(
        [] (&str, $number): |pair, namespace| namespace.key_of(&[pair.0, &pair.1.to_string()]), format!("{}/{}", pair.0, pair.1);
    )+}};
}

kind_and_number!(i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_name_gives_one_key() {
        let shop = Namespace::new("shop").unwrap();
        let name = shop.key("order/42");
        assert_eq!("order/42".into_key(&shop), name);
        assert_eq!(String::from("order/42").into_key(&shop), name);
        assert_eq!((&String::from("order/42")).into_key(&shop), name);
        assert_eq!(["order/42"].into_key(&shop), name);

        let parts = shop.key_of(&["order", "42"]);
        assert_eq!(["order", "42"].into_key(&shop), parts);
        assert_eq!((&["order", "42"]).into_key(&shop), parts);
        assert_eq!((&["order", "42"][..]).into_key(&shop), parts);
        assert_eq!(("order", "42").into_key(&shop), parts);
        assert_eq!(("order", String::from("42")).into_key(&shop), parts);
        assert_eq!(("order", &String::from("42")).into_key(&shop), parts);
        assert_eq!(("order", 42).into_key(&shop), parts);
        assert_eq!(("order", 42_u8).into_key(&shop), parts);
        assert_eq!(("order", 42_i64).into_key(&shop), parts);
        assert_eq!(("order", 42_u128).into_key(&shop), parts);
    }

    #[test]
    fn extreme_numbers_are_their_decimal_text() {
        let shop = Namespace::new("shop").unwrap();
        assert_eq!(
            ("n", i64::MIN).into_key(&shop),
            shop.key_of(&["n", "-9223372036854775808"])
        );
        assert_eq!(
            ("n", u64::MAX).into_key(&shop),
            shop.key_of(&["n", "18446744073709551615"])
        );
    }

    #[test]
    fn a_key_stays_itself_in_every_namespace() {
        let shop = Namespace::new("shop").unwrap();
        for key in [Key::bigint(7), Key::pair(7, 8)] {
            assert_eq!(key.into_key(&shop), Ok(key));
            assert_eq!((&key).into_key(&Namespace::unnamed()), Ok(key));
        }
    }

    #[test]
    fn an_empty_name_is_refused_in_every_form() {
        let shop = Namespace::new("shop").unwrap();
        assert_eq!("".into_key(&shop), Err(KeyError::EmptyName));
        assert_eq!([].into_key(&shop), Err(KeyError::EmptyName));
        assert_eq!(("", "").into_key(&shop), Err(KeyError::EmptyName));
    }
}
