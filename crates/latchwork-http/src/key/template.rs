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

/// Finds the parameter `name` of a template: `{name}` stands within one segment, `{*name}` for the rest of the path, and
/// so do `{name}*` and `{name:pattern}` at the end, as the router has matched the path already.
pub(super) fn capture<'a>(template: &str, path: &'a str, name: &str) -> Captured<'a> {
    let mut rest = path.strip_prefix('/').unwrap_or(path);
    let mut expected = Some(template.strip_prefix('/').unwrap_or(template));
    let mut found = None;
    let mut ended = false;
    while let Some(template) = expected {
        if ended {
            return Captured::NoMatch;
        }
        let (pattern, after) = first_segment(template);
        expected = after;
        if let Some(wildcard) = pattern.strip_prefix("{*").and_then(|pattern| pattern.strip_suffix('}')) {
            if wildcard == name {
                found = Some(rest);
            }
            ended = true;
            continue;
        }
        let parameter = parameter(pattern);
        let takes_the_rest = expected.is_none() && parameter.as_ref().is_some_and(|it| it.is_open);
        let (segment, after) = match rest.split_once('/') {
            Some((segment, after)) if !takes_the_rest => (segment, Some(after)),
            _ => (rest, None),
        };
        ended = after.is_none();
        rest = after.unwrap_or_default();
        if let Some(parameter) = parameter {
            let value = segment
                .strip_prefix(parameter.prefix)
                .and_then(|segment| segment.strip_suffix(parameter.suffix));
            let Some(value) = value else {
                return Captured::NoMatch;
            };
            if parameter.name == name {
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

/// Splits a template at the first slash that is not within braces, where a pattern may have one. A doubled brace opens
/// nothing.
fn first_segment(template: &str) -> (&str, Option<&str>) {
    let mut depth = 0_usize;
    let mut characters = template.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '{' if depth == 0 && characters.next_if(|(_, next)| *next == '{').is_some() => {}
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '/' if depth == 0 => return (&template[..at], Some(&template[at + 1..])),
            _ => {}
        }
    }
    (template, None)
}

struct Parameter<'a> {
    prefix: &'a str,
    name: &'a str,
    suffix: &'a str,
    /// Whether it may hold slashes.
    is_open: bool,
}

/// Reads `prefix{name}suffix`; `None` for a fixed segment. A doubled brace stands for itself.
fn parameter(pattern: &str) -> Option<Parameter<'_>> {
    let open = single(pattern, '{')?;
    let close = open + closing(&pattern[open..])?;
    let name = &pattern[open + 1..close];
    let suffix = &pattern[close + 1..];
    // Some routers let a pattern follow the name, or an asterisk the braces.
    let (name, has_pattern) = name.split_once(':').map_or((name, false), |(name, _)| (name, true));
    Some(Parameter {
        prefix: &pattern[..open],
        name,
        suffix: if suffix == "*" { "" } else { suffix },
        is_open: has_pattern || suffix == "*",
    })
}

/// The place of the brace that closes the first one; a pattern may have braces of its own.
fn closing(opened: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, character) in opened.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth <= 1 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
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
            (r"/{day:\d{4}/\d{2}}", "/2026/11", "day", Value("2026/11")),
            (r"/{year:\d{4}}/{id}", "/2026/7", "id", Value("7")),
            ("/files/{path:.*}", "/files/a/b/c", "path", Value("a/b/c")),
            ("/files/{path}*", "/files/a/b/c", "path", Value("a/b/c")),
            ("/files/{path:.*}", "/files/", "path", Value("")),
            ("/{a}-{b}", "/x-y", "a", NoMatch),
            ("/{{x/{id}", "/{x/7", "id", Value("7")),
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
        for template in [
            "",
            "/",
            "{",
            "}",
            "{{",
            "}}",
            "/{",
            "/{}",
            "/{*}",
            "/é{ö}ü",
            "/{*a}/b",
            "/{a:{",
            "/{a:}}",
            "{/}",
        ] {
            for path in ["", "/", "/a", "/éxü", "/a/b", "//"] {
                let _ = capture(template, path, "ö");
            }
        }
    }
}
