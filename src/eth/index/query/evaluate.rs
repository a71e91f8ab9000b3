//! Evaluation of a query on the sections of one segment.

#![expect(clippy::cast_precision_loss, reason = "an estimate of the remaining candidates")]

use alloc::vec::Vec;
use core::ops::Range;

use chainsieve_lanes::simd::Backend;

use super::QueryStats;
use super::kernels::{And, AndTo, AnyOf, CountOnes, Mask, TOGETHER};
use super::rows::{Access, Piece, Rows, Sections, each, runs};
use super::{Plan, ValueRows};
use crate::eth::bloom::BITS;
use crate::eth::index::IndexError;
use crate::eth::index::format::SECTION;
use crate::eth::index::format::segment::{LIST_MAX, ROW};
use crate::eth::index::storage::ReadAt;

/// If fewer candidates than this number are expected in a section, a check for remaining candidates
/// is made before more rows are read.
const FEW: f64 = 0.125;

/// Returns the sections that contain these headers of a segment. A segment has at most 32 sections.
pub(super) fn sections_of(headers: &Range<usize>) -> Sections {
    let section = |section: usize| u32::try_from(section).unwrap_or(u32::MAX);
    let (first, end) = (headers.start / SECTION, headers.end.div_ceil(SECTION));
    sections_between(&(section(first)..section(end)))
}

fn sections_between(sections: &Range<u32>) -> Sections {
    let below = |end: u32| 1_u32.checked_shl(end).map_or(Sections::MAX, |bit| bit - 1);
    below(sections.end) & !below(sections.start)
}

/// Evaluation of queries on headers of a segment whose rows have been [entered](Access::enter).
#[derive(Debug)]
pub(super) struct Evaluation<'a, 'b, F> {
    pub(super) backend: Backend,
    pub(super) access: &'a Access<'b, F>,
    pub(super) rows: &'a mut Rows,
    /// Range of the headers, counted from the segment's first header.
    pub(super) headers: Range<usize>,
    pub(super) stats: QueryStats,
    /// Sections whose candidates were counted when the last rows were combined, and the number of
    /// these candidates.
    pub(super) counted: (Sections, u64),
}

/// Returns the sections that may contain candidates according to the directory.
pub(super) fn live<F: ReadAt>(
    access: &Access<'_, F>,
    rows: &Rows,
    plan: &Plan,
    asked: Sections,
) -> Result<Sections, IndexError> {
    let mut live = plan.required.iter().fold(asked, |live, &row| live & rows.row(row).live);
    for values in &plan.clauses {
        let mut any = 0;
        for value in values {
            let of = |row: u16| rows.row(row).live;
            any |= value.iter().fold(live, |live, &row| live & of(row));
        }
        live &= any;
    }
    // Only a filter with all bits set passes a clause without values: look for such a filter in the
    // histogram.
    if plan.impossible {
        for section in each(live) {
            if access.segment.record(section)?.fills[BITS] == 0 {
                live &= !(1 << section);
            }
        }
    }
    Ok(live)
}

impl<F: ReadAt> Evaluation<'_, '_, F> {
    /// Returns the number of the first section of the headers.
    fn group(&self) -> u32 {
        u32::try_from(self.headers.start / SECTION).expect("at most 32")
    }

    /// Appends one bit for each header of the sections, which is 1 if the header is a candidate.
    /// Returns the number of candidates.
    pub(super) fn run(&mut self, plan: &Plan, words: &mut Vec<u64>) -> Result<u64, IndexError> {
        let asked = sections_of(&self.headers);
        let mut live = live(self.access, self.rows, plan, asked)?;
        self.stats.sections += u64::from(asked.count_ones());
        self.stats.skipped_sections += u64::from((asked & !live).count_ones());
        // Try the fast path, which is possible only if no section can be skipped.
        if live == asked
            && let Some(count) = self.at_once(plan, asked, words)?
        {
            return Ok(count);
        }
        let before = words.len();
        words.resize(before + asked.count_ones() as usize * (SECTION / 64), 0);
        let masks = words[before..].as_chunks_mut::<{ SECTION / 64 }>().0;
        let mut is_set = self.set_edges(live, masks);
        self.require(plan, &mut live, &mut is_set, masks)?;
        // In sections that no row has restricted, all headers remain candidates.
        for section in each(live & !is_set) {
            masks[(section - self.group()) as usize].fill(u64::MAX);
        }
        for clause in &plan.clauses {
            self.counted = (0, 0);
            self.any_of(clause, &mut live, masks)?;
        }
        let (counted, mut count) = self.counted;
        for run in runs(live & !counted) {
            let masks = &masks[(run.start - self.group()) as usize..][..run.len()];
            count += self.backend.run(CountOnes(masks.as_flattened()));
        }
        Ok(count)
    }

