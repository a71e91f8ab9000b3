//! Merkle-Patricia tries: the roots of lists, and one step on the path from a root to a key.
//!
//! In the trie of a list, item `i` is stored under the RLP of `i`, as receipts and transactions are under
//! the roots of a header.
//!
//! A node can be hashed once its children are. So nodes are hashed by height, from the leaves on, and
//! many nodes of one height together, of all lists: the vector instructions hash several at a time.
//!
//! Encodings are not kept: the receipts of a block can be short where they come from, and long in the
//! trie.
//!
//! Source: Yellow Paper 4.3.2, 4.3.3 and appendix D.

use alloc::vec::Vec;
use core::ops::Range;

use alloy_primitives::{B256, Bytes};
use alloy_rlp::{Decodable as _, EMPTY_STRING_CODE, Encodable, Header};
use alloy_trie::nodes::{BranchNode, RlpNode, TrieNode};
use alloy_trie::{EMPTY_ROOT_HASH, Nibbles};
use chainsieve_lanes::hash::keccak256_each;
use chainsieve_lanes::simd::Backend;

/// Length in bytes of a hash. A node that is shorter is part of its parent.
const HASH: usize = 32;
/// Greatest number of nibbles of a key: those of the RLP of a 64-bit index.
const NIBBLES: usize = 18;
/// The number of a child that a branch does not have.
const NONE: u32 = u32::MAX;

/// Number of nodes that are encoded and hashed at a time.
const BATCH: usize = 512;

/// A list of items.
pub(crate) trait Items {
    /// Returns the number of items.
    fn count(&self) -> usize;

    /// Returns an item. `scratch` may be overwritten.
    fn item<'a>(&'a self, index: u32, scratch: &'a mut Vec<u8>) -> &'a [u8];
}

impl<T: AsRef<[u8]>> Items for [T] {
    fn count(&self) -> usize {
        self.len()
    }

    fn item<'a>(&'a self, index: u32, _: &'a mut Vec<u8>) -> &'a [u8] {
        self[index as usize].as_ref()
    }
}

/// The tries of some lists.
#[derive(Debug)]
pub(crate) struct OrderedTries {
    nodes: Vec<Node>,
    /// The root of each list; `None` for an empty list.
    roots: Vec<Option<u32>>,
}

/// Memory that the batches share.
#[derive(Debug, Default)]
struct Buffers {
    scratch: Vec<u8>,
    encodings: Vec<u8>,
    /// The nodes to be hashed, and where their encodings are.
    hashed: Vec<(u32, Range<usize>)>,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    /// A root is hashed however short it is.
    is_root: bool,
    /// How its parent refers to it: the RLP of its hash, or its encoding if that is shorter.
    reference: Reference,
}

#[derive(Debug, Clone, Copy)]
struct Reference {
    bytes: [u8; HASH + 1],
    length: u8,
}

#[derive(Debug)]
enum Kind {
    /// An item, and the nibbles of its key that lead to it from its parent.
    Leaf {
        path: Path,
        list: u32,
        item: u32,
    },
    /// Nibbles that all keys below have in common.
    Extension {
        path: Path,
        child: u32,
    },
    Branch {
        children: [u32; 16],
    },
}

/// A part of a key, in nibbles.
#[derive(Debug, Clone, Copy)]
struct Path {
    nibbles: [u8; NIBBLES],
    length: u8,
}

impl Path {
    /// Returns the key of an item: the nibbles of the RLP of its index.
    fn key(index: u64) -> Self {
        let rlp = alloy_rlp::encode_fixed_size(&index);
        let mut path = Self { nibbles: [0; NIBBLES], length: 0 };
        for (pair, byte) in path.nibbles.as_chunks_mut::<2>().0.iter_mut().zip(&rlp) {
            *pair = [byte >> 4, byte & 15];
            path.length += 2;
        }
        path
    }

    fn as_slice(&self) -> &[u8] {
        &self.nibbles[..usize::from(self.length)]
    }

