//! Reads a route's parameters by laying its template beside the path.

/// What a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Captured<'a> {
    /// This part of the path, still percent-encoded.
    Value(&'a str),
    /// The template has no such parameter.
    NoSuchName,
    /// The path is not of the template's form.
    NoMatch,
}

/// Finds the parameter `name` of a template: `{name}` stands within one segment, `{*name}` for the rest of the path.
pub(super) fn capture<'a>(template: &str, path: &'a str, name: &str) -> Captured<'a> {
    let mut rest = path.strip_prefix('/').unwrap_or(path);
    let expected = template.strip_prefix('/').unwrap_or(template).split('/');
    let mut found = None;
    let mut ended = false;
    for pattern in expected {
        if ended {
            return Captured::NoMatch;
        }
        if let Some(wildcard) = pattern.strip_prefix("{*").and_then(|pattern| pattern.strip_suffix('}')) {
            if wildcard == name {
                found = Some(rest);
            }
            ended = true;
            continue;
        }
        let (segment, after) = match rest.split_once('/') {
            Some((segment, after)) => (segment, Some(after)),
            None => (rest, None),
        };
        ended = after.is_none();
        rest = after.unwrap_or_default();
        if let Some((prefix, parameter, suffix)) = parameter(pattern) {
            let value = segment
                .strip_prefix(prefix)
                .and_then(|segment| segment.strip_suffix(suffix));
            let Some(value) = value else {
                return Captured::NoMatch;
            };
            if parameter == name {
                found = Some(value);
            }
        }
    }
    match found {
        _ if !ended => Captured::NoMatch,
        Some(value) => Captured::Value(value),
        None => Captured::NoSuchName,
    }
}

/// Splits `prefix{name}suffix`; `None` for a fixed segment. A doubled brace stands for itself.
fn parameter(pattern: &str) -> Option<(&str, &str, &str)> {
    let open = single(pattern, '{')?;
    let close = open + pattern[open..].find('}')?;
    let name = &pattern[open + 1..close];
    // Some routers let a pattern follow the name.
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    Some((&pattern[..open], name, &pattern[close + 1..]))
}

/// The place of the first brace that is not doubled.
fn single(pattern: &str, brace: char) -> Option<usize> {
    let mut at = 0;
    loop {
        let here = at + pattern[at..].find(brace)?;
        if pattern[here + 1..].starts_with(brace) {
            at = here + 2;
        } else {
            return Some(here);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Captured::*, *};

    #[test]
    fn parameters_are_found_by_name() {
        for (template, path, name, expected) in [
            ("/orders/{id}", "/orders/42", "id", Value("42")),
            ("/orders/{id}/charge", "/orders/42/charge", "id", Value("42")),
            ("/{a}/{b}", "/x/y", "b", Value("y")),
            ("/{a}/{b}", "/x/%2Fy", "b", Value("%2Fy")),
            ("/files/{*path}", "/files/a/b/c", "path", Value("a/b/c")),
            ("/files/{name}.json", "/files/a.b.json", "name", Value("a.b")),
            ("/{{x}}/{id}", "/{x}/7", "id", Value("7")),
            ("/orders/{id:[0-9]+}", "/orders/42", "id", Value("42")),
            ("/orders/{id}", "/orders/", "id", Value("")),
            ("/orders/{id}", "/orders/42", "oid", NoSuchName),
            ("/orders", "/orders", "id", NoSuchName),
            ("/orders/{id}", "/orders", "id", NoMatch),
            ("/orders/{id}", "/orders/42/charge", "id", NoMatch),
            ("/files/{name}.json", "/files/a.xml", "name", NoMatch),
        ] {
            assert_eq!(capture(template, path, name), expected, "{template} {path} {name}");
        }
    }

    #[test]
    fn odd_templates_do_not_panic() {
        for template in ["", "/", "{", "}", "{{", "}}", "/{", "/{}", "/{*}", "/é{ö}ü", "/{*a}/b"] {
            for path in ["", "/", "/a", "/éxü", "/a/b", "//"] {
                let _ = capture(template, path, "ö");
            }
        }
    }
}
