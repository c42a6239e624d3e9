//! Settings as command-line options, as libpq's `options` has them.

/// A value for command-line options, with the blanks escaped, which separate options.
pub(super) fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        if character.is_whitespace() || character == '\\' {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

/// The settings that `options` consists of, by name: `-c name=value`, `-cname=value` and `--name=value`. `None` if it
/// asks for anything else.
pub(super) fn settings(options: &str) -> Option<Vec<(String, String)>> {
    let mut words = words(options).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c").or(word.strip_prefix("--")) {
            Some("") => words.next()?,
            Some(setting) => setting.to_owned(),
            None => return None,
        };
        let (name, value) = setting.split_once('=')?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Some(settings)
}

/// What blanks separate, unless they are escaped.
fn words(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None;
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        if character.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_with(String::new);
        match character {
            '\\' => word.extend(characters.next()),
            character => word.push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_in_each_way_to_write_them() {
        let found = settings("-c search_path=a,\\ b\\\\  -cjit=off --lock-timeout=1s").unwrap();
        let expected = [
            ("search_path", "a, b\\"),
            ("jit", "off"),
            ("lock_timeout", "1s"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
        assert_eq!(settings(" "), Some(Vec::new()));
        let value = "a b\\c";
        let found = settings(&format!("-c x={}", escaped(value))).unwrap();
        assert_eq!(found, [("x".to_owned(), value.to_owned())]);
    }

    #[test]
    fn other_options_are_no_settings() {
        for options in ["-e", "-c", "-c x", "-B 100 -c x=1", "x=1", "--single"] {
            assert_eq!(settings(options), None, "{options}");
        }
    }
}
