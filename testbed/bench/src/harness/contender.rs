//! Contenders: their names, and picking them by name.

use crate::failure::Failure;

/// A kind of contender: ways to do a job, object servers, designs of a server.
pub trait Named: Copy + Eq + 'static {
    /// All contenders in the order of tables and plots, each with its name and a description.
    const ALL: &'static [(Self, &'static str, &'static str)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(one, ..)| *one == self).map_or("?", |(_, name, _)| name)
    }

    fn what(self) -> &'static str {
        Self::ALL.iter().find(|(one, ..)| *one == self).map_or("?", |(.., what)| what)
    }

    fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|(_, name, _)| *name).collect()
    }

    fn parse(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.iter().find(|(_, known, _)| *known == name);
        found.map(|(one, ..)| *one).ok_or_else(|| {
            Failure::usage(format!("there is no contender {name:?}"))
                .advise(format!("one of: {}", Self::names().join(", ")))
        })
    }

    /// Returns the contenders with these names, each once.
    fn picked(names: &[String]) -> Result<Vec<Self>, Failure> {
        let mut picked = Vec::new();
        for name in names {
            let one = Self::parse(name)?;
            if !picked.contains(&one) {
                picked.push(one);
            }
        }
        Ok(picked)
    }
}
