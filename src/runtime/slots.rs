//! A table of partitions by slot.

use crate::model::Slot;

/// Values by [`Slot`]. A slot is never given twice, while places are used again, so that a lane that lives through
/// thousands of rebalances does not grow.
pub(super) struct SlotTable<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> SlotTable<T> {
    pub(super) fn new() -> SlotTable<T> {
        SlotTable { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert_with(&mut self, make: impl FnOnce(Slot) -> T) -> Slot {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).expect("a process has fewer than 2^32 partitions")
        });
        let place = &mut self.places[index as usize];
        place.0 = place.0.wrapping_add(1);
        let slot = Slot(u64::from(place.0) << 32 | u64::from(index));
        place.1 = Some(make(slot));
        slot
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let (generation, value) = self.places.get_mut(slot.0 as u32 as usize)?;
        if u64::from(*generation) == slot.0 >> 32 { value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        let index = slot.0 as u32;
        let (generation, value) = self.places.get_mut(index as usize)?;
        if u64::from(*generation) != slot.0 >> 32 {
            return None;
        }
        let value = value.take()?;
        self.free.push(index);
        Some(value)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, value)| value.as_ref())
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|(_, value)| value.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_dies_with_its_value_although_its_place_is_used_again() {
        let mut table = SlotTable::new();
        let first = table.insert_with(|_| "a");
        assert_eq!(table.get_mut(first), Some(&mut "a"));
        assert_eq!(table.remove(first), Some("a"));
        let second = table.insert_with(|_| "b");
        assert_ne!(first, second);
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.values().count(), 1);
        assert_eq!(table.places.len(), 1);
        assert_eq!(table.get_mut(second), Some(&mut "b"));
    }
}
