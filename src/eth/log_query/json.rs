//! Queries as JSON: parsed by the rules of nodes, written in one canonical form.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::str::FromStr;

use alloy_primitives::{Address, B256, U64};
use serde::de::{DeserializeSeed as _, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::blocks::{BlockSelection, BlockTag};
use super::topics::TopicSet;
use super::{LogQuery, MAX_TOPICS, QueryError, Semantics};
use crate::eth::json::{
    Fields, JsonPath, ObjectOf, Prefix, Shape, ValueProblem, excerpt, fixed_bytes, number,
};

/// The fields of a query in JSON.
const FIELDS: [&str; 5] = ["blockHash", "fromBlock", "toBlock", "address", "topics"];

/// The largest block number that geth accepts: its block numbers are signed 64-bit integers.
const GETH_MAX_BLOCK: u64 = i64::MAX as u64;

/// Returns a function that converts a problem with the value at this position to an error.
fn wrong(place: JsonPath) -> impl Fn(ValueProblem) -> QueryError {
    move |problem| QueryError::Value { place, problem }
}

impl LogQuery {
    /// Parses the object that `eth_getLogs` accepts as its argument, by the rules of geth or alloy
    /// (see the [module](crate::eth::log_query)).
    ///
    /// Memory use is at most about 50 times the length of the text, even for hostile input.
    ///
    /// # Errors
    /// Returns an error if the text is not a query; the error names the invalid field and the
    /// indices of the value in the field.
    pub fn from_json(text: &str, semantics: Semantics) -> Result<Self, QueryError> {
        let syntax = |error: serde_json::Error| QueryError::Syntax(error.to_string());
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = ObjectOf(FIELDS).deserialize(&mut json).map_err(syntax)?;
        json.end().map_err(syntax)?;
        Self::from_fields(fields, semantics)
    }

    fn from_fields(fields: Fields<5>, semantics: Semantics) -> Result<Self, QueryError> {
        if let Some(found) = fields.not_an_object {
            return Err(QueryError::NotAnObject(found));
        }
        if let Some((found, field)) = fields.misspelt {
            return Err(QueryError::FieldCase { found, field });
        }
        if let Some(field) = fields.duplicate {
            return Err(QueryError::DuplicateField(field));
        }
        if let (Some(field), Semantics::Alloy) = (fields.unknown, semantics) {
            return Err(QueryError::UnknownField(field));
        }
        let [hash, from, to, address, topics] =
            fields.values.map(|value| value.filter(|value| !value.is_null()));
        let read = Reader { semantics };
        let blocks = match (hash, from, to) {
            (Some(hash), None, None) => BlockSelection::AtHash(read.hash(&hash)?),
            (Some(_), ..) => return Err(QueryError::HashAndRange),
            (None, from, to) => BlockSelection::Range {
                from: from
                    .map(|block| read.block(&block, JsonPath::of("fromBlock")))
                    .transpose()?,
                to: to.map(|block| read.block(&block, JsonPath::of("toBlock"))).transpose()?,
            },
        };
        let addresses = address.map_or(Ok(Vec::new()), |address| read.addresses(&address))?;
        let positions = topics.map_or(Ok(Vec::new()), |topics| read.topics(&topics))?;
        let query = Self::of(blocks).addresses(addresses);
        Ok(positions
            .into_iter()
            .enumerate()
            .fold(query, |query, (position, topics)| query.topic(position, topics)))
    }

    /// Returns the query in its canonical form, which is byte for byte equal for equal queries.
    ///
    /// Certificates commit to this form. The form has no white space. The fields have this order:
    ///
    /// - `blockHash`; or `fromBlock` and `toBlock`, each only if the query has it.
    /// - `address`: a list, left out for "any".
    /// - `topics`: left out if there are no positions. Each position is a list, or `null` for
    ///   "any". Positions at the end that are "any" are included.
    ///
    /// Sets are sorted and have no duplicates. Hex is lower-case. Numbers have no leading zeros.
    ///
    /// Both [`Semantics`] parse this form as the same query, with one exception: geth rejects a
    /// block number above 2^63 − 1.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and lists of them")
    }
}

impl Serialize for LogQuery {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Written<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            block_hash: Option<B256>,
            #[serde(skip_serializing_if = "Option::is_none")]
            from_block: Option<BlockTag>,
            #[serde(skip_serializing_if = "Option::is_none")]
            to_block: Option<BlockTag>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            address: &'a [Address],
            #[serde(skip_serializing_if = "Vec::is_empty")]
            topics: Vec<Option<&'a [B256]>>,
        }
        let (block_hash, from_block, to_block) = match *self.blocks() {
            BlockSelection::AtHash(hash) => (Some(hash), None, None),
            BlockSelection::Range { from, to } => (None, from, to),
        };
        let topics =
            self.topics().iter().map(|set| Some(set.values()).filter(|set| !set.is_empty()));
        let (address, topics) = (self.address_set(), topics.collect());
        Written { block_hash, from_block, to_block, address, topics }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LogQuery {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_query(deserializer)?.map_err(D::Error::custom)
    }
}

