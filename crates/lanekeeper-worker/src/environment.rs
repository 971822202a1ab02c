//! What a worker is told by its environment, and nothing else: everything about the lane comes from the assignment.

use std::collections::BTreeMap;

use lanekeeper_core::names::{DEFAULT_BUCKET, SetName};
use lanekeeper_nats::{ConnectSettings, Files};

use crate::exec::ExecHandler;

const PREFIX: &str = "LANEKEEPER_";

/// A variable that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// Not given, or empty.
    #[error("{variable} is not set: it must be {allowed}")]
    Missing {
        /// Its name.
        variable: String,
        /// What it must be.
        allowed: &'static str,
    },
    /// Given, and not as it must be.
    #[error("{variable} is '{value}': it must be {allowed}")]
    Wrong {
        /// Its name.
        variable: String,
        /// As given.
        value: String,
        /// What it must be.
        allowed: &'static str,
    },
}

/// Where the handler is, when the environment says so; who embeds a handler needs neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HandlerVariable {
    Url(String),
    Exec(Vec<String>),
}

/// Everything that the environment says.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub(crate) set: SetName,
    pub(crate) partition: u32,
    pub(crate) pod: String,
    pub(crate) stream: String,
    pub(crate) bucket: String,
    pub(crate) handler: Option<HandlerVariable>,
    pub(crate) connect: ConnectSettings,
}

