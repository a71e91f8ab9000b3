//! What a driver asks of a provider.

use std::ops::RangeInclusive;

use anyhow::anyhow;
use chainsieve::eth::header::HeaderBuf;
use chainsieve::eth::log_query::BlockTag;
use chainsieve::eth::receipts::BlockReceipts;

use super::blocks::Point;
use crate::eth::rpc::{BlockRef, Provider, RpcError};

/// An answer that did not come.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: anyhow::Error,
    /// Whether it is of the way to the provider, which may be mended.
    pub(super) transient: bool,
}

impl From<RpcError> for Failed {
    fn from(error: RpcError) -> Self {
        let transient = error.origin().is_transient();
        Self { error: anyhow!(error), transient }
    }
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        let rpc = error.chain().find_map(|cause| cause.downcast_ref::<RpcError>());
        let transient = rpc.is_some_and(|error| error.origin().is_transient());
        Self { error, transient }
    }
}

/// Receipts of a block; none if the provider does not have them.
pub(super) type Receipts = Result<Option<BlockReceipts>, Failed>;

/// A provider, or what stands for one in tests.
pub(super) trait Node {
    fn name(&self) -> String;

    fn head(&mut self, tag: BlockTag) -> Result<Point, Failed>;

    /// Headers of these numbers, in order, some at a time.
    fn headers(
        &mut self,
        numbers: RangeInclusive<u64>,
        take: &mut dyn FnMut(&[HeaderBuf]) -> anyhow::Result<()>,
    ) -> Result<(), Failed>;

    fn header(&mut self, at: Point) -> Result<Option<HeaderBuf>, Failed>;

    /// The headers of these blocks, all of them and in order.
    fn headers_by_hash(
        &mut self,
        blocks: &[Point],
        headers: &mut Vec<HeaderBuf>,
    ) -> Result<(), Failed>;

    /// Receipts of each of these blocks.
    fn receipts(
        &mut self,
        blocks: &[Point],
        take: &mut dyn FnMut(Point, Receipts) -> anyhow::Result<()>,
    ) -> anyhow::Result<()>;

    /// Receipts of a block by each way that the provider serves, until `take` has what it wants.
    fn receipts_by_every_way(&mut self, block: Point, take: &mut dyn FnMut(&str, Receipts) -> bool);
}

impl From<BlockRef> for Point {
    fn from(block: BlockRef) -> Self {
        Self { number: block.number, hash: block.hash }
    }
}

impl Node for &Provider {
    fn name(&self) -> String {
        Provider::name(self)
    }

    fn head(&mut self, tag: BlockTag) -> Result<Point, Failed> {
        Ok(Provider::head(self, tag)?.into())
    }

    fn headers(
        &mut self,
        numbers: RangeInclusive<u64>,
        take: &mut dyn FnMut(&[HeaderBuf]) -> anyhow::Result<()>,
    ) -> Result<(), Failed> {
        Ok(Provider::headers(self, numbers, |headers| take(&headers))?)
    }

    fn header(&mut self, at: Point) -> Result<Option<HeaderBuf>, Failed> {
        Ok(self.header_by_hash(at.hash)?)
    }

    fn headers_by_hash(
        &mut self,
        blocks: &[Point],
        headers: &mut Vec<HeaderBuf>,
    ) -> Result<(), Failed> {
        let hashes: Vec<_> = blocks.iter().map(|block| block.hash).collect();
        Ok(self.headers_of(&hashes, |header| headers.push(header))?)
    }

    fn receipts(
        &mut self,
        blocks: &[Point],
        take: &mut dyn FnMut(Point, Receipts) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let blocks: Vec<_> = blocks.iter().map(|block| (block.number, block.hash)).collect();
        self.receipts_of(&blocks, |(number, hash), receipts| {
            take(Point { number, hash }, receipts.map_err(Into::into))
        })
    }

    fn receipts_by_every_way(
        &mut self,
        block: Point,
        take: &mut dyn FnMut(&str, Receipts) -> bool,
    ) {
        self.receipts_each_way(block.number, block.hash, |way, receipts| {
            take(way, receipts.map_err(Into::into))
        });
    }
}
