//! Values as JSON.

use serde::Serialize;

/// A value of Windlass as JSON. The only thing that JSON cannot take is a map with keys other than
/// texts, and no type of Windlass has one.
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).expect("Windlass's own types can be written as JSON")
}