/// Parses a query by alloy's rules. For the canonical form geth's rules give the same result.
pub(crate) fn read_query<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Result<LogQuery, QueryError>, D::Error> {
    let fields = ObjectOf(FIELDS).deserialize(deserializer)?;
    Ok(LogQuery::from_fields(fields, Semantics::Alloy))
}

impl Serialize for BlockTag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => U64::from(*number).serialize(serializer),
            tag => tag.name().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for BlockTag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// Reads a string of JSON-RPC: a tag, or a number in hex with `0x`.
impl FromStr for BlockTag {
    type Err = ValueProblem;

    fn from_str(text: &str) -> Result<Self, ValueProblem> {
        Reader { semantics: Semantics::Alloy }.block_of(text)
    }
}

/// Parses the values of one query.
struct Reader {
    semantics: Semantics,
}

impl Reader {
    fn prefix(&self) -> Prefix {
        match self.semantics {
            Semantics::Geth => Prefix::Required,
            Semantics::Alloy => Prefix::Optional,
        }
    }

    fn hash(&self, value: &Shape) -> Result<B256, QueryError> {
        let read = |text| fixed_bytes(text, self.prefix(), "a block hash");
        value
            .text("a block hash in hex")
            .and_then(read)
            .map(B256::new)
            .map_err(wrong(JsonPath::of("blockHash")))
    }

    fn block(&self, value: &Shape, place: JsonPath) -> Result<BlockTag, QueryError> {
        value
            .text("a block number in hex or a tag")
            .and_then(|text| self.block_of(text))
            .map_err(wrong(place))
    }

    fn block_of(&self, text: &str) -> Result<BlockTag, ValueProblem> {
        let (tag, zeros, limit) = match self.semantics {
            Semantics::Geth => (BlockTag::by_name(text), false, GETH_MAX_BLOCK),
            Semantics::Alloy => (BlockTag::by_name(&text.to_lowercase()), true, u64::MAX),
        };
        if let Some(tag) = tag {
            return Ok(tag);
        }
        match number(text, zeros) {
            Ok(number) if number > limit => {
                Err(ValueProblem::TooLarge { text: excerpt(text), limit })
            }
            Ok(number) => Ok(BlockTag::Number(number)),
            Err(ValueProblem::NoPrefix { text }) => Err(ValueProblem::NotABlock { text }),
            Err(problem) => Err(problem),
        }
    }

    fn addresses(&self, value: &Shape) -> Result<Vec<Address>, QueryError> {
        let place = JsonPath::of("address");
        let Shape::List(values) = value else {
            let address = value.text("an address or a list of addresses");
            return Ok(Vec::from([address
                .and_then(|text| self.address(text))
                .map_err(wrong(place))?]));
        };
        let mut addresses = Vec::with_capacity(values.len());
        let mut any = false;
        for (index, value) in values.iter().enumerate() {
            // alloy reads a list with a null as "any"; geth rejects the null.
            if self.semantics == Semantics::Alloy && value.is_null() {
                any = true;
                continue;
            }
            let address = value.text("an address").and_then(|text| self.address(text));
            addresses.push(address.map_err(wrong(place.at(index)))?);
        }
        if any {
            addresses.clear();
        }
        Ok(addresses)
    }

    fn address(&self, text: &str) -> Result<Address, ValueProblem> {
        fixed_bytes(text, self.prefix(), "an address").map(Address::new)
    }

    fn topics(&self, value: &Shape) -> Result<Vec<TopicSet>, QueryError> {
        let place = JsonPath::of("topics");
        let Shape::List(positions) = value else {
            return Err(wrong(place)(value.instead_of("a list")));
        };
        if positions.len() > MAX_TOPICS {
            return Err(QueryError::TooManyPositions { found: positions.len() });
        }
        let positions = positions.iter().enumerate();
        positions.map(|(at, position)| self.position(position, place.at(at))).collect()
    }

    fn position(&self, value: &Shape, place: JsonPath) -> Result<TopicSet, QueryError> {
        let values = match value {
            Shape::Null => return Ok(TopicSet::any()),
            Shape::List(values) => values,
            single => {
                let topic = single.text("a topic, a list of topics or null");
                let topic = topic.and_then(|text| self.topic(text)).map_err(wrong(place))?;
                return Ok(TopicSet::from(topic));
            }
        };
        let mut topics = Vec::with_capacity(values.len());
        let mut any = false;
        for (index, value) in values.iter().enumerate() {
            if value.is_null() {
                any = true;
                match self.semantics {
                    // geth does not read the values after a null, so they may be invalid.
                    Semantics::Geth => break,
                    Semantics::Alloy => continue,
                }
            }
            let topic = value.text("a topic or null").and_then(|text| self.topic(text));
            topics.push(topic.map_err(wrong(place.at(index)))?);
        }
        Ok(if any { TopicSet::any() } else { topics.into() })
    }

    fn topic(&self, text: &str) -> Result<B256, ValueProblem> {
        fixed_bytes(text, self.prefix(), "a topic").map(B256::new)
    }
}