    fn part(&self, range: Range<usize>) -> Self {
        let part = &self.as_slice()[range];
        let mut path = Self { nibbles: [0; NIBBLES], length: 0 };
        path.nibbles[..part.len()].copy_from_slice(part);
        path.length = u8::try_from(part.len()).expect("at most 18 nibbles");
        path
    }

    /// Returns the encoding of a path (hex prefix), with the flag of a leaf or without, and its length.
    fn with_prefix(&self, is_leaf: bool) -> ([u8; NIBBLES / 2 + 1], usize) {
        let nibbles = self.as_slice();
        let flag = if is_leaf { 0x20 } else { 0 };
        let (first, rest) = match nibbles.split_first() {
            Some((first, rest)) if nibbles.len() % 2 == 1 => (flag | 0x10 | first, rest),
            _ => (flag, nibbles),
        };
        let mut bytes = [0; NIBBLES / 2 + 1];
        bytes[0] = first;
        let pairs = rest.as_chunks::<2>().0;
        for (byte, [high, low]) in bytes[1..].iter_mut().zip(pairs) {
            *byte = high << 4 | low;
        }
        (bytes, 1 + pairs.len())
    }
}

impl OrderedTries {
    /// Builds the trie of each list of items.
    pub(crate) fn of<I: Items + ?Sized>(backend: Backend, lists: &[&I]) -> Self {
        let items = lists.iter().map(|items| items.count()).sum::<usize>();
        let mut tries = Self {
            nodes: Vec::with_capacity(items + items / 8 + 2 * lists.len()),
            roots: Vec::with_capacity(lists.len()),
        };
        let mut heights: Vec<Vec<u32>> = Vec::new();
        for (list, items) in (0_u32..).zip(lists) {
            let keys = sorted_keys(items.count());
            let root = (!keys.is_empty()).then(|| tries.add(list, &keys, 0, &mut heights).0);
            if let Some(root) = root {
                tries.nodes[root as usize].is_root = true;
            }
            tries.roots.push(root);
        }
        let mut buffers = Buffers::default();
        for nodes in heights.iter().flat_map(|nodes| nodes.chunks(BATCH)) {
            tries.hash(backend, nodes, lists, &mut buffers);
        }
        tries
    }

    /// Adds the nodes of keys that have their first `depth` nibbles in common. Returns the topmost node, and
    /// its height.
    fn add(
        &mut self,
        list: u32,
        keys: &[(Path, u32)],
        depth: usize,
        heights: &mut Vec<Vec<u32>>,
    ) -> (u32, usize) {
        let [(first, _), .., (last, _)] = keys else {
            let (key, item) = keys[0]; // there is one
            let path = key.part(depth..usize::from(key.length));
            return (self.push(Kind::Leaf { path, list, item }, 0, heights), 0);
        };
        let (first, last) = (first.as_slice(), last.as_slice());
        // Keys are sorted, so what the first and the last one have in common, all have.
        let common = first.iter().zip(last).take_while(|(one, other)| one == other).count();
        let (mut children, mut height) = ([NONE; 16], 0);
        // No key is the beginning of another one, so each has a nibble here.
        for group in
            keys.chunk_by(|(one, _), (other, _)| one.nibbles[common] == other.nibbles[common])
        {
            let nibble = usize::from(group[0].0.nibbles[common]);
            let (child, below) = self.add(list, group, common + 1, heights);
            children[nibble % 16] = child;
            height = height.max(below + 1);
        }
        let branch = self.push(Kind::Branch { children }, height, heights);
        if common == depth {
            return (branch, height);
        }
        let path = keys[0].0.part(depth..common);
        (self.push(Kind::Extension { path, child: branch }, height + 1, heights), height + 1)
    }

    fn push(&mut self, kind: Kind, height: usize, heights: &mut Vec<Vec<u32>>) -> u32 {
        let node = u32::try_from(self.nodes.len()).expect("fewer than 2^32 items are in memory");
        if heights.len() <= height {
            heights.resize_with(height + 1, Vec::new);
        }
        heights[height].push(node);
        let reference = Reference { bytes: [0; HASH + 1], length: 0 };
        self.nodes.push(Node { kind, is_root: false, reference });
        node
    }

