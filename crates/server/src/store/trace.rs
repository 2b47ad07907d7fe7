//! Reports each change of the store's folder to the power-loss tests ([`super::power_tests`]). Other builds report
//! nothing.
//!
//! A change is reported before it is made, and a file's name after it exists, so that the reported order allows at
//! least the losses that the true order allows. A sync covers what was reported before it began.

#[cfg(not(test))]
pub(super) use nothing::*;
#[cfg(test)]
pub(super) use recorded::*;

#[cfg(not(test))]
mod nothing {
    use std::io;
    use std::path::Path;

    /// Fails if a test wants a read to fail.
    pub(in super::super) fn reads(_file: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(in super::super) fn writes(_file: &Path, _offset: u64, _data: &[u8]) {}
    pub(in super::super) fn resizes(_file: &Path, _length: u64) {}
    pub(in super::super) fn made_file(_path: &Path) {}

    /// Makes or removes a folder by calling `change`.
    pub(in super::super) fn makes_folder(
        _path: &Path,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        change()
    }
    pub(in super::super) fn removes_folder(
        _path: &Path,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        change()
    }

    pub(in super::super) fn renamed(_from: &Path, _to: &Path) {}
    pub(in super::super) fn removes(_path: &Path) {}

    /// Syncs a file or folder by calling `sync`.
    pub(in super::super) fn syncs(_path: &Path, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        sync()
    }

    /// Reports that the kernel was told to drop a file from memory.
    pub(in super::super) fn forgot(_file: &Path) {}
}

#[cfg(test)]
mod recorded {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::sync::{Arc, Mutex, MutexGuard};

    /// A change in a folder.
    #[derive(Clone, Debug)]
    pub(in super::super) enum Event {
        Write(PathBuf, u64, Vec<u8>),
        Resize(PathBuf, u64),
        File(PathBuf),
        Folder(PathBuf),
        Rename(PathBuf, PathBuf),
        Remove(PathBuf),
        /// A sync that succeeded, with the number of events when it began.
        Synced(PathBuf, usize),
        /// A sync that failed: the kernel takes what it should have written for written, and it is lost.
        SyncFailed(PathBuf, usize),
        /// A mark that the test itself sets.
        Note(String),
    }

    type OnForgot = Box<dyn Fn(&Recorder, &Path) + Send>;

    /// Recorder of a folder's events.
    pub(in super::super) struct Recorder {
        root: PathBuf,
        events: Mutex<Vec<Event>>,
        /// Name of the file whose next sync fails.
        failing: Mutex<Option<&'static str>>,
        /// Name of the file whose next read fails.
        unreadable: Mutex<Option<&'static str>>,
        /// Callback for files that the kernel dropped, so that the test can put the disk's state in place.
        on_forgot: Mutex<Option<OnForgot>>,
        failed: AtomicBool,
    }

    static RECORDERS: Mutex<Vec<Arc<Recorder>>> = Mutex::new(Vec::new());

    fn of(path: &Path) -> Option<Arc<Recorder>> {
        let recorders = RECORDERS.lock().unwrap();
        recorders.iter().find(|recorder| path.starts_with(&recorder.root)).cloned()
    }

    fn tell(path: &Path, event: impl FnOnce() -> Event) {
        if let Some(recorder) = of(path) {
            recorder.events().push(event());
        }
    }

    impl Recorder {
        /// Records events of that folder from now on, until the process ends.
        pub(in super::super) fn start(root: &Path) -> Arc<Recorder> {
            let recorder = Arc::new(Recorder {
                root: root.to_owned(),
                events: Mutex::default(),
                failing: Mutex::default(),
                unreadable: Mutex::default(),
                on_forgot: Mutex::default(),
                failed: AtomicBool::new(false),
            });
            RECORDERS.lock().unwrap().push(recorder.clone());
            recorder
        }

        pub(in super::super) fn events(&self) -> MutexGuard<'_, Vec<Event>> {
            self.events.lock().unwrap()
        }

        pub(in super::super) fn note(&self, text: String) {
            self.events().push(Event::Note(text));
        }

        /// Has the next sync of a file of that name fail. Files that are dropped from memory afterwards are handed to
        /// `on_forgot`.
        pub(in super::super) fn fail_next_sync(
            &self,
            name: &'static str,
            on_forgot: impl Fn(&Recorder, &Path) + Send + 'static,
        ) {
            *self.failing.lock().unwrap() = Some(name);
            *self.on_forgot.lock().unwrap() = Some(Box::new(on_forgot));
        }

        /// Has the next read of a file of that name fail.
        pub(in super::super) fn fail_next_read(&self, name: &'static str) {
            *self.unreadable.lock().unwrap() = Some(name);
        }

        pub(in super::super) fn has_failed(&self) -> bool {
            self.failed.load(SeqCst)
        }

        fn fails(&self, failing: &Mutex<Option<&'static str>>, path: &Path) -> bool {
            let mut failing = failing.lock().unwrap();
            let fails = failing.is_some_and(|name| path.ends_with(name));
            if fails {
                *failing = None;
                self.failed.store(true, SeqCst);
            }
            fails
        }
    }

    pub(in super::super) fn reads(file: &Path) -> io::Result<()> {
        match of(file) {
            Some(recorder) if recorder.fails(&recorder.unreadable, file) => Err(rustix::io::Errno::IO.into()),
            _ => Ok(()),
        }
    }

    pub(in super::super) fn writes(file: &Path, offset: u64, data: &[u8]) {
        tell(file, || Event::Write(file.into(), offset, data.into()));
    }

    pub(in super::super) fn resizes(file: &Path, length: u64) {
        tell(file, || Event::Resize(file.into(), length));
    }

    pub(in super::super) fn made_file(path: &Path) {
        tell(path, || Event::File(path.into()));
    }

    /// Makes or removes a folder under a lock, so that the events are in the true order.
    fn in_order(path: &Path, event: Event, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some(recorder) = of(path) else { return change() };
        let mut events = recorder.events();
        change()?;
        events.push(event);
        Ok(())
    }

    pub(in super::super) fn makes_folder(
        path: &Path,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        in_order(path, Event::Folder(path.into()), change)
    }

    pub(in super::super) fn removes_folder(
        path: &Path,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        in_order(path, Event::Remove(path.into()), change)
    }

    pub(in super::super) fn renamed(from: &Path, to: &Path) {
        tell(to, || Event::Rename(from.into(), to.into()));
    }

    pub(in super::super) fn removes(path: &Path) {
        tell(path, || Event::Remove(path.into()));
    }

    pub(in super::super) fn syncs(path: &Path, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some(recorder) = of(path) else { return sync() };
        let begun = recorder.events().len();
        if recorder.fails(&recorder.failing, path) {
            recorder.events().push(Event::SyncFailed(path.into(), begun));
            return Err(rustix::io::Errno::IO.into());
        }
        sync()?;
        recorder.events().push(Event::Synced(path.into(), begun));
        Ok(())
    }

    pub(in super::super) fn forgot(file: &Path) {
        if let Some(recorder) = of(file)
            && let Some(on_forgot) = &*recorder.on_forgot.lock().unwrap()
        {
            on_forgot(&recorder, file);
        }
    }
}
