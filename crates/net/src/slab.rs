//! A table whose keys are never mistaken for each other's: a slot's key changes when it is used again.

/// A key that names an entry for as long as the entry exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    slot: u32,
    generation: u32,
}

impl Key {
    pub(crate) fn new(slot: u32, generation: u32) -> Key {
        Key { slot, generation }
    }

    pub(crate) fn slot(self) -> u32 {
        self.slot
    }

    pub(crate) fn generation(self) -> u32 {
        self.generation
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by [`Key`].
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the key that the next [`Slab::insert`] will return.
    pub(crate) fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&slot) => Key { slot, generation: self.slots[slot as usize].generation },
            None => Key { slot: self.slots.len() as u32, generation: 0 },
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        match self.free.pop() {
            Some(slot) => self.slots[slot as usize].value = Some(value),
            None => self.slots.push(Slot { generation: 0, value: Some(value) }),
        }
        key
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.slot as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_outlives_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!((slab.get(first), slab.len()), (Some(&'a'), 1));
        assert_eq!(slab.remove(first), Some('a'));
        let next = slab.next_key();
        let second = slab.insert('b');
        assert_eq!(second, next);
        assert_eq!(second.slot(), first.slot());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!((slab.get(second), slab.len()), (Some(&'b'), 1));
    }
}