    /// Fast path for the usual case: combines all rows at once and returns the number of
    /// candidates.
    ///
    /// Returns `None` if the range does not cover whole sections, if the query has clauses of
    /// several values, if a row is not raw in a section, or if checking for remaining candidates
    /// between rows would pay off.
    fn at_once(
        &mut self,
        plan: &Plan,
        sections: Sections,
        words: &mut Vec<u64>,
    ) -> Result<Option<u64>, IndexError> {
        let group = self.group();
        let run = group..group + sections.count_ones();
        let edges = [self.headers.start, self.headers.end];
        let whole = edges.iter().all(|edge| edge.is_multiple_of(SECTION));
        if !whole || !plan.clauses.is_empty() || !(1..=TOGETHER).contains(&plan.required.len()) {
            return Ok(None);
        }
        let headers = self.headers.len() as f64;
        let (mut left, mut most) = (SECTION as f64, 0.0_f64);
        for &row in &plan.required {
            let row = self.rows.row(row);
            if sections & !row.raw != 0 {
                return Ok(None);
            }
            let density = f64::from(row.ones(sections)) / headers;
            (left, most) = (left * density, most.max(density));
        }
        // The sparsest rows are read first, so `left / most` candidates are expected before the
        // densest row is read. If few candidates are expected, check for remaining candidates
        // first: if none remains, the densest row need not be read.
        if left < most * FEW {
            return Ok(None);
        }
        for &row in &plan.required {
            self.access.ensure(self.rows, row, sections, group, &mut self.stats)?;
        }
        let mut data: [&[[u8; ROW]]; TOGETHER] = [&[]; TOGETHER];
        for (data, &row) in data.iter_mut().zip(&plan.required) {
            *data = self.access.raw(self.rows, row, &run, group);
        }
        let rows = &data[..plan.required.len()];
        Ok(Some(self.backend.run(AndTo { rows, words })))
    }

    /// In sections of which only a part is queried, sets the bits of the queried headers. Returns
    /// these sections.
    fn set_edges(&self, live: Sections, masks: &mut [Mask]) -> Sections {
        let Range { start, end } = self.headers;
        let mut edges = 0;
        for section in each(live) {
            let first = section as usize * SECTION;
            let headers = start.max(first) - first..end.min(first + SECTION) - first;
            if headers == (0..SECTION) {
                continue;
            }
            edges |= 1 << section;
            let mask = &mut masks[(section - self.group()) as usize];
            for (number, word) in mask.iter_mut().enumerate() {
                let below = |end: usize| match end.saturating_sub(number * 64) {
                    bits @ 0..64 => (1 << bits) - 1,
                    _ => u64::MAX,
                };
                *word = below(headers.end) & !below(headers.start);
            }
        }
        edges
    }

    /// Combines the rows that every match needs, in ascending order of their number of set bits.
    fn require(
        &mut self,
        plan: &Plan,
        live: &mut Sections,
        is_set: &mut Sections,
        masks: &mut [Mask],
    ) -> Result<(), IndexError> {
        let group = self.group();
        let mut order: Vec<(u32, u16)> = Vec::new();
        for &row in &plan.required {
            // A row whose bits are all set excludes no header and is skipped.
            if *live & !self.rows.row(row).full != 0 {
                order.push((self.rows.row(row).ones(*live), row));
            }
        }
        order.sort_unstable();
        let mut order = &order[..];
        // Expected number of remaining candidates of a section, under the assumption that bits are
        // independent.
        let mut left = SECTION as f64;
        while !order.is_empty() && *live != 0 {
            // Combine several rows at once, until checking for remaining candidates pays off.
            let headers = f64::from(live.count_ones()) * SECTION as f64;
            let mut count = 0;
            for &(ones, row) in order.iter().take(TOGETHER) {
                self.access.ensure(self.rows, row, *live, group, &mut self.stats)?;
                count += 1;
                left *= f64::from(ones) / headers;
                if left < FEW {
                    break;
                }
            }
            let (now, later) = order.split_at(count);
            order = later;
            self.and_rows(now, live, is_set, masks);
        }
        Ok(())
    }