impl Environment {
    pub(crate) fn read(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, EnvironmentError> {
        let given: BTreeMap<String, String> = variables
            .into_iter()
            .filter_map(|(name, value)| {
                Some((name.strip_prefix(PREFIX)?.to_owned(), value.trim().to_owned()))
            })
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let variable = |name: &str| format!("{PREFIX}{name}");
        let optional = |name: &str| given.get(name).cloned();
        let required = |name: &str, allowed| {
            optional(name).ok_or_else(|| EnvironmentError::Missing { variable: variable(name), allowed })
        };
        if let Some(value) = optional("CONSUMER") {
            let allowed = "absent: the consumer comes from the partition's assignment, or the worker could not follow a change";
            return Err(EnvironmentError::Wrong { variable: variable("CONSUMER"), value, allowed });
        }
        let set = SetName::new(
            required("NAMESPACE", "the namespace of the set")?,
            required("SET", "the name of the OrderedPartitionSet")?,
        );
        let allowed = "the number of the partition, from 0";
        let partition = required("PARTITION", allowed)?;
        let partition = partition.parse().map_err(|_| EnvironmentError::Wrong {
            variable: variable("PARTITION"),
            value: partition,
            allowed,
        })?;
        let pod = required("POD", "the name of the pod")?;
        let stream = required("STREAM", "the name of the stream")?;
        let allowed = "servers separated by commas, each nats://host:port or tls://host:port";
        let servers = required("NATS_SERVERS", allowed)?;
        let servers: Vec<String> = servers.split(',').map(|server| server.trim().to_owned()).collect();
        if let Some(wrong) =
            servers.iter().find(|server| !server.starts_with("nats://") && !server.starts_with("tls://"))
        {
            let (variable, value) = (variable("NATS_SERVERS"), wrong.clone());
            return Err(EnvironmentError::Wrong { variable, value, allowed });
        }
        let folder = |name: &str| optional(name).map_or(Files::None, |folder| Files::Folder(folder.into()));
        let mut connect = ConnectSettings::new(servers, format!("lanekeeper-worker {set} {partition} {pod}"));
        connect.credentials = folder("NATS_AUTH_DIR");
        connect.tls = folder("TLS_DIR");
        connect.domain = optional("NATS_DOMAIN");
        Ok(Self {
            set,
            partition,
            pod,
            stream,
            bucket: optional("BUCKET").unwrap_or_else(|| DEFAULT_BUCKET.to_owned()),
            handler: handler(optional("HANDLER_URL"), optional("HANDLER_EXEC"))?,
            connect,
        })
    }
}

fn handler(url: Option<String>, exec: Option<String>) -> Result<Option<HandlerVariable>, EnvironmentError> {
    let wrong = |value, allowed| {
        Err(EnvironmentError::Wrong { variable: format!("{PREFIX}HANDLER_EXEC"), value, allowed })
    };
    match (url, exec) {
        (None, None) => Ok(None),
        (Some(url), None) => Ok(Some(HandlerVariable::Url(url))),
        (Some(_), Some(exec)) => {
            wrong(exec, "absent where LANEKEEPER_HANDLER_URL is given: there is one handler")
        }
        (None, Some(exec)) => match serde_json::from_str::<Vec<String>>(&exec) {
            Ok(command) if ExecHandler::is_command(&command) => Ok(Some(HandlerVariable::Exec(command))),
            _ => wrong(
                exec,
                "a JSON list of 1 to 64 texts, the program and its arguments, such as [\"python3\",\"/app/handle.py\"]",
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Vec<(String, String)> {
        [
            ("LANEKEEPER_NAMESPACE", "shop"),
            ("LANEKEEPER_SET", "orders"),
            ("LANEKEEPER_PARTITION", "3"),
            ("LANEKEEPER_POD", "orders-3-abc"),
            ("LANEKEEPER_STREAM", "ORDERS"),
            ("LANEKEEPER_NATS_SERVERS", "nats://a:4222, tls://b:4222"),
            ("LANEKEEPER_HANDLER_URL", "http://127.0.0.1:8080/"),
            ("LANEKEEPER_NATS_DOMAIN", ""),
            ("PATH", "/bin"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    #[test]
    fn a_complete_environment_is_read() {
        let read = Environment::read(complete()).unwrap();
        assert_eq!((read.partition, read.set.to_string()), (3, "shop/orders".into()));
        assert_eq!(read.connect.servers, ["nats://a:4222", "tls://b:4222"]);
        assert_eq!((read.connect.domain, read.bucket.as_str()), (None, "lanekeeper"));
    }

    fn with_exec(command: &str) -> Result<Environment, EnvironmentError> {
        let without = complete().into_iter().filter(|(name, _)| name != "LANEKEEPER_HANDLER_URL");
        Environment::read(without.chain([("LANEKEEPER_HANDLER_EXEC".to_owned(), command.to_owned())]))
    }

    #[test]
    fn a_program_is_a_list_of_texts_and_nothing_else() {
        let read = with_exec(r#" ["python3", "/app/a b.py", ""] "#).unwrap();
        let command = ["python3", "/app/a b.py", ""].map(str::to_owned).to_vec();
        assert_eq!(read.handler, Some(HandlerVariable::Exec(command)));
        let long = format!("[{}]", vec![r#""x""#; 65].join(","));
        for wrong in
            ["python3", "[]", r#"[""]"#, r#"["a", 1]"#, r#"{"command": ["a"]}"#, r#"["a\u0000"]"#, &long]
        {
            let error = with_exec(wrong).unwrap_err().to_string();
            assert!(error.starts_with("LANEKEEPER_HANDLER_EXEC is '"), "{error}");
            assert!(error.contains("it must be a JSON list of 1 to 64 texts"), "{error}");
        }
        let both =
            complete().into_iter().chain([("LANEKEEPER_HANDLER_EXEC".to_owned(), r#"["a"]"#.to_owned())]);
        let error = Environment::read(both).unwrap_err().to_string();
        assert!(error.contains("must be absent where LANEKEEPER_HANDLER_URL is given"), "{error}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_with_what_is_allowed() {
        for name in ["NAMESPACE", "SET", "PARTITION", "POD", "STREAM", "NATS_SERVERS"] {
            let variable = format!("LANEKEEPER_{name}");
            let without = complete().into_iter().filter(|(given, _)| *given != variable);
            let error = Environment::read(without).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{variable} is not set: it must be")), "{error}");
        }
        for (name, value) in
            [("PARTITION", "-1"), ("NATS_SERVERS", "a:4222"), ("CONSUMER", "lk_shop_orders_3_1")]
        {
            let wrong = complete().into_iter().chain([(format!("LANEKEEPER_{name}"), value.to_owned())]);
            let error = Environment::read(wrong).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("LANEKEEPER_{name} is '{value}': it must be")),
                "{error}"
            );
        }
    }
}
