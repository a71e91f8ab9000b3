//! The parts of a sync, borrowed together for decisions that concern several of them.

use bitcoin::bip158::FilterHeader;

use super::Config;
use super::claims::Claims;
use super::inspections::Inspections;
use super::peers::Peers;

/// The parts of a sync, borrowed together for decisions that concern several of them.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) config: &'a Config,
    /// The filter header of the genesis block.
    pub(super) genesis: FilterHeader,
    pub(super) claims: &'a mut Claims,
    pub(super) peers: &'a mut Peers,
    pub(super) inspections: &'a mut Inspections,
}
