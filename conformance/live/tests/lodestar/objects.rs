//! Light-client objects in SSZ: which bytes are which field, and copies that are damaged.

use std::fmt;
use std::ops::Range;

use chainsieve::eth::anchor::network::{Fork, Preset};
use chainsieve::eth::anchor::sync_committee::UpdateKind;
use testkit::Rng;

/// A field of an object.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The part of the object that is replaced as a whole, for example a header.
    pub(super) part: &'static str,
    name: &'static str,
    pub(super) at: Range<usize>,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.part, self.name)
    }
}

/// A bootstrap, or an update of a kind.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) name: String,
    /// `None`: a bootstrap.
    pub(super) kind: Option<UpdateKind>,
    pub(super) fork: Fork,
    pub(super) ssz: Vec<u8>,
    pub(super) fields: Vec<Field>,
}

/// Fields of a beacon header, with their lengths: 112 bytes.
const BEACON: [(&str, usize); 5] =
    [(" slot", 8), (" proposer", 8), (" parent root", 32), (" state root", 32), (" body root", 32)];
/// Name of the offset that stands in the place of a header of variable size.
const OFFSET: &str = " offset";
/// Parts that are replaced by those of another update, alone and together with what they prove.
const GRAFTS: [&[&str]; 11] = [
    &["attested"],
    &["committee"],
    &["committee branch"],
    &["committee", "committee branch"],
    &["finalized"],
    &["finality branch"],
    &["finalized", "finality branch"],
    &["bits"],
    &["signature"],
    &["bits", "signature"],
    &["signature slot"],
];

impl Object {
    pub(super) fn new(
        name: String,
        kind: Option<UpdateKind>,
        fork: Fork,
        ssz: Vec<u8>,
        preset: Preset,
    ) -> Self {
        let fields = fields(&ssz, kind, fork, preset.sync_committee_size());
        assert_eq!(fields.last().map(|field| field.at.end), Some(ssz.len()), "{name}");
        Self { name, kind, fork, ssz, fields }
    }

    /// Returns the name of the object's kind: `bootstrap`, or that of the kind of update.
    pub(super) fn kind_name(&self) -> &'static str {
        self.kind.map_or("bootstrap", UpdateKind::name)
    }

    /// Returns the field of a bit.
    pub(super) fn field_of(&self, bit: usize) -> &Field {
        let is_here = |field: &&Field| field.at.contains(&(bit / 8));
        self.fields.iter().find(is_here).expect("fields have no gaps")
    }

    /// Returns the slot in which an update was signed.
    pub(super) fn signature_slot(&self) -> u64 {
        let bytes = self.part("signature slot").expect("an update");
        u64::from_le_bytes(self.ssz[bytes].try_into().expect("8 bytes"))
    }

    /// Returns the bytes of a part that is one field.
    fn part(&self, part: &str) -> Option<Range<usize>> {
        Some(self.fields.iter().find(|field| field.part == part)?.at.clone())
    }

    /// Returns `true` for a committee or a finalised header that the update does not have.
    fn lacks(&self, part: &str) -> bool {
        let is_zero = |field: &Field| self.ssz[field.at.clone()].iter().all(|byte| *byte == 0);
        // An execution header that is not there still has the offset of its extra data.
        let is_plain = |name: &str| name.is_empty() || BEACON.iter().any(|field| field.0 == name);
        let mut fields =
            self.fields.iter().filter(|field| field.part == part && is_plain(field.name));
        matches!(part, "committee" | "finalized") && fields.all(is_zero)
    }

    /// Returns about `count` bits to flip: first one of each field, then one of each byte in random
    /// order. The keys are most of a full update, and get one bit in eight. What the update lacks is
    /// left as it is.
    ///
    /// All bits are there that keep the signature's slot in its period, or move it to one next to it:
    /// of all damaged updates, only such ones can be accepted.
    pub(super) fn bits(&self, rng: &mut Rng, count: usize, preset: Preset) -> Vec<usize> {
        let present = || self.fields.iter().filter(|field| !self.lacks(field.part));
        let mut bits = Vec::new();
        for field in present() {
            bits.push(8 * field.at.start + rng.below(8 * field.at.len()));
        }
        if let Some(slot) = self.part("signature slot") {
            let near = preset.slots_per_period().ilog2() as usize;
            bits.extend(8 * slot.start..8 * slot.start + near);
        }
        let others = present().filter(|field| field.part != "committee");
        let mut bytes: Vec<usize> = others.flat_map(|field| field.at.clone()).collect();
        for at in (1..bytes.len()).rev() {
            bytes.swap(at, rng.below(at + 1));
        }
        let keys = self.part("committee").filter(|_| !self.lacks("committee"));
        for byte in bytes {
            if bits.len() >= count {
                break;
            }
            bits.push(8 * byte + rng.below(8));
            if let Some(keys) = &keys
                && rng.one_in(7)
            {
                bits.push(8 * keys.start + rng.below(8 * keys.len()));
            }
        }
        bits
    }

    /// Returns `true` if both have the same container.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let container = |fork: Fork| match fork {
            Fork::Bellatrix => Fork::Altair,
            Fork::Fulu => Fork::Electra,
            fork => fork,
        };
        self.kind == other.kind && container(self.fork) == container(other.fork)
    }

    /// Returns copies of the update in which parts are those of another update.
    pub(super) fn grafts(&self, donor: &Self) -> Vec<Self> {
        let is_there = |part: &&str| self.fields.iter().any(|field| field.part == *part);
        let mut copies = Vec::new();
        for parts in GRAFTS.iter().filter(|parts| parts.iter().all(is_there)) {
            let copy = self.graft(donor, parts);
            if copy.ssz != self.ssz && copy.ssz != donor.ssz {
                copies.push(copy);
            }
        }
        copies
    }

    fn graft(&self, donor: &Self, parts: &[&str]) -> Self {
        let mut ssz = Vec::new();
        let mut fields = Vec::new();
        for (own, other) in self.fields.iter().zip(&donor.fields) {
            assert_eq!((own.part, own.name), (other.part, other.name), "the same container");
            let is_taken = parts.contains(&own.part) && own.name != OFFSET;
            let start = ssz.len();
            ssz.extend_from_slice(if is_taken {
                &donor.ssz[other.at.clone()]
            } else {
                &self.ssz[own.at.clone()]
            });
            fields.push(Field { at: start..ssz.len(), ..own.clone() });
        }
        // The headers may have other lengths now.
        for place in fields.iter().filter(|field| field.name == OFFSET) {
            let mut header =
                fields.iter().filter(|field| field.part == place.part && field.name != OFFSET);
            let start = header.next().expect("a header").at.start;
            let offset = u32::try_from(start).expect("small").to_le_bytes();
            ssz[place.at.clone()].copy_from_slice(&offset);
        }
        let name = format!("{} with {} of {}", self.name, parts.join(" and "), donor.name);
        Self { name, ssz, fields, ..self.clone() }
    }
}