    /// Encodes and hashes some nodes, whose children are hashed.
    fn hash<I: Items + ?Sized>(
        &mut self,
        backend: Backend,
        nodes: &[u32],
        lists: &[&I],
        Buffers { scratch, encodings, hashed }: &mut Buffers,
    ) {
        encodings.clear();
        for &node in nodes {
            let start = encodings.len();
            let Node { kind, is_root, .. } = &self.nodes[node as usize];
            encode(&self.nodes, kind, lists, scratch, encodings);
            let encoding = &encodings[start..];
            if encoding.len() >= HASH || *is_root {
                hashed.push((node, start..encodings.len()));
                continue;
            }
            let reference = &mut self.nodes[node as usize].reference;
            reference.bytes[..encoding.len()].copy_from_slice(encoding);
            reference.length = u8::try_from(encoding.len()).expect("below 32");
        }
        let messages: Vec<_> = hashed.iter().map(|(_, at)| &encodings[at.clone()]).collect();
        let hashes = keccak256_each(backend, &messages);
        for ((node, _), hash) in hashed.drain(..).zip(hashes) {
            let reference = &mut self.nodes[node as usize].reference;
            reference.bytes[0] = EMPTY_STRING_CODE + 32;
            reference.bytes[1..].copy_from_slice(&hash);
            reference.length = 33;
        }
    }

    /// Returns the root of a list.
    pub(crate) fn root(&self, list: usize) -> B256 {
        let hash = |root: u32| B256::from_slice(&self.nodes[root as usize].reference.bytes[1..]);
        self.roots[list].map_or(EMPTY_ROOT_HASH, hash)
    }

    /// Returns the nodes from the root of a list to an item, which it must have. A node that is part of its
    /// parent is left out. The lists are those of the tries.
    pub(crate) fn path<I: Items + ?Sized>(
        &self,
        lists: &[&I],
        list: usize,
        item: u64,
    ) -> Vec<Bytes> {
        let key = Path::key(item);
        let (mut next, mut depth, mut nodes) = (self.roots[list], 0, Vec::new());
        let mut scratch = Vec::new();
        while let Some(at) = next {
            let Node { kind, reference, .. } = &self.nodes[at as usize];
            if reference.length == 33 {
                let mut encoding = Vec::new();
                encode(&self.nodes, kind, lists, &mut scratch, &mut encoding);
                nodes.push(encoding.into());
            }
            (next, depth) = match kind {
                Kind::Leaf { .. } => (None, depth),
                Kind::Extension { path, child } => (Some(*child), depth + usize::from(path.length)),
                Kind::Branch { children } => {
                    let child = children[usize::from(key.nibbles[depth]) % 16];
                    (Some(child).filter(|child| *child != NONE), depth + 1)
                }
            };
        }
        nodes
    }
}

/// Returns the keys of a list in ascending order, each with the index of its item.
fn sorted_keys(items: usize) -> Vec<(Path, u32)> {
    let items = u32::try_from(items).expect("fewer than 2^32 items are in memory");
    // The RLP of 0 is 0x80. It follows those of 1 to 127, and comes before those of greater numbers.
    let order = (1..items.min(128)).chain(0..items.min(1)).chain(128..items.max(128));
    order.map(|item| (Path::key(item.into()), item)).collect()
}

