//! Forecast of a query's cost from an index alone.

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

/// Number of sections in which single values are counted, if the query has many values.
const SAMPLE: usize = 64;

/// The requested blocks of one sealed section.
#[derive(Debug)]
struct SectionPart<'a, F> {
    segment: &'a Segment<F>,
    /// Number of the section within its segment, from 0.
    section: u32,
    /// The number of the section's first block.
    first: u64,
    /// The requested blocks of the section.
    blocks: RangeInclusive<u64>,
}

impl<F> SectionPart<'_, F> {
    fn is_whole(&self) -> bool {
        self.blocks.end() - self.blocks.start() + 1 == SECTION as u64
    }
}

impl<S: Storage> Index<S> {
    /// Returns the exact histogram of the filters' fills in a range of blocks.
    ///
    /// # Errors
    /// Returns an error if the index does not contain all blocks of the range, if the files are
    /// damaged, or if the storage fails.
    ///
    /// # Cost
    /// Reads 4.5 KB for each section. If the range starts or ends within a section, all rows of
    /// that section are read: at most 2 MiB.
    pub fn fills(&self, blocks: RangeInclusive<u64>) -> Result<FillHistogram, IndexError> {
        self.require(&blocks)?;
        let mut fills = FillHistogram::default();
        for part in self.section_parts(&blocks) {
            let record = part.segment.record(part.section)?;
            fills.merge(&fills_of(&part, &record)?);
        }
        fills.add(&self.tail().blooms[self.tail_part(&blocks)]);
        Ok(fills)
    }

    /// Forecasts the cost of a query over a range, as [`Forecast::add`] does from headers.
    ///
    /// These results are exact: the number of blocks, the number of candidates, the number of
    /// blocks that each clause selects, and the fills. The expected number of false candidates is
    /// computed from the exact fills. If the query has more than 8 values, the shares of single
    /// values are measured in 64 sections, spread evenly over the range. If the range has at most
    /// 64 sections, these shares are exact, too.
    ///
    /// The numbers of receipts and bytes are estimates: the exact numbers depend on the fills of
    /// the candidates' filters, but an index would have to transpose its rows back to know these
    /// fills. Instead, the candidates of each section are distributed over the section's fills, in
    /// proportion to the chance that a filter of each fill passes the query. Each fill gets at most
    /// as many candidates as it has filters. Each candidate is then assigned the mean gas of the
    /// section's blocks with a similar fill. The estimate is exact if the range consists of whole
    /// sections and every block is a candidate. Otherwise the error was at most a factor of 1.4 on
    /// synthetic chains whose blocks contain 20 to 900 random values.
    ///
    /// [`most_receipts`](Forecast::most_receipts) assumes that the candidates are the blocks that
    /// used the most gas, so this upper bound is never too low.
    ///
    /// # Errors
    /// Returns an error if the index does not contain all blocks of the range, if the files are
    /// damaged, or if the storage fails.
    ///
    /// # Cost
    /// Evaluates the query, one query for each clause, and one query for each value. If the query
    /// has more than 8 values, the queries for single values cover only 64 sections. The cost of
    /// [`fills`](Self::fills) is added.
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
        for part in self.section_parts(&blocks) {
            let record = part.segment.record(part.section)?;
            let fills = fills_of(&part, &record)?;
            let count = count_in(&candidates, part.first);
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

    /// Counts the blocks that each clause and each value selects by itself.
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

    /// Returns at most 64 sections, spread evenly over a range. Unsealed blocks are divided into
    /// pieces of the size of a section.
    fn sample(&self, blocks: &RangeInclusive<u64>) -> Vec<RangeInclusive<u64>> {
        let mut parts: Vec<_> = self.section_parts(blocks).map(|part| part.blocks).collect();
        let tail = self.tail_part(blocks);
        for start in tail.clone().step_by(SECTION) {
            let last = (start + SECTION).min(tail.end) - 1;
            parts.push(self.tail().first + start as u64..=self.tail().first + last as u64);
        }
        let taken = parts.len().min(SAMPLE);
        (0..taken).map(|i| parts[i * parts.len() / taken].clone()).collect()
    }

    /// Returns the sealed blocks of a range, section by section.
    fn section_parts(
        &self,
        blocks: &RangeInclusive<u64>,
    ) -> impl Iterator<Item = SectionPart<'_, S::File>> {
        let (start, end) = (*blocks.start(), *blocks.end());
        self.segments().iter().flat_map(move |segment| {
            (0..segment.id.sections).filter_map(move |section| {
                let first = segment.header.first + u64::from(section) * SECTION as u64;
                let last = first + SECTION as u64 - 1;
                let blocks = first.max(start)..=last.min(end);
                (!blocks.is_empty()).then_some(SectionPart { segment, section, first, blocks })
            })
        })
    }