    /// Combines rows with the masks of all sections.
    fn and_rows(
        &mut self,
        rows: &[(u32, u16)],
        live: &mut Sections,
        is_set: &mut Sections,
        masks: &mut [Mask],
    ) {
        let group = self.group();
        let raw = rows.iter().fold(*live, |raw, &(_, row)| raw & self.rows.row(row).raw);
        self.counted = (raw, 0);
        for (sections, are_set) in [(raw & !*is_set, false), (raw & *is_set, true)] {
            for run in runs(sections) {
                let mut data: [&[[u8; ROW]]; TOGETHER] = [&[]; TOGETHER];
                for (data, &(_, row)) in data.iter_mut().zip(rows) {
                    *data = self.access.raw(self.rows, row, &run, group);
                }
                let masks = &mut masks[(run.start - group) as usize..][..run.len()];
                let kernel = And { rows: &data[..rows.len()], are_set, masks };
                let (left, ones) = self.backend.run(kernel);
                *live &= !sections_between(&run) | left << run.start;
                self.counted.1 += ones;
            }
        }
        *is_set |= raw;
        for section in each(*live & !raw) {
            let mask = &mut masks[(section - group) as usize];
            let was_set = *is_set >> section & 1 != 0;
            match self.and(rows, section, was_set, mask) {
                None => {}
                Some(true) => *is_set |= 1 << section,
                Some(false) => *live &= !(1 << section),
            }
        }
    }

    /// Combines rows with a mask; returns `Some(true)` if any bit of the mask remains, and `None`
    /// if the rows exclude no header because all their bits are set.
    fn and(
        &self,
        rows: &[(u32, u16)],
        section: u32,
        was_set: bool,
        mask: &mut Mask,
    ) -> Option<bool> {
        let mut raw: [&[[u8; ROW]]; TOGETHER] = [&[]; TOGETHER];
        let mut raws = 0;
        let mut lists: [&[[u8; 2]]; TOGETHER] = [&[]; TOGETHER];
        let mut num_lists = 0;
        for &(_, row) in rows {
            match self.access.piece(self.rows, row, section, self.group()) {
                Piece::Ones => {}
                Piece::Zeros => {
                    mask.fill(0);
                    return Some(false);
                }
                Piece::Raw(piece) => {
                    raw[raws] = core::slice::from_ref(piece);
                    raws += 1;
                }
                Piece::List(places) => {
                    lists[num_lists] = places;
                    num_lists += 1;
                }
            }
        }
        let mut is_set = was_set;
        let mut any = None;
        // Combine the lists first: they are short, and often leave no candidate.
        for places in &lists[..num_lists] {
            any = Some(and_list(places, is_set, mask));
            is_set = true;
            if any == Some(false) {
                break;
            }
        }
        if raws > 0 && any != Some(false) {
            let masks = core::slice::from_mut(mask);
            let kernel = And { rows: &raw[..raws], are_set: is_set, masks };
            any = Some(self.backend.run(kernel).0 != 0);
        }
        any
    }

