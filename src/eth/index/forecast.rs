//! What a query will cost, from an index alone.

#![expect(clippy::cast_precision_loss, reason = "counts become sums of estimates")]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::directory::Directory;
use super::error::IndexError;
use super::format::SECTION;
use super::format::segment::{FILL_CLASSES, SectionRecord, fill_class};
use super::query::Candidates;
use super::reader::Index;
use super::reader::segment::Segment;
use super::storage::Storage;
use crate::eth::bloom::{self, BITS, BitPositions};
use crate::eth::fill::FillHistogram;
use crate::eth::forecast::{Forecast, VALUES_COUNTED_EVERYWHERE, chance};
use crate::eth::log_query::CompiledQuery;

/// Sections from which the shares of single values are taken, where there are many.
const SAMPLE: usize = 64;

/// Blocks of one sealed section.
#[derive(Debug)]
struct Stretch<'a, F> {
    segment: &'a Segment<F>,
    /// Of the segment, from 0.
    section: u32,
    /// The number of the section's first block.
    first: u64,
    /// Those of its blocks that are asked for.
    blocks: RangeInclusive<u64>,
}

impl<F> Stretch<'_, F> {
    fn is_whole(&self) -> bool {
        self.blocks.end() - self.blocks.start() + 1 == SECTION as u64
    }
}

impl<S: Storage> Index<S> {
    /// How full the filters of a range are. Exact.
    ///
    /// # Errors
    /// Blocks that the index doesn't have, damage, or of the storage.
    ///
    /// # Cost
    /// 4.5 KB for each section. Where a range starts or ends within a section, all rows of that
    /// one are read: at most 2 MiB.
    pub fn fills(&self, blocks: RangeInclusive<u64>) -> Result<FillHistogram, IndexError> {
        self.require(&blocks)?;
        let mut fills = FillHistogram::default();
        for stretch in self.stretches(&blocks) {
            let record = stretch.segment.record(stretch.section)?;
            fills.merge(&fills_of(&stretch, &record)?);
        }
        fills.add(&self.tail().blooms[self.tail_part(&blocks)]);
        Ok(fills)
    }

    /// What a query over a range will cost: as [`Forecast::add`] says it of the headers.
    ///
    /// Exact are the blocks, the candidates, what each clause selects and how full filters are,
    /// and so what is expected by chance. Of queries for more than 8 values, the shares of single
    /// values are taken from 64 sections that are spread evenly over the range, and are exact if
    /// it has no more.
    ///
    /// Receipts and bytes hang on how full the candidates' filters are, which an index would have
    /// to turn back for. So the candidates of each section are spread over its fills as likely as
    /// a filter of that fill passes the query by chance, at most as many as there are, and take
    /// the mean gas of the section's blocks that are about as full. Where every block of whole
    /// sections is a candidate that is exact, else within a factor of 1.4 on made-up chains whose
    /// blocks hold 20 to 900 values in no order. [`most_receipts`](Forecast::most_receipts) supposes the candidates
    /// to be the blocks that used most gas, and so is never too low.
    ///
    /// # Errors
    /// Blocks that the index doesn't have, damage, or of the storage.
    ///
    /// # Cost
    /// The query, one for each clause, one for each value or of many values one over 64 sections,
    /// and [`fills`](Self::fills).
    pub fn forecast(
        &self,
        query: &CompiledQuery,
        blocks: RangeInclusive<u64>,
    ) -> Result<Forecast, IndexError> {
        let candidates = self.candidates(query, blocks.clone())?;
        let mut forecast = Forecast::new(query.clone());
        forecast.candidates = candidates.count();
        let chance = chance(query);
        let chances: Vec<f64> = (0..=2048).map(chance).collect();
        for stretch in self.stretches(&blocks) {
            let record = stretch.segment.record(stretch.section)?;
            let fills = fills_of(&stretch, &record)?;
            let count = count_in(&candidates, stretch.first);
            add_costs(&mut forecast, &record, &fills, count, &chances);
            forecast.fills.merge(&fills);
        }
        let tail = self.tail();
        let part = self.tail_part(&blocks);
        forecast.fills.add(&tail.blooms[part.clone()]);
        for index in part.filter(|&index| candidates.contains(tail.first + index as u64)) {
            let ones = bloom::count_ones(&tail.blooms[index]);
            forecast.add_costs(ones, 1.0, tail.gas[index] as f64);
            add_gas(&mut forecast, tail.gas[index]);
        }
        self.count_clauses(query, &blocks, &mut forecast)?;
        Ok(forecast)
    }

