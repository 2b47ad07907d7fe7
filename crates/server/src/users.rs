//! Who may do what: users from a file, and anonymous readers where they are asked for.

use crate::connection::Exchange;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The users and their secret keys.
#[derive(Clone)]
pub struct Users(Arc<HashMap<String, String>>);

/// Why a list of users can't be had.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A line is not a user.
    #[error(
        "line {line}: a user is an access key of 3 to 128 characters and a secret key of 8 or more, with a blank between them"
    )]
    Line {
        /// Which line, from 1.
        line: usize,
    },
    /// A user is there twice.
    #[error("line {line}: the access key {access_key} was there before")]
    Twice {
        /// Which line, from 1.
        line: usize,
        /// Which key.
        access_key: String,
    },
    /// Nobody is in the list.
    #[error("there is no user in it: write a line with an access key and a secret key")]
    Nobody,
}

/// Secret keys are not printed.
impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Users {
    /// Reads a file: a line for each user, access key and secret key with blanks between them; `#` begins a comment.
    ///
    /// # Errors
    ///
    /// [`UsersError`].
    pub fn read(path: &Path) -> Result<Users, UsersError> {
        Users::parse(&std::fs::read_to_string(path)?)
    }

    /// Users from such a text.
    ///
    /// # Errors
    ///
    /// [`UsersError`].
    pub fn parse(text: &str) -> Result<Users, UsersError> {
        let mut users = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split_once('#').map_or(line, |(line, _)| line).trim();
            if line.is_empty() {
                continue;
            }
            let number = at + 1;
            let mut words = line.split_whitespace();
            let (Some(access), Some(secret), None) = (words.next(), words.next(), words.next()) else {
                return Err(UsersError::Line { line: number });
            };
            if !(3..=128).contains(&access.len()) || secret.len() < 8 || access.contains('/') {
                return Err(UsersError::Line { line: number });
            }
            if users.insert(access.to_string(), secret.to_string()).is_some() {
                return Err(UsersError::Twice { line: number, access_key: access.to_string() });
            }
        }
        if users.is_empty() { Err(UsersError::Nobody) } else { Ok(Users(Arc::new(users))) }
    }

    /// The access keys.
    pub fn access_keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[async_trait::async_trait]
impl S3Auth for Users {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let secret = self.0.get(access_key);
        secret.map(|secret| SecretKey::from(secret.as_str())).ok_or_else(|| s3_error!(InvalidAccessKeyId))
    }
}

/// What those may do who do not say who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing.
    #[default]
    Nothing,
    /// Read objects, and list them.
    Read,
    /// Everything.
    All,
}

#[async_trait::async_trait]
impl S3Access for Anonymous {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        // For the log and the metrics.
        let operation = context.s3_op().name().to_string();
        if let Some(exchange) = context.extensions_mut().get::<Arc<Exchange>>() {
            exchange.name(operation.clone());
        }
        let reads =
            ["GetObject", "HeadObject", "ListObjects", "ListObjectsV2", "HeadBucket", "GetBucketLocation"];
        let allowed = match self {
            Anonymous::All => true,
            Anonymous::Read => reads.contains(&operation.as_str()),
            Anonymous::Nothing => false,
        };
        if context.credentials().is_some() || allowed {
            return Ok(());
        }
        Err(s3_error!(AccessDenied, "the request is not signed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_from_lines() {
        let users = Users::parse("# who\nalice secret-of-alice  # admin\n\n bob\tsecret-of-bob\n").unwrap();
        assert_eq!(users.0["bob"], "secret-of-bob");
        assert!(!format!("{users:?}").contains("secret"));
        for bad in ["", "# nobody", "alice", "alice short", "a b c", "al secret-of-al", "x/y secret-of-xy"] {
            assert!(Users::parse(bad).is_err(), "{bad}");
        }
        assert!(matches!(Users::parse("bob 12345678\nbob 12345678"), Err(UsersError::Twice { line: 2, .. })));
    }
}