/// Lists the fields of an object, in the order of its bytes.
fn fields(ssz: &[u8], kind: Option<UpdateKind>, fork: Fork, members: usize) -> Vec<Field> {
    let is_variable = fork >= Fork::Capella;
    let (committee_depth, finality_depth) = if fork >= Fork::Electra { (6, 7) } else { (5, 6) };
    let mut lengths: Vec<(&'static str, &'static str, usize)> = Vec::new();
    let mut starts = Vec::new();
    let mut place = |part: &'static str, lengths: &mut Vec<(&'static str, &'static str, usize)>| {
        if is_variable {
            let at: usize = lengths.iter().map(|field| field.2).sum();
            let offset = ssz[at..at + 4].try_into().expect("4 bytes");
            starts.push((part, u32::from_le_bytes(offset) as usize));
            lengths.push((part, OFFSET, 4));
        } else {
            lengths.extend(BEACON.map(|(name, length)| (part, name, length)));
        }
    };
    place("attested", &mut lengths);
    if matches!(kind, None | Some(UpdateKind::Full)) {
        lengths.push(("committee", "", 48 * (members + 1)));
        lengths.push(("committee branch", "", 32 * committee_depth));
    }
    if matches!(kind, Some(UpdateKind::Full | UpdateKind::Finality)) {
        place("finalized", &mut lengths);
        lengths.push(("finality branch", "", 32 * finality_depth));
    }
    if kind.is_some() {
        lengths.extend([
            ("bits", "", members / 8),
            ("signature", "", 96),
            ("signature slot", "", 8),
        ]);
    }
    let ends = starts.iter().skip(1).map(|start| start.1).chain([ssz.len()]);
    for ((part, start), end) in starts.iter().zip(ends) {
        lengths.extend(BEACON.map(|(name, length)| (*part, name, length)));
        lengths.push((*part, " execution's offset", 4));
        lengths.push((*part, " execution branch", 128));
        lengths.push((*part, " execution", end - start - 112 - 4 - 128));
    }
    let mut end = 0;
    let field = |(part, name, length)| {
        end += length;
        Field { part, name, at: end - length..end }
    };
    lengths.into_iter().map(field).collect()
}