    /// Counts what each clause and each value selects by itself.
    fn count_clauses(
        &self,
        query: &CompiledQuery,
        blocks: &RangeInclusive<u64>,
        forecast: &mut Forecast,
    ) -> Result<(), IndexError> {
        let alone = |values: &[BitPositions]| CompiledQuery::new(alloc::vec![values.to_vec()]);
        let num_blocks = forecast.fills.filters();
        let num_values: usize = query.clauses().iter().map(Vec::len).sum();
        let sample = if num_values > VALUES_COUNTED_EVERYWHERE {
            self.sample(blocks)
        } else {
            alloc::vec![blocks.clone()]
        };
        for (clause, values) in forecast.clauses.iter_mut().zip(query.clauses()) {
            clause.blocks = num_blocks;
            clause.candidates = self.count(&alone(values), blocks.clone())?;
            let each: Vec<_> = values.iter().map(|value| alone(&[*value])).collect();
            for part in &sample {
                clause.sampled += part.end() - part.start() + 1;
                if let [value] = &each[..] {
                    clause.values[0] += self.count(value, part.clone())?;
                    continue;
                }
                let found = self.candidates_each(&each, part.clone())?;
                for (passed, found) in clause.values.iter_mut().zip(found) {
                    *passed += found.count();
                }
            }
        }
        Ok(())
    }

    /// Sections spread over a range; the unsealed blocks are cut into such, too.
    fn sample(&self, blocks: &RangeInclusive<u64>) -> Vec<RangeInclusive<u64>> {
        let mut parts: Vec<_> = self.stretches(blocks).map(|stretch| stretch.blocks).collect();
        let tail = self.tail_part(blocks);
        for start in tail.clone().step_by(SECTION) {
            let last = (start + SECTION).min(tail.end) - 1;
            parts.push(self.tail().first + start as u64..=self.tail().first + last as u64);
        }
        let taken = parts.len().min(SAMPLE);
        (0..taken).map(|i| parts[i * parts.len() / taken].clone()).collect()
    }

    /// The sealed blocks of a range, section by section.
    fn stretches(
        &self,
        blocks: &RangeInclusive<u64>,
    ) -> impl Iterator<Item = Stretch<'_, S::File>> {
        let (start, end) = (*blocks.start(), *blocks.end());
        self.segments().iter().flat_map(move |segment| {
            (0..segment.id.sections).filter_map(move |section| {
                let first = segment.header.first + u64::from(section) * SECTION as u64;
                let last = first + SECTION as u64 - 1;
                let blocks = first.max(start)..=last.min(end);
                (!blocks.is_empty()).then_some(Stretch { segment, section, first, blocks })
            })
        })
    }

    /// Which of the unsealed blocks belong to a range.
    fn tail_part(&self, blocks: &RangeInclusive<u64>) -> core::ops::Range<usize> {
        let tail = self.tail();
        let index = |number: u64| {
            usize::try_from(number.saturating_sub(tail.first))
                .map_or(tail.len(), |i| i.min(tail.len()))
        };
        index(*blocks.start())..index(blocks.end().saturating_add(1))
    }
}

/// How full the filters of a stretch are.
fn fills_of<F: super::storage::ReadAt>(
    stretch: &Stretch<'_, F>,
    record: &SectionRecord,
) -> Result<FillHistogram, IndexError> {
    let mut fills = FillHistogram::default();
    if stretch.is_whole() {
        for (ones, &filters) in record.fills.iter().enumerate() {
            fills.add_count(ones, u64::from(filters));
        }
        return Ok(fills);
    }
    let counts: Box<[u16]> = Directory::read(stretch.segment)?.ones_of_headers(stretch.section)?;
    for (number, &ones) in (stretch.first..).zip(&counts) {
        if stretch.blocks.contains(&number) {
            fills.add_count(usize::from(ones), 1);
        }
    }
    Ok(fills)
}

