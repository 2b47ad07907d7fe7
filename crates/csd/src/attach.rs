//! Attaching, detaching and resizing of namespaces while the guest runs. The guest learns of it by an event.

use crate::config::ConfigError;
use crate::controller::Controller;
use crate::namespace::Namespace;
use crate::storage::Storage;

impl Controller {
    /// Attaches a namespace and notifies the guest.
    ///
    /// # Errors
    ///
    /// Fails if its number is taken or too large.
    pub fn attach(&mut self, namespace: Namespace, storage: &dyn Storage) -> Result<(), ConfigError> {
        let most = u64::from(self.config.namespaces);
        let number = namespace.number;
        if number == 0 || u64::from(number) > most {
            return Err(ConfigError::Range {
                name: "a namespace's number",
                value: number.into(),
                least: 1,
                most,
            });
        }
        if self.namespaces.contains_key(&number) {
            return Err(ConfigError::Taken(number));
        }
        namespace.check(storage.volume(namespace.volume).as_ref())?;
        let is_cached = !self.config.write_through;
        self.has_cache |=
            is_cached && storage.volume(namespace.volume).is_some_and(|volume| volume.volatile_cache);
        self.namespaces.insert(number, namespace);
        self.has_changed(number);
        Ok(())
    }

    /// Detaches a namespace and notifies the guest. Requests that the storage already has go on; ranges and
    /// zeros that it does not have yet are not done.
    ///
    /// # Errors
    ///
    /// Fails if there is no such namespace.
    pub fn detach(&mut self, number: u32) -> Result<(), ConfigError> {
        self.namespaces.remove(&number).ok_or(ConfigError::Missing(number))?;
        self.has_changed(number);
        Ok(())
    }

    /// Changes the size of a namespace, in logical blocks, and notifies the guest.
    ///
    /// # Errors
    ///
    /// Fails if there is no such namespace, or its volume is smaller.
    pub fn resize(&mut self, number: u32, blocks: u64, storage: &dyn Storage) -> Result<(), ConfigError> {
        let namespace = self.namespaces.get(&number).ok_or(ConfigError::Missing(number))?;
        let changed = Namespace { blocks, ..namespace.clone() };
        changed.check(storage.volume(changed.volume).as_ref())?;
        self.namespaces.insert(number, changed);
        self.has_changed(number);
        Ok(())
    }

    /// Returns the attached namespaces, by number.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.values()
    }

    fn has_changed(&mut self, number: u32) {
        if self.is_running() {
            self.changed.insert(number);
            self.events.namespaces();
        }
    }
}
