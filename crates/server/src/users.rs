//! Users: their secret keys, and the buckets that each may read, write or administer.
//!
//! The list is text, with a user on each line:
//!
//! ```text
//! # access key, secret key, rights
//! alice  secret-of-alice  admin
//! bob    secret-of-bob    read:* write:inbox,bob-* none:private
//! ```

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, RwLock};

/// Users. Clones share one list, which [`Users::replace`] changes for all of them.
#[derive(Clone)]
pub struct Users(Arc<RwLock<List>>);

/// Users by their access keys.
type List = HashMap<String, User>;

#[derive(Clone)]
struct User {
    secret: String,
    rights: Rights,
}

/// Reason why a list of users is refused.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Users other than its owner and group may read the file.
    #[error(transparent)]
    Open(#[from] crate::secrets::OpenToOthers),
    /// A line is not a user.
    #[error(
        "line {line}: expected an access key of 3 to 128 characters, a secret key of 8 or more, and rights, with blanks between them"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// An access key is in the list twice.
    #[error("line {line}: the access key {access_key} is on an earlier line too")]
    Twice {
        /// Number of the line, from 1.
        line: usize,
        /// The repeated key.
        access_key: String,
    },
    /// A word is not a right.
    #[error("line {line}: {why}")]
    Right {
        /// Number of the line, from 1.
        line: usize,
        /// The word that is wrong, and the reason.
        why: String,
    },
    /// The list is empty.
    #[error("it has no user: write a line with an access key and a secret key")]
    Nobody,
}

/// A right on a bucket. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing.
    #[default]
    None,
    /// Read and list its objects.
    Read,
    /// Put and delete its objects too.
    Write,
    /// Make it, delete it, and change its settings too.
    Administer,
}

/// Rights of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// One right on every bucket.
    Everywhere(Right),
    /// The right of the most specific pattern that a bucket's name matches: its name, else its longest prefix.
    /// Otherwise none.
    Patterns(BTreeMap<Pattern, Right>),
}

/// Pattern of buckets' names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// All names with this prefix.
    Beginning(String),
    /// Exactly this name.
    Name(String),
}

impl Rights {
    /// Returns the right on a bucket.
    pub fn on(&self, bucket: &str) -> Right {
        match self {
            Rights::Everywhere(right) => *right,
            Rights::Patterns(patterns) => {
                let matching = patterns.iter().filter(|(pattern, _)| pattern.matches(bucket));
                matching
                    .max_by_key(|(pattern, _)| pattern.weight())
                    .map(|(_, right)| *right)
                    .unwrap_or_default()
            }
        }
    }

    /// Parses the rights on a line. No word at all means an administrator, as in old lists, which had no rights.
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Rights, String> {
        let words: Vec<&str> = words.collect();
        if matches!(words[..], [] | ["admin"]) {
            return Ok(Rights::Everywhere(Right::Administer));
        }
        let mut patterns = BTreeMap::new();
        for word in words {
            let (right, names) = match word.split_once(':') {
                Some(("read", names)) => (Right::Read, names),
                Some(("write", names)) => (Right::Write, names),
                Some(("none", names)) => (Right::None, names),
                _ if word == "admin" => {
                    return Err("admin includes every other right: leave the others out".into());
                }
                _ => {
                    return Err(format!(
                        "{word:?} is not a right; expected admin, read:BUCKETS, write:BUCKETS or none:BUCKETS"
                    ));
                }
            };
            for name in names.split(',') {
                if patterns.insert(Pattern::parse(name)?, right).is_some() {
                    return Err(format!("{name} has two rights: write includes read"));
                }
            }
        }
        Ok(Rights::Patterns(patterns))
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        let (name, is_beginning) = match text.strip_suffix('*') {
            Some(beginning) => (beginning, true),
            None => (text, false),
        };
        let usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        if !name.bytes().all(usual) || (name.is_empty() && !is_beginning) {
            return Err(format!(
                "{text:?} is not a bucket; expected a name, a prefix followed by *, or *, separated by commas without blanks"
            ));
        }
        Ok(if is_beginning { Pattern::Beginning(name.into()) } else { Pattern::Name(name.into()) })
    }

    fn matches(&self, bucket: &str) -> bool {
        match self {
            Pattern::Name(name) => name == bucket,
            Pattern::Beginning(beginning) => bucket.starts_with(beginning),
        }
    }

    /// Returns its specificity. Of the patterns that match a name, one has the greatest.
    fn weight(&self) -> usize {
        match self {
            Pattern::Name(_) => usize::MAX,
            Pattern::Beginning(beginning) => beginning.len(),
        }
    }
}

/// Secret keys are not printed.
impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.list().keys()).finish()
    }
}

impl Users {
    /// Reads a file of users.
    ///
    /// # Errors
    ///
    /// [`UsersError`] if it can't be read or parsed.
    pub fn read(path: &Path) -> Result<Users, UsersError> {
        crate::secrets::check(path)?;
        Users::parse(&std::fs::read_to_string(path)?)
    }

