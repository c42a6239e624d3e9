//! Names of documents, and paths of fields inside them.

use tonic::Status;

/// The longest id of a document or collection, in bytes.
const MAX_ID_BYTES: usize = 1500;

/// Checks a document's full name: `projects/P/databases/D/documents/COLLECTION/ID…`.
pub(crate) fn check_document_name(name: &str) -> Result<(), Status> {
    let segments = below_root(name)?;
    if segments.is_empty() || segments.len() % 2 != 0 {
        return Err(invalid(name, "does not name a document"));
    }
    segments.iter().try_for_each(|id| check_id(id))
}

/// Checks the full name of the documents' root, or of a document: what collections stand below.
pub(crate) fn check_parent(name: &str) -> Result<(), Status> {
    if name.split('/').count() == 5 {
        return below_root(&format!("{name}/")).map(|_| ());
    }
    check_document_name(name)
}

/// Checks one segment of a name.
pub(crate) fn check_id(id: &str) -> Result<(), Status> {
    if id.is_empty() || id.len() > MAX_ID_BYTES {
        return Err(invalid(id, "has a length that ids cannot have"));
    }
    if id == "." || id == ".." || id.contains('/') {
        return Err(invalid(id, "is not an id"));
    }
    if id.len() >= 4 && id.starts_with("__") && id.ends_with("__") {
        return Err(invalid(id, "is reserved"));
    }
    Ok(())
}

/// The path of a field: names with dots between, in backticks where they are not plain.
pub(crate) fn field_path(text: &str) -> Result<Vec<String>, Status> {
    let mut path = vec![String::new()];
    let mut quoted = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let Some(name) = path.last_mut() else { break };
        match character {
            '`' => quoted = !quoted,
            '\\' if quoted => name.extend(characters.next()),
            '.' if !quoted => path.push(String::new()),
            plain => name.push(plain),
        }
    }
    if quoted || path.iter().any(String::is_empty) {
        return Err(invalid(text, "is not a field path"));
    }
    Ok(path)
}

/// What stands below `projects/P/databases/D/documents/` in a name.
fn below_root(name: &str) -> Result<Vec<&str>, Status> {
    let mut segments = name.split('/');
    let root: Vec<_> = segments.by_ref().take(5).collect();
    match root.as_slice() {
        ["projects", project, "databases", database, "documents"]
            if !project.is_empty() && !database.is_empty() =>
        {
            Ok(segments.collect())
        }
        _ => Err(invalid(name, "is not a resource name of this API")),
    }
}

fn invalid(what: &str, problem: &str) -> Status {
    Status::invalid_argument(format!("\"{what}\" {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_firestores_rules() {
        let root = "projects/p/databases/(default)/documents";
        for good in [
            "locks/a",
            "locks/a/sub/b",
            "locks/__a",
            "locks/...",
            "locks/___",
        ] {
            assert!(
                check_document_name(&format!("{root}/{good}")).is_ok(),
                "{good}"
            );
        }
        for bad in [
            "locks",
            "locks/",
            "locks/a/b",
            "locks/.",
            "locks/..",
            "locks/__a__",
            "locks/____",
            "/a",
        ] {
            assert!(
                check_document_name(&format!("{root}/{bad}")).is_err(),
                "{bad}"
            );
        }
        assert!(check_document_name("locks/a").is_err());
        assert!(check_parent(root).is_ok());
        assert!(check_parent(&format!("{root}/locks/a")).is_ok());
        assert!(check_parent(&format!("{root}/locks")).is_err());
    }

    #[test]
    fn field_paths_may_be_quoted() {
        assert_eq!(field_path("a.b").unwrap(), ["a", "b"]);
        assert_eq!(field_path("`a.b`.c").unwrap(), ["a.b", "c"]);
        assert_eq!(field_path(r"`a\`b`").unwrap(), ["a`b"]);
        assert!(field_path("a..b").is_err());
        assert!(field_path("`a").is_err());
    }
}
