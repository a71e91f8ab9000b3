//! The command `eth stats`.

use std::mem;

use anyhow::bail;
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::bloom::FillHistogram;
use chainsieve::eth::header::HeaderView;
use chainsieve_report::calendar::Utc;
use chainsieve_report::{
    Exit, Page, Reader, Report, count, float, grouped, share, with_separators, write,
};
use serde_json::{Value, json};

use super::chart::{self, Chart, Point};
use super::headers::Headers;
use crate::args::eth::{Buckets, StatsArgs};

/// Maximum number of rows of an automatic table, so that it stays readable.
const ROWS: usize = 24;
/// Maximum number of points of a line in the chart.
const POINTS: usize = 240;
/// Maximum number of buckets while headers are read in automatic mode; when it is exceeded, each
/// ten buckets are merged into one.
const KEPT: usize = 1000;
/// Maximum number of rows, because each bucket takes 16 kB of memory.
const MOST: usize = 10_000;

pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<Report> {
    Reader::of(&args.source.headers)?;
    let mut stats = Stats::new(args.by);
    let mut headers = Headers::new(&args.source.headers, args.source.format);
    while let Some(batch) = headers.next_batch()? {
        for header in batch.headers() {
            stats.add(&header?.1)?;
        }
    }
    let rows = match args.by {
        Buckets::Auto => stats.merged(ROWS),
        Buckets::Year | Buckets::Month | Buckets::Blocks(_) => stats.buckets.clone(),
    };
    let total = stats.total();
    if let Some(path) = &args.svg {
        let chart = chart(&stats, args, &total);
        write(path, chart::svg(&chart).as_bytes(), args.overwrite.force)?;
    }
    let page = page(&rows, &total, stats.linked, args);
    let mut json = total.json();
    json["linked"] = json!(stats.linked);
    json["buckets"] = rows.iter().map(Bucket::json).collect();
    Ok(Report::new(page, json, Exit::Yes))
}

/// Statistics of a group of blocks.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    /// The position of the bucket: block number divided by the width, a year, or months since year 0.
    pub(super) key: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) first_time: u64,
    pub(super) last_time: u64,
    /// Number of blocks whose filter does not have 256 bytes.
    pub(super) without_filter: u64,
    pub(super) fills: FillHistogram,
}

impl Bucket {
    fn new(key: u64, header: &HeaderView<'_>) -> Self {
        let (number, time) = (header.number(), header.timestamp());
        Self {
            key,
            first: number,
            last: number,
            first_time: time,
            last_time: time,
            without_filter: 0,
            fills: FillHistogram::default(),
        }
    }

    fn add(&mut self, header: &HeaderView<'_>) {
        self.cover(header.number(), header.timestamp());
        if let Some(bytes) = header.logs_bloom().bytes() {
            self.fills.add([bytes]);
        } else {
            self.without_filter += 1;
            // A filter of another length excludes no value, like a filter with every bit set.
            self.fills.add([&[u8::MAX; 256]]);
        }
    }

    fn cover(&mut self, number: u64, time: u64) {
        self.first = self.first.min(number);
        self.last = self.last.max(number);
        self.first_time = self.first_time.min(time);
        self.last_time = self.last_time.max(time);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.cover(other.first, other.first_time);
        self.cover(other.last, other.last_time);
        self.without_filter += other.without_filter;
        self.fills.merge(&other.fills);
    }

    /// Returns the shares of blocks whose filter reports one, two and three absent values as
    /// present.
    fn rates(&self) -> [f64; 3] {
        [3, 6, 9].map(|bits| self.fills.false_positive_rate(bits))
    }

    pub(super) fn json(&self) -> Value {
        let fills = &self.fills;
        json!({
            "blocks": fills.filters(),
            "first": self.first,
            "last": self.last,
            "first_time": self.first_time,
            "last_time": self.last_time,
            "no_information": fills.uninformative(),
            "empty": fills.empty(),
            "fill": {
                "min": fills.quantile(0.0),
                "p10": fills.quantile(0.1),
                "median": fills.quantile(0.5),
                "mean": fills.mean_fill(),
                "p90": fills.quantile(0.9),
                "max": fills.quantile(1.0),
            },
            "rates": self.rates(),
        })
    }
}

/// The headers so far, in buckets by number, year or month, ascending.
struct Stats {
    by: Buckets,
    /// Number of blocks that a bucket covers, or 1 if each bucket covers a year or a month.
    width: u64,
    buckets: Vec<Bucket>,
    last: Option<(B256, u64)>,
    linked: bool,
}

impl Stats {
    fn new(by: Buckets) -> Self {
        let width = if let Buckets::Blocks(width) = by { width } else { 1 };
        Self { by, width, buckets: Vec::new(), last: None, linked: true }
    }

    fn add(&mut self, header: &HeaderView<'_>) -> anyhow::Result<()> {
        let number = header.number();
        let parent = header.parent_hash();
        self.linked &= self
            .last
            .is_none_or(|(hash, last)| hash == parent && last.checked_add(1) == Some(number));
        self.last = Some((header.hash(), number));
        let key = match self.by {
            Buckets::Year => Utc::new(header.timestamp()).year,
            Buckets::Month => {
                let Utc { year, month, .. } = Utc::new(header.timestamp());
                year * 12 + month - 1
            }
            Buckets::Auto | Buckets::Blocks(_) => number / self.width,
        };
        let at = self.buckets.binary_search_by_key(&key, |bucket| bucket.key);
        let at = at.unwrap_or_else(|at| {
            self.buckets.insert(at, Bucket::new(key, header));
            at
        });
        self.buckets[at].add(header);
        if self.by == Buckets::Auto && self.buckets.len() > KEPT {
            self.buckets = group(mem::take(&mut self.buckets), 10);
            self.width *= 10;
        }
        if self.buckets.len() > MOST {
            bail!(
                "the table has more than {} rows: give --by a larger number of blocks",
                grouped(MOST)
            );
        }
        Ok(())
    }