/// Appends the encoding of a node, whose children have their references.
fn encode<I: Items + ?Sized>(
    nodes: &[Node],
    kind: &Kind,
    lists: &[&I],
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    let mut list = |payload_length| Header { list: true, payload_length }.encode(out);
    match kind {
        Kind::Leaf { path, list: of, item } => {
            let (path, length) = path.with_prefix(true);
            let (path, value) = (&path[..length], lists[*of as usize].item(*item, scratch));
            list(path.length() + value.length());
            path.encode(out);
            value.encode(out);
        }
        Kind::Extension { path, child } => {
            let (path, length) = path.with_prefix(false);
            let (path, child) = (&path[..length], &nodes[*child as usize].reference);
            list(path.length() + usize::from(child.length));
            path.encode(out);
            out.extend_from_slice(&child.bytes[..usize::from(child.length)]);
        }
        Kind::Branch { children } => {
            let reference = |child: &u32| match *child {
                NONE => &[EMPTY_STRING_CODE][..],
                child => {
                    let Reference { bytes, length } = &nodes[child as usize].reference;
                    &bytes[..usize::from(*length)]
                }
            };
            // No key ends here, so the value is empty.
            list(children.iter().map(|child| reference(child).len()).sum::<usize>() + 1);
            for child in children {
                out.extend_from_slice(reference(child));
            }
            out.push(EMPTY_STRING_CODE);
        }
    }
}

/// The result of a node for a key.
#[derive(Debug)]
pub(crate) enum TrieStep {
    /// The path continues at the node with this hash.
    Down(B256),
    /// The node has the leaf of the key, with this value.
    Value(Vec<u8>),
    /// The trie does not have the key.
    Absent,
}

/// Follows the path to `key` through one node, which starts after `walked` nibbles of the key.
///
/// A node of less than 32 bytes is embedded in its parent in place of its hash. Such nodes are part
/// of the step. The caller has compared the hash of the node with the hash in its parent. `walked`
/// grows by the nibbles that the step consumes.
///
/// # Errors
/// Returns an error if the bytes are not a trie node.
pub(crate) fn step(rlp: &[u8], key: &Nibbles, walked: &mut usize) -> alloy_rlp::Result<TrieStep> {
    let mut node = TrieNode::decode(&mut &rlp[..])?;
    // An embedded node is shorter than the node that embeds it, so this ends.
    loop {
        let rest = key.slice(*walked..);
        let child = match node {
            TrieNode::Leaf(leaf) if leaf.key == rest => return Ok(TrieStep::Value(leaf.value)),
            TrieNode::Extension(extension) if rest.starts_with(&extension.key) => {
                *walked += extension.key.len();
                Some(extension.child)
            }
            TrieNode::Branch(branch) => {
                *walked += 1;
                rest.first().and_then(|next| child(&branch, next))
            }
            TrieNode::Leaf(_) | TrieNode::Extension(_) | TrieNode::EmptyRoot => None,
        };
        let Some(child) = child else { return Ok(TrieStep::Absent) };
        if let Some(hash) = child.as_hash() {
            return Ok(TrieStep::Down(hash));
        }
        node = TrieNode::decode(&mut child.as_slice())?;
    }
}

/// Returns a branch's child at this nibble.
fn child(branch: &BranchNode, nibble: u8) -> Option<RlpNode> {
    let branch = branch.as_ref();
    branch.children().find_map(|(at, child)| child.filter(|_| at == nibble).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_trie::root::ordered_trie_root_with_encoder;

    /// Returns items of random lengths. Some lists have such short items that nodes are part of others.
    fn items(count: usize) -> Vec<Vec<u8>> {
        let mut rng = testkit::Rng::new(count as u64);
        let longest = [3, 40, 700][rng.below(3)];
        let mut item = || {
            let length = rng.below(longest);
            rng.bytes(length)
        };
        (0..count).map(|_| item()).collect()
    }

    fn root_by_alloy(items: &[Vec<u8>]) -> B256 {
        ordered_trie_root_with_encoder(items, |item, out| out.extend_from_slice(item))
    }

    #[test]
    fn roots_are_those_of_another_implementation() {
        let counts: Vec<usize> = (0..300).chain([1_000, 65_535, 65_536, 65_700]).collect();
        for backend in Backend::available() {
            for counts in counts.chunks(50) {
                let lists: Vec<_> = counts.iter().map(|&count| items(count)).collect();
                let views: Vec<_> = lists.iter().map(Vec::as_slice).collect();
                let tries = OrderedTries::of(backend, &views);
                for (list, items) in lists.iter().enumerate() {
                    assert_eq!(tries.root(list), root_by_alloy(items), "{} items", items.len());
                }
            }
        }
    }
}
