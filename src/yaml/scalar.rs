//! The meaning of scalars in the core schema (YAML 1.2.2, section 10.3.2).

/// A scalar's meaning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scalar {
    Null,
    Boolean(bool),
    Integer(i128),
    /// May be infinite or NaN.
    Number(f64),
    String,
}

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
}

/// The meaning of an unquoted, untagged scalar.
pub(super) fn plain(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "true" | "True" | "TRUE" => Scalar::Boolean(true),
        "false" | "False" | "FALSE" => Scalar::Boolean(false),
        ".nan" | ".NaN" | ".NAN" => Scalar::Number(f64::NAN),
        _ => number(text).unwrap_or(Scalar::String),
    }
}

/// The meaning of a scalar with a core tag such as `!!int`; `None` if its text doesn't fit the tag.
pub(super) fn tagged(tag: &str, text: &str) -> Option<Scalar> {
    match (tag, plain(text)) {
        ("str", _) => Some(Scalar::String),
        ("float", Scalar::Integer(integer)) => Some(Scalar::Number(integer as f64)),
        ("null", value @ Scalar::Null)
        | ("bool", value @ Scalar::Boolean(_))
        | ("int", value @ Scalar::Integer(_))
        | ("float", value @ Scalar::Number(_)) => Some(value),
        _ => None,
    }
}

fn number(text: &str) -> Option<Scalar> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        b'0'..=b'9' | b'.' => (false, text),
        _ => return None,
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return Some(Scalar::Number(if negative { f64::NEG_INFINITY } else { f64::INFINITY }));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(rest) = text.strip_prefix(prefix) {
            let fits = !rest.is_empty() && rest.chars().all(|letter| letter.is_digit(radix));
            return fits.then(|| match i128::from_str_radix(rest, radix) {
                Ok(value) => Scalar::Integer(value),
                Err(_) => Scalar::Number(f64::INFINITY),
            });
        }
    }
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return match text.parse() {
            Ok(value) => Some(Scalar::Integer(value)),
            Err(_) => text.parse().ok().map(Scalar::Number),
        };
    }
    is_decimal(digits).then(|| text.parse().ok().map(Scalar::Number)).flatten()
}

/// `( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`
fn is_decimal(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !unsigned.is_empty() && digits(unsigned)
    });
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    exponent_fits && digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_schema_and_nothing_of_yaml_1_1() {
        for text in [
            "no",
            "on",
            "off",
            "yes",
            "y",
            "1_000",
            "0b1",
            "12:30",
            "1e",
            "e1",
            ".",
            "+",
            "-",
            "0x",
            "0xg",
            "0o8",
            "nULL",
            "tRue",
            ".Nan",
            "-0x1",
            "1.2.3",
            "½",
            "1e+",
            "inf",
            "NaN",
            "infinity",
            "--1",
            "2026-01-01",
        ] {
            assert_eq!(plain(text), Scalar::String, "{text}");
        }
        for (text, value) in [
            ("012", 12),
            ("-7", -7),
            ("+7", 7),
            ("0x1F", 31),
            ("0o17", 15),
            ("18446744073709551615", i128::from(u64::MAX)),
        ] {
            assert_eq!(plain(text), Scalar::Integer(value), "{text}");
        }
        for (text, value) in [("1.", 1.0), (".5", 0.5), ("-1e3", -1000.0), ("1.5E-1", 0.15), ("1e5", 1e5)] {
            assert_eq!(plain(text), Scalar::Number(value), "{text}");
        }
        assert_eq!(plain("-.inf"), Scalar::Number(f64::NEG_INFINITY));
        assert!(matches!(plain(".NaN"), Scalar::Number(value) if value.is_nan()));
        assert_eq!(plain(&"9".repeat(60)), Scalar::Number(1e60));
        assert!(matches!(plain(&format!("0x{}", "f".repeat(60))), Scalar::Number(_)));
    }

    #[test]
    fn a_tag_that_does_not_fit_the_text() {
        assert_eq!(tagged("str", "12"), Some(Scalar::String));
        assert_eq!(tagged("float", "12"), Some(Scalar::Number(12.0)));
        assert_eq!(tagged("int", "x"), None);
        assert_eq!(tagged("bool", "yes"), None);
        assert_eq!(tagged("map", ""), None);
    }
}
