//! Iterates over the records of a slice in ring order, from a position on.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a slice has at most MAX_KEYS slots"
)]

use torc_record::Locator;

use super::rest::{Reader, Reading};
use super::view::NO_ORDER;
use super::{Damage, SliceView, order};
use crate::packed::Packed;

/// An iterator over a slice. It reports an unreadable place, then continues with the next.
#[derive(Debug)]
pub(crate) struct OrderedRecords<'a> {
    view: SliceView<'a>,
    reader: Reader<'a>,
    order: Order,
    place: usize,
}

/// The slots of a slice in ring order.
#[derive(Debug)]
enum Order {
    /// The slice's own order, checked.
    Kept(Vec<u8>),
    /// Rebuilt: the readable slots in ring order, then the others.
    Sorted(Vec<u32>),
}

/// An unreadable place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) what: Damage,
    /// Its slot, if known.
    pub(crate) slot: Option<u32>,
    /// Whether it is reported at its place in ring order.
    pub(crate) in_order: bool,
}

impl<'a> OrderedRecords<'a> {
    /// Starts at the first record after a position, or at the first of all.
    ///
    /// # Errors
    /// The damage.
    pub(crate) fn after(
        view: SliceView<'a>,
        position: Option<&Locator<&[u8]>>,
    ) -> Result<Self, Damage> {
        Ok(Self::from(view, Order::Kept(view.order()?), position))
    }

    /// As [`OrderedRecords::after`], but works without the order if that is damaged, by reading the
    /// whole slice.
    pub(crate) fn readable(view: SliceView<'a>, position: Option<&Locator<&[u8]>>) -> Self {
        let order = view.order();
        let order = order.map_or_else(|_| Order::Sorted(sort(view)), Order::Kept);
        Self::from(view, order, position)
    }

    fn from(view: SliceView<'a>, order: Order, position: Option<&Locator<&[u8]>>) -> Self {
        let mut records = Self {
            view,
            reader: view.reader(),
            order,
            place: 0,
        };
        if let Some(position) = position {
            records.place = records.first_after(position);
        }
        records
    }

    /// The first place before which no readable record is after the position.
    fn first_after(&self, position: &Locator<&[u8]>) -> usize {
        let (mut from, mut to) = (0, self.view.keys());
        while from < to {
            let middle = from.midpoint(to);
            // Skips unreadable places: iteration from the result meets them again.
            let at = |place| {
                self.view
                    .record(self.slot(place)? as usize, Reading::Wait)
                    .ok()
            };
            let readable = (middle..to).find_map(|place| Some((place, at(place)?)));
            match readable {
                Some((place, packed)) if packed.position() <= *position => from = place + 1,
                _ => to = middle,
            }
        }
        from
    }

    fn slot(&self, place: usize) -> Option<u32> {
        match &self.order {
            Order::Sorted(sorted) => sorted.get(place).copied(),
            Order::Kept(order) => {
                order::slot_at(order, self.view.keys(), place).map(|slot| slot as u32)
            }
        }
    }
}

/// The readable slots in ring order, then the others.
fn sort(view: SliceView<'_>) -> Vec<u32> {
    let mut reader = view.reader();
    let mut slots: Vec<_> = (0..view.keys())
        .map(|slot| {
            let digest = view.record_by(&mut reader, slot);
            let digest = digest.ok().map(|packed| packed.digest());
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
        let slot = self.slot(self.place);
        self.place += 1;
        let record = match slot {
            Some(slot) => self.view.record_by(&mut self.reader, slot as usize),
            None => Err(NO_ORDER),
        };
        Some(record.map_err(|what| Lost {
            what,
            slot,
            in_order: matches!(self.order, Order::Kept(_)),
        }))
    }
}