    fn total(&self) -> Bucket {
        let mut buckets = self.buckets.iter();
        let mut total = buckets.next().expect("the reader rejects inputs without headers").clone();
        buckets.for_each(|bucket| total.merge(bucket));
        total
    }

    /// Returns at most `most` buckets, each of a round number of blocks, years or months.
    fn merged(&self, most: usize) -> Vec<Bucket> {
        let steps = match self.by {
            Buckets::Month => [3, 12, 60, 120, 1200_u64],
            Buckets::Auto | Buckets::Year | Buckets::Blocks(_) => [2, 5, 10, 20, 50],
        };
        let mut merged = self.buckets.clone();
        let mut scale = 1_u64;
        while merged.len() > most {
            for step in steps {
                merged = group(self.buckets.clone(), step.saturating_mul(scale));
                if merged.len() <= most {
                    break;
                }
            }
            scale = steps[4].saturating_mul(2).saturating_mul(scale);
        }
        merged
    }
}

/// Merges neighbouring buckets whose keys are equal after division by `by`.
fn group(buckets: Vec<Bucket>, by: u64) -> Vec<Bucket> {
    let mut groups: Vec<Bucket> = Vec::new();
    for mut bucket in buckets {
        bucket.key /= by;
        match groups.last_mut() {
            Some(group) if group.key == bucket.key => group.merge(&bucket),
            _ => groups.push(bucket),
        }
    }
    groups
}

/// Adds a table with a row for each bucket, and a row for all blocks if there are several buckets.
pub(super) fn table(page: &mut Page, rows: &[Bucket], total: &Bucket, by: Buckets) {
    let cells = |bucket: &Bucket, name: String| {
        let fills = &bucket.fills;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let [one, two, three] = bucket.rates().map(share);
        let from = Utc::new(bucket.first_time);
        let to = Utc::new(bucket.last_time);
        let time = match by {
            Buckets::Year => format!("{:04}", from.year),
            Buckets::Month => format!("{:04}-{:02}", from.year, from.month),
            Buckets::Auto | Buckets::Blocks(_) if from.date() == to.date() => from.date(),
            Buckets::Auto | Buckets::Blocks(_) => format!("{} to {}", from.date(), to.date()),
        };
        vec![
            name,
            time,
            grouped(fills.filters()),
            percent(fills.quantile(0.1)),
            percent(fills.quantile(0.5)),
            percent(fills.quantile(0.9)),
            one,
            two,
            three,
        ]
    };
    let range = |bucket: &Bucket| {
        if bucket.first == bucket.last {
            grouped(bucket.first)
        } else {
            format!("{} – {}", grouped(bucket.first), grouped(bucket.last))
        }
    };
    let mut table: Vec<_> = rows.iter().map(|bucket| cells(bucket, range(bucket))).collect();
    if rows.len() > 1 {
        table.push(cells(total, "all".into()));
    }
    let head = vec![
        "blocks", "time", "count", "fill p10", "median", "p90", "1 value", "2 values", "3 values",
    ];
    page.table(head, table);
    page.line("");
    page.line(
        "Fill: share of a filter's 2,048 bits that are set. Last three columns: false-positive rate,",
    );
    page.line("the share of blocks whose filter matches 1, 2 or 3 absent addresses or topics.");
}

fn page(rows: &[Bucket], total: &Bucket, linked: bool, args: &StatsArgs) -> Page {
    let mut page = Page::default();
    table(&mut page, rows, total, args.by);
    let fills = &total.fills;
    let mut notes = Vec::new();
    if fills.empty() > 0 {
        notes.push(format!("{} without logs", count(fills.empty(), "block")));
    }
    let full = fills.uninformative() - total.without_filter;
    if full > 0 {
        notes.push(format!("{} with every bit set", count(full, "block")));
    }
    if total.without_filter > 0 {
        let blocks = count(total.without_filter, "block");
        notes.push(format!("{blocks} without a filter of 256 bytes"));
    }
    if !linked {
        notes.push("the headers do not form one chain".into());
    }
    if !notes.is_empty() {
        page.line(format!("Notes: {}.", notes.join(", ")));
    }
    if let Some(path) = &args.svg {
        page.line(format!("Chart: {}", path.display()));
    }
    page
}

fn chart(stats: &Stats, args: &StatsArgs, total: &Bucket) -> Chart {
    let by_time = matches!(args.by, Buckets::Year | Buckets::Month);
    let points = stats
        .merged(POINTS)
        .iter()
        .map(|bucket| Point {
            x: if by_time {
                f64::midpoint(float(bucket.first_time), float(bucket.last_time))
            } else {
                f64::midpoint(float(bucket.first), float(bucket.last))
            },
            low: bucket.fills.quantile(0.1),
            median: bucket.fills.quantile(0.5),
            high: bucket.fills.quantile(0.9),
            rates: bucket.rates(),
        })
        .collect();
    let title = args.title.clone().unwrap_or_else(|| "How full the log filters are".into());
    let subtitle = format!(
        "{} blocks, {} to {}, {} to {}",
        with_separators(total.fills.filters()),
        with_separators(total.first),
        with_separators(total.last),
        Utc::new(total.first_time).date(),
        Utc::new(total.last_time).date()
    );
    Chart { title, subtitle, by_time, points }
}
