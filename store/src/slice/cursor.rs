//! The records of a slice in ring order, from a position on.

use super::{Checked, Damage, SliceView};
use crate::packed::{Packed, Position};

const NO_ORDER: Damage = "the order of a slice is damaged";

/// An iterator over a slice. What cannot be read is told, and the next follows.
#[derive(Debug)]
pub(crate) struct OrderedRecords<'a> {
    view: SliceView<'a>,
    /// Slots in ring order, where the order of the slice is damaged: those that can be read,
    /// then the others.
    sorted: Option<Vec<u32>>,
    place: usize,
}

/// A place that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) what: Damage,
    /// Its slot, if at least that is known.
    pub(crate) slot: Option<u32>,
    /// Whether it comes at its place in ring order.
    pub(crate) in_order: bool,
}

impl<'a> OrderedRecords<'a> {
    /// From the first record after a position on, or from the first of all.
    ///
    /// # Errors
    /// What is damaged.
    pub(crate) fn after(
        view: SliceView<'a>,
        position: Option<&Position<'_>>,
    ) -> Result<Self, Damage> {
        if !view.order_fits() {
            return Err(NO_ORDER);
        }
        Ok(Self::from(view, None, position))
    }

    /// As [`OrderedRecords::after`], but without the order if that is damaged: reads all of
    /// the slice then.
    pub(crate) fn readable(view: SliceView<'a>, position: Option<&Position<'_>>) -> Self {
        let sorted = (!view.order_fits()).then(|| sort(view));
        Self::from(view, sorted, position)
    }

    fn from(
        view: SliceView<'a>,
        sorted: Option<Vec<u32>>,
        position: Option<&Position<'_>>,
    ) -> Self {
        let mut records = Self {
            view,
            sorted,
            place: 0,
        };
        if let Some(position) = position {
            records.place = records.first_after(position);
        }
        records
    }

    /// The first place such that whatever can be read before it is not after the position.
    fn first_after(&self, position: &Position<'_>) -> usize {
        let (mut from, mut to) = (0, self.view.keys());
        while from < to {
            let middle = from.midpoint(to);
            // Places that cannot be read are passed over: they are met again by whoever
            // goes on from the answer.
            let readable = (middle..to).find_map(|place| Some((place, self.at(place).ok()?)));
            match readable {
                Some((place, packed)) if packed.position() <= *position => from = place + 1,
                _ => to = middle,
            }
        }
        from
    }

    fn slot(&self, place: usize) -> Option<u32> {
        match &self.sorted {
            Some(sorted) => sorted.get(place).copied(),
            None => self.view.slot_in_order(place).map(|slot| slot as u32),
        }
    }

    fn at(&self, place: usize) -> Checked {
        self.view.record(self.slot(place).ok_or(NO_ORDER)? as usize)
    }
}

/// The slots of what can be read, in ring order, then the others.
fn sort(view: SliceView<'_>) -> Vec<u32> {
    let mut slots: Vec<_> = (0..view.keys())
        .map(|slot| {
            let digest = view.record(slot).ok().map(|packed| packed.digest());
            (digest.is_none(), digest, slot as u32)
        })
        .collect();
    slots.sort_unstable();
    slots.into_iter().map(|(_, _, slot)| slot).collect()
}

impl Iterator for OrderedRecords<'_> {
    type Item = Result<Packed, Lost>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.place >= self.view.keys() {
            return None;
        }
        let place = self.place;
        self.place += 1;
        Some(self.at(place).map_err(|what| Lost {
            what,
            slot: self.slot(place),
            in_order: self.sorted.is_none(),
        }))
    }
}
