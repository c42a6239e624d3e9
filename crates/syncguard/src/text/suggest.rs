//! Finds the known name that a misspelt one was probably meant to be.

use crate::text::error::Error;

/// Longer names cannot be typos of known ones.
const LONGEST: usize = 64;

/// The name in `known` that `name` was probably meant to be, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let name = plain(name);
    let edits = |candidate: &str| distance(&name, &plain(candidate));
    // A typo gets most letters right.
    let near = |(edits, candidate): &(usize, &str)| *edits <= (candidate.len() / 3).max(1);
    let candidates = known.iter().map(|&candidate| (edits(candidate), candidate));
    let best = candidates.filter(near).min_by_key(|(edits, _)| *edits);
    best.map(|(_, candidate)| candidate)
}

/// The error for a parameter of a URL that is none of `known`; `otherwise` is the advice if it is near none of them. The name
/// is not quoted: it may be a secret that got there by mistake.
pub(crate) fn unknown_parameter(name: &str, known: &[&str], otherwise: &str) -> Error {
    let advice = match nearest(name, known) {
        Some(near) => format!("did you mean {near}?"),
        None => otherwise.to_owned(),
    };
    Error::invalid(format!(
        "the url's query holds an unknown parameter: {advice}"
    ))
}

/// The name without what differs between naming styles, so that `ssl_mode` equals `sslMode`.
fn plain(name: &str) -> Vec<char> {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}

/// The edit distance: how many letters have to be inserted, removed, replaced or swapped with their neighbour.
fn distance(word: &[char], other: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in word.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, (pair, theirs)) in last.windows(2).zip(other).enumerate() {
            let (diagonal, above) = (pair.first().copied(), pair.last().copied());
            let left = current.last().copied();
            let replaced = diagonal.map(|edits| edits + usize::from(letter != theirs));
            let moved = [above, left].map(|edits| edits.map(|edits| edits + 1));
            let is_swap = row > 0
                && column > 0
                && word.get(row - 1) == Some(theirs)
                && other.get(column - 1) == Some(letter);
            let swapped = column.checked_sub(1).filter(|_| is_swap);
            let swapped = swapped.and_then(|column| before_last.get(column));
            let edits = moved.into_iter().chain([replaced]).flatten();
            let fewest = edits.chain(swapped.map(|edits| edits + 1)).min();
            current.push(fewest.unwrap_or_default());
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        let known = ["sslmode", "sslcert", "sslkey", "host", "connect_timeout"];
        for (name, expected) in [
            ("sslmod", Some("sslmode")),
            ("sslMode", Some("sslmode")),
            ("ssl_mode", Some("sslmode")),
            ("slsmode", Some("sslmode")),
            ("sllkey", Some("sslkey")),
            ("hots", Some("host")),
            ("connectTimeout", Some("connect_timeout")),
            ("connect_timout", Some("connect_timeout")),
            ("schema", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(nearest(name, &known), expected, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
        assert_eq!(nearest("sslmode", &[]), None);
    }

    #[test]
    fn distances_are_counted() {
        for (word, other, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("abc", "ab", 1),
            ("abc", "xabc", 1),
            ("kitten", "sitting", 3),
            ("", "abc", 3),
        ] {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(distance(&letters(word), &letters(other)), expected);
            assert_eq!(distance(&letters(other), &letters(word)), expected);
        }
    }
}