    /// Keeps the headers that may contain at least one of the values.
    fn any_of(
        &mut self,
        values: &[ValueRows],
        live: &mut Sections,
        masks: &mut [Mask],
    ) -> Result<(), IndexError> {
        let group = self.group();
        // Sections with headers for which none of the values has matched so far.
        let mut left = *live;
        let mut order = Vec::new();
        for value in values {
            let rows = value.map(|row| self.rows.row(row));
            let of = rows.iter().fold(*live, |sections, row| sections & row.live);
            // If all three rows of a value are full in a section, every header there passes.
            left &= !rows.iter().fold(u32::MAX, |sections, row| sections & row.full);
            if of != 0 {
                let ones = rows.map(|row| f64::from(row.ones(of)));
                order.push((ones[0] * ones[1] * ones[2], of, *value));
            }
        }
        // Values that most headers are likely to contain come first, so that the loop can end
        // early.
        order.sort_by(|a, b| b.0.total_cmp(&a.0));
        let open = left;
        let mut found = Vec::new();
        found.resize(masks.len(), [0; SECTION / 64]);
        for values in order.chunks(VALUES) {
            if left == 0 {
                break;
            }
            for (_, of, value) in values {
                for &row in value {
                    self.access.announce(self.rows.row(row), of & left);
                }
            }
            for (_, of, value) in values {
                for &row in value {
                    self.access.ensure(self.rows, row, of & left, group, &mut self.stats)?;
                }
            }
            for section in each(left) {
                let at = (section - group) as usize;
                if self.add_values(values, section, &masks[at], &mut found[at]) {
                    left &= !(1 << section);
                }
            }
        }
        for section in each(open & left) {
            let at = (section - group) as usize;
            let mut any = 0;
            for (mask, found) in masks[at].iter_mut().zip(&found[at]) {
                *mask &= found;
                any |= *mask;
            }
            if any == 0 {
                *live &= !(1 << section);
            }
        }
        Ok(())
    }

    /// Adds the headers that may contain one of the values; returns `true` if all headers of the
    /// mask are then added.
    fn add_values(
        &self,
        values: &[(f64, Sections, ValueRows)],
        section: u32,
        of: &Mask,
        any: &mut Mask,
    ) -> bool {
        let mut raw = [[&ONES; 3]; VALUES];
        let mut raws = 0;
        for (_, live, value) in values {
            if live >> section & 1 == 0 {
                continue;
            }
            let pieces = value.map(|row| self.access.piece(self.rows, row, section, self.group()));
            let mut shortest: Option<&[[u8; 2]]> = None;
            for (piece, raw) in pieces.iter().zip(&mut raw[raws]) {
                match *piece {
                    Piece::Zeros => shortest = Some(&[]),
                    Piece::Ones => *raw = &ONES,
                    Piece::Raw(piece) => *raw = piece,
                    Piece::List(places) => {
                        if shortest.is_none_or(|shortest| places.len() < shortest.len()) {
                            shortest = Some(places);
                        }
                    }
                }
            }
            // If one of the three rows is a list, testing the positions of the shortest list is
            // enough.
            let Some(places) = shortest else {
                raws += 1;
                continue;
            };
            for place in places {
                let place = u16::from_le_bytes(*place);
                if pieces.iter().all(|piece| has(piece, place)) {
                    any[usize::from(place) / 64] |= 1 << (place % 64);
                }
            }
        }
        self.backend.run(AnyOf { values: &raw[..raws], of, any })
    }
}

/// Number of values that are evaluated before checking whether every header has matched.
const VALUES: usize = 16;

static ONES: [u8; ROW] = [u8::MAX; ROW];

/// Returns `true` if the bit of a header is set in a row.
fn has(piece: &Piece<'_>, place: u16) -> bool {
    match piece {
        Piece::Zeros => false,
        Piece::Ones => true,
        Piece::Raw(bits) => bits[usize::from(place) / 8] >> (place % 8) & 1 != 0,
        Piece::List(places) => {
            places.binary_search_by_key(&place, |place| u16::from_le_bytes(*place)).is_ok()
        }
    }
}

/// Keeps the mask's bits at these positions; returns `true` if any bit remains. If `is_set` is
/// `false`, the mask must be 0.
fn and_list(places: &[[u8; 2]], is_set: bool, mask: &mut Mask) -> bool {
    if !is_set {
        for place in places {
            let place = u16::from_le_bytes(*place);
            mask[usize::from(place) / 64] |= 1 << (place % 64);
        }
        return !places.is_empty();
    }
    // Few positions remain, and often none: collect the remaining positions, clear the mask, and
    // set these bits again.
    let mut kept = [0; LIST_MAX as usize];
    let mut count = 0;
    for place in places {
        let place = u16::from_le_bytes(*place);
        kept[count] = place;
        count += usize::from(mask[usize::from(place) / 64] >> (place % 64) & 1 != 0);
    }
    mask.fill(0);
    for place in &kept[..count] {
        mask[usize::from(*place) / 64] |= 1 << (place % 64);
    }
    count > 0
}