    /// Returns the indices of the unsealed blocks that belong to a range.
    fn tail_part(&self, blocks: &RangeInclusive<u64>) -> core::ops::Range<usize> {
        let tail = self.tail();
        let index = |number: u64| {
            usize::try_from(number.saturating_sub(tail.first))
                .map_or(tail.len(), |i| i.min(tail.len()))
        };
        index(*blocks.start())..index(blocks.end().saturating_add(1))
    }
}

/// Returns the histogram of the fills of the requested blocks of a section.
fn fills_of<F: super::storage::ReadAt>(
    part: &SectionPart<'_, F>,
    record: &SectionRecord,
) -> Result<FillHistogram, IndexError> {
    let mut fills = FillHistogram::default();
    if part.is_whole() {
        for (ones, &filters) in record.fills.iter().enumerate() {
            fills.add_count(ones, u64::from(filters));
        }
        return Ok(fills);
    }
    // The record has only the histogram of the whole section: count the bits of each header.
    let counts: Box<[u16]> = Directory::read(part.segment)?.ones_of_headers(part.section)?;
    for (number, &ones) in (part.first..).zip(&counts) {
        if part.blocks.contains(&number) {
            fills.add_count(usize::from(ones), 1);
        }
    }
    Ok(fills)
}

/// Returns the number of candidates in the section that starts at block `first`.
fn count_in(candidates: &Candidates, first: u64) -> u64 {
    let word = first.saturating_sub(candidates.start()) / 64;
    let words = usize::try_from(word).ok().and_then(|word| candidates.words().get(word..));
    let words = words.unwrap_or_default();
    let words = &words[..words.len().min(SECTION / 64)];
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Adds the cost of checking `candidates` blocks of a section; `fills` are the fills of the
/// section's requested blocks.
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
    // Upper bound of the candidates' gas: assume that in each class as many blocks as possible used
    // the class's highest gas, and that one more block used the rest of the class's gas.
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

/// Distributes candidates over the fills, in proportion to the number of filters of each fill and
/// to the chance that such a filter passes. Each fill gets at most as many candidates as it has
/// filters.
fn spread(fills: &FillHistogram, candidates: u64, chances: &[f64]) -> Vec<(u32, f64)> {
    // Sum of the weights, and number of filters, for this fill and all lower fills.
    let (mut weight, mut filters) = (0.0, 0.0);
    let mut bins = Vec::new();
    for (ones, count) in fills.fills() {
        let chance = chances[(ones as usize).min(BITS)];
        weight += count as f64 * chance;
        filters += count as f64;
        bins.push((ones, count as f64, chance, weight, filters));
    }
    // Fuller filters are likelier to pass, so candidates are assigned to the fullest filters first,
    // until all of them are candidates.
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
            // While some filters of the fullest fill are not candidates, the candidates are
            // distributed in proportion to weight.
            if candidates == 1 {
                let [full, _, middle, ..] = spread[..] else { panic!("five") };
                let ratio = middle.1 / full.1;
                let expected = 4_000.0 / 42.0 * (700.0_f64 / 2048.0).powi(6);
                assert!((ratio / expected - 1.0).abs() < 1e-9, "{ratio} {expected}");
            }
        }
        // Empty filters are candidates only if all other filters are, too.
        assert!(spread(&fills, 8_142, &chances).last().unwrap().1 < 1e-6);
        let all = spread(&fills, 8_192, &vec![1.0; 2049]);
        for ((ones, count), expected) in all.iter().zip([42.0, 1_100.0, 4_000.0, 3_000.0, 50.0]) {
            assert!((count - expected).abs() < 1e-9, "{ones}: {count}");
        }
        // Candidates are also distributed if all chances are too small to differ from zero.
        let none = spread(&fills, 10, &vec![0.0; 2049]);
        assert!((none.iter().map(|(_, count)| count).sum::<f64>() - 10.0).abs() < 1e-9);
    }
}
