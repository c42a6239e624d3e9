//! What is stored with a lock for people and other systems to read.

use crate::text::error::Error;
use crate::values::owner::Owner;

/// Labels that are stored with a lock and shown by look-ups. They prove nothing; only the lock id does.
///
/// Stores, and what stands before them, know none of them by name: they keep and give what [`iter`](Self::iter) has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// Who holds the lock.
    pub owner: Option<Owner>,
}

impl Labels {
    /// The names under which stores keep them.
    pub const NAMES: [&'static str; 1] = ["owner"];

    /// The labels of a lock for which the caller gives none.
    pub fn of_process() -> Self {
        Owner::of_process().into()
    }

    /// Each of them, in the order of the names.
    pub(crate) fn texts(&self) -> [Option<&str>; Self::NAMES.len()] {
        [self.owner.as_ref().map(Owner::as_str)]
    }

    /// Those that were given, with their names, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let named = Self::NAMES.into_iter().zip(self.texts());
        named.filter_map(|(name, text)| Some((name, text?)))
    }

    /// The same, to keep.
    pub fn to_texts(&self) -> Vec<(&'static str, String)> {
        let each = self.iter().map(|(name, text)| (name, text.to_owned()));
        each.collect()
    }

    /// Whether none was given.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Takes `text` as the label of that name.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be that label, and for a name that is none of [`NAMES`](Self::NAMES).
    pub fn set(&mut self, name: &str, text: impl Into<String>) -> Result<(), Error> {
        match name {
            "owner" => self.owner = Some(Owner::new(text)?),
            _ => return Err(Error::invalid("there is no label of that name")),
        }
        Ok(())
    }

    /// The labels that `stored` gives for their names. What cannot be a label is none.
    pub(crate) fn read<T: Into<String>>(stored: impl Fn(&str) -> Option<T>) -> Self {
        let mut labels = Self::default();
        for name in Self::NAMES {
            if let Some(text) = stored(name) {
                let _ = labels.set(name, text);
            }
        }
        labels
    }
}

impl From<Owner> for Labels {
    fn from(owner: Owner) -> Self {
        Self { owner: Some(owner) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_label() {
        let mut labels = Labels::default();
        assert!(labels.is_empty());
        for name in Labels::NAMES {
            labels.set(name, format!("the {name}")).unwrap();
        }
        let all: Vec<_> = labels.iter().collect();
        assert!(all.iter().map(|(name, _)| *name).eq(Labels::NAMES));
        for (name, text) in all {
            assert_eq!(text, format!("the {name}"));
        }
        let same = Labels::read(|name| Some(format!("the {name}")));
        assert_eq!(same, labels);
        assert!(labels.set("another", "x").is_err());
    }

    #[test]
    fn what_cannot_be_a_label_is_none() {
        assert!(Labels::read(|_| Some("")).is_empty());
        assert!(Labels::read(|_| None::<String>).is_empty());
    }
}
