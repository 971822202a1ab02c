//! The custom resource definition: what the derives cannot express.
//!
//! Pieces of schema used by the types, and [`definition`], which is what is installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{CustomResourceExt, core::Rule};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::{quantity, spec::OrderedPartitionSet};

/// A rule with its message.
pub(crate) fn rule(expression: &str, message: &str) -> Rule {
    Rule::new(expression).message(message)
}

/// A list of 1 to 32 texts of up to 512 characters. Without such bounds the API server refuses the definition for
/// the estimated cost of its rules.
pub(crate) fn bounded_strings(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 512},
        "minItems": 1,
        "maxItems": 32,
        "x-kubernetes-list-type": "atomic",
    })
}

/// Token numbers. Atomic, because their order decides the hash.
pub(crate) fn key_tokens(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 256},
        "minItems": 1,
        "maxItems": 32,
        "x-kubernetes-list-type": "atomic",
    })
}

/// Any object, kept as it was written.
pub(crate) fn raw_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Amounts of resources by name.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": quantity::PATTERN,
        },
    })
}

/// A point in time, as RFC 3339.
pub(crate) fn moment(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// `metav1.Condition`, one of each type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {"type": "string", "maxLength": 32768},
            },
        },
    })
}

/// The definition as it is installed.
///
/// The derives make optional fields `nullable`; that is taken away, so that an explicit `null` is the same as
/// leaving the field out (API servers drop it before defaults are filled in) and no rule meets a null.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = OrderedPartitionSet::crd();
    for version in &mut definition.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            forbid_null(root);
        }
    }
    definition
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        forbid_null(property);
    }
    match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(items)) => forbid_null(items),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(forbid_null),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = schema.additional_properties.as_mut() {
        forbid_null(values);
    }
}