    /// Parses a list of users: a line for each, with access key, secret key and rights. A word that begins with `#`
    /// begins a comment.
    ///
    /// # Errors
    ///
    /// [`UsersError`] for the first error.
    pub fn parse(text: &str) -> Result<Users, UsersError> {
        let mut users = List::new();
        for (at, line) in text.lines().enumerate() {
            let line = without_remark(line).trim();
            if line.is_empty() {
                continue;
            }
            let number = at + 1;
            let mut words = line.split_whitespace();
            let (Some(access), Some(secret)) = (words.next(), words.next()) else {
                return Err(UsersError::Line { line: number });
            };
            if !(3..=128).contains(&access.len()) || secret.len() < 8 || access.contains('/') {
                return Err(UsersError::Line { line: number });
            }
            let rights = Rights::parse(words).map_err(|why| UsersError::Right { line: number, why })?;
            let user = User { secret: secret.to_string(), rights };
            if users.insert(access.to_string(), user).is_some() {
                return Err(UsersError::Twice { line: number, access_key: access.to_string() });
            }
        }
        if users.is_empty() { Err(UsersError::Nobody) } else { Ok(Users(Arc::new(RwLock::new(users)))) }
    }

    fn list(&self) -> std::sync::RwLockReadGuard<'_, List> {
        self.0.read().expect("nobody panics with it")
    }

    /// Replaces the list by that of `other`.
    pub fn replace(&self, other: &Users) {
        let list = other.list().clone();
        *self.0.write().expect("nobody panics with it") = list;
    }

    /// Returns the access keys.
    pub fn access_keys(&self) -> Vec<String> {
        self.list().keys().cloned().collect()
    }

    /// Returns the rights of the user with this access key; none if there is no such user (any more).
    pub fn rights(&self, access_key: &str) -> Rights {
        let nothing = Rights::Everywhere(Right::None);
        self.list().get(access_key).map_or(nothing, |user| user.rights.clone())
    }
}

/// Removes a line's comment. Keys may contain a `#`.
fn without_remark(line: &str) -> &str {
    let begins = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let remark = line.match_indices('#').map(|(at, _)| at).find(begins);
    &line[..remark.unwrap_or(line.len())]
}

#[async_trait::async_trait]
impl S3Auth for Users {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let secret = self.list().get(access_key).map(|user| SecretKey::from(user.secret.as_str()));
        secret.ok_or_else(|| s3_error!(InvalidAccessKeyId))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_from_lines() {
        let users = Users::parse("# who\nalice secret-of-alice  # admin\n\n bob\tsecret-of-bob\n").unwrap();
        assert_eq!(users.list()["bob"].secret, "secret-of-bob");
        assert!(!format!("{users:?}").contains("secret"));
        let sharp = Users::parse("a#c secret#of#abc# read:* #write:*\n#bob secret-of-bob").unwrap();
        assert_eq!(
            (sharp.access_keys(), &*sharp.list()["a#c"].secret),
            (vec!["a#c".into()], "secret#of#abc#")
        );
        assert_eq!(sharp.rights("a#c").on("any"), Right::Read);
        for bad in ["", "# nobody", "alice", "alice short", "a b c", "al secret-of-al", "x/y secret-of-xy"] {
            assert!(Users::parse(bad).is_err(), "{bad}");
        }
        assert!(matches!(Users::parse("bob 12345678\nbob 12345678"), Err(UsersError::Twice { line: 2, .. })));
    }

    #[test]
    fn the_most_specific_pattern_decides() {
        let line = "bob secret-of-bob read:* write:in-*,photos none:in-private none:in-sec*";
        let rights = Users::parse(line).unwrap().rights("bob");
        let cases = [
            ("any", Right::Read),
            ("photos", Right::Write),
            ("photos2", Right::Read),
            ("in-", Right::Write),
            ("in-box", Right::Write),
            ("in-private", Right::None),
            ("in-private2", Right::Write),
            ("in-secret", Right::None),
        ];
        for (bucket, right) in cases {
            assert_eq!(rights.on(bucket), right, "{bucket}");
        }
        let few = Users::parse("bob secret-of-bob read:photos").unwrap();
        assert_eq!(few.rights("bob").on("other"), Right::None);
        assert_eq!(few.rights("alice").on("photos"), Right::None);
    }

    #[test]
    fn who_has_no_rights_listed_administers() {
        for line in ["bob secret-of-bob", "bob secret-of-bob admin"] {
            assert_eq!(Users::parse(line).unwrap().rights("bob").on("any"), Right::Administer);
        }
    }

    #[test]
    fn what_is_no_right_is_refused_and_named() {
        let cases = [
            ("reads:photos", "\"reads:photos\" is not a right"),
            ("photos", "\"photos\" is not a right"),
            ("read:", "\"\" is not a bucket"),
            ("read:a,,b", "\"\" is not a bucket"),
            ("read:Photos", "\"Photos\" is not a bucket"),
            ("read:a*b", "\"a*b\" is not a bucket"),
            ("read:a write:a", "a has two rights"),
            ("admin read:a", "every other right"),
            ("read:a admin", "every other right"),
        ];
        for (words, expected) in cases {
            let error = Users::parse(&format!("# x\nbob secret-of-bob {words}")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(expected), "{words}: {error}");
        }
    }

    #[test]
    fn a_list_can_be_replaced() {
        let users = Users::parse("bob secret-of-bob read:a").unwrap();
        let shared = users.clone();
        users.replace(&Users::parse("eve secret-of-eve write:a").unwrap());
        assert_eq!(shared.access_keys(), ["eve"]);
        assert_eq!(shared.rights("bob").on("a"), Right::None);
    }
}
