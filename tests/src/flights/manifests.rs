//! The example's manifests as values, with images and namespace put in, and changes of a test made by pointer.
//!
//! Read as YAML and handed on as JSON: kubectl gets what the files say, never what a type of ours kept of it.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{cluster::repository, images::Images};

/// The example in one namespace.
#[derive(Debug, Clone)]
pub struct Manifests {
    /// The namespace, restricted as in the example.
    pub namespace: Value,
    /// NATS.
    pub nats: Vec<Value>,
    /// The set.
    pub set: Value,
}

impl Manifests {
    /// The files of `examples/flights`, for these images.
    pub fn of_example(images: &Images) -> Result<Self> {
        let one = |file: &str| {
            let mut all = read(file)?;
            ensure!(all.len() == 1, "{file} has {} documents, one was expected", all.len());
            Ok(all.remove(0))
        };
        let mut manifests = Self {
            namespace: one("namespace.yaml")?,
            nats: read("nats.yaml")?,
            set: one("orderedpartitionset.yaml")?,
        };
        let handler = "/spec/worker/podTemplate/spec/containers/0/image";
        put(&mut manifests.set, handler, json!(images.flights.image))?;
        for object in manifests.nats.iter_mut().filter(|object| object["kind"] == "StatefulSet") {
            put(object, "/spec/template/spec/containers/0/image", json!(images.nats.image))?;
        }
        Ok(manifests)
    }

    /// The same in another namespace.
    pub fn in_namespace(mut self, namespace: &str) -> Result<Self> {
        put(&mut self.namespace, "/metadata/name", json!(namespace))?;
        for object in self.nats.iter_mut().chain([&mut self.set]) {
            put(object, "/metadata/namespace", json!(namespace))?;
        }
        let servers = json!([format!("nats://nats.{namespace}:4222")]);
        put(&mut self.set, "/spec/nats/servers", servers)?;
        Ok(self)
    }
}

/// Puts a value where a JSON pointer says; the place's parent must exist.
pub fn put(object: &mut Value, pointer: &str, value: Value) -> Result<()> {
    let (parent, name) = pointer.rsplit_once('/').context("a pointer begins with /")?;
    let parent =
        object.pointer_mut(parent).with_context(|| format!("there is no {parent} to put {name} into"))?;
    match parent {
        Value::Object(map) => {
            map.insert(name.to_owned(), value);
        }
        Value::Array(list) => {
            let index: usize = name.parse().with_context(|| format!("{name} is no index"))?;
            *list.get_mut(index).with_context(|| format!("there is no {pointer}"))? = value;
        }
        other => anyhow::bail!("{other} at {pointer} has no parts"),
    }
    Ok(())
}

fn read(file: &str) -> Result<Vec<Value>> {
    let path = repository().join("examples/flights").join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).with_context(|| format!("reading {}", path.display())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{NAMESPACE, SET, STREAM},
        *,
    };
    use crate::images::{Image, Program};

    fn images() -> Images {
        let image = |name: &str| Image { image: format!("localhost/{name}:dev-1"), archive: "none".into() };
        let plugin = Program { program: "none".into() };
        Images {
            operator: image("operator"),
            worker: image("worker"),
            flights: image("flights"),
            nats: image("nats"),
            plugin,
        }
    }

    #[test]
    fn the_example_is_rendered_for_its_images() {
        let manifests = Manifests::of_example(&images()).unwrap();
        let text = json!([manifests.nats, manifests.set]).to_string();
        assert!(text.contains("localhost/flights:dev-1") && text.contains("localhost/nats:dev-1"), "{text}");
        assert!(
            !text.contains(":dev\"") && !text.contains("nats-server:2.15"),
            "an image was left as it was: {text}"
        );
        assert_eq!(
            (&manifests.namespace["metadata"]["name"], &manifests.set["metadata"]["name"]),
            (&json!(NAMESPACE), &json!(SET))
        );
        assert_eq!(manifests.set["spec"]["stream"]["name"], STREAM);
    }

    #[test]
    fn another_namespace_is_put_in_everywhere() {
        let manifests = Manifests::of_example(&images()).unwrap().in_namespace("story").unwrap();
        let text = json!([manifests.namespace, manifests.nats, manifests.set]).to_string();
        assert!(text.contains("nats://nats.story:4222"), "{text}");
        assert!(!text.contains(r#""namespace":"flights""#) && !text.contains("nats.flights"), "{text}");
    }

    #[test]
    fn a_place_that_does_not_exist_is_an_error() {
        let mut object = json!({"spec": {"list": [1]}});
        put(&mut object, "/spec/list/0", json!(2)).unwrap();
        put(&mut object, "/spec/new", json!(3)).unwrap();
        assert_eq!(object, json!({"spec": {"list": [2], "new": 3}}));
        assert!(put(&mut object, "/other/new", json!(4)).unwrap_err().to_string().contains("no /other"));
        assert!(put(&mut object, "/spec/list/7", json!(4)).is_err());
    }
}
