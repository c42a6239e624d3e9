//! Removes keys, lock ids, owners and credentials from the error texts of servers and drivers.

use std::borrow::Cow;

/// The replacement for a secret.
const HIDDEN: &str = "[hidden]";
/// Secrets of fewer characters are not hidden: the words of any text would be, and what is left would tell the secret.
const LONG: usize = 4;
/// Secrets of so many characters are hidden within words, too: they are no part of a word that anybody knows.
const LONGER_THAN_WORDS: usize = 12;

/// `text` without those of `secrets` that stand in it as whole words, and without the user part of URLs. Parts of words
/// stay, because a gap in a word that anybody knows tells what is missing.
pub(crate) fn hide<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    // After these words, servers quote the start of what they were sent, cut off at some point.
    let end = text.find("with args beginning with:");
    let mut text = hide_logins(text.get(..end.unwrap_or(text.len())).unwrap_or_default());
    let mut secrets: Vec<Cow<'_, str>> = secrets.into_iter().flat_map(spellings).collect();
    // Longest first, because one secret may be a part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        match secret.chars().count() {
            ..LONG => {}
            LONG..LONGER_THAN_WORDS => text = replace_words(&text, &secret),
            _ => text = text.replace(&*secret, HIDDEN),
        }
    }
    text.trim_end().to_owned()
}

/// The secret as it is, and as servers and clients write it in one line.
fn spellings(secret: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let has_escapes = |c: char| c.is_control() || c == '"' || c == '\\';
    let escaped = secret.contains(has_escapes).then(|| {
        let json = secret.chars().flat_map(char::escape_default).collect();
        [secret.replace(char::is_control, " "), json]
    });
    let escaped = escaped.into_iter().flatten().map(Cow::Owned);
    std::iter::once(Cow::Borrowed(secret)).chain(escaped)
}

fn replace_words(text: &str, secret: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(secret) {
        let end = at + secret.len();
        let before = text[..at].chars().next_back();
        let after = text[end..].chars().next();
        if ![before, after]
            .into_iter()
            .flatten()
            .any(char::is_alphanumeric)
        {
            out.push_str(&text[from..at]);
            out.push_str(HIDDEN);
            from = end;
        }
    }
    out.push_str(&text[from..]);
    out
}

/// Replaces `user:password` in `scheme://user:password@host`.
fn hide_logins(text: &str) -> String {
    let mut parts = text.split("://");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\''))
            .unwrap_or(part.len());
        out.push_str("://");
        match part[..end].rfind('@') {
            Some(at) => {
                out.push_str(HIDDEN);
                out.push_str(&part[at..]);
            }
            None => out.push_str(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for (text, secrets, expected) in [
            (
                "connect ECONNREFUSED 127.0.0.1:1",
                &["jobs"][..],
                "connect ECONNREFUSED 127.0.0.1:1",
            ),
            (
                "no access to 'app:jobs:1'",
                &["jobs:1", "app:jobs:1"],
                "no access to '[hidden]'",
            ),
            ("xjobsx", &["jobs"], "xjobsx"),
            ("xcorrect-horsex", &["correct-horse"], "x[hidden]x"),
            ("jobs:jobs,jobs", &["jobs"], "[hidden]:[hidden],[hidden]"),
            (
                "can't write against a read only replica: 'a'",
                &["a", "rep", "repl", ""],
                "can't write against a read only replica: 'a'",
            ),
            (
                "it says a b c and a\\nb\\nc",
                &["a\nb\nc"],
                "it says [hidden] and [hidden]",
            ),
            ("é1é1é and é1é1", &["é1é1"], "é1é1é and [hidden]"),
            ("漢字です", &["漢字です"], "[hidden]"),
            ("漢字", &["漢字"], "漢字"),
            (
                "invalid redis://u:p%40@h:1/x@y, postgres://h/x",
                &[],
                "invalid redis://[hidden]@h:1/x@y, postgres://h/x",
            ),
            (
                "unknown command 'X', with args beginning with: 'se",
                &["secret"],
                "unknown command 'X',",
            ),
        ] {
            assert_eq!(hide(text, secrets.iter().copied()), expected);
        }
    }
}
