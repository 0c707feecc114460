//! Answers of servers of metrics: of a list of values no more than is used, and no more values than there can be pods. Pure.

use super::Sample;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proto::api::quantity::Quantity;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::fmt;

/// What a sample is of that says nothing of its window.
const WINDOW: SignedDuration = SignedDuration::from_mins(1);
/// Values of one answer; no target has more pods.
const ITEMS_MAX: usize = 50_000;

/// A list of values.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    #[serde(default, deserialize_with = "few")]
    pub(super) items: Vec<Item>,
}

/// One value, as any version of the APIs has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item {
    described_object: Option<Described>,
    timestamp: Option<String>,
    window_seconds: Option<i64>,
    window: Option<i64>,
    #[serde(default, deserialize_with = "amount")]
    value: String,
}

#[derive(Debug, Deserialize)]
struct Described {
    #[serde(default)]
    name: String,
}

impl Item {
    /// Its value, in thousandths.
    pub(super) fn milli(&self) -> Result<i64, String> {
        let value = &self.value;
        let read = Quantity::parse(value).map_err(|error| format!("a metric's value {value:?}: {error}"))?;
        Ok(read.milli_value())
    }

    /// A pod's name and what it was found to do.
    pub(super) fn sample(&self) -> Result<(String, Sample), String> {
        let name = self.described_object.as_ref().map(|object| object.name.clone());
        let at = self.timestamp.as_deref().and_then(|text| text.parse().ok());
        // Each version calls it differently.
        let window = self.window_seconds.or(self.window);
        let sample = Sample {
            at: at.unwrap_or(Timestamp::UNIX_EPOCH),
            window: window.map_or(WINDOW, SignedDuration::from_secs),
            milli: self.milli()?,
        };
        Ok((name.unwrap_or_default(), sample))
    }
}

struct Items;

impl<'de> Visitor<'de> for Items {
    type Value = Vec<Item>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {ITEMS_MAX} values")
    }

    // Go says so of an empty list.
    fn visit_unit<E: Error>(self) -> Result<Vec<Item>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Vec<Item>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = values.next_element()? {
            if items.len() == ITEMS_MAX {
                return Err(Error::invalid_length(ITEMS_MAX + 1, &self));
            }
            items.push(item);
        }
        Ok(items)
    }
}

fn few<'de, D: Deserializer<'de>>(values: D) -> Result<Vec<Item>, D::Error> {
    values.deserialize_any(Items)
}

struct Amount;

impl Visitor<'_> for Amount {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

fn amount<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    value.deserialize_any(Amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(list: Value) -> Result<Vec<i64>, String> {
        let listed: Listed = serde_json::from_value(list).map_err(|error| error.to_string())?;
        listed.items.iter().map(Item::milli).collect()
    }

    #[test]
    fn values_are_quantities() {
        let of = |value: Value| read(json!({"items": [{"value": value, "metricLabels": {"any": [1]}}]}));
        for (value, milli) in [
            (json!("1500m"), 1_500),
            (json!(2), 2_000),
            (json!(-2), -2_000),
            (json!(0.5), 500),
        ] {
            assert_eq!(of(value.clone()), Ok(vec![milli]), "{value}");
        }
        for value in [json!([]), json!({"a": 1}), json!(null), json!(true)] {
            let error = of(value.clone()).unwrap_err();
            assert!(error.contains("expected a quantity"), "{value}: {error}");
        }
        assert!(read(json!({"items": [{}]})).is_err());
        for none in [json!({"items": null}), json!({"items": []}), json!({})] {
            assert_eq!(read(none), Ok(Vec::new()));
        }
    }

    #[test]
    fn an_answer_has_no_more_values_than_there_can_be_pods() {
        let items = |number: usize| json!({"items": vec![json!({"value": 1}); number]});
        assert_eq!(read(items(ITEMS_MAX)).map(|values| values.len()), Ok(ITEMS_MAX));
        let error = read(items(ITEMS_MAX + 1)).unwrap_err();
        assert!(error.contains("at most 50000 values"), "{error}");
    }
}
