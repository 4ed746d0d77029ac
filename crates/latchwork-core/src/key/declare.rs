//! Keys as constants: the compile-time twin of `Namespace::key`, and the macro over it.

use sha2_const::Sha256;

use super::{Key, MAX_NAME_LEN};

/// Makes the key of a name at compile time, for [`keys!`](crate::keys): the same as `Namespace::key`.
///
/// # Panics
///
/// For names that `Namespace::key` refuses.
#[doc(hidden)]
#[must_use]
pub const fn named(namespace: &str, name: &str) -> Key {
    assert!(!name.is_empty(), "the name of a lock is empty: write what is locked");
    assert!(
        name.len() <= MAX_NAME_LEN,
        "the name of a lock is longer than 64 KiB: shorten it"
    );
    assert!(
        namespace.len() <= MAX_NAME_LEN,
        "the namespace is longer than 64 KiB: name it after the application"
    );
    assert!(
        !has_nul(name),
        "the name of a lock holds a NUL character, which PostgreSQL text cannot hold: remove it"
    );
    assert!(
        !has_nul(namespace),
        "the namespace holds a NUL character, which PostgreSQL text cannot hold: remove it"
    );
    let hash = Sha256::new()
        .update(&(namespace.len() as u32).to_be_bytes())
        .update(namespace.as_bytes())
        .update(&(name.len() as u32).to_be_bytes())
        .update(name.as_bytes())
        .finalize();
    match hash.first_chunk() {
        Some(first) => Key::bigint(i64::from_be_bytes(*first)),
        None => unreachable!(),
    }
}

const fn has_nul(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == 0 {
            return true;
        }
        at += 1;
    }
    false
}

/// Declares keys in one place, computed at compile time, with equal names and equal keys refused.
///
/// Each line makes a constant of the type [`Key`], equal to [`Namespace::key`](super::Namespace::key) of that name. The
/// module also gets `NAMESPACE`, the namespace's name, and `REGISTRY`, a static [`Registry`](super::Registry) of all its
/// names. The namespace `""` is [`Namespace::unnamed`](super::Namespace::unnamed).
///
/// # Examples
///
/// ```
/// latchwork_core::keys! {
///     /// The locks of the shop.
///     pub mod keys in "shop" {
///         /// Held while the invoices of a day are written.
///         NIGHTLY_BILLING = "nightly-billing";
///         REINDEX = "reindex";
///     }
/// }
///
/// let shop = latchwork_core::key::Namespace::new(keys::NAMESPACE)?;
/// assert_eq!(keys::REINDEX, shop.key("reindex")?);
/// assert_eq!(keys::REGISTRY.name(keys::NIGHTLY_BILLING), Some("nightly-billing"));
/// # Ok::<(), latchwork_core::key::KeyError>(())
/// ```
///
/// A name given twice does not compile:
///
/// ```compile_fail
/// latchwork_core::keys! {
///     pub mod keys in "shop" {
///         NIGHTLY_BILLING = "nightly-billing";
///         REINDEX = "nightly-billing";
///     }
/// }
/// ```
///
/// Nor does an empty name:
///
/// ```compile_fail,E0080
/// latchwork_core::keys! {
///     pub mod keys in "shop" {
///         NIGHTLY_BILLING = "nightly-billing";
///         REINDEX = "";
///     }
/// }
/// ```
#[macro_export]
macro_rules! keys {
    (
        $(#[$module_meta:meta])*
        $vis:vis mod $module:ident in $namespace:literal {
            $($(#[$key_meta:meta])* $key:ident = $name:literal;)+
        }
    ) => {
        $(#[$module_meta])*
        #[allow(unreachable_pub)]
        $vis mod $module {
            $(
                $(#[$key_meta])*
                #[doc = ""]
                #[doc = concat!("The key of `", $name, "` in the namespace `", $namespace, "`.")]
                pub const $key: $crate::key::Key = $crate::key::registry::named($namespace, $name);
            )+

            // A program may well use neither of these two.
            /// The namespace of these keys.
            #[allow(dead_code)]
            pub const NAMESPACE: &str = $namespace;

            /// The names of these keys.
            #[allow(dead_code)]
            pub static REGISTRY: $crate::key::registry::Registry = $crate::key::registry::Registry::declared(&[
                $($crate::key::registry::Entry::declared($key, $namespace, $name),)+
            ]);

            // The compiler points at the second of two equal names.
            #[deny(unreachable_patterns)]
            const _: fn(&str) = |name| match name {
                $($name => {})+
                _ => {}
            };
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::key::{Key, Namespace};

    crate::keys! {
        /// Some keys.
        mod shop in "shop" {
            /// With docs.
            NIGHTLY_BILLING = "nightly-billing";
            REINDEX = "reindex";
            FOREIGN = "größe 漢字 😀";
        }
    }

    crate::keys! {
        mod unnamed in "" {
            REINDEX = "reindex";
        }
    }

    #[test]
    fn constants_equal_the_keys_made_at_run_time() {
        let namespace = Namespace::new(shop::NAMESPACE).unwrap();
        for entry in shop::REGISTRY.iter() {
            assert_eq!(namespace.key(entry.name()), Ok(entry.key()));
        }
        assert_eq!(shop::REINDEX, Key::bigint(3107224507058314625));
        assert_eq!(shop::NIGHTLY_BILLING, Key::bigint(-9029671160158306976));
        assert_eq!(Namespace::unnamed().key("reindex"), Ok(unnamed::REINDEX));
    }

    #[test]
    fn every_length_of_name_agrees_with_the_run_time() {
        // Over the block and padding borders of SHA-256.
        for len in 1..200 {
            let name = "n".repeat(len);
            assert_eq!(
                Namespace::new("shop").unwrap().key(&name),
                Ok(super::named("shop", &name)),
                "{len}"
            );
        }
    }

    #[test]
    fn a_declared_module_knows_its_names() {
        let names: Vec<String> = shop::REGISTRY.iter().map(|entry| entry.to_string()).collect();
        assert_eq!(names, ["shop: nightly-billing", "shop: reindex", "shop: größe 漢字 😀"]);
        assert_eq!(
            unnamed::REGISTRY.iter().next().map(|entry| entry.to_string()),
            Some("reindex".into())
        );
        assert_eq!(shop::REGISTRY.name(shop::FOREIGN), Some("größe 漢字 😀"));
    }

    #[test]
    #[should_panic(expected = "NUL")]
    fn a_nul_is_refused() {
        let _ = super::named("shop", "a\0b");
    }

    #[test]
    #[should_panic(expected = "longer than 64 KiB")]
    fn a_name_too_long_is_refused() {
        let _ = super::named("shop", &"x".repeat(crate::key::MAX_NAME_LEN + 1));
    }
}