/// How many of the blocks of the section that starts at `first` are candidates.
fn count_in(candidates: &Candidates, first: u64) -> u64 {
    let word = first.saturating_sub(candidates.start()) / 64;
    let words = usize::try_from(word).ok().and_then(|word| candidates.words().get(word..));
    let words = words.unwrap_or_default();
    let words = &words[..words.len().min(SECTION / 64)];
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Adds what it costs to look into so many candidates of a section, of filters that are so full.
fn add_costs(
    forecast: &mut Forecast,
    record: &SectionRecord,
    fills: &FillHistogram,
    candidates: u64,
    chances: &[f64],
) {
    if candidates == 0 {
        return;
    }
    let mut blocks = [0_u64; FILL_CLASSES];
    for (ones, &filters) in (0..).zip(record.fills.iter()) {
        blocks[fill_class(ones)] += u64::from(filters);
    }
    for (ones, count) in spread(fills, candidates, chances) {
        let class = fill_class(ones);
        let gas = record.gas[class] as f64 / blocks[class].max(1) as f64;
        forecast.add_costs(ones, count, gas * count);
    }
    // So much gas at the most: of each class as many blocks as used the most of it, then one with
    // what is left of the class.
    let mut most: Vec<(u64, u64)> = Vec::new();
    for (&gas, &each) in record.gas.iter().zip(&record.most_gas) {
        if let Some(count) = gas.checked_div(each) {
            most.extend([(each, count), (gas % each, 1)]);
        }
    }
    most.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = candidates;
    for (gas, count) in most {
        let taken = count.min(left);
        add_gas(forecast, gas.saturating_mul(taken));
        left -= taken;
    }
}

fn add_gas(forecast: &mut Forecast, gas: u64) {
    forecast.gas_of_candidates = forecast.gas_of_candidates.saturating_add(gas);
}

/// How many of the candidates have filters that are how full: in proportion to how many there are
/// and to their chance to pass, at most as many as there are.
fn spread(fills: &FillHistogram, candidates: u64, chances: &[f64]) -> Vec<(u32, f64)> {
    // Weights and filters of this fill and of all that are less full.
    let (mut weight, mut filters) = (0.0, 0.0);
    let mut bins = Vec::new();
    for (ones, count) in fills.fills() {
        let chance = chances[(ones as usize).min(BITS)];
        weight += count as f64 * chance;
        filters += count as f64;
        bins.push((ones, count as f64, chance, weight, filters));
    }
    // The fuller, the likelier to pass: if some are all candidates, then the fullest.
    let mut left = candidates as f64;
    let mut spread = Vec::new();
    for (ones, count, chance, weight, filters) in bins.into_iter().rev() {
        let passes = if weight > 0.0 { left * chance / weight } else { left / filters };
        let passed = count * passes.clamp(0.0, 1.0);
        left -= passed;
        spread.push((ones, passed));
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::{FillHistogram, spread};

    #[test]
    fn candidates_are_spread_by_chance_and_none_is_lost() {
        let mut fills = FillHistogram::default();
        for (ones, count) in [(0, 50), (200, 3_000), (700, 4_000), (1_500, 1_100), (2048, 42)] {
            fills.add_count(ones, count);
        }
        let chances: Vec<f64> = (0..=2048).map(|ones| (f64::from(ones) / 2048.0).powi(6)).collect();
        for candidates in [0, 1, 42, 43, 400, 2_000, 5_000, 8_141, 8_142] {
            let spread = spread(&fills, candidates, &chances);
            let sum: f64 = spread.iter().map(|(_, count)| count).sum();
            assert!((sum - candidates as f64).abs() < 1e-6, "{sum} of {candidates}");
            for (&(ones, count), (expected, filters)) in
                spread.iter().rev().zip(fills.fills().collect::<Vec<_>>())
            {
                assert_eq!(ones, expected);
                assert!(count >= 0.0 && count <= filters as f64, "{ones}: {count}");
            }
            // In proportion, where the fullest are not used up.
            if candidates == 1 {
                let [full, _, middle, ..] = spread[..] else { panic!("five") };
                let ratio = middle.1 / full.1;
                let expected = 4_000.0 / 42.0 * (700.0_f64 / 2048.0).powi(6);
                assert!((ratio / expected - 1.0).abs() < 1e-9, "{ratio} {expected}");
            }
        }
        // No empty filter is a candidate while others are left, and all are if all must be.
        assert!(spread(&fills, 8_142, &chances).last().unwrap().1 < 1e-6);
        let all = spread(&fills, 8_192, &vec![1.0; 2049]);
        for ((ones, count), expected) in all.iter().zip([42.0, 1_100.0, 4_000.0, 3_000.0, 50.0]) {
            assert!((count - expected).abs() < 1e-9, "{ones}: {count}");
        }
        // Chances too small to be told from none.
        let none = spread(&fills, 10, &vec![0.0; 2049]);
        assert!((none.iter().map(|(_, count)| count).sum::<f64>() - 10.0).abs() < 1e-9);
    }
}
