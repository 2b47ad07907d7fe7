//! Reports each change of the store's folder to tests that take the power away ([`super::power_tests`]). In
//! other builds nothing is reported.
//!
//! A change is told before it is made, or a file's name after it is there, so that the order in which tests
//! see them allows at least the losses that the true order allows. A sync covers what was told before it
//! began.

#[cfg(not(test))]
pub(super) use nothing::*;
#[cfg(test)]
pub(super) use recorded::*;

#[cfg(not(test))]
mod nothing {
    use std::io;
    use std::path::Path;

    pub(in super::super) fn writes(_file: &Path, _offset: u64, _data: &[u8]) {}
    pub(in super::super) fn resizes(_file: &Path, _length: u64) {}
    pub(in super::super) fn made_file(_path: &Path) {}

    /// A folder is made or removed, by `change`.
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

    /// A sync of a file or folder, by `sync`.
    pub(in super::super) fn syncs(_path: &Path, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        sync()
    }

    /// The kernel was told to forget what it has of a file in memory.
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
        /// A sync that has succeeded; it began when there were that many events.
        Synced(PathBuf, usize),
        /// One that has failed: what it should have written counts as written for the kernel, and is lost.
        SyncFailed(PathBuf, usize),
        /// Something that the test itself wants to find in its place.
        Note(String),
    }

    type OnForgot = Box<dyn Fn(&Recorder, &Path) + Send>;

    /// The events of a folder.
    pub(in super::super) struct Recorder {
        root: PathBuf,
        events: Mutex<Vec<Event>>,
        /// The next sync of a file of that name fails.
        failing: Mutex<Option<&'static str>>,
        /// Files that the kernel forgot, for the test to put the disk's state in place.
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
        /// Records what happens in that folder from now on, for the life of the process.
        pub(in super::super) fn start(root: &Path) -> Arc<Recorder> {
            let recorder = Arc::new(Recorder {
                root: root.to_owned(),
                events: Mutex::default(),
                failing: Mutex::default(),
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

        /// Has the next sync of a file of that name fail. Whatever is forgotten afterwards is handed to
        /// `on_forgot`.
        pub(in super::super) fn fail_next_sync(
            &self,
            name: &'static str,
            on_forgot: impl Fn(&Recorder, &Path) + Send + 'static,
        ) {
            *self.failing.lock().unwrap() = Some(name);
            *self.on_forgot.lock().unwrap() = Some(Box::new(on_forgot));
        }

        pub(in super::super) fn has_failed(&self) -> bool {
            self.failed.load(SeqCst)
        }

        fn fails(&self, path: &Path) -> bool {
            let mut failing = self.failing.lock().unwrap();
            let fails = failing.is_some_and(|name| path.ends_with(name));
            if fails {
                *failing = None;
                self.failed.store(true, SeqCst);
            }
            fails
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

    /// Whoever makes a folder and whoever removes it do so one after the other, so that their events are in
    /// the true order.
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
        if recorder.fails(path) {
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
